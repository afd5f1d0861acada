"""A copy of a node's store: below one folder only, and whole or not at all."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from foldline.processors.clock import wall_clock
from foldline.processors.memory_log import MemoryLog
from foldline.settings import Settings
from tests.serving import Served, serving

Serve = Callable[[Callable[[Path], Sequence[int]]], AbstractContextManager[Served]]


@pytest.fixture
def copies(tmp_path: Path) -> Path:
    return tmp_path / "copies"


@pytest.fixture
def serve(copies: Path) -> Iterator[Serve]:
    log = MemoryLog(settings=Settings(), clock=wall_clock)
    settings = Settings(checkpoint_dir=copies)
    yield lambda checkpoint: serving(log, settings=settings, checkpoint=checkpoint)
    log.close()


def write(folder: Path) -> Sequence[int]:
    """A copy of one partition."""
    (folder / "0").mkdir(parents=True)
    (folder / "0" / "data").write_bytes(b"copied")
    return [0]


def ask(served: Served, folder: str) -> tuple[int, str]:
    """The status, and the word of the problem or the folder of the copy."""
    with served.http() as http:
        answer = http.post("/admin/checkpoint", json={"folder": folder})
    body = answer.json()
    return answer.status_code, body.get("kind") or body["folder"]


def test_a_copy_is_written_below_the_folder_of_copies(serve: Serve, copies: Path) -> None:
    with serve(write) as served:
        assert ask(served, "today") == (200, str(copies / "today"))
        whole = str(copies / "node" / "whole-path")
        assert ask(served, whole) == (200, whole)
        assert (copies / "today" / "0" / "data").read_bytes() == b"copied"
        assert ask(served, "today") == (422, "bad_folder")
    assert sorted(path.name for path in copies.iterdir()) == ["node", "today"]


@pytest.mark.parametrize("name", ["/tmp/x", "../x", "a/../../x", ".", "link/x", "a\x00b"])  # noqa: S108 - it is refused
def test_nothing_is_written_anywhere_else(
    serve: Serve, copies: Path, tmp_path: Path, name: str
) -> None:
    copies.mkdir()
    (copies / "link").symlink_to(tmp_path)
    with serve(write) as served:
        assert ask(served, name) == (422, "bad_folder")
    assert [path.name for path in tmp_path.iterdir()] == ["copies"]
    assert [path.name for path in copies.iterdir()] == ["link"]


def test_a_copy_that_fails_half_way_leaves_nothing(serve: Serve, copies: Path) -> None:
    failures = [OSError(28, "No space left on device")]

    def fail_once(folder: Path) -> Sequence[int]:
        written = write(folder)
        if failures:
            raise failures.pop()
        return written

    with serve(fail_once) as served:
        assert ask(served, "today") == (507, "no_copy")
        assert list(copies.iterdir()) == []
        assert ask(served, "today") == (200, str(copies / "today"))


def test_of_two_copies_of_one_name_one_is_kept(serve: Serve, copies: Path) -> None:
    def overtaken(folder: Path) -> Sequence[int]:
        write(copies / "today")
        return write(folder)

    with serve(overtaken) as served:
        assert ask(served, "today") == (422, "bad_folder")
    assert [path.name for path in copies.iterdir()] == ["today"]


def test_without_a_setting_copies_are_in_the_state_folder(tmp_path: Path) -> None:
    assert Settings(state_dir=tmp_path).copies_dir == tmp_path / "checkpoints"
