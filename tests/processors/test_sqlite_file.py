"""What is no log, or a damaged or newer one, is told apart, and left as it is."""

import hashlib
import os
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from foldline.errors import (
    LogError,
    LogFormatError,
    LogUnavailableError,
    NewerFormatError,
    SettingsError,
)
from foldline.processors.admission import MAX_FORK_SEQ
from foldline.processors.open_log import open_log
from foldline.processors.sqlite_file import FORMAT_VERSION, position
from foldline.processors.sqlite_log import SqliteLog
from foldline.processors.stored import AuditableLog
from foldline.processors.verify import verify
from foldline.schemas.events import SessionCreated
from foldline.schemas.recorded import Append
from foldline.testing import LogStory
from foldline.testing.log_story import make_append
from foldline.testing.samples import created, said, started, told

EVENTS = 300


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A closed log of one session that has a snapshot."""
    path = tmp_path / "sessions.db"
    log = open_log(f"sqlite:///{path}")
    told(LogStory(log, session_id="s").given(created(), started()), EVENTS - 2)
    log.close()
    return path


def open_path(path: Path) -> AuditableLog:
    return open_log(f"sqlite:///{path}")


def run(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()


def files_of(path: Path) -> dict[str, str]:
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in path.parent.iterdir()
        if file.is_file()
    }


def foreign_database(path: Path) -> None:
    run(path, "CREATE TABLE notes (text)", "PRAGMA journal_mode=WAL")


def newer_format(path: Path) -> None:
    open_path(path).close()
    run(path, f"PRAGMA user_version={FORMAT_VERSION + 1}")


def newer_rules(path: Path) -> None:
    open_path(path).close()
    run(path, "UPDATE meta SET value = '2' WHERE name = 'rules_version'")


def no_rules(path: Path) -> None:
    open_path(path).close()
    run(path, "DELETE FROM meta WHERE name = 'rules_version'")


def text(path: Path) -> None:
    path.write_text("dear diary, " * 1000)


def empty(path: Path) -> None:
    path.touch()


def zeros(path: Path) -> None:
    path.write_bytes(bytes(40960))


def cut_in_the_middle(path: Path) -> None:
    told(LogStory(log := open_path(path)).given(created()), 100)
    log.close()
    os.truncate(path, path.stat().st_size // 2)


def cut_to_a_header(path: Path) -> None:
    open_path(path).close()
    os.truncate(path, 100)


def lost_but_for_its_write_ahead_log(path: Path) -> None:
    path.with_name(f"{path.name}-wal").write_bytes(b"frames")


@pytest.mark.parametrize(
    ("make", "error", "reason"),
    [
        (foreign_database, LogFormatError, "of another program"),
        (text, LogFormatError, "not a database"),
        (empty, LogFormatError, "empty"),
        (zeros, LogFormatError, "not a database"),
        (cut_in_the_middle, LogFormatError, "malformed"),
        (cut_to_a_header, LogFormatError, "."),
        (no_rules, LogFormatError, "rules version"),
        (lost_but_for_its_write_ahead_log, LogFormatError, "is gone"),
        (Path.mkdir, LogFormatError, "a folder"),
        (newer_format, NewerFormatError, "version 2"),
        (newer_rules, NewerFormatError, "rules"),
    ],
)
def test_what_is_no_usable_log_is_told_and_left_as_it_is(
    tmp_path: Path, make: Callable[[Path], None], error: type[LogError], reason: str
) -> None:
    path = tmp_path / "sessions.db"
    make(path)
    before = files_of(path)
    with pytest.raises(error, match=reason) as caught:
        open_path(path)
    assert not caught.value.retryable
    assert files_of(path) == before


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("kafka://user@localhost:9092", "credentials go into"),
        ("kafka:localhost:9092", "kafka://host:port"),
        ("jsonl:", "jsonl:///path"),
        ("jsonl://host/log", "jsonl:///path"),
        ("postgres://x", "memory:, sqlite:///path"),
        ("sqlite:///", "sqlite:///path"),
        ("sessions.db", "sqlite:///path"),
    ],
)
def test_a_url_of_no_log_says_what_there_is(url: str, reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        open_log(url)


def test_a_relative_path_is_of_this_folder_and_the_url_says_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    log = open_log("sqlite:///deep/er/a b?#%41.db")
    assert log.url == f"sqlite:///{tmp_path}/deep/er/a b?#%41.db"
    assert (tmp_path / "deep/er/a b?#%41.db").exists()
    log.close()
    open_log(log.url).close()


def test_a_folder_that_cannot_be_written_is_an_error_with_its_reason(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(LogUnavailableError, match=r"Not a directory|File exists"):
        open_path(tmp_path / "file" / "sessions.db")


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_log_in_a_read_only_folder_is_an_error_with_its_reason(path: Path) -> None:
    path.chmod(stat.S_IRUSR)
    path.parent.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        with pytest.raises(LogUnavailableError):
            open_path(path)
    finally:
        path.parent.chmod(stat.S_IRWXU)


def test_a_torn_write_ahead_log_keeps_its_good_prefix(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    log = open_path(path)
    told(LogStory(log, session_id="s").given(created()), 40)
    files = {p.name: p.read_bytes() for p in tmp_path.iterdir() if p.is_file()}
    log.close()
    wal = files["sessions.db-wal"]
    for torn in (wal[:-100], wal[: len(wal) // 2], wal[:-5000] + bytes(5000)):
        path.write_bytes(files["sessions.db"])
        (tmp_path / "sessions.db-wal").write_bytes(torn)
        (tmp_path / "sessions.db-shm").unlink(missing_ok=True)
        log = open_path(path)
        assert verify(log).ok
        log.close()


# --- snapshots are never trusted blindly, events never folded unseen --------------------


def newest_snapshot(path: Path) -> tuple[int, bytes, bytes]:
    connection = sqlite3.connect(path)
    row = connection.execute(
        "SELECT position, digest, body FROM snapshots ORDER BY position DESC"
    ).fetchone()
    connection.close()
    return row


def replace_snapshot(path: Path, place: int, body: bytes, *, at: int = 0) -> None:
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("DELETE FROM snapshots WHERE position = ?", (place,))
        connection.execute(
            "INSERT INTO snapshots VALUES (?, ?, ?)",
            (at or place, hashlib.sha256(body).digest(), body),
        )
    connection.close()


@pytest.mark.parametrize("damage", ["flipped", "short", "empty", "newer", "beyond"])
def test_a_snapshot_that_is_not_right_is_ignored(path: Path, damage: str) -> None:
    log = open_path(path)
    state = log.state("s")
    log.close()
    place, _, body = newest_snapshot(path)
    at = position(1, EVENTS + 7) if damage == "beyond" else place
    bodies = {
        "flipped": body[:500] + bytes([body[500] ^ 1]) + body[501:],
        "short": body[:-9],
        "empty": b"",
        "newer": bytes([body[0] + 2]) + body[1:],
        "beyond": body,
    }
    replace_snapshot(path, place, bodies[damage], at=at)
    log = open_path(path)
    assert log.state("s") == state
    assert log.state("s", at_seq=EVENTS - 1) is not None
    LogStory(log, session_id="s").when(said()).then("ACCEPTED", seq=EVENTS + 1)
    log.close()


def test_every_flipped_bit_of_a_snapshot_is_harmless(path: Path) -> None:
    log = open_path(path)
    state = log.state("s")
    log.close()
    place, digest, body = newest_snapshot(path)
    for at in range(0, len(body), 97):
        flipped = body[:at] + bytes([body[at] ^ 0x20]) + body[at + 1 :]
        connection = sqlite3.connect(path)
        with connection:
            connection.execute(
                "UPDATE snapshots SET body = ?, digest = ? WHERE position = ?",
                (flipped, digest, place),
            )
        connection.close()
        log = open_path(path)
        assert log.state("s") == state
        log.close()


def test_a_changed_event_is_never_folded_and_what_is_before_it_stays_readable(
    path: Path,
) -> None:
    seq = EVENTS - 10
    connection = sqlite3.connect(path)
    with connection:
        (body,) = connection.execute(
            "SELECT body FROM events WHERE position = ?", (position(1, seq),)
        ).fetchone()
        connection.execute(
            "UPDATE events SET body = ? WHERE position = ?",
            (body[:-4] + b"?" + body[-3:], position(1, seq)),
        )
    connection.close()
    log = open_path(path)
    with pytest.raises(LogFormatError, match=f"'s', seq {seq + 1}"):
        log.state("s")
    story = LogStory(log, session_id="s")
    with pytest.raises(LogFormatError, match=f"seq {seq + 1}"):
        log.append([story.append(said(), known_seq=EVENTS)])
    assert log.state("s", at_seq=seq - 1) is not None
    assert len(list(log.events("s", upto_seq=seq - 1))) == seq - 1
    LogStory(log).given(created())
    log.close()


def test_an_undecodable_event_hides_nothing_after_it(path: Path) -> None:
    bad = 101
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(
            "UPDATE events SET body = x'ff' WHERE position = ?", (position(1, bad),)
        )
    connection.close()
    log = open_path(path)
    read: list[int] = []
    with pytest.raises(LogFormatError, match=f"'s', seq {bad}"):
        read.extend(recorded.seq for recorded in log.events("s"))
    assert len(list(log.events("s", upto_seq=bad - 1))) == bad - 1
    assert len(list(log.events("s", after_seq=bad))) == EVENTS - bad
    assert len(list(log.structure("s", after_seq=bad))) == EVENTS - bad
    assert log.state("s") is not None, "a snapshot after it was taken of the good one"
    log.close()


def test_a_schema_that_was_changed_is_never_used(path: Path) -> None:
    run(path, "UPDATE schemas SET text = replace(text, 'message_id', 'massage_id')")
    log = open_path(path)
    with pytest.raises(LogFormatError, match="unknown schema id"):
        list(log.events("s"))
    reasons = [problem.reason for problem in verify(log).problems]
    assert any("(UserMessage) was changed" in reason for reason in reasons)
    log.close()


# --- errors of one append, and nothing else ----------------------------------------------


def connection_of(log: AuditableLog) -> sqlite3.Connection:
    """The log's own connection, to make its file full."""
    assert isinstance(log, SqliteLog)
    return log._writer  # pyright: ignore[reportPrivateUsage]


def test_a_full_file_is_an_error_of_that_append_only(path: Path) -> None:
    log = open_path(path)
    story = LogStory(log, session_id="s")
    writer = connection_of(log)
    (pages,) = writer.execute("PRAGMA page_count").fetchone()
    writer.execute(f"PRAGMA max_page_count={pages}")
    big = story.append(said("x" * 100_000))
    before = story.state
    with pytest.raises(LogUnavailableError, match="full") as caught:
        log.append([story.append(said()), big])
    assert caught.value.retryable
    assert story.state == before
    writer.execute("PRAGMA max_page_count=1000000")
    story.send([big]).then("ACCEPTED", seq=EVENTS + 1)
    assert verify(log).ok
    log.close()


def test_a_file_that_another_process_holds_is_an_error_of_that_append_only(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOLDLINE_BUSY_TIMEOUT_MS", "50")
    log = open_path(path)
    story = LogStory(log, session_id="s")
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    append = story.append(said())
    with pytest.raises(LogUnavailableError, match="locked"):
        log.append([append])
    assert story.seq == EVENTS
    holder.execute("ROLLBACK")
    holder.close()
    story.send([append]).then("ACCEPTED", seq=EVENTS + 1)
    log.close()


def test_a_new_schema_of_a_failed_append_is_forgotten_with_it(tmp_path: Path) -> None:
    log = open_path(tmp_path / "sessions.db")
    story = LogStory(log, session_id="s").given(created())
    writer = connection_of(log)
    (pages,) = writer.execute("PRAGMA page_count").fetchone()
    writer.execute(f"PRAGMA max_page_count={pages}")
    with pytest.raises(LogUnavailableError):
        log.append([story.append(said("x" * 100_000))])
    writer.execute("PRAGMA max_page_count=1000000")
    story.given(started(), said())
    log.close()
    again = open_path(tmp_path / "sessions.db")
    assert [r.type for r in again.events("s")] == [
        "SessionCreated",
        "TurnStarted",
        "UserMessage",
    ]
    again.close()


def test_a_session_that_begins_far_on_takes_no_row_of_another(path: Path) -> None:
    """Rows of all sessions lie in one table, numbered by session and seq."""
    log = open_path(path)
    first = log.append([far_fork(2**32)])[0]
    assert (first.kind, first.rule) == ("ILLEGAL", "fork_point")
    assert log.append([far_fork(MAX_FORK_SEQ)])[0].kind == "ACCEPTED"
    LogStory(log, session_id="after").given(created(), started(), said())
    far = [recorded.seq for recorded in log.events("far")]
    assert far == [MAX_FORK_SEQ + 1]
    assert verify(log).ok
    log.close()


def far_fork(fork_seq: int) -> Append:
    """The creation of a mirrored session that another harness forked."""
    event = SessionCreated(
        agent="coder",
        mode="MIRRORED",
        relation="FORK",
        parent_session_id="parent",
        fork_seq=fork_seq,
    )
    append = make_append("far", event, known_seq=0, epoch=0)
    envelope = append.envelope.model_copy(update={"prev_hash": b"p" * 32})
    return append._replace(envelope=envelope)
