"""Reading a SQLite log: a pool of connections that never wait for a writer."""

import os
import sqlite3
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from foldline.errors import LogUnavailableError
from foldline.processors.log import ListPlace, SessionSummary
from foldline.processors.sqlite_file import (
    MAX_SEQ,
    connect,
    position,
    seq_at,
    translated,
)
from foldline.processors.stored import StoredEvent, StoredSession, StoredSnapshot
from foldline.schemas.codec import ID_START_BYTES

INDEX_ROWS = 1_000
"""How many rows of the index one query reads."""

PAGE_EVENTS = 256
PAGE_BYTES = 4 * 1024 * 1024
"""How much one query reads: between two, nothing keeps SQLite from tidying up."""

IDLE_CONNECTIONS = 8
"""How many idle connections are kept."""

_SUMMARY = (
    "session_id, tenant, agent, mode, status, seq, epoch, owner, "
    "parent_session_id, created_at, recorded_at"
)


class Readers:
    """Connections for reading, each used by one thread at a time."""

    def __init__(self, path: Path, *, url: str, busy_timeout_ms: int) -> None:
        self._path = path
        self._url = url
        self._busy_timeout_ms = busy_timeout_ms
        self._lock = threading.Lock()
        self._idle: list[sqlite3.Connection] = []
        self._closed = False
        self._process_id = os.getpid()

    def check_usable(self) -> None:
        """Raise if the log was closed, or came here by a fork.

        A connection of SQLite must not be used on both sides of a fork.
        """
        if self._closed:
            raise LogUnavailableError(self._url, "the log is closed")
        if os.getpid() != self._process_id:
            reason = "it was opened before this process was forked: open it again"
            raise LogUnavailableError(self._url, reason)

    @contextmanager
    def lend(self) -> Generator[sqlite3.Connection]:
        """A connection, in one read transaction: all it reads is of one moment."""
        with translated(self._url):
            connection = self._take()
            try:
                connection.execute("BEGIN")
                yield connection
                connection.execute("ROLLBACK")
            except BaseException:
                connection.close()
                raise
        self._give_back(connection)

    def _take(self) -> sqlite3.Connection:
        self.check_usable()
        with self._lock:
            if self._idle:
                return self._idle.pop()
        connection = connect(self._path, busy_timeout_ms=self._busy_timeout_ms)
        connection.execute("PRAGMA query_only=ON")
        return connection

    def _give_back(self, connection: sqlite3.Connection) -> None:
        with self._lock:
            if not self._closed and len(self._idle) < IDLE_CONNECTIONS:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Close what is idle; what is lent is closed when it comes back."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()


# Damage can make a number of a blob: whatever is none is read as an empty one, which no
# body and no digest is, so that its row is named and not the query.
_BLOB = "CASE typeof({0}) WHEN 'blob' THEN {0} ELSE x'' END"
_BODY = _BLOB.format("body")
_DIGEST = _BLOB.format("digest")


def _bound(session_id: str) -> str | None:
    """The id as SQLite takes it; None, which is no row's, for one that is not UTF-8."""
    try:
        session_id.encode()
    except UnicodeEncodeError:
        return None
    return session_id


def key_of(connection: sqlite3.Connection, session_id: str) -> int | None:
    """The key of a session's rows; None for no session."""
    row = connection.execute(
        "SELECT key FROM sessions WHERE session_id = ?", (_bound(session_id),)
    ).fetchone()
    return None if row is None else row[0]


@dataclass(frozen=True, slots=True)
class Head:
    """Where a session's rows are, and which is the last."""

    key: int
    seq: int
    head_hash: bytes


def head_of(connection: sqlite3.Connection, session_id: str) -> Head | None:
    """The head of a session; None for no session."""
    row = connection.execute(
        "SELECT key, seq, head_hash FROM sessions WHERE session_id = ?",
        (_bound(session_id),),
    ).fetchone()
    if row is None:
        return None
    if not isinstance(row[1], int):
        raise sqlite3.IntegrityError(f"session {session_id!r}: its seq is {row[1]!r}")
    return Head(*row)


def head_hash_of(connection: sqlite3.Connection, key: int) -> bytes | None:
    """The head hash of a session whose key is known."""
    row = connection.execute(
        "SELECT head_hash FROM sessions WHERE key = ?", (key,)
    ).fetchone()
    return None if row is None else row[0]


def read_events(
    connection: sqlite3.Connection,
    key: int,
    *,
    after_seq: int,
    upto_seq: int | None,
) -> Iterator[StoredEvent]:
    """Events of a session with after_seq < seq <= upto_seq."""
    last = MAX_SEQ if upto_seq is None else min(upto_seq, MAX_SEQ)
    rows = connection.execute(
        f"SELECT position, schema_id, {_BODY} FROM events "  # noqa: S608 - a constant
        "WHERE position > ? AND position <= ? ORDER BY position",
        (position(key, min(max(after_seq, -1), MAX_SEQ)), position(key, max(last, 0))),
    )
    for place, schema_id, body in rows:
        yield StoredEvent(seq_at(place), schema_id, body)


def read_page(
    connection: sqlite3.Connection, key: int, *, after_seq: int, upto_seq: int | None
) -> list[StoredEvent]:
    """The next events, up to a limit of number and size; none at the end."""
    page: list[StoredEvent] = []
    size = 0
    for stored in read_events(connection, key, after_seq=after_seq, upto_seq=upto_seq):
        page.append(stored)
        size += len(stored.body)
        if len(page) == PAGE_EVENTS or size >= PAGE_BYTES:
            break
    return page


def read_ids(
    connection: sqlite3.Connection, key: int, *, after_seq: int
) -> list[tuple[int, bytes]]:
    """Seq and the first bytes of bodies: the event id is a body's first field."""
    rows = connection.execute(
        f"SELECT position, ifnull(substr({_BODY}, 1, {ID_START_BYTES}), x'') FROM events "  # noqa: S608 - a constant
        "WHERE position > ? AND position <= ? ORDER BY position LIMIT ?",
        (position(key, after_seq), position(key, MAX_SEQ), PAGE_EVENTS),
    )
    return [(seq_at(place), start) for place, start in rows]


def read_snapshots(
    connection: sqlite3.Connection,
    key: int,
    *,
    upto_seq: int = MAX_SEQ,
    newest_first: bool = True,
) -> Iterator[StoredSnapshot]:
    """Snapshots of a session, none beyond a seq."""
    order = "DESC" if newest_first else "ASC"
    rows = connection.execute(
        f"SELECT position, {_BODY}, {_DIGEST} FROM snapshots "  # noqa: S608 - constants
        f"WHERE position > ? AND position <= ? ORDER BY position {order}",
        (position(key, 0), position(key, min(upto_seq, MAX_SEQ))),
    )
    for place, body, digest in rows:
        yield StoredSnapshot(seq_at(place), body, digest)


def read_index(
    connection: sqlite3.Connection, *, after: str, parent: str | None
) -> list[StoredSession]:
    """What the index says of the next INDEX_ROWS sessions; of one's children only."""
    rows = connection.execute(
        "SELECT session_id, seq, status, epoch, owner, head_hash, tenant, agent, mode, "
        "parent_session_id, created_at, recorded_at FROM sessions "
        "WHERE session_id > ?1 AND (?2 IS NULL OR parent_session_id = ?2) "
        "ORDER BY session_id LIMIT ?3",
        (after, parent, INDEX_ROWS),
    )
    return [StoredSession(*row) for row in rows]


def read_summaries(
    connection: sqlite3.Connection,
    *,
    tenant: str | None,
    status: str | None,
    limit: int,
    before: ListPlace | None,
) -> list[SessionSummary]:
    """Sessions behind a place, the most recently active first."""
    time, session_id = before or (None, None)
    rows = connection.execute(
        f"SELECT {_SUMMARY} FROM sessions "  # noqa: S608 - a constant
        "WHERE (?1 IS NULL OR tenant = ?1) AND (?2 IS NULL OR status = ?2) "
        "AND (?4 IS NULL OR (recorded_at, session_id) < (?4, ?5)) "
        "ORDER BY recorded_at DESC, session_id DESC LIMIT ?3",
        (tenant, status, min(limit, MAX_SEQ), time, session_id),
    )
    return [SessionSummary(*cast("tuple[Any, ...]", row)) for row in rows]
