"""What a new owner does about what the old one left open: a plan, from state alone. Pure.

Silence is never a reason to run something again. For each execution without an end:

    READ_ONLY, IDEMPOTENT   run again with the same operation_id, once it is certain
                            that the old one will not begin any more
    RECONCILABLE            ask the tool by operation_id
    UNSAFE, or too often    unknown; a person is asked

A call that somebody cancelled is not run any more: one that has not begun, or turns out
not to have happened, is closed; one that may have happened is not repeated, nor is one of
a turn or session that is to stop, nor any while steering wants the agent to look up.

The plan names every open thing once. Carrying it out is `foldline.producers.recover`.
"""

import json
from dataclasses import dataclass

from foldline.processors.rules import RESOLVED_OUTCOMES, SAFE_TO_REPEAT
from foldline.projections.steering import asked_to_stop, is_interrupted
from foldline.schemas.blocks import text_block
from foldline.schemas.events import InputRequested
from foldline.schemas.state import (
    CALL_BACKGROUND,
    CALL_CANCELLING,
    CALL_TIMED_OUT,
    CALL_UNKNOWN,
    CALL_WAITING,
    EXECUTING,
    NOT_BEGUN,
    Call,
    PendingRequest,
    SessionState,
)

RECONCILABLE = "RECONCILABLE"

OUTCOMES_SCHEMA = json.dumps({"enum": RESOLVED_OUTCOMES}, separators=(",", ":"))
"""What a person may answer about an unknown outcome, as the question says it."""


@dataclass(frozen=True, slots=True)
class RecoveryPolicy:
    """How often recovery tries by itself before a person is asked.

    `resumes_max` counts the owners that the open turn has had; `attempts_max` the
    attempts of one call; `expiries_max` the requests for permission of one call that
    nobody answered.
    """

    resumes_max: int = 5
    attempts_max: int = 3
    expiries_max: int = 3


@dataclass(frozen=True, slots=True)
class Retry:
    """Execute again, as `attempt`, under the same operation_id.

    Not before log time `not_before_at` (microseconds): until then the old attempt may
    still begin.
    """

    call_id: str
    attempt: int
    operation_id: str
    not_before_at: int


@dataclass(frozen=True, slots=True)
class Reconcile:
    """Ask the tool whether the effect of `attempt` happened.

    A "no" counts only from log time `not_before_at` on.
    """

    call_id: str
    attempt: int
    operation_id: str
    not_before_at: int


@dataclass(frozen=True, slots=True)
class MarkUnknown:
    """Say that nobody knows how an attempt ended."""

    call_id: str
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class AskPerson:
    """Ask a person how an attempt ended; `request_id` is the same in every plan."""

    call_id: str
    attempt: int
    request_id: str


@dataclass(frozen=True, slots=True)
class RunCall:
    """A call that has certainly not happened and still has to run, in its turn."""

    call_id: str


@dataclass(frozen=True, slots=True)
class CloseCall:
    """A call that has certainly not happened, and that somebody cancelled."""

    call_id: str


@dataclass(frozen=True, slots=True)
class OfferAgain:
    """A request that waits for an answer: it still does."""

    request_id: str
    call_id: str


@dataclass(frozen=True, slots=True)
class ExpireRequest:
    """A request whose time has passed."""

    request_id: str
    kind: str


@dataclass(frozen=True, slots=True)
class CancelModelCall:
    """A model call whose answer nobody will record."""

    model_call_id: str


@dataclass(frozen=True, slots=True)
class FailCompaction:
    """A compaction that came to nothing."""

    compaction_id: str


@dataclass(frozen=True, slots=True)
class HonourCancellation:
    """Somebody asked for a stop that the old owner did not carry out."""

    target: str
    reason: str


@dataclass(frozen=True, slots=True)
class KeepHandle:
    """Something goes on in the background: its end is told when it comes."""

    handle: str
    call_id: str


@dataclass(frozen=True, slots=True)
class RetryLater:
    """A retry that the old owner scheduled."""

    target: str
    attempt: int
    not_before_at: int


@dataclass(frozen=True, slots=True)
class NeedsPerson:
    """Going on by itself has been tried often enough."""

    reason: str


PlannedAction = (
    Retry
    | Reconcile
    | MarkUnknown
    | AskPerson
    | RunCall
    | CloseCall
    | OfferAgain
    | ExpireRequest
    | CancelModelCall
    | FailCompaction
    | HonourCancellation
    | KeepHandle
    | RetryLater
    | NeedsPerson
)


def question_id(call_id: str, attempt: int) -> str:
    """The request_id under which a person is asked how an attempt of a call ended."""
    return f"recovery:{call_id}:{attempt}"


def plan_recovery(
    state: SessionState,
    now: int,
    policy: RecoveryPolicy,
    *,
    resumes: int = 0,
) -> tuple[PlannedAction, ...]:
    """What to do, in this order.

    Args:
        state: at the head, after the claim.
        now: log time in microseconds: the recorded_at of the claim, and what went by.
        policy: how often to go on without a person.
        resumes: how many claims the open turn has seen, this one included.
    """
    tired = state.turn is not None and resumes > policy.resumes_max
    actions: list[PlannedAction] = []
    if tired:
        actions.append(NeedsPerson(f"the open turn was resumed {resumes} times"))
    actions.extend(CancelModelCall(key) for key in sorted(state.model_calls))
    if state.open_compaction is not None:
        actions.append(FailCompaction(state.open_compaction.compaction_id))
    actions.extend(_requests(state, now))
    for call in sorted(state.calls.values(), key=lambda call: call.requested_seq):
        actions.extend(_call(state, call, policy, tired=tired))
    actions.extend(
        KeepHandle(handle.handle, handle.call_id)
        for handle in sorted(state.handles.values(), key=lambda handle: handle.seq)
    )
    actions.extend(
        RetryLater(retry.target, retry.attempt, retry.not_before_at)
        for retry in sorted(state.retries.values(), key=lambda retry: retry.seq)
    )
    actions.extend(_cancellation(state))
    return tuple(actions)


def _requests(state: SessionState, now: int) -> list[PlannedAction]:
    actions: list[PlannedAction] = []
    for request in sorted(state.requests.values(), key=lambda request: request.seq):
        if is_about_dead_call(state, request):
            continue  # what closes the call withdraws it
        if request.expires_at and now > request.expires_at:
            actions.append(ExpireRequest(request.request_id, request.kind))
        else:
            actions.append(OfferAgain(request.request_id, request.call_id))
    return actions


def is_about_dead_call(state: SessionState, request: PendingRequest) -> bool:
    """Whether a request is about a call that is not to begin any more."""
    call = state.calls.get(request.call_id)
    return call is not None and _is_off(state, call)


def _is_off(state: SessionState, call: Call) -> bool:
    """Whether a call that has not begun is not to begin any more."""
    return bool(call.cancel_seq) and call.status in NOT_BEGUN and state.turn is not None


def is_to_stop(state: SessionState, call: Call) -> bool:
    """Whether somebody wants a call that began, or all that is under way, to stop."""
    alone = call.cancel_seq or call.status == CALL_CANCELLING
    return bool(alone) or asked_to_stop(state) is not None or is_interrupted(state)


def _call(
    state: SessionState, call: Call, policy: RecoveryPolicy, *, tired: bool
) -> list[PlannedAction]:
    if _is_off(state, call):
        return [CloseCall(call.call_id)]
    if call.status in (CALL_BACKGROUND, CALL_WAITING):
        return []  # its handle, or its request, is in the plan
    if call.status in NOT_BEGUN:
        return _not_begun(state, call, policy)
    if call.effect == RECONCILABLE:
        return [Reconcile(call.call_id, call.attempt, call.operation_id, call.start_by_at)]
    repeatable = call.effect in SAFE_TO_REPEAT and not is_to_stop(state, call)
    may_go_on = state.turn is not None and not tired
    if repeatable and may_go_on and call.attempt < policy.attempts_max:
        attempt, operation_id = call.attempt + 1, call.operation_id
        return [Retry(call.call_id, attempt, operation_id, call.start_by_at)]
    return unknown(state, call, _why(call))


def _not_begun(
    state: SessionState, call: Call, policy: RecoveryPolicy
) -> list[PlannedAction]:
    if state.turn is None:
        return []
    if call.expiries >= policy.expiries_max:
        reason = f"nobody answered {call.expiries} requests for call {call.call_id}"
        return [NeedsPerson(reason)]
    return [RunCall(call.call_id)]


def unknown(state: SessionState, call: Call, reason: str) -> list[PlannedAction]:
    """Say that an end is unknown, and ask a person, each at most once."""
    actions: list[PlannedAction] = []
    if call.status in EXECUTING:
        actions.append(MarkUnknown(call.call_id, call.attempt, reason))
    asks = call.effect not in SAFE_TO_REPEAT and state.turn is not None
    request_id = question_id(call.call_id, call.attempt)
    if asks and request_id not in state.requests:
        actions.append(AskPerson(call.call_id, call.attempt, request_id))
    return actions


def _why(call: Call) -> str:
    if call.status == CALL_TIMED_OUT:
        return "it timed out, its stop was not confirmed, and its owner is gone"
    if call.status == CALL_CANCELLING:
        return "its cancellation was not confirmed, and its owner is gone"
    if call.status == CALL_UNKNOWN:
        return "its outcome is unknown"
    done = "was cancelled" if call.cancel_seq else "began"
    return f"it {done}, and its owner is gone without recording an end"


def _cancellation(state: SessionState) -> list[PlannedAction]:
    asked = asked_to_stop(state)
    return [HonourCancellation(asked.target, asked.reason)] if asked else []


# --- asking a person -----------------------------------------------------------------


def outcome_question(call: Call, *, request_id: str) -> InputRequested:
    """What a person is asked about an execution that nobody saw end."""
    question = (
        f"Call {call.call_id} of tool {call.tool} began and nobody recorded its "
        f"end. Did it happen? operation_id {call.operation_id}"
    )
    return InputRequested(
        request_id=request_id,
        call_id=call.call_id,
        answer_schema_json=OUTCOMES_SCHEMA,
        prompt=(text_block(question),),
    )
