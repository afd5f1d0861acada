"""What is odd about an event, given the state before it. Named, counted, never mended.

In a mirrored session everything is accepted, so oddities are the rule. In an owned one
only a late outcome is left to name: admission refused the others. Pure.
"""

from foldline.processors.listing import running_under
from foldline.schemas.envelope import Envelope
from foldline.schemas.events import (
    AnyEvent,
    BackgroundEnded,
    ModelCallCancelled,
    ModelCallCompleted,
    ModelCallFailed,
    PermissionDenied,
    PermissionGranted,
    SteeringApplied,
    SteeringExpired,
    ToolBackgrounded,
    ToolExecutionCancelled,
    ToolExecutionCompleted,
    ToolExecutionFailed,
    ToolExecutionStarted,
    ToolExecutionTimedOut,
    ToolOutcomeUnknown,
    TurnEnded,
    TurnStarted,
    UsageCorrected,
)
from foldline.schemas.state import (
    CALL_NOT_EXECUTED,
    CALL_TIMED_OUT,
    CALL_UNKNOWN,
    MIRRORED,
    SessionState,
)

MISSING_PARENT_ID = "00000000-0000-0000-0000-000000000000"
"""The parent_event_id of a mirrored fact whose source names a parent it does not hold."""

RECORDS_STARTS: frozenset[str] = frozenset({"copilot-cli", "openhands", "langgraph"})
"""Source systems that record the start of an execution: there its absence is odd."""

ANOMALIES: dict[str, str] = {
    "late": "an outcome came after the call was timed out, resolved or tried again",
    "result_without_call": "a result of a call that is not in the log",
    "second_result": "a second result of a call that has one",
    "missing_start": "a result without a start, where the source records starts",
    "start_without_request": "an execution of a call that nobody requested",
    "missing_parent": "the source names a parent that it does not hold",
    "turn_in_turn": "a turn began inside another",
    "end_without_turn": "a turn ended that had not begun",
    "end_of_unknown_handle": "something in the background ended that had not begun",
    "answer_without_request": "a permission or denial that nobody asked for",
    "steering_not_pending": "steering was applied or expired that was not pending",
    "correction_of_unknown_call": "usage was corrected of a call too long ago, or unknown",
    "model_outcome_twice": "a second end of a model call",
}
"""Every anomaly by name, with its meaning."""

_OUTCOMES = (
    ToolExecutionCompleted,
    ToolExecutionFailed,
    ToolExecutionCancelled,
    ToolExecutionTimedOut,
)
_MODEL_OUTCOMES = (ModelCallCompleted, ModelCallFailed, ModelCallCancelled)
_BELIEVED = (CALL_TIMED_OUT, CALL_UNKNOWN, CALL_NOT_EXECUTED)
_MAY_BE_LATE: frozenset[type] = frozenset({*_OUTCOMES, ToolBackgrounded, BackgroundEnded})
_SUSPECT = (
    *_OUTCOMES,
    *_MODEL_OUTCOMES,
    ToolExecutionStarted,
    ToolBackgrounded,
    ToolOutcomeUnknown,
    BackgroundEnded,
    TurnStarted,
    TurnEnded,
    PermissionGranted,
    PermissionDenied,
    SteeringApplied,
    SteeringExpired,
    UsageCorrected,
)


def anomalies_of(
    state: SessionState, envelope: Envelope, event: AnyEvent
) -> tuple[str, ...]:
    """The names of what is odd, in a fixed order; empty for nearly every event."""
    if state.mode == MIRRORED:
        found: list[str] = []
        if isinstance(event, _SUSPECT):
            found.extend(_mirrored(state, envelope, event))
        if envelope.parent_event_id == MISSING_PARENT_ID:
            found.append("missing_parent")
        return tuple(found)
    if type(event) not in _MAY_BE_LATE:
        return ()
    match event:
        case (
            ToolExecutionCompleted()
            | ToolExecutionFailed()
            | ToolExecutionCancelled()
            | ToolExecutionTimedOut()
            | ToolBackgrounded()
        ):
            late = _late(state, event.call_id, event.attempt)
        case BackgroundEnded():
            handle = running_under(state, event.handle)
            late = handle is not None and _late(state, handle.call_id, handle.attempt)
        case _:
            return ()
    return ("late",) if late else ()


def _late(state: SessionState, call_id: str, attempt: int) -> bool:
    """Whether something else was already believed of this attempt, or it was retried."""
    call = state.calls.get(call_id)
    if call is None:
        return call_id in state.finished
    return call.attempt > attempt or call.status in _BELIEVED


def _mirrored(state: SessionState, envelope: Envelope, event: AnyEvent) -> list[str]:
    match event:
        case TurnStarted():
            odd = "turn_in_turn" if state.turn is not None else ""
        case TurnEnded():
            odd = "end_without_turn" if state.turn is None else ""
        case ToolExecutionStarted() | ToolBackgrounded():
            odd = "" if event.call_id in state.calls else "start_without_request"
        case BackgroundEnded():
            known = running_under(state, event.handle) is not None
            odd = "" if known else "end_of_unknown_handle"
        case SteeringApplied() | SteeringExpired():
            pending = event.steering_event_id in state.steering
            odd = "" if pending else "steering_not_pending"
        case UsageCorrected():
            known = event.model_call_id in state.model_usage
            odd = "" if known else "correction_of_unknown_call"
        case ModelCallCompleted() | ModelCallFailed() | ModelCallCancelled():
            ended = event.model_call_id in state.model_usage
            again = ended and event.model_call_id not in state.model_calls
            odd = "model_outcome_twice" if again else ""
        case PermissionGranted() | PermissionDenied():
            known = event.request_id in state.requests or event.call_id in state.calls
            odd = "" if known else "answer_without_request"
        case _:
            return _outcome(state, envelope, event)
    return [odd] if odd else []


def _outcome(state: SessionState, envelope: Envelope, event: AnyEvent) -> list[str]:
    if not isinstance(event, (*_OUTCOMES, ToolOutcomeUnknown)):
        return []
    call = state.calls.get(event.call_id)
    if call is not None:
        late = _late(state, event.call_id, event.attempt)
        found = ["late"] if late and not isinstance(event, ToolOutcomeUnknown) else []
        source = envelope.source
        if not call.started_seq and source and source.system in RECORDS_STARTS:
            found.append("missing_start")
        return found
    if event.call_id in state.finished:
        return ["second_result"]
    return ["result_without_call"]
