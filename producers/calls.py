"""Calls as the log has them: what was asked, what it may run with, how it ended."""

from collections.abc import Iterable
from typing import cast

from foldline.producers.ownership import Ownership
from foldline.producers.tools import (
    Backgrounded,
    Cancelled,
    Denied,
    Done,
    Failed,
    PendingCall,
    TimedOut,
    ToolResult,
    Unknown,
    parse_arguments,
)
from foldline.projections.steering import reason_of
from foldline.schemas.blocks import text_block, text_of
from foldline.schemas.events import (
    AnyEvent,
    BackgroundEnded,
    CancellationRequested,
    PermissionDenied,
    PermissionGranted,
    RedactionApplied,
    ToolBackgrounded,
    ToolCallRequested,
    ToolCallValidated,
    ToolExecutionCancelled,
    ToolExecutionCompleted,
    ToolExecutionFailed,
    ToolExecutionTimedOut,
    ToolOutcomeResolved,
)
from foldline.schemas.recorded import Recorded
from foldline.schemas.state import (
    CALL_BACKGROUND,
    CALL_CANCELLING,
    CALL_TIMED_OUT,
    NOT_BEGUN,
    Call,
    SessionState,
)

INTERRUPT = "interrupt"
"""The policy that closes calls which an interruption, or a stop, kept from beginning."""

NOT_RUN = "Not run: "
"""What the model is told of such a call begins with it; then comes the reason."""

REDACTED = "the arguments were redacted before they were stored; ask the model again"


async def pending_call(owner: Ownership, call: Call) -> PendingCall:
    """A call of the state, with its arguments from the log."""
    events = await owner.events(call.requested_seq - 1, call.requested_seq)
    requested = cast("ToolCallRequested", events[0].event)
    text = await owner.text(requested.arguments)
    arguments, problem = parse_arguments(text)
    if await _was_redacted(owner, events[0]):
        # What ran with the placeholder would be another call than the model asked for.
        arguments, problem = None, REDACTED
    return PendingCall(
        call_id=call.call_id,
        provider_call_id=call.provider_call_id,
        tool=call.tool,
        text=text,
        arguments=arguments,
        problem=problem,
        args_hash=call.args_hash,
        requested_seq=call.requested_seq,
    )


async def _was_redacted(owner: Ownership, requested: Recorded) -> bool:
    """Whether the event right behind a request counts what was redacted in it."""
    behind = await owner.events(requested.seq, requested.seq + 1)
    return any(
        isinstance(recorded.event, RedactionApplied)
        and recorded.event.target_event_id == requested.envelope.event_id
        for recorded in behind
    )


async def open_calls(owner: Ownership, state: SessionState) -> list[PendingCall]:
    """The calls of the open turn that have still to run, in the order of the requests."""
    listed = sorted(state.calls.values(), key=lambda call: call.requested_seq)
    return [await pending_call(owner, call) for call in listed if call.status in NOT_BEGUN]


async def asked_to_stop_call(owner: Ownership, call: Call) -> str:
    """Why somebody asked for a call to be cancelled; empty where nobody has."""
    if not call.cancel_seq:
        return ""
    events = await owner.events(call.cancel_seq - 1, call.cancel_seq)
    return reason_of(cast("CancellationRequested", events[0].event))


def kept_from_beginning(
    call_id: str, why: str, *, request_id: str | None = None
) -> PermissionDenied:
    """The end of a call that was to stop before its effect began."""
    return PermissionDenied(
        request_id=request_id,
        call_id=call_id,
        decided_by="POLICY",
        policy=INTERRUPT,
        feedback=(text_block(f"{NOT_RUN}{why}."),),
    )


def _why_kept(event: PermissionDenied) -> str:
    """Why a call was kept from beginning, as whoever ran it was told then."""
    said = text_of(event.feedback)
    return said.removeprefix(NOT_RUN).removesuffix(".") or "interrupted"


async def granted_event(owner: Ownership, call: Call) -> Recorded | None:
    """The grant whose edited arguments a call is to run with; None where there are none."""
    if not call.granted_seq or call.granted_args_hash == call.args_hash:
        return None
    return (await owner.events(call.granted_seq - 1, call.granted_seq))[0]


async def edited_arguments(owner: Ownership, granted: Recorded) -> tuple[str, str]:
    """The text of the arguments that a grant brought, and why it cannot be run."""
    text = await owner.text(cast("PermissionGranted", granted.event).edited_arguments)
    redacted = await _was_redacted(owner, granted)
    return text, "a secret in them was redacted before they were stored" if redacted else ""


async def result_in_log(
    owner: Ownership, call: PendingCall, state: SessionState
) -> ToolResult | None:
    """How a call ended, or stands, by the log; None if it has still to run."""
    known = state.calls.get(call.call_id)
    if known is not None and known.status in NOT_BEGUN:
        return None
    if known is not None:
        return _standing(call, known, state)
    events = await owner.events(call.requested_seq, None)
    return _ended(call, events) or Unknown(call, "the log names no end of it")


def _standing(call: PendingCall, known: Call, state: SessionState) -> ToolResult:
    """What is open and has begun: it is not begun again here."""
    if known.status == CALL_BACKGROUND:
        handles = [h for h in state.handles.values() if h.call_id == call.call_id]
        return Backgrounded(call, handles[0].handle if handles else "")
    if known.status == CALL_TIMED_OUT:
        return TimedOut(call, 0, stop_confirmed=False)
    if known.status == CALL_CANCELLING:
        return Cancelled(call, "", stop_confirmed=False)
    return Unknown(call, f"it began and has no recorded end ({known.status})")


def _ended(call: PendingCall, events: Iterable[Recorded]) -> ToolResult | None:
    """The last end of a call that the events tell."""
    result: ToolResult | None = None
    handles: set[str] = set()
    for recorded in events:
        event = recorded.event
        if isinstance(event, ToolBackgrounded) and event.call_id == call.call_id:
            handles.add(event.handle)
        if isinstance(event, BackgroundEnded) and event.handle in handles:
            result = _background_end(call, event) or result
        elif getattr(event, "call_id", None) == call.call_id:
            result = _end(call, event) or result
    return result


def _background_end(call: PendingCall, event: BackgroundEnded) -> ToolResult | None:
    match event.outcome:
        case "COMPLETED":
            return Done(call, event.output)
        case "FAILED":
            return Failed(call, "BackgroundFailed", event.output, "UNKNOWN")
        case "CANCELLED":
            return Cancelled(call, "in the background", stop_confirmed=True)
        case _:
            return None


def _end(call: PendingCall, event: AnyEvent) -> ToolResult | None:
    match event:
        case ToolExecutionCompleted():
            return Done(call, event.output, event.exit_code, event.attempt)
        case ToolExecutionFailed():
            return Failed(
                call,
                event.error_type,
                event.blocks,
                event.executed,
                event.layer,
                event.attempt,
            )
        case ToolExecutionCancelled():
            return Cancelled(call, event.reason, event.stop_confirmed)
        case ToolExecutionTimedOut():
            return TimedOut(call, event.after_ms or 0, event.stop_confirmed)
        case ToolOutcomeResolved(outcome="COMPLETED"):
            return Done(call, event.output, None, event.attempt)
        case ToolOutcomeResolved(outcome="FAILED"):
            blocks = event.output or event.evidence
            return Failed(call, "Resolved", blocks, "UNKNOWN", "TOOL", event.attempt)
        case PermissionDenied(policy=policy) if policy == INTERRUPT:
            return Cancelled(call, _why_kept(event), stop_confirmed=True)
        case PermissionDenied(may_request_again=False):
            return Denied(call, event.feedback)
        case ToolCallValidated(valid=False):
            return unusable(call, event.problem)
        case _:
            return None


def unusable(call: PendingCall, problem: str) -> Failed:
    """The result of a call that cannot run as the model wrote it."""
    return Failed(call, "InvalidCall", (text_block(problem),), "NO", "MODEL")
