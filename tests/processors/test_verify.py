"""Verify: whatever is not as it was recorded is found, and named by session and seq."""

import hashlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from foldline.errors import LogError
from foldline.processors.open_log import open_log
from foldline.processors.sqlite_file import position
from foldline.processors.stored import AuditableLog, Problem
from foldline.processors.verify import Report, verify
from foldline.schemas.blocks import Blob, Block
from foldline.schemas.events import CheckpointCreated, SessionSuspended, UserMessage
from foldline.schemas.snapshots import encode_snapshot, state_hash
from foldline.schemas.state import FOLD_VERSION, SessionState
from foldline.testing import LogStory
from foldline.testing.samples import created, said, started, told

SESSIONS = ("s1", "s2", "s3")
LAST_SEQ = 12
KEY = 2
"""The key of s2, the session that is damaged."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A SQLite log of three sessions, closed."""
    path = tmp_path / "sessions.db"
    log = open_log(f"sqlite:///{path}")
    for session_id in SESSIONS:
        story = LogStory(log, session_id=session_id).given(created(), started())
        told(story, LAST_SEQ - 2)
    log.close()
    return path


@pytest.fixture
def change(path: Path) -> Callable[..., None]:
    """Changes a closed log behind its back."""

    def run(statement: str, *parameters: object) -> None:
        connection = sqlite3.connect(path)
        with connection:
            assert connection.execute(statement, parameters).rowcount == 1
        connection.close()

    return run


def check(path: Path) -> Report:
    log = open_log(f"sqlite:///{path}")
    report = verify(log)
    log.close()
    return report


def places(report: Report) -> set[tuple[str, int]]:
    return {(problem.session_id, problem.seq) for problem in report.problems}


def body_at(path: Path, seq: int) -> bytes:
    connection = sqlite3.connect(path)
    (body,) = connection.execute(
        "SELECT body FROM events WHERE position = ?", (position(KEY, seq),)
    ).fetchone()
    connection.close()
    return body


SET_BODY = "UPDATE events SET body = ? WHERE position = ?"


def test_a_log_as_it_was_recorded_has_no_problem(path: Path) -> None:
    report = check(path)
    assert (report.ok, report.problems) == (True, [])
    assert (report.sessions, report.events) == (3, 3 * LAST_SEQ)


def test_the_log_in_memory_is_verified_too() -> None:
    log = open_log("memory:")
    told(LogStory(log).given(created(), started()), 300)
    report = verify(log)
    assert (report.ok, report.sessions, report.events) == (True, 1, 302)


def test_progress_is_told_session_by_session(path: Path) -> None:
    log = open_log(f"sqlite:///{path}")
    seen: list[tuple[int, int]] = []
    verify(log, on_progress=lambda done, of: seen.append((done, of)))
    assert seen == [(1, 3), (2, 3), (3, 3)]
    report = verify(log, ["s2", "nobody"])
    assert (report.sessions, report.events) == (1, LAST_SEQ)
    assert report.problems == [Problem("nobody", 0, "the index has no such session")]
    log.close()


@pytest.mark.parametrize("seq", [1, 2, 6, LAST_SEQ - 1, LAST_SEQ])
def test_one_flipped_byte_anywhere_in_a_body_is_found_where_it_is(
    path: Path, change: Callable[..., None], seq: int
) -> None:
    body = body_at(path, seq)
    for at in range(0, len(body), 7):
        flipped = bytearray(body)
        flipped[at] ^= 0x04
        change(SET_BODY, bytes(flipped), position(KEY, seq))
        report = check(path)
        assert not report.ok, at
        assert ("s2", seq) in places(report), (at, report.problems)
        assert {problem.session_id for problem in report.problems} == {"s2"}
    change(SET_BODY, body, position(KEY, seq))
    assert check(path).ok


@pytest.mark.parametrize("kept", [0, 1, 60])
def test_a_body_cut_short_is_found_where_it_is(
    path: Path, change: Callable[..., None], kept: int
) -> None:
    change(SET_BODY, body_at(path, 6)[:kept], position(KEY, 6))
    assert ("s2", 6) in places(check(path))


def test_a_body_with_a_tail_is_found_where_it_is(
    path: Path, change: Callable[..., None]
) -> None:
    change(SET_BODY, body_at(path, 6) + bytes(9), position(KEY, 6))
    assert ("s2", 6) in places(check(path))


@pytest.mark.parametrize("seq", [1, 6, LAST_SEQ])
def test_a_deleted_row_is_found(path: Path, change: Callable[..., None], seq: int) -> None:
    change("DELETE FROM events WHERE position = ?", position(KEY, seq))
    assert ("s2", seq) in places(check(path))


def test_two_swapped_rows_are_found(path: Path, change: Callable[..., None]) -> None:
    one, two = body_at(path, 5), body_at(path, 9)
    change(SET_BODY, two, position(KEY, 5))
    change(SET_BODY, one, position(KEY, 9))
    assert places(check(path)) >= {("s2", 5), ("s2", 9)}


@pytest.mark.parametrize("seq", [0, LAST_SEQ + 1, LAST_SEQ + 900])
def test_an_inserted_row_is_found(
    path: Path, change: Callable[..., None], seq: int
) -> None:
    insert = "INSERT INTO events SELECT ?, schema_id, body FROM events WHERE position = ?"
    change(insert, position(KEY, seq), position(KEY, 3))
    assert ("s2", seq) in places(check(path))


def test_a_row_of_another_session_is_found(path: Path, change: Callable[..., None]) -> None:
    connection = sqlite3.connect(path)
    (foreign,) = connection.execute(
        "SELECT body FROM events WHERE position = ?", (position(1, 6),)
    ).fetchone()
    connection.close()
    change(SET_BODY, foreign, position(KEY, 6))
    assert ("s2", 6) in places(check(path))


def test_a_row_of_no_session_is_found(path: Path, change: Callable[..., None]) -> None:
    change("DELETE FROM sessions WHERE key = ?", KEY)
    report = check(path)
    assert report.problems == [Problem("", 0, f"{LAST_SEQ} events of no session")]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("seq", LAST_SEQ - 1),
        ("seq", LAST_SEQ + 1),
        ("seq", "many"),
        ("status", "IDLE"),
        ("epoch", 7),
        ("owner", "somebody"),
        ("head_hash", b"\x00" * 32),
    ],
)
def test_an_index_that_says_something_else_is_found(
    path: Path, change: Callable[..., None], column: str, value: object
) -> None:
    change(f"UPDATE sessions SET {column} = ? WHERE key = ?", value, KEY)  # noqa: S608
    assert {problem.session_id for problem in check(path).problems} == {"s2"}


@pytest.mark.parametrize("schema_id", [99, 1, "x"])
def test_another_schema_id_is_found(
    path: Path, change: Callable[..., None], schema_id: object
) -> None:
    change(
        "UPDATE events SET schema_id = ? WHERE position = ?", schema_id, position(KEY, 6)
    )
    assert ("s2", 6) in places(check(path))


# --- snapshots, checkpoints and blobs ---------------------------------------------------


@pytest.fixture
def suspended(tmp_path: Path) -> Path:
    """A closed log of one session with a checkpoint at seq 4 and snapshots at 3 and 5."""
    path = tmp_path / "sessions.db"
    log = open_log(f"sqlite:///{path}")
    story = LogStory(log, session_id="s").given(created(), said(), said())
    story.given(checkpoint_of(story.state), SessionSuspended(reason="LUNCH"))
    log.close()
    return path


def checkpoint_of(state: SessionState, *, state_hash_: bytes = b"") -> CheckpointCreated:
    return CheckpointCreated(
        upto_seq=state.seq,
        state_hash=state_hash_ or state_hash(state),
        fold_version=FOLD_VERSION,
    )


def alter_snapshot(path: Path, seq: int, body: bytes, *, digest: bytes = b"") -> None:
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(
            "UPDATE snapshots SET body = ?, digest = ? WHERE position = ?",
            (body, digest or hashlib.sha256(body).digest(), position(1, seq)),
        )
    connection.close()


def snapshot_at(path: Path, seq: int) -> bytes:
    connection = sqlite3.connect(path)
    (body,) = connection.execute(
        "SELECT body FROM snapshots WHERE position = ?", (position(1, seq),)
    ).fetchone()
    connection.close()
    return body


def test_snapshots_and_a_checkpoint_that_are_right_are_no_problem(
    suspended: Path,
) -> None:
    assert len(snapshot_at(suspended, 3)) > 0
    assert check(suspended).ok


@pytest.mark.parametrize("seq", [3, 5])
def test_a_flipped_byte_in_a_snapshot_is_found(suspended: Path, seq: int) -> None:
    body = bytearray(snapshot_at(suspended, seq))
    body[len(body) // 2] ^= 1
    alter_snapshot(suspended, seq, bytes(body), digest=b"\x00" * 32)
    assert ("s", seq) in places(check(suspended))


def test_a_snapshot_of_another_state_is_found(suspended: Path) -> None:
    log = open_log(f"sqlite:///{suspended}")
    state = log.state("s")
    log.close()
    assert state is not None
    state.counts["UserMessage"] += 1
    alter_snapshot(suspended, 5, encode_snapshot(state))
    assert ("s", 5) in places(check(suspended))


def test_a_checkpoint_with_another_hash_is_found() -> None:
    log = open_log("memory:")
    story = LogStory(log, session_id="s").given(created(), said())
    story.given(checkpoint_of(story.state, state_hash_=bytes(32)))
    assert places(verify(log)) == {("s", 3)}


def naming(sha256: bytes, size: int) -> UserMessage:
    blob = Blob(sha256=sha256, size=size, media_type="text/plain")
    return UserMessage(message_id="m", blocks=(Block(kind="text", body=blob),))


def test_a_blob_that_is_there_is_no_problem_and_a_missing_one_is() -> None:
    log = open_log("memory:")
    story = LogStory(log, session_id="s").given(created())
    story.given(naming(log.blobs.put(b"here"), 4))
    assert verify(log).ok
    story.given(naming(log.blobs.put(b"here"), 5), naming(bytes(32), 4))
    assert places(verify(log)) == {("s", 3), ("s", 4)}


# --- damage below the rows --------------------------------------------------------------


@pytest.fixture
def long_path(tmp_path: Path) -> Path:
    """A closed log of some pages."""
    path = tmp_path / "sessions.db"
    log = open_log(f"sqlite:///{path}")
    for session_id in SESSIONS:
        told(LogStory(log, session_id=session_id).given(created(), started()), 100)
    log.close()
    return path


def damaged(path: Path) -> Iterator[bytearray]:
    """The file with one page zeroed, each in turn, or one byte flipped here and there."""
    whole = path.read_bytes()
    for start in range(4096, len(whole), 4096):
        page = bytearray(whole)
        page[start : start + 4096] = bytes(4096)
        yield page
    for at in range(4096, len(whole), 3989):
        flipped = bytearray(whole)
        flipped[at] ^= 0x10
        yield flipped


@pytest.mark.slow
def test_damaged_pages_are_reported_and_never_a_traceback(
    long_path: Path,
) -> None:
    whole = long_path.read_bytes()
    found = 0
    for content in damaged(long_path):
        long_path.write_bytes(content)
        log = open_or_none(long_path)
        if log is not None:
            found += not verify(log).ok
            log.close()
    assert found > 10
    long_path.write_bytes(whole)
    assert check(long_path).ok


def open_or_none(path: Path) -> AuditableLog | None:
    """A log, or None where opening it says what is wrong."""
    try:
        return open_log(f"sqlite:///{path}")
    except LogError:
        return None


def test_a_session_all_of_whose_rows_are_gone_is_found(path: Path) -> None:
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(
            "DELETE FROM events WHERE position BETWEEN ? AND ?",
            (position(KEY, 0), position(KEY, LAST_SEQ)),
        )
    connection.close()
    assert places(check(path)) == {("s2", 1)}
