"""The log in memory: same verdicts, bytes and reads as the others; nothing survives."""

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from foldline.errors import LogUnavailableError
from foldline.processors.batch import Change, admit_batch
from foldline.processors.blobs import BlobStore
from foldline.processors.clock import Clock
from foldline.processors.fold import copy_of
from foldline.processors.log import (
    FOLLOW_MAX_EVENTS,
    Lease,
    ListPlace,
    SessionSummary,
    each_lease,
    order_of,
)
from foldline.processors.machine_log import LocalLog
from foldline.processors.memory_blobs import MemoryBlobs
from foldline.processors.restore import Source, restore
from foldline.processors.stored import (
    Problem,
    StoredEvent,
    StoredSession,
    StoredSnapshot,
    index_fields,
    summary_of,
)
from foldline.schemas.recorded import Append, Recorded
from foldline.schemas.registry import SchemaTable
from foldline.schemas.state import SessionState
from foldline.schemas.verdicts import Verdict
from foldline.settings import Settings

URL = "memory:"


@dataclass(slots=True)
class _Session:
    state: SessionState
    events: list[StoredEvent] = field(default_factory=list[StoredEvent])
    snapshots: list[StoredSnapshot] = field(default_factory=list[StoredSnapshot])


class MemoryLog(LocalLog):
    """A log that lives as long as its object."""

    def __init__(
        self, *, settings: Settings, clock: Clock, blobs: BlobStore | None = None
    ) -> None:
        super().__init__(
            URL,
            settings=settings,
            clock=clock,
            leases=MemoryLeases(),
            blobs=blobs or MemoryBlobs(max_bytes=settings.blob_max_bytes),
            schemas=SchemaTable(),
        )
        self._sessions: dict[str, _Session] = {}

    def put_in_force(self, rules_version: int) -> None:
        """Judge by this version of the rules from the next append on."""
        self._ways = replace(self._ways, rules_version=rules_version)

    def append(self, appends: Sequence[Append]) -> list[Verdict]:
        """Answer appends, in order."""
        with self._changed:
            if self._closed:
                raise LogUnavailableError(URL, "the log is closed")
            batch = admit_batch(appends, ways=self._ways)
            for session_id, change in batch.changes.items():
                self._take(session_id, change)
            if batch.changes:
                self._changed.notify_all()
        return batch.verdicts

    def _take(self, session_id: str, change: Change) -> None:
        session = self._sessions.get(session_id)
        if session is None:
            session = self._sessions[session_id] = _Session(change.state)
        session.state = change.state
        session.events.extend(change.events)
        known = {snapshot.seq for snapshot in session.snapshots}
        session.snapshots.extend(s for s in change.snapshots if s.seq not in known)

    def _load(self, session_id: str) -> SessionState | None:
        session = self._sessions.get(session_id)
        return session.state if session else None

    def event_ids(self, session_id: str) -> Iterator[str]:
        """Every event id of a session, in order."""
        for recorded in self.structure(session_id):
            yield recorded.envelope.event_id

    def _range(
        self, session_id: str, after_seq: int, upto_seq: int | None
    ) -> list[StoredEvent]:
        with self._changed:
            session = self._sessions.get(session_id)
            if session is None:
                return []
            first = session.events[0].seq
            start = max(after_seq - first + 1, 0)
            end = None if upto_seq is None else max(upto_seq - first + 1, 0)
            return session.events[start:end]

    def state(self, session_id: str, *, at_seq: int | None = None) -> SessionState | None:
        """The state at the head, or as it was at a seq."""
        with self._changed:
            session = self._sessions.get(session_id)
            if session is None:
                return None
            if at_seq is None or at_seq == session.state.seq:
                return copy_of(session.state)
            if not session.events[0].seq <= at_seq < session.state.seq:
                return None
            snapshots = [s for s in reversed(session.snapshots) if s.seq <= at_seq]
        return restore(
            Source(
                URL,
                session_id,
                self._codec,
                snapshots,
                lambda after: self._range(session_id, after, at_seq),
            )
        )

    def follow(self, session_id: str, *, after_seq: int, timeout_ms: int) -> list[Recorded]:
        """The next events after a seq, waiting for the first; empty after the time-out."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or self._range(session_id, after_seq, None),
                timeout_ms / 1000,
            )
        return list(islice(self.events(session_id, after_seq=after_seq), FOLLOW_MAX_EVENTS))

    def sessions(
        self,
        *,
        tenant: str | None = None,
        status: str | None = None,
        limit: int = 100,
        before: ListPlace | None = None,
    ) -> list[SessionSummary]:
        """Sessions, the most recently active first."""
        with self._changed:
            states = [session.state for session in self._sessions.values()]
        wanted = [
            state
            for state in states
            if tenant in (None, state.tenant) and status in (None, state.status)
            if before is None or order_of(state) < before
        ]
        wanted.sort(key=order_of, reverse=True)
        return [summary_of(state) for state in wanted[:limit]]

    def close(self) -> None:
        """Let go of it all; who follows is woken."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def stored_sessions(
        self, *, after: str = "", parent: str | None = None
    ) -> Iterator[StoredSession]:
        """The index, in the order of the session ids."""
        with self._changed:
            states = [self._sessions[key].state for key in sorted(self._sessions)]
        for state in states:
            if state.session_id > after and parent in (None, state.parent_session_id):
                yield StoredSession(*index_fields(state))

    def stored_events(
        self, session_id: str, *, after_seq: int = -1, upto_seq: int | None = None
    ) -> Iterator[StoredEvent]:
        """The events of a session, undecoded."""
        yield from self._range(session_id, after_seq, upto_seq)

    def stored_snapshots(self, session_id: str) -> Iterator[StoredSnapshot]:
        """The snapshots of a session, the oldest first."""
        with self._changed:
            session = self._sessions.get(session_id)
            snapshots = list(session.snapshots) if session else []
        yield from snapshots

    def inspect(self) -> Iterator[Problem]:
        """Nothing is beneath the sessions."""
        yield from ()


@dataclass(slots=True)
class _Held:
    epoch: int
    writer: str
    until_s: float


class MemoryLeases:
    """Leases of one process, by the monotonic clock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, _Held] = {}

    def renew(self, session_id: str, *, epoch: int, writer: str, ttl_ms: int) -> None:
        """Say that this writer lives."""
        with self._lock:
            held = self._held.get(session_id)
            if held is None or (epoch > held.epoch) or held.writer == writer:
                epoch = max(epoch, held.epoch if held else 0)
                until_s = time.monotonic() + ttl_ms / 1000
                self._held[session_id] = _Held(epoch, writer, until_s)

    def release(self, session_id: str, *, epoch: int, writer: str) -> None:
        """Give the lease up at once; nothing happens if another writer holds it."""
        with self._lock:
            held = self._held.get(session_id)
            if held is not None and (held.epoch, held.writer) == (epoch, writer):
                del self._held[session_id]

    def get_many(self, session_ids: Sequence[str]) -> dict[str, Lease]:
        """The leases of several sessions, of those that have one."""
        return each_lease(self, session_ids)

    def get(self, session_id: str) -> Lease | None:
        """The lease of a session; None where none was ever taken or it was released."""
        with self._lock:
            held = self._held.get(session_id)
        if held is None:
            return None
        left_ms = max(round((held.until_s - time.monotonic()) * 1000), 0)
        return Lease(session_id, held.epoch, held.writer, left_ms > 0, left_ms)
