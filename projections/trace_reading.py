"""Traces of a log's sessions: what their spans need to know of other sessions.

A subagent's turns belong below the call that it works on, which is in its parent's log
and trace; a fork's first turn goes back to the turn that it was forked in. Both are found
by ids that the events hold, so that the same spans come out whoever reads.
"""

from foldline.errors import UNREADABLE
from foldline.processors.lineage import forked_from
from foldline.processors.log import Log
from foldline.projections.otel_genai import GENAI_0_1, Names
from foldline.projections.spans import (
    CALL,
    TURN,
    Link,
    SpanRef,
    span_id_of,
    trace_id_of,
)
from foldline.projections.trace_board import FORK, LOG_ENDS, OWNER_LOST, Origin
from foldline.projections.traces import Traces
from foldline.schemas.events import ToolCallRequested
from foldline.schemas.recorded import Recorded
from foldline.schemas.state import MIRRORED, RUNNING, WAITING_APPROVAL, SessionState

ANCESTORS_MAX = 64
"""How deep subagents of subagents are followed; one deeper begins traces of its own."""

LOOKED_BACK = 512
"""How many events before a fork point are searched for its turn at one time."""

_SOMEBODY_RUNS = frozenset({RUNNING, WAITING_APPROVAL})
"""The statuses in which a session has somebody who may die; else nobody need be alive."""


def traces_of(
    log: Log,
    state: SessionState,
    *,
    names: Names = GENAI_0_1,
    content: bool = False,
) -> Traces:
    """The traces of a session, before its first event is taken."""
    origin = origin_of(log, state)
    return Traces(state.session_id, names=names, origin=origin, content=content)


def take_all(log: Log, traces: Traces, session_id: str) -> None:
    """Take the events of a session that were not taken yet. Only its own: no ancestor's."""
    for recorded in log.events(session_id, after_seq=traces.seq):
        traces.take(recorded)


def end_reason(log: Log, state: SessionState) -> str:
    """Why what is open in a session ends where its log does: OWNER_LOST or LOG_ENDS."""
    if state.mode == MIRRORED or state.status not in _SOMEBODY_RUNS:
        return LOG_ENDS
    lease = log.leases.get(state.session_id)
    return LOG_ENDS if lease is not None and lease.alive else OWNER_LOST


def origin_of(log: Log, state: SessionState) -> Origin:
    """Where a session's first turn comes from; nowhere if what is above cannot be read."""
    try:
        return _origin_of(log, state)
    except UNREADABLE:
        return Origin()


def _origin_of(log: Log, state: SessionState) -> Origin:
    parent_id = state.parent_session_id
    parent = _state_of(log, parent_id, state.tenant) if parent_id else None
    if parent is None:
        return Origin()
    if forked_from(state):
        turn = _turn_at(log, parent, state.fork_seq)
        return Origin(link=None if turn is None else Link(turn, FORK))
    if state.relation != "SUBAGENT":
        return Origin()
    return Origin(parent=_call_of(log, parent, state, depth=0))


def _state_of(log: Log, session_id: str, tenant: str) -> SessionState | None:
    """A session of the same tenant; None where it cannot be read, as if it were not."""
    try:
        state = log.state(session_id)
    except UNREADABLE:
        return None
    return state if state is not None and state.tenant == tenant else None


def _trace_of(log: Log, state: SessionState, turn: str, depth: int) -> str:
    """The trace that a session's turn is in: its own, or that of the call above it."""
    above = None
    if state.relation == "SUBAGENT" and state.parent_session_id and depth < ANCESTORS_MAX:
        parent = _state_of(log, state.parent_session_id, state.tenant)
        if parent is not None:
            above = _call_of(log, parent, state, depth=depth + 1)
    return above.trace_id if above else trace_id_of(state.session_id, turn)


def _call_of(
    log: Log, parent: SessionState, child: SessionState, *, depth: int
) -> SpanRef | None:
    """The span of the call that a subagent works on."""
    call_id = child.parent_call_id
    requested = _requested(log, parent, call_id) if call_id else None
    turn = requested.envelope.turn_id if requested else None
    if requested is None or turn is None:
        return None  # a call of an implied turn: whose trace it is in, only a walk says
    span_id = span_id_of(parent.session_id, CALL, requested.envelope.event_id)
    return SpanRef(_trace_of(log, parent, turn, depth), span_id)


def _requested(log: Log, parent: SessionState, call_id: str) -> Recorded | None:
    """The request of a call: found by its session's state, else among its events."""
    known = parent.calls.get(call_id) or parent.finished.get(call_id)
    after_seq = known.requested_seq - 1 if known else 0
    upto_seq = known.requested_seq if known else None
    for recorded in log.events(parent.session_id, after_seq=after_seq, upto_seq=upto_seq):
        event = recorded.event
        if isinstance(event, ToolCallRequested) and event.call_id == call_id:
            return recorded
    return None


def _turn_at(log: Log, state: SessionState, seq: int) -> SpanRef | None:
    """The turn in which a session stood at a seq of its history; None where none is."""
    upto_seq = seq
    while upto_seq > state.fork_seq:
        after_seq = max(upto_seq - LOOKED_BACK, state.fork_seq)
        events = log.events(state.session_id, after_seq=after_seq, upto_seq=upto_seq)
        turns = [r.envelope.turn_id for r in events if r.envelope.turn_id]
        if turns:
            trace_id = _trace_of(log, state, turns[-1], 0)
            return SpanRef(trace_id, span_id_of(state.session_id, TURN, turns[-1]))
        upto_seq = after_seq
    parent_id = forked_from(state)
    parent = _state_of(log, parent_id, state.tenant) if parent_id else None
    return None if parent is None else _turn_at(log, parent, state.fork_seq)
