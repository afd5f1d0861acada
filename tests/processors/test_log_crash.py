"""A killed or starved writer: what was acknowledged is there once, the rest once or not."""

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from foldline.processors.open_log import open_log
from foldline.processors.verify import verify
from foldline.testing import LogStory
from foldline.testing.samples import created, said

CHILD = Path(__file__).with_name("appending_child.py")
SESSION = "crashed"

pytestmark = pytest.mark.crash


def run(*arguments: str, **environment: str) -> tuple[int, list[tuple[str, str]]]:
    """Run the child to its end: exit code, and what it said."""
    done = subprocess.run(
        [sys.executable, str(CHILD), *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    lines = [line.partition(" ") for line in done.stdout.splitlines()]
    return done.returncode, [(word, rest) for word, _, rest in lines]


def said_of(said_lines: list[tuple[str, str]], word: str) -> list[str]:
    return [rest for found, rest in said_lines if found == word]


@pytest.fixture(params=["sqlite", "jsonl"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"{request.param}:///{tmp_path}/deep/er/sessions.db"


@pytest.mark.parametrize("nth", [1, 2, 7])
@pytest.mark.parametrize(
    ("point", "last_is_there"),
    [("CP_APPEND_BEFORE_COMMIT", False), ("CP_APPEND_AFTER_COMMIT", True)],
)
def test_a_writer_killed_at_a_commit_loses_nothing_that_was_acknowledged(
    url: str, point: str, nth: int, *, last_is_there: bool
) -> None:
    code, lines = run("append", url, SESSION, "9", FOLDLINE_CRASH_AT=f"{point}:{nth}")
    assert code == -signal.SIGKILL
    sent, acked = said_of(lines, "sent"), said_of(lines, "acked")
    assert len(sent) == len(acked) + 1 == nth
    log = open_log(url)
    there = list(log.event_ids(SESSION))
    assert there == (sent if last_is_there else acked)
    assert verify(log).ok
    log.close()


@pytest.mark.parametrize("nth", [1, 2, 5])
@pytest.mark.parametrize(
    ("point", "last_is_there"),
    [
        ("CP_JSONL_HALF_WRITTEN", False),
        ("CP_JSONL_BEFORE_SYNC", True),
        ("CP_JSONL_BEFORE_MARKER", True),
    ],
)
def test_a_writer_of_lines_killed_within_a_write_leaves_them_whole_or_set_aside(
    tmp_path: Path, point: str, nth: int, *, last_is_there: bool
) -> None:
    url = f"jsonl:///{tmp_path}/sessions.jsonl"
    code, lines = run("append", url, SESSION, "9", FOLDLINE_CRASH_AT=f"{point}:{nth}")
    assert code == -signal.SIGKILL
    sent, acked = said_of(lines, "sent"), said_of(lines, "acked")
    assert len(sent) == len(acked) + 1 == nth
    log = open_log(url)
    assert list(log.event_ids(SESSION)) == (sent if last_is_there else acked)
    assert verify(log).ok
    log.close()
    torn = list((tmp_path / "sessions.jsonl.torn").glob("torn-*"))
    assert len(torn) == (not last_is_there)
    story = LogStory(log := open_log(url), session_id=SESSION)
    if story.seq:
        story.when(said()).then("ACCEPTED", seq=nth + last_is_there)
    log.close()


@pytest.mark.parametrize("point", ["CP_JSONL_HALF_WRITTEN", "CP_JSONL_BEFORE_MARKER"])
def test_a_killed_writer_of_lines_holds_nobody_up_who_has_the_log_open(
    tmp_path: Path, point: str
) -> None:
    url = f"jsonl:///{tmp_path}/sessions.jsonl"
    log = open_log(url)
    story = LogStory(log, session_id=SESSION).given(created())
    run("append", url, "another", "9", FOLDLINE_CRASH_AT=f"{point}:3")
    assert len(list(log.event_ids("another"))) == 2, "of the third nobody knows yet"
    story.when(said()).then("ACCEPTED", seq=2)
    there = 2 if point == "CP_JSONL_HALF_WRITTEN" else 3
    assert len(list(log.event_ids("another"))) == there
    assert verify(log).ok
    log.close()


def test_after_a_kill_the_resend_is_answered_and_the_session_goes_on(url: str) -> None:
    run("append", url, SESSION, "9", FOLDLINE_CRASH_AT="CP_APPEND_AFTER_COMMIT:4")
    log = open_log(url)
    story = LogStory(log, session_id=SESSION)
    assert story.seq == 4
    story.when(said()).then("ACCEPTED", seq=5)
    log.close()


@pytest.mark.parametrize("after_lines", [3, 10, 41, 90])
def test_a_writer_killed_anywhere_loses_nothing_that_was_acknowledged(
    url: str, after_lines: int
) -> None:
    child = subprocess.Popen(
        [sys.executable, str(CHILD), "append", url, SESSION, "1000000"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    lines = [child.stdout.readline() for _ in range(after_lines)]
    child.kill()
    lines += child.stdout.readlines()
    child.stdout.close()
    child.wait()
    words = [line.split() for line in lines if line.endswith("\n")]
    acked = [rest for word, rest in words if word == "acked"]
    sent = {rest for word, rest in words if word == "sent"}
    log = open_log(url)
    there = Counter(log.event_ids(SESSION))
    assert set(acked) <= set(there) <= sent
    assert set(there.values()) == {1}
    assert verify(log).ok
    log.close()


def test_a_killed_creation_leaves_a_log_or_none(url: str, tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, str(CHILD), "append", url, SESSION, "1000000"],
        stdout=subprocess.PIPE,
    )
    while not (tmp_path / "deep").exists():
        assert child.poll() is None
    child.kill()
    child.wait()
    assert child.stdout is not None
    child.stdout.close()
    log = open_log(url)
    assert verify(log).ok
    log.close()


def test_a_full_disk_is_an_error_of_that_append_and_nothing_else(url: str) -> None:
    code, lines = run("fill", url, SESSION, "400000")
    assert code == 0, lines
    assert len(said_of(lines, "refused")) == 1
    log = open_log(url)
    assert list(log.event_ids(SESSION))[-1:] == said_of(lines, "acked")
    assert verify(log).ok
    log.close()


@pytest.mark.parametrize(
    ("point", "is_there"),
    [("CP_BLOB_BEFORE_RENAME", False), ("CP_BLOB_AFTER_RENAME", True)],
)
def test_a_killed_writer_of_a_blob_leaves_it_whole_or_not_at_all(
    tmp_path: Path, point: str, *, is_there: bool
) -> None:
    url = f"sqlite:///{tmp_path}/sessions.db"
    code, lines = run("blob", url, "300000", FOLDLINE_CRASH_AT=f"{point}:1")
    assert (code, lines) == (-signal.SIGKILL, [])
    named = [p for p in (tmp_path / "sessions.db.blobs").rglob("*") if len(p.name) == 64]
    assert [path.stat().st_size for path in named] == [300_000] * is_there
    assert said_of(run("blob", url, "300000")[1], "acked")


def test_a_full_disk_leaves_no_half_blob(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/sessions.db"
    code, lines = run("starved-blob", url, "600000")
    assert (code, len(said_of(lines, "refused"))) == (0, 1)
    folder = tmp_path / "sessions.db.blobs"
    assert [path for path in folder.rglob("*") if path.is_file()] == []
    assert said_of(run("blob", url, "600000")[1], "acked")
