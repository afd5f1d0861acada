"""Where a consumer keeps counts together with how far it has counted: one SQLite file.

Everything of one batch is one transaction: the counts that changed, the sessions that it
touched and the positions behind it. So a process that is killed anywhere goes on from
counts that belong to their positions; what it had counted and not stored it counts again.
"""

import sqlite3
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from foldline.errors import DecodeError, LogFormatError, LogUnavailableError
from foldline.faults import crash_point
from foldline.places import make_private
from foldline.processors.sqlite_file import translated
from foldline.projections.metric_names import FAMILIES
from foldline.projections.metrics import Counts, Key
from foldline.projections.metrics_codec import VERSION, decode_tracked, encode_tracked
from foldline.projections.metrics_tracked import Tracked

BUSY_TIMEOUT_S = 10.0

_SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE counts (
    name TEXT NOT NULL, labels BLOB NOT NULL, number BLOB NOT NULL,
    PRIMARY KEY (name, labels)) WITHOUT ROWID;
CREATE TABLE sessions (
    session_id TEXT PRIMARY KEY, seq INTEGER NOT NULL, head BLOB NOT NULL,
    state BLOB NOT NULL, open BLOB NOT NULL, waiting_since INTEGER) WITHOUT ROWID;
CREATE INDEX waiting ON sessions (waiting_since) WHERE waiting_since IS NOT NULL;
CREATE TABLE positions (
    partition INTEGER PRIMARY KEY, position INTEGER NOT NULL);
"""
_TABLES = ("meta", "counts", "sessions", "positions")


_pack = msgspec.msgpack.encode
_unpack_labels = msgspec.msgpack.Decoder(tuple[str, ...]).decode
_unpack_number = msgspec.msgpack.Decoder(tuple[int, ...]).decode


class MetricsStore:
    """The file. Not for more than one process: the second is refused."""

    def __init__(self, path: Path, *, identity: str) -> None:
        """Open it; one of another log, or of other versions, is begun anew.

        Args:
            path: the file, or `:memory:` for counts that last as long as the process.
            identity: of what is counted: another one means another log.

        Raises:
            LogUnavailableError: another process uses it, or no space.
            LogFormatError: it is damaged, or no such file.
        """
        self.url = str(path)
        if self.url != ":memory:":
            _make_folder(path)
        with translated(self.url):
            self._db = sqlite3.connect(
                path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
            )
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.execute("PRAGMA locking_mode=EXCLUSIVE")
        self._begin(f"{VERSION}.{identity}")

    def _begin(self, identity: str) -> None:
        """Make the tables where there are none of this identity."""
        with translated(self.url), self._transaction():
            if self._identity() == identity:
                return
            for table in _TABLES:
                self._db.execute(f"DROP TABLE IF EXISTS {table}")
            for statement in _SCHEMA.split(";"):
                self._db.execute(statement)
            self._db.execute("INSERT INTO meta VALUES ('identity', ?)", (identity,))

    def _identity(self) -> str:
        try:
            wanted = "SELECT value FROM meta WHERE name = 'identity'"
            row = self._db.execute(wanted).fetchone()
        except sqlite3.OperationalError as error:
            if "no such table" not in str(error):
                raise
            return ""
        return row[0] if row else ""

    @contextmanager
    def _transaction(self) -> Generator[None]:
        """All or nothing."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            with suppress(sqlite3.Error):  # what went wrong before is told
                self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def clear(self) -> None:
        """Forget everything, to count anew."""
        with translated(self.url), self._transaction():
            for table in _TABLES[1:]:
                self._db.execute(f"DELETE FROM {table}")  # noqa: S608 - our own tables
            self._db.execute("DELETE FROM meta WHERE name = 'live_since'")

    # --- reading ---------------------------------------------------------------------

    def counts(self) -> Counts:
        """The counts as they were stored."""
        with translated(self.url):
            rows = self._db.execute("SELECT name, labels, number FROM counts").fetchall()
        return Counts.of(
            (Key(name, _unpack_labels(labels)), _unpack_number(number))
            for name, labels, number in rows
            if name in FAMILIES
        )

    def positions(self) -> dict[int, int]:
        """How far each partition is counted: the offset of the next record."""
        with translated(self.url):
            rows = self._db.execute("SELECT partition, position FROM positions")
            return dict(rows.fetchall())

    def heads(self) -> dict[str, tuple[int, bytes]]:
        """How far each session is counted: its seq, and the hash of that event."""
        with translated(self.url):
            rows = self._db.execute("SELECT session_id, seq, head FROM sessions")
            return {name: (seq, head) for name, seq, head in rows}

    def waiting_since(self) -> int:
        """When the request began that waits longest, in microseconds; 0 without any."""
        wanted = "SELECT MIN(waiting_since) FROM sessions WHERE waiting_since IS NOT NULL"
        with translated(self.url):
            (since,) = self._db.execute(wanted).fetchone()
        return since or 0

    def live_since(self) -> int:
        """When everything was counted for the first time, in microseconds; 0 before."""
        wanted = "SELECT value FROM meta WHERE name = 'live_since'"
        with translated(self.url):
            row = self._db.execute(wanted).fetchone()
        return int(row[0]) if row else 0

    def session(self, session_id: str) -> Tracked | None:
        """What is tracked of a session; None for one of which nothing is counted."""
        wanted = "SELECT state, open FROM sessions WHERE session_id = ?"
        with translated(self.url):
            row = self._db.execute(wanted, (session_id,)).fetchone()
        return None if row is None else self._tracked(row[0], row[1])

    def _tracked(self, state: bytes, rest: bytes) -> Tracked:
        try:
            return decode_tracked(state, rest)
        except DecodeError as error:
            raise LogFormatError(self.url, str(error)) from error

    # --- writing ---------------------------------------------------------------------

    def commit(
        self,
        counts: Counts,
        sessions: Iterable[Tracked],
        positions: Mapping[int, int],
    ) -> None:
        """Store what a batch has changed, in one transaction, and how far it came."""
        crash_point("CP_METRICS_BEFORE_COMMIT")
        with translated(self.url), self._transaction():
            self._db.executemany(
                "INSERT OR REPLACE INTO counts VALUES (?, ?, ?)",
                [
                    (key.name, _pack(key.labels), _pack(counts.series[key]))
                    for key in counts.changed
                ],
            )
            crash_point("CP_METRICS_IN_COMMIT")
            self._db.executemany(
                "INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?, ?, ?)",
                [_row(tracked) for tracked in sessions],
            )
            self._db.executemany(
                "INSERT OR REPLACE INTO positions VALUES (?, ?)", positions.items()
            )
        crash_point("CP_METRICS_AFTER_COMMIT")
        counts.changed.clear()

    def go_live(self, now: int) -> None:
        """Store when everything was counted for the first time, in microseconds."""
        with translated(self.url), self._transaction():
            self._db.execute("INSERT INTO meta VALUES ('live_since', ?)", (str(now),))

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()


def _make_folder(path: Path) -> None:
    try:
        make_private(path.parent)
    except OSError as error:
        raise LogUnavailableError(str(path), str(error)) from error


def _row(tracked: Tracked) -> tuple[str, int, bytes, bytes, bytes, int | None]:
    state = tracked.state
    named = (state.session_id, state.seq, state.chain_head)
    return (*named, *encode_tracked(tracked), tracked.waiting_since)
