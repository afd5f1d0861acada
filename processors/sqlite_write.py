"""Writing a SQLite log's rows, inside the transaction of an append."""

import sqlite3
from collections.abc import Iterable

from foldline.processors.batch import Change
from foldline.processors.sqlite_file import position
from foldline.processors.sqlite_read import Readers
from foldline.schemas.registry import StoredSchema
from foldline.schemas.state import SessionState


def add_session(connection: sqlite3.Connection, state: SessionState) -> int:
    """Put a new session into the index, and give its key."""
    cursor = connection.execute(
        "INSERT INTO sessions (session_id, tenant, agent, mode, status, seq, epoch, "
        "owner, parent_session_id, created_at, recorded_at, head_hash) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            state.session_id,
            state.tenant,
            state.agent,
            state.mode,
            state.status,
            state.seq,
            state.epoch,
            state.owner,
            state.parent_session_id,
            state.created_at,
            state.recorded_at,
            state.chain_head,
        ),
    )
    return int(cursor.lastrowid or 0)


def update_session(connection: sqlite3.Connection, key: int, state: SessionState) -> None:
    """Bring the index up to a session's new state."""
    connection.execute(
        "UPDATE sessions SET agent = ?, status = ?, seq = ?, epoch = ?, owner = ?, "
        "recorded_at = ?, head_hash = ? WHERE key = ?",
        (
            state.agent,
            state.status,
            state.seq,
            state.epoch,
            state.owner,
            state.recorded_at,
            state.chain_head,
            key,
        ),
    )


def add_rows(connection: sqlite3.Connection, key: int, change: Change) -> None:
    """Write a session's new events, and the snapshots that are due.

    An event whose row is taken is an error of SQLite: nothing is ever overwritten.
    """
    connection.executemany(
        "INSERT INTO events VALUES (?, ?, ?)",
        [(position(key, row.seq), row.schema_id, row.body) for row in change.events],
    )
    if change.snapshots:
        connection.executemany(
            "INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?)",
            [
                (position(key, snapshot.seq), snapshot.digest, snapshot.body)
                for snapshot in change.snapshots
            ],
        )


class SqliteSchemas:
    """The schemas of the file: read like events, added in an append's transaction."""

    def __init__(self, writer: sqlite3.Connection, readers: Readers) -> None:
        self._writer = writer
        self._readers = readers

    def rows(self) -> Iterable[StoredSchema]:
        """Every schema, in the order of the ids."""
        with self._readers.lend() as reader:
            found = reader.execute(
                "SELECT id, name, version, fingerprint, text FROM schemas ORDER BY id"
            ).fetchall()
        return [StoredSchema(*row) for row in found]

    def add(self, name: str, version: int, fingerprint: bytes, text: str) -> int:
        """The id of a schema: the one it has, or a new one."""
        row = self._writer.execute(
            "SELECT id FROM schemas WHERE fingerprint = ?", (fingerprint,)
        ).fetchone()
        if row is not None:
            return int(row[0])
        cursor = self._writer.execute(
            "INSERT INTO schemas (name, version, fingerprint, text) VALUES (?, ?, ?, ?)",
            (name, version, fingerprint, text),
        )
        return int(cursor.lastrowid or 0)
