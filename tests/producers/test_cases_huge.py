"""B39: a transcript of tens of thousands of records, of which few are conversation.

Reported: 102 MB with 14 messages took 14 s and 720 MB to open; a listing of 2,663 sessions
read every file. At full size these run by name only: `make soak`, or `pytest -m storm`.
"""

import sqlite3
import tracemalloc
from pathlib import Path

import pytest

from foldline.processors.open_log import open_log
from foldline.schemas.state import SessionState
from foldline.settings import Settings
from tests.transcripts import SESSION, Import, Transcript, line_of, tool_use

PROGRESS_BYTES = 2_000
PER_RECORD_MAX = 512
"""Bytes of memory: ids, by which copies are known. A record here has four times as many."""

LISTED = 300

REPORTED_RECORDS = 35_500
REPORTED_BYTES = 102_000_000
REPORTED_LISTED = 2_663
REPORTED_PEAK = 720_000_000

by_name = pytest.mark.skipif(
    "'storm' not in config.getoption('markexpr')", reason="by name only: -m storm"
)


def write_huge(path: Path, progress: int, each: int = PROGRESS_BYTES) -> None:
    """Seven prompts and seven answers; between them the progress of subagents."""
    script = Transcript()
    for number in range(7):
        script.user(f"prompt {number}")
        script.assistant(f"m{number}", tool_use(f"c{number}", "Task"))
    head = script.data
    noise = {"type": "bash_progress", "output": "z" * each}
    line = line_of(Transcript().add("progress", data=noise, parentToolUseID="c1"))
    with path.open("wb") as file:
        file.write(head)
        for number in range(progress):
            file.write(line.replace(b'"r1"', f'"p{number}"'.encode()))


def peak_bytes(
    folder: Path, progress: int, each: int = PROGRESS_BYTES
) -> tuple[int, SessionState]:
    """What Python holds at most while a file is imported, and the state it ends in."""
    folder.mkdir()
    path = folder / "huge.jsonl"
    write_huge(path, progress, each)
    log = open_log(f"sqlite:///{folder}/sessions.db")
    tracemalloc.start()
    report = Import(log, folder, Settings(batch_max=50)).file(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert report.records == progress + 14
    assert report.noise == {"progress/bash_progress": progress}
    state = log.state(SESSION)
    assert state is not None
    log.close()
    return peak, state


def test_memory_grows_by_ids_and_not_by_the_progress_in_a_file(tmp_path: Path) -> None:
    peak_bytes(tmp_path / "warm", 10)
    small, before = peak_bytes(tmp_path / "small", 500)
    large, after = peak_bytes(tmp_path / "large", 3_000)
    assert (large - small) / 2_500 < PER_RECORD_MAX
    assert (before.seq, len(before.calls)) == (after.seq, len(after.calls))


@pytest.mark.storm
@by_name
def test_nor_at_the_size_that_was_reported(tmp_path: Path) -> None:
    progress = REPORTED_RECORDS - 14
    _, before = peak_bytes(tmp_path / "small", 500)
    peak, after = peak_bytes(tmp_path / "huge", progress, REPORTED_BYTES // progress)
    assert (tmp_path / "huge" / "huge.jsonl").stat().st_size >= REPORTED_BYTES
    assert peak < progress * PER_RECORD_MAX + REPORTED_PEAK // 20
    assert (before.seq, len(before.calls)) == (after.seq, len(after.calls))


def listing_reads_no_event(folder: Path, sessions: int) -> None:
    """A listing comes from an index: it is the same when there are no events to read."""
    url = f"sqlite:///{folder}/sessions.db"
    log = open_log(url)
    into = Import(log, folder)
    for number in range(sessions):
        script = Transcript(session_id=f"{number:08}-2222-4333-8444-555555555555")
        script.user("hello")
        into.take(script.data, f"{number}.jsonl")
    listed = log.sessions(limit=sessions * 2)
    log.close()
    with sqlite3.connect(folder / "sessions.db") as database:
        database.execute("DELETE FROM events")
    database.close()
    again = open_log(url)
    assert again.sessions(limit=sessions * 2) == listed
    assert len(listed) == sessions
    again.close()


def test_a_listing_reads_no_event(tmp_path: Path) -> None:
    listing_reads_no_event(tmp_path, LISTED)


@pytest.mark.storm
@by_name
def test_nor_does_a_listing_of_as_many_sessions_as_were_reported(tmp_path: Path) -> None:
    listing_reads_no_event(tmp_path, REPORTED_LISTED)
