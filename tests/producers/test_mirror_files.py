"""Files that come, go, and are others by now: none of them ends the mirror of the rest."""

import resource
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from foldline.producers import mirror_files
from foldline.producers.redaction import Redactor
from foldline.producers.redaction_engines import Found
from tests.mirrors import Follower, append, imported
from tests.transcripts import KEY, Transcript, line_of


@pytest.fixture
def follower(tmp_path: Path) -> Iterator[Follower]:
    follower = Follower(tmp_path)
    yield follower
    follower.mirroring.close()


def transcript(name: str) -> Transcript:
    script = Transcript(session_id=f"s-{name}", prefix=f"{name}-")
    script.user(f"hello, {name}")
    return script


@pytest.mark.parametrize("is_open", [True, False])
def test_a_folder_that_is_removed_costs_what_is_in_it_and_nothing_else(
    follower: Follower, *, is_open: bool
) -> None:
    gone, stays = follower.path("gone/a.jsonl"), follower.path()
    gone.parent.mkdir()
    gone.write_bytes(transcript("a").data)
    script = transcript("b")
    stays.write_bytes(script.data)
    follower.go()
    if not is_open:
        follower.restart()
        follower.go()
    shutil.rmtree(gone.parent)
    append(stays, line_of(script.user("and more")))
    assert follower.go().failed == 0
    assert follower.image()["s-b"] == imported(follower.folder, stays)["s-b"]


def test_what_is_written_to_a_file_whose_folder_was_removed_is_read_by_its_handle(
    follower: Follower,
) -> None:
    gone, script = follower.path("gone/a.jsonl"), transcript("a")
    gone.parent.mkdir()
    gone.write_bytes(script.data)
    follower.go()
    with gone.open("ab") as file:
        shutil.rmtree(gone.parent)
        follower.go()
        file.write(line_of(script.user("written late")))
        file.flush()
        follower.go()
    kept = follower.folder / "kept.jsonl"
    kept.write_bytes(script.data)
    of_kept = [event for _, event in imported(follower.folder, kept)["s-a"][0]]
    assert [event for _, event in follower.image()["s-a"][0]] == of_kept


def test_more_new_files_than_may_be_open_are_all_followed(
    follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process may not open as many as there are."""
    monkeypatch.setattr(mirror_files, "OPEN_MAX", 5)
    for number in range(150):
        follower.path(f"{number}.jsonl").write_bytes(transcript(str(number)).data)
    _, hard = before = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 50, hard))
    try:
        totals = follower.go()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert (totals.files, totals.failed) == (150, 0)
    assert len(follower.image()) == 150
    assert follower.mirroring.open_count <= 5


class Magpie:
    """An engine that fails at one word."""

    def find(self, text: str) -> Iterable[Found]:
        if "crash" in text:
            raise ValueError(text)
        return []


def test_a_renamed_file_that_cannot_be_read_on_is_said_and_counted(
    follower: Follower,
) -> None:
    path, script = follower.path("crash.jsonl"), transcript("a")
    path.write_bytes(script.data)
    follower.go()
    follower.mirroring.close()
    follower.redactor = Redactor(KEY, engines=[Magpie()])
    append(path, line_of(script.user("the last of the old file")))
    old = path.rename(follower.path("old.1"))
    path.touch()
    follower.start()
    assert follower.go().failed == 1
    (said,) = [one for one in follower.said if one.kind == "failed"]
    assert said.path == str(old)
    assert follower.go().failed == 1
    assert follower.kinds().count("failed") == 1


def test_a_renamed_file_keeps_others_waiting_no_longer_than_any(
    follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foldline.producers.growing.READ_BYTES", 500)
    script = transcript("a")
    follower.path().write_bytes(script.data)
    follower.go()
    for number in range(20):
        append(follower.path(), line_of(script.user(f"prompt {number}")))
    moved = follower.path().rename(follower.path("old.1"))
    follower.mirroring.scan_soon()
    before = follower.mirroring.totals.events
    assert follower.mirroring.round()
    assert follower.mirroring.totals.events - before < 10
    follower.go()
    of_moved = [event for _, event in imported(follower.folder, moved)["s-a"][0]]
    assert [event for _, event in follower.image()["s-a"][0]] == of_moved


def test_a_link_that_was_named_is_followed_wherever_it_points(follower: Follower) -> None:
    link = follower.folder / "current.jsonl"
    days = [follower.folder / f"{day}.jsonl" for day in ("monday", "tuesday")]
    scripts = [transcript("monday"), transcript("tuesday")]
    for day, script in zip(days, scripts, strict=True):
        day.write_bytes(script.data)
    link.symlink_to(days[0])
    follower.start(link)
    follower.go()
    assert list(follower.image()) == ["s-monday"]
    link.unlink()
    link.symlink_to(days[1])
    for day, script in zip(days, scripts, strict=True):
        append(day, line_of(script.user("and more")))
    assert follower.go().files == 2
    assert follower.image() == imported(follower.folder, *days)


def test_a_link_that_points_nowhere_for_a_while_is_no_failure(follower: Follower) -> None:
    link, day = follower.folder / "current.jsonl", follower.folder / "day.jsonl"
    link.symlink_to(day)
    follower.start(link)
    assert follower.go().failed == 0
    day.write_bytes(transcript("a").data)
    follower.go()
    assert follower.image() == imported(follower.folder, day)
