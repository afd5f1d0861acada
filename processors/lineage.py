"""A fork's whole history: its ancestors' events up to each fork point, then its own.

A fork holds no copy of an event: it names its parent and the seq that it goes on from,
and readers join the two here, through any number of forks.

1. From the session upward, each parent is looked up: it must be of the same tenant, and
   have an event of its own at the fork point.
2. Reads go through the stretches that this gives, the oldest ancestor's first. Seqs go
   on without a gap over every fork point.
3. Where a read crosses a fork point, the child's first event must name the hash of the
   parent's event there: else the parent is not the one that was forked.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, TypeVar

from foldline.errors import LineageError, SessionNotFoundError, SessionTruncatedError
from foldline.processors.log import Log
from foldline.processors.restore import OTHER_HASH, broken
from foldline.processors.stored import AuditableLog, StoredEvent, StoredSession
from foldline.schemas.recorded import Recorded
from foldline.schemas.state import SessionState

ANCESTORS_MAX = 1_000
"""How many ancestors a session's history may have."""

NOT_HERE = "there is no such session here"


class HasSeq(Protocol):
    """What a range of events is read as."""

    @property
    def seq(self) -> int:
        """Its position in the session."""
        ...


Event_co = TypeVar("Event_co", bound=HasSeq, covariant=True)


class Reader(Protocol[Event_co]):
    """A log's way to read a range of one session's events."""

    def __call__(
        self, session_id: str, *, after_seq: int, upto_seq: int | None
    ) -> Iterator[Event_co]:
        """Events with after_seq < seq <= upto_seq, in order."""
        ...


StateOf = Callable[[str], SessionState | None]


@dataclass(frozen=True, slots=True)
class Stretch:
    """The events that one session gives to a history; `last_seq` None: all it has."""

    session_id: str
    first_seq: int
    last_seq: int | None


@dataclass(frozen=True, slots=True)
class Lineage:
    """The stretches of a session's history, the oldest ancestor's first, its own last."""

    stretches: tuple[Stretch, ...]

    @property
    def session_id(self) -> str:
        """Whose history it is."""
        return self.stretches[-1].session_id

    @property
    def fork_seq(self) -> int:
        """The seq up to which the history is its ancestors'; 0 where it has none."""
        return self.stretches[-1].first_seq - 1

    @property
    def ancestors(self) -> tuple[Stretch, ...]:
        """The stretches of others, the oldest ancestor's first."""
        return self.stretches[:-1]

    def holder(self, seq: int) -> str:
        """The session whose event it is that stands at a seq of this history."""
        for stretch in self.ancestors:
            if stretch.last_seq is not None and seq <= stretch.last_seq:
                return stretch.session_id
        return self.session_id


def forked_from(state: SessionState) -> str:
    """The session that a fork goes on from; empty where there is none, or no seq of it."""
    return state.parent_session_id if state.fork_seq else ""


def lineage_of(log: Log, session_id: str) -> Lineage:
    """The lineage of a session of a log.

    Raises:
        SessionNotFoundError: no such session.
        LineageError: an ancestor is missing, too short, or of another tenant.
    """
    state = log.state(session_id)
    if state is None:
        raise SessionNotFoundError(session_id, log.url)
    return lineage_from(state, log.state)


def lineage_from(state: SessionState, state_of: StateOf) -> Lineage:
    """The lineage of the session of a state; its ancestors are asked for one by one.

    Raises:
        LineageError: an ancestor is missing, too short, or of another tenant.
    """
    stretches = [Stretch(state.session_id, state.fork_seq + 1, None)]
    child = state
    while parent_id := forked_from(child):
        if len(stretches) > ANCESTORS_MAX:
            reason = f"it has more than {ANCESTORS_MAX} ancestors"
            raise LineageError(state.session_id, parent_id, reason)
        try:
            parent = state_of(parent_id)
        except SessionTruncatedError as error:
            reason = str(error) if error.tenant in ("", state.tenant) else NOT_HERE
            raise LineageError(child.session_id, parent_id, reason) from error
        if parent is None or parent.tenant != state.tenant:
            raise LineageError(child.session_id, parent_id, NOT_HERE)
        if not parent.fork_seq < child.fork_seq <= parent.seq:
            reason = (
                f"it has events {parent.fork_seq + 1} to {parent.seq}, none at "
                f"{child.fork_seq}"
            )
            raise LineageError(child.session_id, parent_id, reason)
        stretches.append(Stretch(parent_id, parent.fork_seq + 1, child.fork_seq))
        child = parent
    return Lineage(tuple(reversed(stretches)))


def joined(
    read: Reader[Event_co], lineage: Lineage, *, after_seq: int, upto_seq: int | None
) -> Iterator[Event_co]:
    """The events of a history in a range, from whichever session has them.

    Raises:
        LineageError: an ancestor has not all of its stretch any more.
    """
    for stretch in lineage.ancestors:
        last = stretch.last_seq or 0
        end = last if upto_seq is None else min(last, upto_seq)
        seq = max(after_seq, stretch.first_seq - 1)
        if seq >= end:
            continue
        for event in read(stretch.session_id, after_seq=seq, upto_seq=end):
            if event.seq != seq + 1:
                break
            seq = event.seq
            yield event
        if seq != end:
            reason = f"its event at seq {seq + 1} is not there"
            raise LineageError(lineage.session_id, stretch.session_id, reason)
    if upto_seq is None or upto_seq > lineage.fork_seq:
        own_after = max(after_seq, lineage.fork_seq)
        yield from read(lineage.session_id, after_seq=own_after, upto_seq=upto_seq)


def joined_events(
    log: Log, lineage: Lineage, *, after_seq: int = 0, upto_seq: int | None = None
) -> Iterator[Recorded]:
    """Whole events of a history, each still with the id of its own session.

    Raises:
        LineageError: an ancestor has not all of its stretch any more, or it is another.
    """
    last: Recorded | None = None
    for recorded in joined(log.events, lineage, after_seq=after_seq, upto_seq=upto_seq):
        if last is not None:
            _check_crossing(last, recorded)
        last = recorded
        yield recorded


def _check_crossing(last: Recorded, recorded: Recorded) -> None:
    """3. At a fork point the child names the hash of its parent's event."""
    parent_id, child_id = last.envelope.session_id, recorded.envelope.session_id
    if parent_id == child_id:
        return
    if recorded.envelope.prev_hash != hashlib.sha256(last.body).digest():
        reason = f"its event at seq {last.seq} is not the one that was forked"
        raise LineageError(child_id, parent_id, reason)


def unbroken_events(
    log: Log, lineage: Lineage, *, after_seq: int, end: SessionState
) -> Iterator[Recorded]:
    """The same up to a state's last event, with not one missing, and none exchanged.

    Raises:
        LineageError: as `joined_events`.
        LogFormatError: an event is not there, or not the one that was recorded.
    """
    seq = max(after_seq - 1, 0)  # the one before is what the first is held to
    head = b""
    for recorded in joined_events(log, lineage, after_seq=seq, upto_seq=end.seq):
        holder = recorded.envelope.session_id
        if recorded.seq != seq + 1:
            raise broken(log.url, holder, seq + 1, "the event is missing")
        if head and recorded.envelope.prev_hash != head:
            raise broken(log.url, holder, recorded.seq, OTHER_HASH)
        seq, head = recorded.seq, hashlib.sha256(recorded.body).digest()
        if seq > after_seq:
            yield recorded
    if seq != end.seq:
        raise broken(log.url, end.session_id, seq + 1, "the event is missing")
    if head and head != end.chain_head:
        raise broken(log.url, end.session_id, seq, "it is not the event that was folded")


def joined_stored(
    log: AuditableLog, lineage: Lineage, *, after_seq: int, upto_seq: int | None
) -> Iterator[StoredEvent]:
    """The same, undecoded.

    Raises:
        LineageError: an ancestor has not all of its stretch any more.
    """
    return joined(log.stored_events, lineage, after_seq=after_seq, upto_seq=upto_seq)


def joined_state(log: Log, lineage: Lineage, at_seq: int) -> SessionState | None:
    """The state just after a seq of a history: an ancestor's, up to the fork point.

    None where the history has no event at that seq.
    """
    return log.state(lineage.holder(at_seq), at_seq=at_seq)


def ancestral_states(log: Log, lineage: Lineage) -> list[SessionState]:
    """The state of each ancestor at the fork point that leads on, the oldest first.

    Raises:
        LineageError: an ancestor has no state there any more.
    """
    found: list[SessionState] = []
    for stretch, child in pairwise(lineage.stretches):
        state = log.state(stretch.session_id, at_seq=stretch.last_seq)
        if state is None:
            reason = f"its event at seq {stretch.last_seq} is not there"
            raise LineageError(child.session_id, stretch.session_id, reason)
        found.append(state)
    return found


def children(log: AuditableLog, session_id: str, *, tenant: str) -> list[StoredSession]:
    """The sessions that name this one as their parent, the oldest first.

    Read off the index of sessions, which has the parent of each: no event is read.
    """
    found = [row for row in log.stored_sessions(parent=session_id) if row.tenant == tenant]
    return sorted(found, key=lambda row: (row.created_at, row.session_id))
