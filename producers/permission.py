"""May a call run, and with which arguments: what decides, in this order.

1. A grant that the call has already, from this owner's time or another's.
2. A request that waits: an earlier grant decides it, or a person's answer does.
3. The policy: it allows, denies, or wants a person asked. Without one, `Tool.approval`.
4. An earlier grant of the same tool, for the turn or the session.
5. A person. The request is recorded after the call is, and before anybody waits.

One denial ends no run. Asked for the same call again after `denials_max` denials, or after
`expiries_max` requests that nobody answered, nobody is asked once more and waited for:
the session is suspended, with a request that does not expire. Whoever answers it does so
knowing; with the answer the session can be taken up again.
"""

import inspect
from dataclasses import dataclass, field
from typing import Any

from foldline.faults import crash_point
from foldline.producers.appender import raise_refused
from foldline.producers.calls import edited_arguments, granted_event, result_in_log
from foldline.producers.identity import fresh_id
from foldline.producers.ownership import Ownership
from foldline.producers.parking import Parking, question_of
from foldline.producers.policies import (
    Allow,
    ApprovalLimits,
    ApprovalPolicy,
    Ask,
    Deny,
    Ruling,
)
from foldline.producers.prepare import Draft
from foldline.producers.tools import (
    Denied,
    PendingCall,
    Tool,
    ToolResult,
    Unknown,
    Waiting,
    parse_arguments,
)
from foldline.producers.waiters import Waiters
from foldline.projections.approvals import SUBAGENT, root_of
from foldline.projections.repeats import (
    Repeats,
    first_refused_seq,
    repeats_of,
    same_calls,
)
from foldline.projections.stalled import PARK_QUESTION
from foldline.schemas.blocks import text_block
from foldline.schemas.events import (
    KnownEvent,
    PermissionDenied,
    PermissionExpired,
    PermissionGranted,
    PermissionRequested,
)
from foldline.schemas.recorded import Recorded
from foldline.schemas.state import (
    CALL_GRANTED,
    NOT_BEGUN,
    Call,
    Grant,
    PendingRequest,
    SessionState,
)

DISPLAY_CHARS = 2_000
"""How much of a call's arguments a request for permission shows."""

OPTIONS = ("GRANT", "GRANT_TURN", "GRANT_SESSION", "EDIT", "DENY")

_OVERTAKEN = frozenset(
    {
        "no_pending_request",
        "no_request",
        "no_such_grant",
        "request_expired",
        "call_begun",
        "call_waiting",
    }
)
"""Rules by which a decision is refused that somebody's answer came before."""


@dataclass(frozen=True, slots=True)
class Asking:
    """Who decides about calls, how long a request stands, and how long a run waits."""

    wait_s: float
    expires_ms: int | None = None
    policy: ApprovalPolicy | None = None
    limits: ApprovalLimits = field(default_factory=ApprovalLimits)


@dataclass(frozen=True, slots=True)
class Permitted:
    """The call may run, with these arguments and no others."""

    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class NotUsable:
    """What a person edited cannot be run."""

    problem: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """The run was interrupted, or the call cancelled, while the request waited."""

    request_id: str


Permission = Permitted | NotUsable | Stopped | ToolResult


class Permissions:
    """The permissions of one run of some calls of a turn."""

    def __init__(
        self, owner: Ownership, *, turn_id: str, batch_id: str, asking: Asking
    ) -> None:
        self._owner = owner
        self._turn_id = turn_id
        self._batch_id = batch_id
        self._asking = asking
        self.waiters = Waiters()
        self.parking = Parking(owner)

    async def of(
        self,
        call: PendingCall,
        tool: Tool,
        arguments: dict[str, Any],
        state: SessionState,
    ) -> Permission:
        """What the call may run with, or what became of it instead.

        Whatever overtakes a step (an answer, an interruption) is looked at anew.
        """
        while True:
            known = state.calls.get(call.call_id)
            if known is None or known.status not in NOT_BEGUN:
                ended = await result_in_log(self._owner, call, state)
                return ended or Unknown(call, "the log names no such call")
            if known.status == CALL_GRANTED:
                return await self._granted(known, arguments)
            found = await self._step(call, tool, arguments, state)
            if found is not None:
                return found
            state = await self._owner.state()

    async def _granted(self, known: Call, arguments: dict[str, Any]) -> Permission:
        crash_point("CP_PERMISSION_AFTER_ANSWER")
        granted = await granted_event(self._owner, known)
        return Permitted(arguments) if granted is None else await self._edited(granted)

    async def _edited(self, granted: Recorded) -> Permission:
        text, problem = await edited_arguments(self._owner, granted)
        arguments, unparsed = parse_arguments(text)
        if problem or arguments is None:
            return NotUsable(f"edited: {problem or unparsed}")
        return Permitted(arguments)

    async def _step(
        self,
        call: PendingCall,
        tool: Tool,
        arguments: dict[str, Any],
        state: SessionState,
    ) -> Permission | None:
        """One step; None where the state is to be looked at again."""
        known = state.calls[call.call_id]
        pending = _request_of(state, call)
        if pending is not None:
            if pending.expires_at and self._owner.now() > pending.expires_at:
                await self._record(PermissionExpired(request_id=pending.request_id))
                return None
            if await self._by_earlier_grant(state, known, pending):
                return Permitted(arguments)
            return await self._wait(call, arguments, pending.request_id, state.seq)
        match await self._ruling(call, tool, arguments, state):
            case None:
                return Permitted(arguments)
            case Allow(policy=policy):
                return await self._allow(call, arguments, policy)
            case Deny() as no:
                return await self._deny(call, no, state)
            case Ask() as ask:
                if not ask.approvers and await self._by_earlier_grant(state, known, None):
                    return Permitted(arguments)
                return await self._ask(call, arguments, ask, state)

    async def _ruling(
        self,
        call: PendingCall,
        tool: Tool,
        arguments: dict[str, Any],
        state: SessionState,
    ) -> Ruling | None:
        ruling = None
        if self._asking.policy is not None:
            given = self._asking.policy(call, tool, state)
            ruling = await given if inspect.isawaitable(given) else given
        if ruling is not None:
            return ruling
        return Ask() if tool.needs_approval(arguments) else None

    # --- policies and earlier grants -------------------------------------------------

    async def _allow(
        self, call: PendingCall, arguments: dict[str, Any], policy: str
    ) -> Permission | None:
        event = PermissionGranted(
            call_id=call.call_id,
            args_hash=call.args_hash,
            decided_by="POLICY",
            policy=policy,
            grant_id=fresh_id(),
        )
        return Permitted(arguments) if await self._record(event) else None

    async def _deny(
        self, call: PendingCall, no: Deny, state: SessionState
    ) -> Permission | None:
        repeats = await self._repeats(state, call)
        feedback = (text_block(no.feedback),) if no.feedback else ()
        event = PermissionDenied(
            call_id=call.call_id, decided_by="POLICY", policy=no.policy, feedback=feedback
        )
        if not await self._record(event):
            return None
        if repeats.denials >= self._asking.limits.denials_max:
            why = _why(call, repeats)
            self.parking.add(call, question_of(self._owner, why), why)
        return Denied(call, feedback)

    async def _by_earlier_grant(
        self, state: SessionState, known: Call, pending: PendingRequest | None
    ) -> bool:
        """Whether a grant for the turn or session covers this call; it is then noted."""
        grant = _covering(state, known)
        if grant is None or (pending and await self._names_approvers(pending)):
            return False
        event = PermissionGranted(
            request_id=pending.request_id if pending else None,
            call_id=known.call_id,
            args_hash=known.args_hash,
            decided_by="EARLIER_GRANT",
            grant_id=grant.grant_id,
        )
        return await self._record(event)

    async def _names_approvers(self, pending: PendingRequest) -> bool:
        events = await self._owner.events(pending.seq - 1, pending.seq)
        event = events[0].event
        return isinstance(event, PermissionRequested) and bool(event.approvers)

    async def _record(self, event: KnownEvent) -> bool:
        """Record a decision; False where an answer, or the call's end, came before it."""
        answers = await self._owner.attempt([self._draft(event)])
        if answers[0].verdict.rule in _OVERTAKEN:
            return False
        raise_refused(answers)
        return True

    # --- a person --------------------------------------------------------------------

    async def _ask(
        self, call: PendingCall, arguments: dict[str, Any], ask: Ask, state: SessionState
    ) -> Permission | None:
        repeats = await self._repeats(state, call)
        limits = self._asking.limits
        if repeats.denials >= limits.denials_max or repeats.expiries >= limits.expiries_max:
            return await self._ask_at_rest(call, ask, state, _why(call, repeats))
        request_id = fresh_id()
        expires_ms = ask.expires_ms or self._asking.expires_ms
        request = await self._request(call, ask, state, request_id=request_id)
        # Listen before asking: the answer may come before the verdict does.
        self.waiters.listen(request_id, call_id=call.call_id)
        asked = await self._record(request.model_copy(update={"expires_ms": expires_ms}))
        if not asked:
            return None
        crash_point("CP_PERMISSION_AFTER_REQUEST")
        return await self._wait(call, arguments, request_id, state.seq)

    async def _wait(
        self,
        call: PendingCall,
        arguments: dict[str, Any],
        request_id: str,
        seen_seq: int,
    ) -> Permission | None:
        """Wait for the answer to a request that is recorded.

        A grant that reaches further, and came after `seen_seq`, is looked at first.
        """
        if self.waiters.reach_seq > seen_seq:
            return None
        try:
            answer = await self.waiters.answer_to(
                request_id, call_id=call.call_id, wait_s=self._asking.wait_s
            )
        except TimeoutError:
            return await self._unanswered(call, request_id)
        if answer is None:
            return Stopped(request_id)
        if isinstance(answer, str):
            return None
        crash_point("CP_PERMISSION_AFTER_ANSWER")
        match answer.event:
            case PermissionDenied(feedback=feedback):
                return Denied(call, feedback)
            case PermissionGranted(edited_arguments=edited) if edited:
                return await self._edited(answer)
            case _:
                return Permitted(arguments)

    async def _unanswered(self, call: PendingCall, request_id: str) -> Permission | None:
        """Nobody answered in time; what has expired by log time is said to have."""
        state = await self._owner.state()
        request = state.requests.get(request_id)
        if request is None:
            return None  # it was answered in the last moment
        if not request.expires_at or self._owner.now() <= request.expires_at:
            return Waiting(call, request_id)
        if not await self._record(PermissionExpired(request_id=request_id)):
            return None
        return Waiting(call, request_id, expired=True)

    async def _request(
        self, call: PendingCall, ask: Ask, state: SessionState, *, request_id: str
    ) -> PermissionRequested:
        root = None
        if state.relation == SUBAGENT:
            link = self._owner.link
            root = await link.read(root_of, link.log, state.session_id)
        shown = f"{call.tool}({call.text[:DISPLAY_CHARS]})"
        return PermissionRequested(
            request_id=request_id,
            call_id=call.call_id,
            args_hash=call.args_hash,
            root_session_id=root,
            options=OPTIONS,
            approvers=ask.approvers,
            display=(text_block(shown),),
        )

    # --- often enough ----------------------------------------------------------------

    async def _repeats(self, state: SessionState, call: PendingCall) -> Repeats:
        calls = same_calls(state, state.calls[call.call_id])
        seq = first_refused_seq(calls)
        if not seq:
            return Repeats()
        events = await self._owner.events(seq, None)
        return repeats_of(events, frozenset(other.call_id for other in calls))

    async def _ask_at_rest(
        self, call: PendingCall, ask: Ask, state: SessionState, why: str
    ) -> Waiting:
        """The request is made when the run is over, with the suspension; it stays."""
        request_id = f"{PARK_QUESTION}{self._owner.epoch}:{call.call_id}"
        request = await self._request(call, ask, state, request_id=request_id)
        display = (text_block(f"{why}. Asked for again: "), *request.display)
        request = request.model_copy(update={"display": display})
        self.parking.add(call, request, why)
        return Waiting(call, request_id)

    def _draft(self, event: KnownEvent) -> Draft:
        return self._owner.draft(event, turn_id=self._turn_id, batch_id=self._batch_id)


def _request_of(state: SessionState, call: PendingCall) -> PendingRequest | None:
    """The request for permission that waits about a call; a question is none."""
    for request in state.requests.values():
        if request.call_id == call.call_id and request.kind != "INPUT":
            return request
    return None


def _covering(state: SessionState, call: Call) -> Grant | None:
    """A grant for the turn or session, of the same tool and namespace."""
    turn_id = state.turn.turn_id if state.turn else ""
    for grant in state.grants.values():
        same_turn = grant.scope == "SESSION" or grant.turn_id == turn_id
        if (grant.namespace, grant.tool) == (call.namespace, call.tool) and same_turn:
            return grant
    return None


def _why(call: PendingCall, repeats: Repeats) -> str:
    times: list[str] = []
    if repeats.denials:
        times.append(f"was denied {repeats.denials} times")
    if repeats.expiries:
        times.append(f"was asked for {repeats.expiries} times without an answer")
    return f"the same call of {call.tool} {' and '.join(times)}"
