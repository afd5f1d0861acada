"""Files that commands write: whole or not at all, through links, over files only."""

import os
from pathlib import Path

import pytest

from tests.cli.conftest import Run

COMMANDS = {
    "--html": ("stats", "--html"),
    "--output": ("context", "open-1", "--format", "anthropic", "--output"),
}

pytestmark = [
    pytest.mark.usefixtures("log"),
    pytest.mark.parametrize("option", COMMANDS),
]


@pytest.mark.parametrize("what", ["pipe", "folder", "log", "nowhere"])
def test_what_is_no_file_for_it_is_refused_before_any_work(
    run: Run, tmp_path: Path, option: str, what: str
) -> None:
    path = tmp_path / ("sessions.db" if what == "log" else what)
    if what == "pipe":
        os.mkfifo(path)
    if what == "folder":
        path.mkdir()
    if what == "nowhere":
        path = path / "file"
    before = os.lstat(path) if what != "nowhere" else None
    done = run(*COMMANDS[option], str(path))
    assert (done.code, done.out) == (2, "")
    assert f"{option}: a file" in done.err
    if before is not None:
        assert os.path.samestat(os.lstat(path), before)
    assert run("verify").code == 0


@pytest.mark.parametrize(
    "part", ["sessions.db-wal", "sessions.db.redaction-key", "sessions.db.blobs/ab/cd"]
)
def test_what_lies_beside_the_log_is_refused_whether_it_is_there_or_not(
    run: Run, tmp_path: Path, option: str, part: str
) -> None:
    path = tmp_path / part
    path.parent.mkdir(parents=True, exist_ok=True)
    before = path.read_bytes() if path.exists() else None
    done = run(*COMMANDS[option], str(path))
    assert (done.code, done.out) == (2, "")
    assert f"{option}: a file; {path} is a part of the log" in done.err
    assert (path.read_bytes() if path.exists() else None) == before


def test_a_circle_of_links_is_refused(run: Run, tmp_path: Path, option: str) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    done = run(*COMMANDS[option], str(tmp_path / "a"))
    assert (done.code, done.out) == (2, "")
    assert "is a circle of links" in done.err


def test_a_link_is_followed_and_stays(run: Run, tmp_path: Path, option: str) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old", encoding="utf-8")
    link.symlink_to(target)
    assert run(*COMMANDS[option], str(link)).code == 0
    assert link.is_symlink()
    assert target.read_text(encoding="utf-8") != "old"
    assert target.stat().st_mode & 0o777 == 0o600
    assert not list(tmp_path.glob(".foldline-export-*"))
