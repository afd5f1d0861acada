"""The log in one SQLite file: the default on one machine, for several processes at once.

ACCEPTED means fsynced: WAL with `synchronous=FULL`, admission and fold inside the
transaction. `foldline.processors.sqlite_file` says how a file is made and told.
"""

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from foldline.errors import DecodeError
from foldline.faults import crash_point
from foldline.processors.batch import Change, admit_batch
from foldline.processors.clock import Clock
from foldline.processors.fold import copy_of
from foldline.processors.log import ListPlace, SessionSummary
from foldline.processors.machine_log import MachineLog
from foldline.processors.restore import Source, broken, restore
from foldline.processors.sqlite_file import (
    as_log_error,
    open_writer,
    prepare,
)
from foldline.processors.sqlite_inspect import problems_below
from foldline.processors.sqlite_leases import SqliteLeases
from foldline.processors.sqlite_read import (
    INDEX_ROWS,
    Head,
    Readers,
    head_hash_of,
    head_of,
    key_of,
    read_events,
    read_ids,
    read_index,
    read_page,
    read_snapshots,
    read_summaries,
)
from foldline.processors.sqlite_write import (
    SqliteSchemas,
    add_rows,
    add_session,
    update_session,
)
from foldline.processors.stored import (
    Problem,
    StoredEvent,
    StoredSession,
    StoredSnapshot,
)
from foldline.schemas.codec import event_id_of
from foldline.schemas.recorded import Append
from foldline.schemas.state import SessionState
from foldline.schemas.verdicts import Verdict
from foldline.settings import Settings


class SqliteLog(MachineLog):
    """One SQLite file with its blobs beside it."""

    def __init__(self, path: Path, *, settings: Settings, clock: Clock) -> None:
        url = f"sqlite:///{path}"
        busy_ms = settings.busy_timeout_ms
        prepare(path, url=url, clock=clock)
        self._writer = open_writer(path, url=url, busy_timeout_ms=busy_ms)
        self._readers = Readers(path, url=url, busy_timeout_ms=busy_ms)
        self._file_leases = SqliteLeases(path, url=url, busy_timeout_ms=busy_ms)
        self._schemas = SqliteSchemas(self._writer, self._readers)
        super().__init__(
            path,
            url=url,
            settings=settings,
            clock=clock,
            leases=self._file_leases,
            schemas=self._schemas,
        )
        self._keys: dict[str, int] = {}

    # --- appending -------------------------------------------------------------------

    def _transaction(self, appends: Sequence[Append]) -> list[Verdict]:
        """Admit and record one batch.

        1. Take the file's one write lock: from here on nobody else appends.
        2. Load each session's state: the cached one if the index still has its seq and
           head hash, else restored from snapshot and tail.
        3. Admit each append on the state that those before it made, fold it in.
        4. Write events, snapshots and the index.
        5. Commit: the write-ahead log is synced. Nothing to write: nothing is synced.
        6. Only now the new states become the cached ones, and followers are woken.

        Whatever fails before 6 is rolled back, and the cached states were not touched.
        """
        with self._lock:
            self._readers.check_usable()
            try:
                self._keys.clear()
                self._writer.execute("BEGIN IMMEDIATE")
                batch = admit_batch(appends, ways=self._ways)
                if not batch.changes:
                    self._writer.execute("ROLLBACK")
                    return batch.verdicts
                for session_id, change in batch.changes.items():
                    self._store(session_id, change)
                crash_point("CP_APPEND_BEFORE_COMMIT")
                self._writer.execute("COMMIT")
            except BaseException as error:
                self._roll_back()
                if isinstance(error, sqlite3.Error):
                    raise as_log_error(self._url, error) from error
                raise
            crash_point("CP_APPEND_AFTER_COMMIT")
            for session_id, change in batch.changes.items():
                self._cache.put(self._keys[session_id], change.state)
        self._wake_followers()
        return batch.verdicts

    def _roll_back(self) -> None:
        self.schemas.forget()
        if self._writer.in_transaction:
            self._writer.execute("ROLLBACK")

    def _load(self, session_id: str) -> SessionState | None:
        found = self._head(self._writer, session_id)
        if found is None:
            return None
        self._keys[session_id], state = found
        return state

    def _store(self, session_id: str, change: Change) -> None:
        key = self._keys.get(session_id)
        if key is None:
            key = self._keys[session_id] = add_session(self._writer, change.state)
        else:
            update_session(self._writer, key, change.state)
        add_rows(self._writer, key, change)

    # --- reading ---------------------------------------------------------------------

    def event_ids(self, session_id: str) -> Iterator[str]:
        """Every event id of a session, in order, read off the bodies undecoded."""
        after_seq = 0
        while True:
            with self._readers.lend() as reader:
                key = key_of(reader, session_id)
                if key is None:
                    return
                rows = read_ids(reader, key, after_seq=after_seq)
            for seq, start in rows:
                try:
                    event_id = event_id_of(start)
                except DecodeError as error:
                    raise broken(self._url, session_id, seq, error.reason) from error
                yield event_id
                after_seq = seq
            if not rows:
                return

    def _range(
        self, session_id: str, after_seq: int, upto_seq: int | None
    ) -> Iterator[StoredEvent]:
        """Events page by page, so that a slow consumer holds no transaction open."""
        while True:
            with self._readers.lend() as reader:
                key = key_of(reader, session_id)
                if key is None:
                    return
                page = read_page(reader, key, after_seq=after_seq, upto_seq=upto_seq)
            if not page:
                return
            yield from page
            after_seq = page[-1].seq

    def state(self, session_id: str, *, at_seq: int | None = None) -> SessionState | None:
        """The state at the head, or as it was at a seq.

        Raises:
            LogFormatError: an event after the snapshot is not the one recorded.
        """
        with self._readers.lend() as reader:
            if at_seq is None:
                found = self._head(reader, session_id)
                return copy_of(found[1]) if found else None
            head = head_of(reader, session_id)
            if head is None or not 1 <= at_seq <= head.seq:
                return None
            state = self._restored(reader, session_id, head.key, at_seq)
            self._check_link(reader, head, state)
            return state

    def _check_link(
        self, connection: sqlite3.Connection, head: Head, state: SessionState | None
    ) -> None:
        """Compare the last event that was folded with what is known of it afterwards.

        The index has the last event's hash, every other's is in its successor. That one
        counts if its own hash is known in the same way: a changed event must not make
        those before it unreadable.
        """
        if state is None:
            return
        known = head.head_hash
        if state.seq < head.seq:
            after = list(
                read_events(
                    connection, head.key, after_seq=state.seq, upto_seq=state.seq + 2
                )
            )
            known_next = self._prev_hash(after[1]) if after[1:] else head.head_hash
            if not after or hashlib.sha256(after[0].body).digest() != known_next:
                return
            known = self._prev_hash(after[0])
        if known != state.chain_head:
            reason = "it is not the event that was recorded"
            raise broken(self._url, state.session_id, state.seq, reason)

    def _prev_hash(self, stored: StoredEvent) -> bytes | None:
        try:
            event = self._codec.decode(stored.schema_id, stored.body)
        except DecodeError:
            return None  # the two do not fit, whichever of them was changed
        return event.envelope.prev_hash

    def _head(
        self, connection: sqlite3.Connection, session_id: str
    ) -> tuple[int, SessionState] | None:
        """Key and state at the head; the state is the cache's: to be copied only."""
        cached = self._cache.get(session_id)
        if cached is not None and cached[1].chain_head == head_hash_of(
            connection, cached[0]
        ):
            return cached
        head = head_of(connection, session_id)
        if head is None:
            return None
        state = self._restored(connection, session_id, head.key, head.seq)
        if state is None or (state.seq, state.chain_head) != (head.seq, head.head_hash):
            reason = "it is not the event that the index has"
            raise broken(self._url, session_id, head.seq, reason)
        self._cache.put(head.key, state)
        return head.key, state

    def _restored(
        self, connection: sqlite3.Connection, session_id: str, key: int, at_seq: int
    ) -> SessionState | None:
        def tail(after_seq: int) -> Iterable[StoredEvent]:
            return read_events(connection, key, after_seq=after_seq, upto_seq=at_seq)

        return restore(
            Source(
                self._url,
                session_id,
                self._codec,
                read_snapshots(connection, key, upto_seq=at_seq),
                tail,
            )
        )

    def sessions(
        self,
        *,
        tenant: str | None = None,
        status: str | None = None,
        limit: int = 100,
        before: ListPlace | None = None,
    ) -> list[SessionSummary]:
        """Sessions, the most recently active first."""
        with self._readers.lend() as reader:
            return read_summaries(
                reader, tenant=tenant, status=status, limit=limit, before=before
            )

    def close(self) -> None:
        """Close the file and let its leases' locks go; any thread may."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._file_leases.close()
            self._readers.close()
            self._writer.close()
        self._wake_followers()

    # --- as it is stored --------------------------------------------------------------

    def stored_sessions(
        self, *, after: str = "", parent: str | None = None
    ) -> Iterator[StoredSession]:
        """The index, in the order of the session ids."""
        while True:
            with self._readers.lend() as reader:
                rows = read_index(reader, after=after, parent=parent)
            yield from rows
            if len(rows) < INDEX_ROWS:
                return
            after = rows[-1].session_id

    def stored_events(
        self, session_id: str, *, after_seq: int = -1, upto_seq: int | None = None
    ) -> Iterator[StoredEvent]:
        """The rows of a session in the order of their seqs, undecoded."""
        yield from self._range(session_id, after_seq, upto_seq)

    def stored_snapshots(self, session_id: str) -> Iterator[StoredSnapshot]:
        """The snapshots of a session, the oldest first."""
        with self._readers.lend() as reader:
            key = key_of(reader, session_id)
            rows = list(read_snapshots(reader, key, newest_first=False)) if key else []
        yield from rows

    def inspect(self) -> Iterator[Problem]:
        """Damaged pages, rows of no session, schemas that were changed."""
        yield from problems_below(self._readers, self._schemas)
