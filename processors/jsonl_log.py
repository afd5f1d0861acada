"""The log as JSON lines in one file: to be read by eye, grep and jq; for small logs.

ACCEPTED means fsynced: a batch is appended under the file's lock with one fsync. There is
no index on disk: whoever opens the log reads the file once, and folds a session when it
is first asked for. `foldline.processors.jsonl_line` says what the lines hold,
`foldline.processors.jsonl_file` what becomes of a torn end.
"""

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from foldline.errors import LogFormatError, LogUnavailableError
from foldline.faults import crash_point
from foldline.processors.batch import Batch, admit_batch
from foldline.processors.clock import Clock
from foldline.processors.fold import copy_of
from foldline.processors.jsonl_file import JsonlFile
from foldline.processors.jsonl_index import Head, JsonlIndex, Place
from foldline.processors.jsonl_leases import JsonlLeases
from foldline.processors.jsonl_line import EventLine, body_of, parse_line
from foldline.processors.jsonl_write import JsonlSchemas, lines_of
from foldline.processors.log import ListPlace, SessionSummary, order_of
from foldline.processors.machine_log import MachineLog
from foldline.processors.restore import Source, broken, restore
from foldline.processors.stored import (
    Problem,
    StoredEvent,
    StoredSession,
    StoredSnapshot,
    changed_schemas,
    summary_of_row,
)
from foldline.schemas.codec import event_id_of
from foldline.schemas.events import SessionCreated
from foldline.schemas.recorded import Append
from foldline.schemas.state import SessionState
from foldline.schemas.verdicts import Verdict
from foldline.settings import Settings


class JsonlLog(MachineLog):
    """One file of JSON lines with its blobs and leases beside it."""

    def __init__(self, path: Path, *, settings: Settings, clock: Clock) -> None:
        url = f"jsonl:///{path}"
        busy_ms = settings.busy_timeout_ms
        self._file = JsonlFile(
            path,
            url=url,
            clock=clock,
            busy_timeout_ms=busy_ms,
            max_bytes=settings.jsonl_max_bytes,
        )
        self._index = JsonlIndex(self._file, url=url)
        self._file_leases = JsonlLeases(path, url=url, busy_timeout_ms=busy_ms)
        self._schemas = JsonlSchemas(self._index)
        super().__init__(
            path,
            url=url,
            settings=settings,
            clock=clock,
            leases=self._file_leases,
            schemas=self._schemas,
        )
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        """Settle what a killed writer left; one that lives does so for itself."""
        with contextlib.suppress(LogUnavailableError), self._file.locked(timeout_ms=0):
            self._file.settle()
        self._look()

    def _look(self) -> None:
        """Take in what others recorded."""
        self._index.catch_up(self._file.marker())

    # --- appending ------------------------------------------------------------------------

    def _transaction(self, appends: Sequence[Append]) -> list[Verdict]:
        """Admit and record one batch.

        1. Take the file's lock: from here on nobody else appends.
        2. Settle what a killed writer left, and take in what others recorded.
        3. Admit each append on the state that those before it made, fold it in.
        4. Write the lines, sync, move the marker. Nothing to write: nothing is synced.
        5. Only now the new states become the cached ones, and followers are woken.

        Whatever fails before 5 is cut off, and the cached states were not touched.
        """
        with self._lock, self._file.locked():
            marker = self._file.settle()
            self._index.catch_up(marker)
            try:
                batch = admit_batch(appends, ways=self._ways)
                if not batch.changes:
                    self._forget_schemas()
                    return batch.verdicts
                changes = batch.changes.values()
                codec = self._codec
                data = lines_of(self._schemas.new, changes, codec=codec)
                crash_point("CP_APPEND_BEFORE_COMMIT")
                self._file.append(data, marker)
            except BaseException:
                self._forget_schemas()
                raise
            crash_point("CP_APPEND_AFTER_COMMIT")
            self._take_in(batch)
        self._wake_followers()
        return batch.verdicts

    def _forget_schemas(self) -> None:
        self._schemas.new.clear()
        self.schemas.forget()

    def _take_in(self, batch: Batch) -> None:
        self._look()
        self._schemas.new.clear()
        for session_id, change in batch.changes.items():
            head = self._index.head(session_id)
            if head is not None:
                self._cache.put(head.number, change.state)
            self._index.keep(session_id, change.snapshots)

    # --- reading --------------------------------------------------------------------------

    def event_ids(self, session_id: str) -> Iterator[str]:
        """Every event id of a session, in order, read off the bodies undecoded."""
        for stored in self._range(session_id, 0, None):
            yield event_id_of(stored.body)

    def _range(
        self, session_id: str, after_seq: int, upto_seq: int | None
    ) -> Iterator[StoredEvent]:
        """Events in order; an error where one is missing, never a silent gap."""
        self._look()
        expected = after_seq + 1
        for stored in self._stored(session_id, after_seq, upto_seq):
            if stored.seq > expected and not self._begins(session_id, stored):
                reason = "its line is damaged or gone; `foldline verify` names the lines"
                raise broken(self._url, session_id, expected, reason)
            yield stored
            expected = stored.seq + 1

    def _begins(self, session_id: str, stored: StoredEvent) -> bool:
        """Whether a session may begin with this event: a fork's seqs go on."""
        if stored.seq != self._index.first_seq(session_id):
            return False
        recorded = self._codec.decode_structure(stored.schema_id, stored.body)
        return isinstance(recorded.event, SessionCreated)

    def _stored(
        self, session_id: str, after_seq: int, upto_seq: int | None
    ) -> Iterator[StoredEvent]:
        while True:
            page = self._index.places(session_id, after_seq=after_seq, upto_seq=upto_seq)
            if not page:
                return
            for place in page:
                yield self._event_at(session_id, place)
            after_seq = page[-1].seq

    def _event_at(self, session_id: str, place: Place) -> StoredEvent:
        data = self._file.read(place.offset, place.size)
        line = parse_line(data.removesuffix(b"\n"))
        body = body_of(line)
        if not isinstance(line, EventLine) or body is None:
            raise broken(self._url, session_id, place.seq, "its line is damaged")
        if hashlib.sha256(body).digest() != line.sha256:
            reason = "its body does not match its sha256"
            raise broken(self._url, session_id, place.seq, reason)
        return StoredEvent(line.seq, line.schema_id, body)

    def state(self, session_id: str, *, at_seq: int | None = None) -> SessionState | None:
        """The state at the head, or as it was at a seq.

        Raises:
            LogFormatError: an event that it rests on is damaged or gone.
        """
        self._look()
        if at_seq is None:
            state = self._load(session_id)
            return copy_of(state) if state else None
        head = self._known_head(session_id, at_seq)
        if head is None or not 1 <= at_seq <= head:
            return None
        return self._restored(session_id, at_seq)

    def _known_head(self, session_id: str, at_seq: int) -> int | None:
        """The last seq that is known: what is before a damaged end stays readable."""
        try:
            head = self._index.head(session_id)
        except LogFormatError:
            page = self._index.places(session_id, after_seq=at_seq - 1, upto_seq=at_seq)
            if not page:
                raise
            return page[-1].seq
        return head.seq if head else None

    def _load(self, session_id: str) -> SessionState | None:
        """The state at the head; it is the cache's: to be copied only."""
        head = self._index.head(session_id)
        if head is None or not head.seq:
            return None
        cached = self._cache.get(session_id)
        if cached is not None and cached[1].chain_head == head.head_hash:
            return cached[1]
        state = self._restored(session_id, head.seq)
        self._check_head(session_id, head, state)
        if state is not None:
            self._cache.put(head.number, state)
        return state

    def _check_head(self, session_id: str, head: Head, state: SessionState | None) -> None:
        if state is None or (state.seq, state.chain_head) != (head.seq, head.head_hash):
            reason = "it is not the event that its line says"
            raise broken(self._url, session_id, head.seq, reason)

    def _restored(self, session_id: str, at_seq: int) -> SessionState | None:
        kept = self._index.snapshots(session_id)
        return restore(
            Source(
                self._url,
                session_id,
                self._codec,
                [snapshot for snapshot in reversed(kept) if snapshot.seq <= at_seq],
                lambda after_seq: self._range(session_id, max(after_seq, 0), at_seq),
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
        self._look()
        rows = [
            row
            for row in self._index.rows()
            if tenant in (None, row.tenant) and status in (None, row.status)
            if before is None or order_of(row) < before
        ]
        rows.sort(key=order_of, reverse=True)
        return [summary_of_row(row) for row in rows[:limit]]

    def close(self) -> None:
        """Close the file and let its leases' locks go; any thread may."""
        self._closed = True
        self._file_leases.close()
        self._file.close()
        self._wake_followers()

    # --- as it is stored ------------------------------------------------------------------

    def stored_sessions(
        self, *, after: str = "", parent: str | None = None
    ) -> Iterator[StoredSession]:
        """The index, in the order of the session ids."""
        self._look()
        for row in self._index.rows():
            if row.session_id > after and parent in (None, row.parent_session_id):
                yield row

    def stored_events(
        self, session_id: str, *, after_seq: int = -1, upto_seq: int | None = None
    ) -> Iterator[StoredEvent]:
        """The events of a session in the order of their seqs, undecoded."""
        self._look()
        yield from self._stored(session_id, after_seq, upto_seq)

    def stored_snapshots(self, session_id: str) -> Iterator[StoredSnapshot]:
        """The states that this process keeps in memory, the oldest first."""
        yield from self._index.snapshots(session_id)

    def inspect(self) -> Iterator[Problem]:
        """Damaged lines by their numbers, lost ends, schemas that were changed."""
        anew = JsonlIndex(self._file, url=self._url)
        anew.catch_up(self._file.marker())
        for damage in anew.damage:
            yield Problem("", 0, str(damage))
        unnamed = anew.damage_count - len(anew.damage)
        if unnamed:
            yield Problem("", 0, f"{unnamed} more damaged lines")
        for path in sorted(self._file.torn_folder.glob("lost-*")):
            yield Problem("", 0, f"acknowledged bytes are gone: {path} has what was left")
        yield from changed_schemas(anew.schemas.values())
