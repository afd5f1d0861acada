"""B39: a transcript of tens of thousands of records, of which few are conversation.

Reported: 102 MB with 14 messages took 14 s and 720 MB to open; a listing of sessions read
every file.
"""

import sqlite3
import tracemalloc
from pathlib import Path

from foldline.processors.open_log import open_log
from foldline.schemas.state import SessionState
from foldline.settings import Settings
from tests.transcripts import SESSION, Import, Transcript, line_of, tool_use

PROGRESS_BYTES = 2_000
PER_RECORD_MAX = 512
"""Bytes of memory: ids, by which copies are known. A record here has four times as many."""

LISTED = 300


def write_huge(path: Path, progress: int) -> None:
    """Seven prompts and seven answers; between them the progress of subagents."""
    script = Transcript()
    for number in range(7):
        script.user(f"prompt {number}")
        script.assistant(f"m{number}", tool_use(f"c{number}", "Task"))
    head = script.data
    noise = {"type": "bash_progress", "output": "z" * PROGRESS_BYTES}
    line = line_of(Transcript().add("progress", data=noise, parentToolUseID="c1"))
    with path.open("wb") as file:
        file.write(head)
        for number in range(progress):
            file.write(line.replace(b'"r1"', f'"p{number}"'.encode()))


def peak_bytes(folder: Path, progress: int) -> tuple[int, SessionState]:
    """What Python holds at most while a file is imported, and the state it ends in."""
    folder.mkdir()
    path = folder / "huge.jsonl"
    write_huge(path, progress)
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


def test_a_listing_reads_no_event(tmp_path: Path) -> None:
    """It comes from an index: it is the same when there are no events to read."""
    url = f"sqlite:///{tmp_path}/sessions.db"
    log = open_log(url)
    into = Import(log, tmp_path)
    for number in range(LISTED):
        script = Transcript(session_id=f"{number:08}-2222-4333-8444-555555555555")
        script.user("hello")
        into.take(script.data, f"{number}.jsonl")
    listed = log.sessions(limit=LISTED * 2)
    log.close()
    with sqlite3.connect(tmp_path / "sessions.db") as database:
        database.execute("DELETE FROM events")
    database.close()
    again = open_log(url)
    assert again.sessions(limit=LISTED * 2) == listed
    assert len(listed) == LISTED
    again.close()
