"""The SQLite file of a log: making it, telling it from others, connecting to it.

How a file is told, before anything may change it:

1. No file, but a write-ahead log of that name: the database was lost; stop.
2. No file: a new one is built whole under another name and linked to its own, so that
   of two processes one makes it, and a killed one leaves none half made.
3. A file: its header is read without lock or write (`immutable=1`). Not SQLite, empty,
   or of another program: LogFormatError. A newer format: NewerFormatError.
4. Only then it is opened for writing, and its rules version is compared.
"""

import os
import sqlite3
import time
import uuid
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from foldline.errors import LogFormatError, LogUnavailableError, NewerFormatError
from foldline.places import OWN_FILE, make_private, sync_folder
from foldline.processors.admission import RULES_VERSION
from foldline.schemas.state import FOLD_VERSION

APPLICATION_ID = 0x666F6C64
"""What marks the file as a foldline log: "fold" in ASCII."""

FORMAT_VERSION = 1
"""The version of the tables, in SQLite's user_version."""

SEQ_BITS = 32
"""A row's position is (its session's key << SEQ_BITS) + its seq; see MAX_FORK_SEQ."""

MAX_SEQ = (1 << SEQ_BITS) - 1

WAL_KEPT_BYTES = 64 * 1024 * 1024
"""What of the write-ahead log's file is kept after a burst."""

HEADER_TRIES = 5
HEADER_WAIT_S = 0.02
"""A header read while another process checkpoints may look torn: look again."""

# Events lie in the order of session and seq: one b-tree, its key in the row's id, so
# that a body of a few KB needs no overflow page and a range is read from neighbours.
SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE schemas (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, version INTEGER NOT NULL,
    fingerprint BLOB NOT NULL UNIQUE, text TEXT NOT NULL);
CREATE TABLE sessions (
    key INTEGER PRIMARY KEY, session_id TEXT NOT NULL UNIQUE, tenant TEXT NOT NULL,
    agent TEXT NOT NULL, mode TEXT NOT NULL, status TEXT NOT NULL,
    seq INTEGER NOT NULL, epoch INTEGER NOT NULL, owner TEXT NOT NULL,
    parent_session_id TEXT NOT NULL, created_at INTEGER NOT NULL,
    recorded_at INTEGER NOT NULL, head_hash BLOB NOT NULL);
CREATE TABLE events (
    position INTEGER PRIMARY KEY, schema_id INTEGER NOT NULL, body BLOB NOT NULL);
CREATE TABLE snapshots (
    position INTEGER PRIMARY KEY, digest BLOB NOT NULL, body BLOB NOT NULL);
CREATE TABLE leases (
    session_id TEXT PRIMARY KEY, epoch INTEGER NOT NULL, writer TEXT NOT NULL,
    boot_id TEXT NOT NULL, renewed_ms INTEGER NOT NULL, ttl_ms INTEGER NOT NULL,
    locked INTEGER NOT NULL) WITHOUT ROWID;
CREATE VIEW session_events AS
    SELECT session_id, position & 0xFFFFFFFF AS seq, name AS type, body
    FROM events JOIN sessions ON key = position >> 32
    JOIN schemas ON schemas.id = schema_id;
"""

_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_PRIMARY_CODE = 0xFF


def position(key: int, seq: int) -> int:
    """Where a session's row of a seq lies."""
    return (key << SEQ_BITS) + seq


def seq_at(place: int) -> int:
    """The seq of a position."""
    return place & MAX_SEQ


@contextmanager
def translated(url: str) -> Generator[None]:
    """Raise SQLite's errors as the log's: damaged, or not available now."""
    try:
        yield
    except sqlite3.Error as error:
        raise as_log_error(url, error) from error


def as_log_error(url: str, error: sqlite3.Error) -> LogFormatError | LogUnavailableError:
    """What an error of SQLite means to whoever appends or reads."""
    code = getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE
    if code in _DAMAGED or isinstance(error, sqlite3.IntegrityError):
        return LogFormatError(url, str(error))
    if str(error).startswith("Could not decode to UTF-8"):
        return LogFormatError(url, str(error))
    return LogUnavailableError(url, str(error))


def connect(
    path: Path, *, busy_timeout_ms: int, options: str = "mode=rw"
) -> sqlite3.Connection:
    """A connection that begins no transaction by itself and makes no file."""
    return sqlite3.connect(
        f"file:{quote(str(path))}?{options}",
        uri=True,
        timeout=busy_timeout_ms / 1000,
        isolation_level=None,
        check_same_thread=False,
    )


def prepare(path: Path, *, url: str, clock: Callable[[], int]) -> None:
    """Make the file if there is none; else see that it is a log, changing nothing.

    Raises:
        LogFormatError: torn, empty, or of another program.
        NewerFormatError: of a newer foldline.
        LogUnavailableError: it cannot be made or read.
    """
    try:
        if not path.exists():
            _make(path, url=url, clock=clock)
        elif path.is_dir():
            raise LogFormatError(url, "it is a folder")
        _check(path, url=url)
        _sync_write_ahead_log(path)
    except OSError as error:
        raise LogUnavailableError(url, str(error)) from error


def _make(path: Path, *, url: str, clock: Callable[[], int]) -> None:
    write_ahead = path.with_name(f"{path.name}-wal")
    if write_ahead.exists() and write_ahead.stat().st_size:
        raise LogFormatError(url, f"the database is gone, {write_ahead} is still there")
    make_private(path.parent)
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}.new")
    try:
        with translated(url):
            _fill(draft, clock=clock)
        os.link(draft, path)
    except FileExistsError:
        pass  # another process made it in the meantime
    finally:
        for leftover in ("", "-wal", "-shm", "-journal"):
            draft.with_name(draft.name + leftover).unlink(missing_ok=True)
    sync_folder(path.parent)


def _fill(draft: Path, *, clock: Callable[[], int]) -> None:
    # SQLite gives its -wal and -shm the mode of the database.
    os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWN_FILE))
    connection = connect(draft, busy_timeout_ms=0, options="mode=rwc")
    try:
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version={FORMAT_VERSION}")
        connection.executescript(f"BEGIN;{SCHEMA}COMMIT;")
        connection.executemany(
            "INSERT INTO meta VALUES (?, ?)",
            {
                "log_id": uuid.uuid4().hex,
                "created_at": str(clock()),
                "format_version": str(FORMAT_VERSION),
                "rules_version": str(RULES_VERSION),
                "fold_version": str(FOLD_VERSION),
            }.items(),
        )
        connection.execute("PRAGMA journal_mode=WAL")
    finally:
        connection.close()


def _check(path: Path, *, url: str) -> None:
    if path.stat().st_size == 0:
        raise LogFormatError(url, "the file is empty")
    application_id, user_version = _header(path, url=url)
    if application_id != APPLICATION_ID:
        raise LogFormatError(url, "a SQLite database of another program")
    if user_version > FORMAT_VERSION:
        raise NewerFormatError(url, user_version, FORMAT_VERSION)


def _header(path: Path, *, url: str) -> tuple[int, int]:
    for attempt in range(HEADER_TRIES):
        connection = connect(path, busy_timeout_ms=0, options="immutable=1")
        try:
            return _pragma(connection, "application_id"), _pragma(
                connection, "user_version"
            )
        except sqlite3.DatabaseError as error:
            code = getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE
            if code != sqlite3.SQLITE_CORRUPT or attempt == HEADER_TRIES - 1:
                raise as_log_error(url, error) from error
            time.sleep(HEADER_WAIT_S)
        finally:
            connection.close()
    raise AssertionError


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _sync_write_ahead_log(path: Path) -> None:
    """Make what a killed process wrote, and the next one will see, durable first.

    Its last transaction may be whole in the file and yet not on the disk. We would
    answer DUPLICATE to a resend of it, which is a promise.
    """
    try:
        descriptor = os.open(f"{path}-wal", os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_writer(path: Path, *, url: str, busy_timeout_ms: int) -> sqlite3.Connection:
    """The connection that appends.

    Raises:
        NewerFormatError: rules of a newer foldline are in force.
    """
    with translated(url):
        connection = connect(path, busy_timeout_ms=busy_timeout_ms)
        try:
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("PRAGMA fullfsync=ON")  # macOS: to the disk itself
            connection.execute(f"PRAGMA journal_size_limit={WAL_KEPT_BYTES}")
            _check_rules(connection, url=url)
        except BaseException:
            connection.close()
            raise
    return connection


def _check_rules(connection: sqlite3.Connection, *, url: str) -> None:
    row = connection.execute(
        "SELECT value FROM meta WHERE name = 'rules_version'"
    ).fetchone()
    if row is None or not str(row[0]).isdecimal():
        raise LogFormatError(url, "it does not say its rules version")
    if int(row[0]) > RULES_VERSION:
        raise NewerFormatError(f"{url} (rules)", int(row[0]), RULES_VERSION)
