"""The port of every log: append with a verdict, read, follow, list. And its leases.

`foldline.testing` ships the contract suite that every implementation passes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from foldline.processors.blobs import BlobStore
from foldline.schemas.recorded import Append, Recorded
from foldline.schemas.state import SessionState
from foldline.schemas.topic_records import RecoveryAction
from foldline.schemas.verdicts import Verdict

FOLLOW_MAX_EVENTS = 500
"""How many events `follow` hands over at once."""


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """What a listing shows of a session, from an index: no event is read for it.

    Times are log times in microseconds.
    """

    session_id: str
    tenant: str
    agent: str
    mode: str
    status: str
    seq: int
    epoch: int
    owner: str
    parent_session_id: str
    created_at: int
    recorded_at: int


class Dated(Protocol):
    """A session that has a place in listings."""

    @property
    def session_id(self) -> str:
        """Its id."""
        ...

    @property
    def recorded_at(self) -> int:
        """The log time of its last event, in microseconds."""
        ...


ListPlace = tuple[int, str]
"""A place in listings: recorded_at and session_id. No two sessions share one."""


def order_of(row: Dated) -> ListPlace:
    """What listings are sorted by in every log, the largest first."""
    return row.recorded_at, row.session_id


@dataclass(frozen=True, slots=True)
class Lease:
    """Who says that it owns a session, and whether it still lives.

    `alive` is the log's judgement by its own clock: renewed within its time to live,
    and, where the log can tell, its process not dead. `expires_in_ms` is 0 for a dead one.
    """

    session_id: str
    epoch: int
    writer: str
    alive: bool
    expires_in_ms: int


class Leases(Protocol):
    """Owner liveness. Never folded, never part of a session's history."""

    def renew(self, session_id: str, *, epoch: int, writer: str, ttl_ms: int) -> None:
        """Say that this writer lives. A lease of a lower epoch replaces no higher one."""
        ...

    def release(self, session_id: str, *, epoch: int, writer: str) -> None:
        """Give the lease up at once; nothing happens if another writer holds it."""
        ...

    def get(self, session_id: str) -> Lease | None:
        """The lease of a session; None where none was ever taken or it was released.

        A log may forget one that ran out long ago.
        """
        ...

    def get_many(self, session_ids: Sequence[str]) -> dict[str, Lease]:
        """The leases of several sessions, of those that have one."""
        ...


def each_lease(leases: Leases, session_ids: Sequence[str]) -> dict[str, Lease]:
    """`get_many` of leases whose every look is cheap."""
    found = {session_id: leases.get(session_id) for session_id in session_ids}
    return {name: lease for name, lease in found.items() if lease is not None}


@runtime_checkable
class WritesRecovery(Protocol):
    """A log that publishes what recovery does, for whoever watches over many sessions."""

    def write_recovery(self, actions: Sequence[RecoveryAction]) -> None:
        """Publish what was done; it is kept when this returns."""
        ...


class Log(Protocol):
    """One ordered, durable stream of events per session.

    Every method may be called from any thread. What blocks is the disk or the broker.
    """

    @property
    def url(self) -> str:
        """The URL that opens this log."""
        ...

    @property
    def leases(self) -> Leases:
        """The leases of this log's sessions."""
        ...

    @property
    def blobs(self) -> BlobStore:
        """Where bodies above the inline limit are kept."""
        ...

    def append(self, appends: Sequence[Append]) -> list[Verdict]:
        """Answer appends, in order. ACCEPTED means what the log's kind promises.

        Each is admitted on the state that those before it made; a refusal of one does
        not undo the others.

        Raises:
            LogUnavailableError: no answer: none of these appends is recorded.
            UncertainAppendError: the same, but each of them may be. Made again as they
                are (same event_id, same known_seq), they get their answers.
        """
        ...

    def events(
        self, session_id: str, *, after_seq: int = 0, upto_seq: int | None = None
    ) -> Iterator[Recorded]:
        """Whole events with after_seq < seq <= upto_seq, in order. None for no session."""
        ...

    def structure(
        self, session_id: str, *, after_seq: int = 0, upto_seq: int | None = None
    ) -> Iterator[Recorded]:
        """The same without content, for folding."""
        ...

    def event_ids(self, session_id: str) -> Iterator[str]:
        """Every event id of a session, in order (what an importer compares with)."""
        ...

    def state(self, session_id: str, *, at_seq: int | None = None) -> SessionState | None:
        """The state at the head, or as it was at a seq. The caller may keep it.

        None where the session does not exist, or had no event at that seq.
        """
        ...

    def follow(self, session_id: str, *, after_seq: int, timeout_ms: int) -> list[Recorded]:
        """The next events after a seq, waiting for the first; empty after the time-out.

        At most FOLLOW_MAX_EVENTS at once: ask again, after the last one's seq.
        """
        ...

    def sessions(
        self,
        *,
        tenant: str | None = None,
        status: str | None = None,
        limit: int = 100,
        before: ListPlace | None = None,
    ) -> list[SessionSummary]:
        """Sessions in the order of `order_of`, the most recently active first.

        With `before`, those behind that place: the last one's of the page before.
        """
        ...

    def warm_up(self) -> None:
        """Do now what the first read would have to: for who wants that one to be quick."""
        ...

    def close(self) -> None:
        """Let go of files and threads. A closed log is not used again."""
        ...
