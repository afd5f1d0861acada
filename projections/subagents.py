"""Subagents: sessions that work on a call of another one. Pure, but for what reads logs.

    stops_of(state)                   which children are to stop, and because of what
    order_from_above(state_of, id)    a stop that was asked above, and has not come down
    children_to_wait_for(log, state)  who stands still until its children have settled

A parent names its open children in its state, each with its call. Recovery goes from the
leaves up: a child that somebody works on, or that recovery has still to settle, keeps its
parent waiting; the end of a child completes the parent's call.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache

from foldline.errors import FoldlineError
from foldline.processors.log import Log
from foldline.projections.stalled import PARKED
from foldline.projections.steering import asked_to_stop
from foldline.schemas.events import (
    SessionCancelled,
    SessionCompleted,
    SessionFailed,
)
from foldline.schemas.recorded import Recorded
from foldline.schemas.state import SUSPENDED, Cancellation, SessionState, Subagent

SUBAGENT = "SUBAGENT"
"""The relation of a child to its parent."""

HANDLE = "subagent:"
"""What the handle begins with under which a child goes on."""

END_READ_MAX = 64
"""How many events at the end of a child are looked at first for its end."""

PARENT_ENDED = "the session that it worked for has ended"

DEPTH_MAX = 64
"""How deep a tree of subagents a cancellation follows."""

STATES_KEPT_MAX = 1024
"""How many states one look for stops keeps at once."""

_logger = logging.getLogger("foldline.recovery")

End = SessionCompleted | SessionFailed | SessionCancelled

StateOf = Callable[[str], SessionState | None]
"""Gives the state of a session; `log.state` is one."""


def handle_of(child_session_id: str) -> str:
    """The handle of the call that a child works on."""
    return f"{HANDLE}{child_session_id}"


# --- who is to stop ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Stop:
    """A child that is to stop, and the parent's seq at which somebody asked for it."""

    child_session_id: str
    asked_seq: int
    reason: str


def open_children(state: SessionState) -> list[Subagent]:
    """The children without an end, in the order in which they began."""
    return sorted(state.subagents.values(), key=lambda child: child.seq)


def children_unseen(state: SessionState | None, seen: set[str]) -> list[str]:
    """The ids of the open children that are not in `seen` yet, and now are.

    Writers name children: two sessions that name each other come once all the same.
    """
    found = [] if state is None else open_children(state)
    names = [each.child_session_id for each in found if each.child_session_id not in seen]
    seen.update(names)
    return names


def stops_of(state: SessionState) -> list[Stop]:
    """The open children that a cancellation in force is about."""
    asked = state.cancellation
    stops: list[Stop] = []
    for child in open_children(state):
        call = state.calls.get(child.call_id)
        if asked is not None and _covers(state, asked, child):
            stops.append(Stop(child.child_session_id, asked.seq, asked.reason))
        elif call is not None and call.cancel_seq:
            reason = "the call that it works on was cancelled"
            stops.append(Stop(child.child_session_id, call.cancel_seq, reason))
    return stops


def cause_of_end(session_id: str) -> str:
    """What a stop stems from where the session above has ended."""
    return f"{session_id}:end"


def cause_of(state: SessionState, stop: Stop) -> str:
    """What a stop stems from: the ids of the requests below it follow from that."""
    return f"{state.session_id}:{stop.asked_seq}"


@dataclass(frozen=True, slots=True)
class Order:
    """What a session above wants: `session_id` and all below it are to stop.

    `stems_from` is what the ids of the requests follow from.
    """

    session_id: str
    stems_from: str
    reason: str


def order_from_above(state_of: StateOf, session_id: str) -> Order | None:
    """The stop that has not come down to a subagent; None where there is none.

    Who asked a session above to stop, or ended it, may have died before the subagents
    were told. From the session upward, the first one that should have told is it.
    """
    child = state_of(session_id)
    if child is None or child.ended or _asked_whole(child):
        return None
    for _ in range(DEPTH_MAX):
        if child.relation != SUBAGENT:
            return None
        parent = state_of(child.parent_session_id)
        if parent is None or parent.tenant != child.tenant:
            return None
        if parent.ended:
            stems_from = cause_of_end(parent.session_id)
            return Order(child.session_id, stems_from, PARENT_ENDED)
        for stop in stops_of(parent):
            if stop.child_session_id == child.session_id:
                return Order(child.session_id, cause_of(parent, stop), stop.reason)
        child = parent
    return None


def orders_from_above(log: Log, session_ids: Iterable[str]) -> list[Order]:
    """The stops that have not come down to these, each once; who cannot be read is left.

    Sessions with one parent above them share what was read of it.
    """
    state_of = lru_cache(STATES_KEPT_MAX)(log.state)
    found: dict[Order, None] = {}
    for name in session_ids:
        try:
            order = order_from_above(state_of, name)
        except FoldlineError as error:
            _logger.warning("whether %s is to stop cannot be read: %s", name, error)
            continue
        if order is not None:
            found[order] = None
    return list(found)


def _asked_whole(state: SessionState) -> bool:
    return state.cancellation is not None and state.cancellation.target == "SESSION"


def _covers(state: SessionState, asked: Cancellation, child: Subagent) -> bool:
    """Whether a cancellation is about a child: it follows the tree."""
    match asked.target:
        case "SESSION":
            return True
        case "TURN":
            began = state.turn.seq if state.turn else 0
            return asked_to_stop(state) is not None and child.seq > began
        case _:
            return bool(asked.target_id) and child.call_id == asked.target_id


# --- how a child ended ---------------------------------------------------------------


def end_of_child(log: Log, child: SessionState) -> End | None:
    """The event that ended a session; None while it is open."""
    if not child.ended:
        return None
    span = END_READ_MAX
    while True:
        after_seq = max(child.seq - span, 0)
        found = log.events(child.session_id, after_seq=after_seq, upto_seq=child.seq)
        end = _last_end(found)
        if end is not None or not after_seq:
            return end
        span *= 8


def _last_end(events: Iterable[Recorded]) -> End | None:
    end: End | None = None
    for recorded in events:
        if isinstance(recorded.event, SessionCompleted | SessionFailed | SessionCancelled):
            end = recorded.event
    return end


# --- recovery from the leaves up -----------------------------------------------------


def is_unsettled(child: SessionState, *, alive: bool) -> bool:
    """Whether a child's parent has to wait: somebody works on it, or has still to.

    One that rests between turns, and that nobody owns, is its parent's to go on with.
    """
    if child.ended:
        return False
    if alive or child.turn is not None:
        return True
    return child.phase == SUSPENDED and child.reason.startswith(PARKED)


def children_to_wait_for(log: Log, state: SessionState) -> list[str]:
    """The open children that a parent has to wait for in recovery, the oldest first.

    Writers name children. One that waits for this session itself is not waited for: in
    a ring of sessions that name each other, nobody would ever be settled.
    """
    names = [child.child_session_id for child in open_children(state)]
    if not names:
        return []
    leases = log.leases.get_many(names)
    waited: list[str] = []
    for name in names:
        child = log.state(name)
        lease = leases.get(name)
        if child is None:
            continue  # it was never made: its parent makes it
        alive = lease is not None and lease.alive and lease.epoch >= child.epoch
        if is_unsettled(child, alive=alive) and not _leads_to(log, child, state):
            waited.append(name)
    return waited


def _leads_to(log: Log, child: SessionState, parent: SessionState) -> bool:
    """Whether a session is below its own child."""
    seen = {child.session_id}
    level = children_unseen(child, seen)
    for _ in range(DEPTH_MAX):
        if not level or parent.session_id in level:
            return bool(level)
        level = [
            below for name in level for below in children_unseen(log.state(name), seen)
        ]
    return False
