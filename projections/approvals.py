"""What waits for a person: one listing for the command, the service and its streams.

What a person needs to see of a request is read from the two events that the state names:
the request, and the call that it is about. A subagent's request is shown under the session
at the root of its tree; the answer goes to the session that asked.
"""

import math
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, Field

from foldline.processors.log import Log
from foldline.projections.reading import event_at
from foldline.projections.views import iso_time, plain
from foldline.schemas.events import (
    AnyEvent,
    InputProvided,
    InputRequested,
    PermissionDenied,
    PermissionExpired,
    PermissionGranted,
    PermissionRequested,
    SessionCancelled,
    SessionCompleted,
    SessionFailed,
    ToolCallRequested,
    TurnEnded,
)
from foldline.schemas.recorded import Recorded
from foldline.schemas.state import (
    MIRRORED,
    RUNNING,
    SUSPENDED,
    WAITING_APPROVAL,
    PendingRequest,
    SessionState,
)

INPUT = "INPUT"
"""The kind of a request for an answer, not for permission."""

SUBAGENT = "SUBAGENT"
"""The relation of a session that another one started for a call of its own."""

LOOKED_AT_MAX = 10_000
"""How many sessions of each status are looked at for requests; what has not changed since
the last look is not read again."""

ASKING = (WAITING_APPROVAL, RUNNING, SUSPENDED)
"""The statuses in which a session may have a request."""

TREE_DEPTH_MAX = 100
"""How many parents above a subagent are looked for."""

TREE_SESSIONS_MAX = 1_000
"""How many subagents below a session are looked at."""

CLOSED_SESSIONS_MAX = 100
"""How many sessions, the most recently active, are searched for a request that is over."""

CLOSED_EVENTS_MAX = 2_000
"""How many of the last events of each are searched."""


class Pending(BaseModel):
    """A request, and what a person needs to see to answer it."""

    session_id: str
    root_session_id: str = ""
    """The session at the root of the tree; its own id where it is no subagent."""
    agent: str
    request_id: str
    kind: str
    seq: int
    requested_at: str | None
    expires_at: str | None
    call_id: str
    tool: str = ""
    namespace: str = ""
    args_hash: str
    """Give it back with the answer: it says which arguments you saw."""
    arguments: list[Any] = Field(default_factory=list[Any])
    display: list[Any] = Field(default_factory=list[Any])
    options: list[str] = Field(default_factory=list[str])
    approvers: list[str] = Field(default_factory=list[str])
    """The roles of which an answer needs one; empty: anybody who may approve."""
    answer_schema_json: str | None = None


class PendingList(BaseModel):
    """What waits for an answer: by the root of the tree, the longest waiting first."""

    requests: list[Pending]
    more: bool
    """Whether there may be more than were looked for."""


# --- listing -------------------------------------------------------------------------


class Inbox:
    """What waits in all sessions of a tenant, looked at again and again.

    A session whose seq is as it was is not read again. For any number of threads.
    """

    def __init__(self, log: Log, *, tenant: str | None = None) -> None:
        self._log = log
        self._tenant = tenant
        self._known: dict[str, tuple[int, list[Pending]]] = {}
        self._lock = threading.Lock()
        self._last = PendingList(requests=[], more=False)
        self._looked_s = -math.inf

    def look(self, *, limit: int | None = None) -> PendingList:
        """What waits now; with a limit, at most so many."""
        with self._lock:
            whole = self._look()
        cut = whole.requests[:limit]
        more = whole.more or len(whole.requests) > len(cut)
        return PendingList(requests=cut, more=more)

    def recent(self, *, within_ms: int) -> PendingList:
        """What waited at a moment that is no longer ago: many may ask for it at once."""
        with self._lock:
            if time.monotonic() - self._looked_s >= within_ms / 1000:
                self._look()
            return self._last

    def _look(self) -> PendingList:
        began_s = time.monotonic()
        known: dict[str, tuple[int, list[Pending]]] = {}
        more = False
        for status in ASKING:
            listed = self._log.sessions(
                tenant=self._tenant, status=status, limit=LOOKED_AT_MAX
            )
            more = more or len(listed) == LOOKED_AT_MAX
            for summary in listed:
                if summary.mode == MIRRORED:
                    continue  # it is asked, and answered, elsewhere
                before = self._known.get(summary.session_id)
                if before is None or before[0] != summary.seq:
                    before = (summary.seq, self._read(summary.session_id))
                known[summary.session_id] = before
        self._known = known
        found = in_order(pending for _, part in known.values() for pending in part)
        self._last, self._looked_s = PendingList(requests=found, more=more), began_s
        return self._last

    def _read(self, session_id: str) -> list[Pending]:
        state = self._log.state(session_id)
        return [] if state is None else list(pending_of(self._log, state))


def in_order(found: Iterable[Pending]) -> list[Pending]:
    """Requests of one tree stay together; the longest waiting tree first."""
    listed = sorted(found, key=lambda pending: pending.requested_at or "")
    first: dict[str, int] = {}
    for place, pending in enumerate(listed):
        first.setdefault(pending.root_session_id, place)
    return sorted(listed, key=lambda pending: first[pending.root_session_id])


def pending_under(log: Log, state: SessionState) -> list[Pending]:
    """What waits in a session, and in its subagents that have not ended."""
    found = list(pending_of(log, state))
    seen = {state.session_id}
    below = list(state.subagents)
    while below and len(seen) <= TREE_SESSIONS_MAX:
        child_id = below.pop()
        child = None if child_id in seen else log.state(child_id)
        seen.add(child_id)
        if child is None or child.tenant != state.tenant:
            continue
        found.extend(pending_of(log, child))
        below.extend(child.subagents)
    return in_order(found)


def pending_of(log: Log, state: SessionState) -> Iterator[Pending]:
    """What waits in one session."""
    for request in state.requests.values():
        recorded = event_at(log, state.session_id, request.seq)
        pending = Pending(
            session_id=state.session_id,
            root_session_id=state.session_id,
            agent=state.agent,
            request_id=request.request_id,
            kind=request.kind,
            seq=request.seq,
            requested_at=iso_time(recorded.envelope.recorded_at) if recorded else None,
            expires_at=iso_time(request.expires_at),
            call_id=request.call_id,
            args_hash=request.args_hash,
        )
        named = ""
        match recorded.event if recorded else None:
            case PermissionRequested() as event:
                pending.display = plain(event.display)
                pending.options = list(event.options)
                pending.approvers = list(event.approvers)
                named = event.root_session_id or ""
            case InputRequested(prompt=prompt, answer_schema_json=schema):
                pending.display = plain(prompt)
                pending.answer_schema_json = schema
            case _:
                pass
        if state.relation == SUBAGENT:
            pending.root_session_id = named or root_of(log, state.session_id)
        _add_call(log, state, request, pending)
        yield pending


def _add_call(
    log: Log, state: SessionState, request: PendingRequest, pending: Pending
) -> None:
    call = state.calls.get(request.call_id) or state.finished.get(request.call_id)
    if call is None:
        return
    pending.tool, pending.namespace = call.tool, call.namespace
    recorded = event_at(log, state.session_id, call.requested_seq)
    if recorded is not None and isinstance(recorded.event, ToolCallRequested):
        pending.arguments = plain(recorded.event.arguments)


def root_of(log: Log, session_id: str) -> str:
    """The session at the root of a tree of subagents; itself where it is no subagent.

    A fork is the root of its own: nobody waits for it.
    """
    state = log.state(session_id)
    if state is None:
        return session_id
    for _ in range(TREE_DEPTH_MAX):
        if state.relation != SUBAGENT:
            break
        parent = log.state(state.parent_session_id)
        if parent is None or parent.tenant != state.tenant:
            break
        state = parent
    return state.session_id


# --- what is over --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of a request that waits no more.

    `outcome` is GRANTED, DENIED, EXPIRED, ANSWERED, TURN_ENDED, SESSION_ENDED or CLOSED
    (its call has an end); `by` is who decided, where somebody did.
    """

    session_id: str
    request_id: str
    outcome: str
    by: str = ""
    at: str | None = None


def settled(log: Log, session_id: str, request_id: str, *, seq: int) -> Settled:
    """What became of a request that was made at `seq`."""
    for recorded in log.structure(session_id, after_seq=seq):
        outcome = _outcome(recorded.event, request_id)
        if outcome:
            at = iso_time(recorded.envelope.recorded_at)
            by = _decider(recorded)
            return Settled(session_id, request_id, outcome, by, at)
    return Settled(session_id, request_id, "CLOSED")


def _outcome(event: AnyEvent, request_id: str) -> str:
    match event:
        case PermissionGranted(request_id=name) if name == request_id:
            return "GRANTED"
        case PermissionDenied(request_id=name) if name == request_id:
            return "DENIED"
        case PermissionExpired(request_id=name) if name == request_id:
            return "EXPIRED"
        case InputProvided(request_id=name) if name == request_id:
            return "ANSWERED"
        case TurnEnded():
            return "TURN_ENDED"
        case SessionCompleted() | SessionFailed() | SessionCancelled():
            return "SESSION_ENDED"
        case _:
            return ""


def _decider(recorded: Recorded) -> str:
    match recorded.event:
        case PermissionGranted(decided_by=kind, policy=policy) if kind != "PERSON":
            return f"{kind} {policy or ''}".strip()
        case PermissionDenied(decided_by=kind, policy=policy) if kind != "PERSON":
            return f"{kind} {policy or ''}".strip()
        case PermissionGranted() | PermissionDenied() | InputProvided():
            return recorded.envelope.actor.id
        case _:
            return ""


def find_settled(log: Log, wanted: str, *, session_id: str | None = None) -> Settled | None:
    """What became of a request of this id, or whose id begins so; None if none is found.

    Only the sessions last active are looked through, and only their last events.
    """
    if session_id is None:
        listed = log.sessions(limit=CLOSED_SESSIONS_MAX)
        places = [(summary.session_id, summary.seq) for summary in listed]
    else:
        state = log.state(session_id)
        places = [] if state is None else [(session_id, state.seq)]
    for place, last_seq in places:
        after_seq = max(last_seq - CLOSED_EVENTS_MAX, 0)
        for recorded in log.structure(place, after_seq=after_seq):
            match recorded.event:
                case (
                    PermissionRequested(request_id=name) | InputRequested(request_id=name)
                ) if name.startswith(wanted):
                    return settled(log, place, name, seq=recorded.seq)
                case _:
                    pass
    return None
