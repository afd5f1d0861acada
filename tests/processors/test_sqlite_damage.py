"""Rows that damage made something else: named, or as if they were not there; no defect."""

import hashlib
import sqlite3
from pathlib import Path

import pytest

from foldline.errors import LogFormatError
from foldline.processors.open_log import open_log
from foldline.processors.sqlite_file import position
from foldline.processors.stored import Problem
from foldline.processors.verify import verify
from foldline.settings import Settings
from foldline.testing import LogStory
from foldline.testing.samples import created, said, started, told

LAST_SEQ = 12
EVERY = 4
"""How often these logs keep a snapshot."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A closed log of one session with snapshots at 4, 8 and 12."""
    path = tmp_path / "sessions.db"
    log = open_log(f"sqlite:///{path}", settings=Settings(snapshot_every_events=EVERY))
    told(LogStory(log, session_id="s").given(created(), started()), LAST_SEQ - 2)
    log.close()
    return path


def change(path: Path, statement: str, *parameters: object) -> None:
    connection = sqlite3.connect(path)
    with connection:
        assert connection.execute(statement, parameters).rowcount == 1
    connection.close()


def places(path: Path) -> set[tuple[str, int]]:
    log = open_log(f"sqlite:///{path}")
    report = verify(log)
    log.close()
    return {(problem.session_id, problem.seq) for problem in report.problems}


@pytest.mark.parametrize("value", [7, 1.5, "text"])
def test_an_event_whose_body_is_no_blob_is_named(path: Path, value: object) -> None:
    change(path, "UPDATE events SET body = ? WHERE position = ?", value, position(1, 6))
    assert ("s", 6) in places(path)
    log = open_log(f"sqlite:///{path}")
    for read in (log.events, log.structure, log.event_ids):
        with pytest.raises(LogFormatError, match="seq 6"):
            list(read("s"))
    log.close()


def test_an_event_whose_body_is_text_that_is_not_utf_8_is_named(path: Path) -> None:
    update = "UPDATE events SET body = CAST(x'ff00ff' AS TEXT) WHERE position = ?"
    change(path, update, position(1, 6))
    assert ("s", 6) in places(path)


@pytest.mark.parametrize("column", ["body", "digest"])
@pytest.mark.parametrize("value", [7, "text"])
def test_a_snapshot_that_is_no_blob_is_named_and_not_used(
    path: Path, column: str, value: object
) -> None:
    update = f"UPDATE snapshots SET {column} = ? WHERE position = ?"  # noqa: S608
    change(path, update, value, position(1, LAST_SEQ))
    assert ("s", LAST_SEQ) in places(path)
    log = open_log(f"sqlite:///{path}")
    state = log.state("s")
    assert state is not None
    assert state.seq == LAST_SEQ
    log.close()


def test_a_seq_in_the_index_that_is_no_number_is_an_error_of_the_log(path: Path) -> None:
    change(path, "UPDATE sessions SET seq = 'many'")
    log = open_log(f"sqlite:///{path}")
    for at_seq in (None, 3):
        with pytest.raises(LogFormatError, match="many"):
            log.state("s", at_seq=at_seq)
    log.close()


@pytest.mark.parametrize("seq", [2, 5, LAST_SEQ - 1, LAST_SEQ])
def test_a_state_as_it_was_is_never_made_of_a_changed_last_event(
    path: Path, seq: int
) -> None:
    connection = sqlite3.connect(path)
    (body,) = connection.execute(
        "SELECT body FROM events WHERE position = ?", (position(1, seq),)
    ).fetchone()
    connection.close()
    update = "UPDATE events SET body = ? WHERE position = ?"
    for at in (5, 30, len(body) - 1):  # the event's id, and its content
        flipped = bytearray(body)
        flipped[at] ^= 1
        change(path, update, bytes(flipped), position(1, seq))
        log = open_log(f"sqlite:///{path}")
        with pytest.raises(LogFormatError):
            log.state("s", at_seq=seq)
        log.close()


@pytest.mark.parametrize(
    "column", ["tenant", "agent", "mode", "parent_session_id", "created_at", "recorded_at"]
)
def test_whatever_a_listing_shows_is_compared_with_the_events(
    path: Path, column: str
) -> None:
    change(path, f"UPDATE sessions SET {column} = 'x'")  # noqa: S608 - the test's own
    assert places(path) == {("s", LAST_SEQ)}


@pytest.mark.parametrize("assignment", ["name = 'UserMessagf'", "version = 3"])
def test_a_schema_under_another_name_or_version_is_found(
    path: Path, assignment: str
) -> None:
    change(path, f"UPDATE schemas SET {assignment} WHERE id = 1")  # noqa: S608
    log = open_log(f"sqlite:///{path}")
    (problem,) = verify(log).problems
    assert problem == Problem("", 0, problem.reason)
    assert "schema 1" in problem.reason
    log.close()


@pytest.mark.parametrize("session_id", ["\ud800", "s\udcff", "\ud83d\ude00"])
def test_a_session_id_that_is_not_utf_8_is_nobodys(path: Path, session_id: str) -> None:
    log = open_log(f"sqlite:///{path}")
    assert log.state(session_id) is None
    assert list(log.events(session_id)) == []
    assert list(log.event_ids(session_id)) == []
    story = LogStory(log, session_id=session_id)
    story.when(said()).then("UNDECODABLE")
    log.close()


FOREIGN = '{"type":"record","name":"SessionCreated","fields":[{"name":"prev_hash","type":'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '{"type":"record"}',
        "[" * 100_000,
        FOREIGN + '["null","bytes"]}]}',
        FOREIGN + '{"type":"array","items":"null"}}]}',
    ],
    ids=range(7),
)
def test_a_schema_that_is_none_of_ours_is_an_error_of_the_log(
    path: Path, text: str
) -> None:
    fingerprint = hashlib.sha256(text.encode()).digest()
    change(
        path, "UPDATE schemas SET text = ?, fingerprint = ? WHERE id = 1", text, fingerprint
    )
    log = open_log(f"sqlite:///{path}")
    report = verify(log)
    assert ("s", 1) in {(problem.session_id, problem.seq) for problem in report.problems}
    for read in (log.events, log.structure):
        with pytest.raises(LogFormatError, match="seq 1"):
            list(read("s"))
    log.close()
