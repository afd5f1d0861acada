"""Events in few words, for stories: what matters is named, the rest is there."""

from typing import Any

from foldline.schemas.events import (
    BackgroundEnded,
    BudgetSet,
    CancellationRequested,
    CheckpointCreated,
    CompactionCompleted,
    CompactionFailed,
    CompactionStarted,
    ConstraintLifted,
    ConstraintSet,
    GoalSet,
    HandedOff,
    HarnessStateSet,
    HistoryRewound,
    InputProvided,
    InputRequested,
    InstructionsSet,
    LoopDetected,
    ModelCallCancelled,
    ModelCallCompleted,
    ModelCallFailed,
    ModelCallStarted,
    PermissionDenied,
    PermissionExpired,
    PermissionGranted,
    PermissionRequested,
    PlanUpdated,
    PolicyViolation,
    RetryScheduled,
    SessionCreated,
    SteeringApplied,
    SteeringExpired,
    SteeringReceived,
    SubagentEnded,
    SubagentStarted,
    SummaryCreated,
    ToolBackgrounded,
    ToolCallRequested,
    ToolCallValidated,
    ToolExecutionCancelled,
    ToolExecutionCompleted,
    ToolExecutionFailed,
    ToolExecutionStarted,
    ToolExecutionTimedOut,
    ToolOutcomeResolved,
    ToolOutcomeUnknown,
    TurnEnded,
    TurnStarted,
    UsageCorrected,
    UserMessage,
)
from tests.story import Story

CALL = "m:0"
"""The call that a story is about, where it is about one."""


def having(fields: dict[str, Any], **defaults: Any) -> dict[str, Any]:
    """Fields, and defaults for those that were not given."""
    return defaults | fields


def session(**fields: Any) -> Story:
    """An owned session that was just created."""
    return Story().given(created(**fields))


def in_turn() -> Story:
    """An owned session in a turn."""
    return session().given(turn())


def with_call(**fields: Any) -> Story:
    """In a turn, with a call requested."""
    return in_turn().given(request(**fields))


def running(**fields: Any) -> Story:
    """In a turn, with a call executing; an UNSAFE one unless told otherwise."""
    return with_call().given(start(**fields))


def waiting(**fields: Any) -> Story:
    """In a turn, with a call that waits for permission."""
    return with_call().given(ask(**fields))


def created(**fields: Any) -> SessionCreated:
    """The session begins."""
    return SessionCreated(**having(fields, agent="coder"))


def turn() -> TurnStarted:
    """A turn begins."""
    return TurnStarted(trigger="USER")


def turn_ends(outcome: str = "DONE") -> TurnEnded:
    """The turn ends."""
    return TurnEnded(outcome=outcome)


def user(message_id: str = "u") -> UserMessage:
    """A person says something."""
    return UserMessage(message_id=message_id, blocks=())


def request(call_id: str = CALL, **fields: Any) -> ToolCallRequested:
    """The model asks for a tool."""
    given: dict[str, Any] = {
        "tool": "send_mail",
        "args_hash": f"hash of {call_id}",
        "message_id": "m",
        "position": 0,
        "arguments": (),
    }
    return ToolCallRequested(call_id=call_id, **(given | fields))


def validated(*, valid: bool, call_id: str = CALL) -> ToolCallValidated:
    """The arguments were checked."""
    return ToolCallValidated(call_id=call_id, valid=valid, problem="")


def start(call_id: str = CALL, attempt: int = 1, **fields: Any) -> ToolExecutionStarted:
    """An effect may begin."""
    given: dict[str, Any] = {"effect": "UNSAFE", "operation_id": f"op of {call_id}"}
    return ToolExecutionStarted(call_id=call_id, attempt=attempt, **(given | fields))


def done(call_id: str = CALL, attempt: int = 1) -> ToolExecutionCompleted:
    """The tool ran to its end."""
    return ToolExecutionCompleted(call_id=call_id, attempt=attempt, output=())


def failed(
    call_id: str = CALL, attempt: int = 1, executed: str = "UNKNOWN"
) -> ToolExecutionFailed:
    """The tool failed."""
    return ToolExecutionFailed(
        call_id=call_id,
        attempt=attempt,
        layer="TOOL",
        error_type="Error",
        executed=executed,
    )


def cancelled(
    call_id: str = CALL, attempt: int = 1, *, confirmed: bool = True
) -> ToolExecutionCancelled:
    """The tool was told to stop."""
    return ToolExecutionCancelled(
        call_id=call_id, attempt=attempt, reason="r", stop_confirmed=confirmed
    )


def timed_out(
    call_id: str = CALL, attempt: int = 1, *, confirmed: bool = False
) -> ToolExecutionTimedOut:
    """Nobody waits for the tool any longer."""
    return ToolExecutionTimedOut(call_id=call_id, attempt=attempt, stop_confirmed=confirmed)


def backgrounded(
    handle: str = "h", call_id: str = CALL, attempt: int = 1
) -> ToolBackgrounded:
    """The tool goes on in the background."""
    return ToolBackgrounded(call_id=call_id, attempt=attempt, handle=handle)


def background_ends(handle: str = "h", outcome: str = "COMPLETED") -> BackgroundEnded:
    """What ran in the background ended."""
    return BackgroundEnded(handle=handle, outcome=outcome)


def unknown(call_id: str = CALL, attempt: int = 1) -> ToolOutcomeUnknown:
    """Nobody knows how it ended."""
    return ToolOutcomeUnknown(call_id=call_id, attempt=attempt, reason="crash")


def resolved(
    outcome: str = "COMPLETED", call_id: str = CALL, attempt: int = 1
) -> ToolOutcomeResolved:
    """Somebody found out."""
    return ToolOutcomeResolved(
        call_id=call_id, attempt=attempt, outcome=outcome, resolver="person"
    )


def ask(
    request_id: str = "r", call_id: str | None = CALL, **fields: Any
) -> PermissionRequested:
    """A call waits for permission."""
    given: dict[str, Any] = {
        "args_hash": f"hash of {call_id}" if call_id else None,
        "display": (),
    }
    return PermissionRequested(request_id=request_id, call_id=call_id, **(given | fields))


def grant(
    request_id: str | None = "r", call_id: str | None = CALL, **fields: Any
) -> PermissionGranted:
    """A person says yes."""
    given: dict[str, Any] = {
        "args_hash": f"hash of {call_id}" if call_id else None,
        "decided_by": "PERSON",
        "grant_id": "g",
    }
    return PermissionGranted(request_id=request_id, call_id=call_id, **(given | fields))


def deny(request_id: str | None = "r", **fields: Any) -> PermissionDenied:
    """A person says no."""
    return PermissionDenied(request_id=request_id, **having(fields, decided_by="PERSON"))


def expired(request_id: str = "r") -> PermissionExpired:
    """Nobody answered in time."""
    return PermissionExpired(request_id=request_id)


def question(request_id: str = "q", **fields: Any) -> InputRequested:
    """The agent asks a person something."""
    return InputRequested(request_id=request_id, prompt=(), **fields)


def answer(request_id: str = "q") -> InputProvided:
    """A person answers."""
    return InputProvided(request_id=request_id, blocks=())


def model_starts(model_call_id: str = "m", **fields: Any) -> ModelCallStarted:
    """A request goes to a model."""
    return ModelCallStarted(
        model_call_id=model_call_id, **having(fields, provider="p", model="x")
    )


def model_completes(model_call_id: str = "m", **fields: Any) -> ModelCallCompleted:
    """The model answered."""
    return ModelCallCompleted(model_call_id=model_call_id, **fields)


def model_fails(model_call_id: str = "m", **fields: Any) -> ModelCallFailed:
    """The model call failed."""
    return ModelCallFailed(model_call_id=model_call_id, error_type="Error", **fields)


def model_is_cancelled(model_call_id: str = "m") -> ModelCallCancelled:
    """The model call was cancelled."""
    return ModelCallCancelled(model_call_id=model_call_id, reason="r")


def usage_corrected(model_call_id: str = "m", **tokens: int) -> UsageCorrected:
    """The usage of a call as now known."""
    return UsageCorrected.model_validate({"model_call_id": model_call_id, "usage": tokens})


def compaction(
    to_seq: int, base_seq: int, from_seq: int = 1, compaction_id: str = "c"
) -> CompactionCompleted:
    """Events are replaced in context."""
    return CompactionCompleted(
        compaction_id=compaction_id,
        from_seq=from_seq,
        to_seq=to_seq,
        base_seq=base_seq,
        strategy="summary",
    )


def compaction_starts(base_seq: int, compaction_id: str = "c") -> CompactionStarted:
    """A compaction begins."""
    return CompactionStarted(compaction_id=compaction_id, base_seq=base_seq, reason="r")


def compaction_fails(compaction_id: str = "c") -> CompactionFailed:
    """A compaction came to nothing."""
    return CompactionFailed(compaction_id=compaction_id, reason="r")


def summary(from_seq: int, to_seq: int) -> SummaryCreated:
    """A summary of a range."""
    return SummaryCreated(from_seq=from_seq, to_seq=to_seq, blocks=())


def rewind(to_seq: int) -> HistoryRewound:
    """The conversation goes on from an earlier seq."""
    return HistoryRewound(to_seq=to_seq)


def checkpoint(upto_seq: int) -> CheckpointCreated:
    """Keep the state before this."""
    return CheckpointCreated(upto_seq=upto_seq, state_hash=b"h", fold_version=1)


def steer(mode: str = "INTERRUPT") -> SteeringReceived:
    """Somebody outside steers."""
    return SteeringReceived(mode=mode, blocks=())


def steering_applied(event_id: str) -> SteeringApplied:
    """The model was shown the steering."""
    return SteeringApplied(steering_event_id=event_id)


def steering_expired(event_id: str) -> SteeringExpired:
    """The steering will not be applied."""
    return SteeringExpired(steering_event_id=event_id, reason="r")


def constraint(constraint_id: str = "k") -> ConstraintSet:
    """Something to heed."""
    return ConstraintSet(constraint_id=constraint_id, blocks=())


def constraint_lifted(constraint_id: str = "k") -> ConstraintLifted:
    """No longer to heed."""
    return ConstraintLifted(constraint_id=constraint_id)


def instructions(role: str = "system") -> InstructionsSet:
    """Instructions from here on."""
    return InstructionsSet(role=role, blocks=())


def harness_state(key: str = "k", **fields: Any) -> HarnessStateSet:
    """A value that the harness wants back."""
    return HarnessStateSet(**having(fields, state_namespace="n", key=key))


def child(child_session_id: str = "child") -> SubagentStarted:
    """A child session works."""
    return SubagentStarted(child_session_id=child_session_id)


def handed_off(to_agent: str = "reviewer", **fields: Any) -> HandedOff:
    """Another agent goes on."""
    return HandedOff(**having(fields, from_agent="coder", to_agent=to_agent))


def child_ends(child_session_id: str = "child") -> SubagentEnded:
    """A child session ended."""
    return SubagentEnded(child_session_id=child_session_id, outcome="DONE")


def retry(target: str = CALL) -> RetryScheduled:
    """Something is tried again later."""
    return RetryScheduled(target=target, attempt=2, not_before_ms=1, reason="r")


def cancel(target: str, target_id: str | None = None) -> CancellationRequested:
    """Somebody wants a stop."""
    return CancellationRequested(target=target, target_id=target_id)


def looped(**fields: Any) -> LoopDetected:
    """A detector found that the same call is made again and again."""
    defaults = {
        "kind": "SAME_CALL",
        "fingerprint": "f",
        "count": 3,
        "from_seq": 1,
        "to_seq": 2,
        "detector": "d",
    }
    return LoopDetected(**having(fields, **defaults))


def violated(**fields: Any) -> PolicyViolation:
    """A rule of a policy was broken."""
    defaults = {"policy": "p", "rule": "r", "severity": "WARNING"}
    return PolicyViolation(**having(fields, **defaults))


def goal() -> GoalSet:
    """What the session is to reach."""
    return GoalSet(blocks=())


def plan() -> PlanUpdated:
    """The plan as it is now."""
    return PlanUpdated(items=())


def budget() -> BudgetSet:
    """Limits of the session."""
    return BudgetSet(limits_json="{}")
