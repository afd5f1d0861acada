"""What each type of event adds to the metrics. Pure.

`before` is what was so before the event, `tracked` already has it folded in.
"""

from collections.abc import Iterator

from foldline.processors.kept import short
from foldline.projections.metric_names import (
    ABANDONED,
    PARKED,
    RECOVERED,
    RETAKEN,
    TOKEN_KINDS,
)
from foldline.projections.metrics_tools import of_tool
from foldline.projections.metrics_tracked import (
    Before,
    Claim,
    Sample,
    Tracked,
)
from foldline.schemas.envelope import Envelope
from foldline.schemas.events import (
    AnyEvent,
    CancellationRequested,
    CheckpointCreated,
    CompactionCompleted,
    CompactionFailed,
    ContextPruned,
    InputProvided,
    InputRequested,
    LoopDetected,
    ModelCallCancelled,
    ModelCallCompleted,
    ModelCallFailed,
    ModelCallStarted,
    PermissionDenied,
    PermissionExpired,
    PermissionGranted,
    PermissionRequested,
    PolicyViolation,
    RetryScheduled,
    SessionCancelled,
    SessionCompleted,
    SessionCreated,
    SessionFailed,
    SessionReopened,
    SessionResumed,
    SessionSuspended,
    SteeringApplied,
    SteeringExpired,
    SteeringReceived,
    SubagentStarted,
    TurnEnded,
    TurnStarted,
    UsageCorrected,
)
from foldline.schemas.recorded import Recorded

_ENDED = {
    SessionCompleted: "COMPLETED",
    SessionFailed: "FAILED",
    SessionCancelled: "CANCELLED",
}
_MODEL_ENDED = {
    ModelCallCompleted: "COMPLETED",
    ModelCallFailed: "FAILED",
    ModelCallCancelled: "CANCELLED",
}
_STEERED = {
    SteeringReceived: "RECEIVED",
    SteeringApplied: "APPLIED",
    SteeringExpired: "EXPIRED",
}
_ModelEnd = ModelCallCompleted | ModelCallFailed | ModelCallCancelled
_SessionEnd = SessionCompleted | SessionFailed | SessionCancelled


def counted(tracked: Tracked, before: Before, recorded: Recorded) -> Iterator[Sample]:
    """What one event adds beside what gauges say."""
    event, envelope = recorded.event, recorded.envelope
    yield from _of_session(tracked, before, envelope, event)
    yield from _of_turn(tracked, before, event)
    yield from _of_model(tracked, before, event)
    yield from of_tool(tracked, before, event)
    yield from _of_request(tracked, event)
    yield from _of_context(event)
    yield from _of_runtime(event)
    yield from _unanswered(tracked, before)


# --- sessions and turns --------------------------------------------------------------


def _of_session(
    tracked: Tracked, before: Before, envelope: Envelope, event: AnyEvent
) -> Iterator[Sample]:
    match event:
        case SessionCreated():
            tracked.began = tracked.now
            yield Sample("sessions_started", (event.mode, event.relation))
            yield Sample("agent_sessions", (event.agent,))
        case SessionCompleted() | SessionFailed() | SessionCancelled():
            yield from _session_ended(tracked, event)
        case SessionResumed() | SessionReopened():
            yield from _claimed(tracked, before, envelope)
        case SessionSuspended() if tracked.recovering:
            yield from _recovery_over(tracked, PARKED)
        case CheckpointCreated():
            yield Sample("checkpoints")
        case SubagentStarted():
            yield Sample("subagents")
        case _:
            return


def _session_ended(tracked: Tracked, event: _SessionEnd) -> Iterator[Sample]:
    outcome = _ENDED[type(event)]
    yield Sample("sessions_ended", (outcome,))
    took = max(tracked.now - (tracked.began or tracked.now), 0)
    yield Sample("session_duration_seconds", (outcome,), took)
    done = RECOVERED if isinstance(event, SessionCompleted) else "FAILED"
    yield from _recovery_over(tracked, done)


def _claimed(tracked: Tracked, before: Before, envelope: Envelope) -> Iterator[Sample]:
    """A change of owner; in the middle of a turn it is a recovery."""
    yield Sample("session_claims", (before.status,))
    tracked.claim = Claim(envelope.epoch, tracked.now, before.status)
    yield from _recovery_over(tracked, RETAKEN)
    if before.in_turn:
        tracked.recovering = True
        yield Sample("recoveries")
        yield Sample("recoveries_open")
        yield Sample("standstill_seconds", (), max(tracked.now - before.last_at, 0))


def _recovery_over(tracked: Tracked, result: str) -> Iterator[Sample]:
    if tracked.recovering:
        tracked.recovering = False
        yield Sample("recovery_results", (result,))
        yield Sample("recoveries_open", (), -1)


def _of_turn(tracked: Tracked, before: Before, event: AnyEvent) -> Iterator[Sample]:
    match event:
        case TurnStarted(trigger=trigger):
            tracked.turn_at = tracked.now
            yield Sample("turns_started", (trigger,))
        case TurnEnded(outcome=outcome):
            yield Sample("turns", (outcome,))
            if before.in_turn:
                took = max(tracked.now - tracked.turn_at, 0)
                yield Sample("turn_duration_seconds", (outcome,), took)
            done = RECOVERED if outcome == "DONE" else "FAILED"
            yield from _recovery_over(tracked, done)
        case _:
            return


# --- model calls ---------------------------------------------------------------------


def _of_model(tracked: Tracked, before: Before, event: AnyEvent) -> Iterator[Sample]:
    match event:
        case ModelCallStarted():
            name = short(event.model_call_id)
            tracked.models[name] = event.model
            tracked.begin("model", name)
            if event.attempt > 1 or event.retry_of:
                yield Sample("retries", ("MODEL",))
        case ModelCallCompleted() | ModelCallFailed() | ModelCallCancelled():
            yield from _model_ended(tracked, before, event)
            yield from _tokens(tracked, before, event.model_call_id)
        case UsageCorrected():
            yield from _tokens(tracked, before, event.model_call_id)
        case _:
            return


def _model_ended(tracked: Tracked, before: Before, event: _ModelEnd) -> Iterator[Sample]:
    """The end of a call, once: a mirror may hear of it again."""
    name = short(event.model_call_id)
    took = tracked.ended("model", name)
    if isinstance(event, ModelCallCompleted) and event.model:
        tracked.models.setdefault(name, event.model)
    if before.call_usage is not None and not before.is_open_model_call:
        return
    model = tracked.models.get(name, "")
    yield Sample("model_calls", (model, _MODEL_ENDED[type(event)]))
    if not isinstance(event, ModelCallCompleted):
        return
    micros = took if event.latency_ms is None else event.latency_ms * 1_000
    if micros is not None:
        yield Sample("model_call_duration_seconds", (model,), micros)
    if event.ttft_ms is not None:
        first = event.ttft_ms * 1_000
        yield Sample("model_time_to_first_chunk_seconds", (model,), first)


def _tokens(tracked: Tracked, before: Before, model_call_id: str) -> Iterator[Sample]:
    """How much the session's totals have changed: a usage replaces the one before."""
    state, name = tracked.state, short(model_call_id)
    model = tracked.models.get(name, "")
    for each, kind in TOKEN_KINDS.items():
        more = getattr(state.usage, each) - getattr(before.usage, each)
        if more:
            family = "tokens" if more > 0 else "tokens_taken_back"
            yield Sample(family, (model, kind), abs(more))
    now = state.model_usage.get(name)
    had = before.call_usage.cache_read_input_tokens if before.call_usage else 0
    if now is not None and now.usage.cache_read_input_tokens and not had:
        yield Sample("model_cache_hits", (model,))


# --- requests to people --------------------------------------------------------------


def _of_request(tracked: Tracked, event: AnyEvent) -> Iterator[Sample]:
    match event:
        case PermissionRequested() | InputRequested():
            tracked.begin("request", short(event.request_id))
            kind = event.kind if isinstance(event, PermissionRequested) else "INPUT"
            yield Sample("approvals_requested", (kind,))
        case PermissionGranted() | PermissionDenied():
            given = isinstance(event, PermissionGranted)
            answer = "GRANTED" if given else "DENIED"
            yield Sample("permissions", (answer, event.decided_by))
            yield from _answered(tracked, event.request_id, answer)
        case PermissionExpired():
            yield from _answered(tracked, event.request_id, "EXPIRED")
        case InputProvided():
            yield from _answered(tracked, event.request_id, "ANSWERED")
        case _:
            return


def _answered(tracked: Tracked, request_id: str | None, answer: str) -> Iterator[Sample]:
    waited = tracked.ended("request", short(request_id)) if request_id else None
    if waited is not None:
        yield Sample("approvals", (answer,))
        yield Sample("approval_wait_seconds", (answer,), waited)


def _unanswered(tracked: Tracked, before: Before) -> Iterator[Sample]:
    """Requests that wait no more although nobody has answered them."""
    if not before.requests:
        return
    for request_id in before.requests:
        if request_id not in tracked.state.requests:
            yield from _answered(tracked, request_id, ABANDONED)


# --- context and runtime -------------------------------------------------------------


def _of_context(event: AnyEvent) -> Iterator[Sample]:
    match event:
        case CompactionCompleted(token_before=was, token_after=now):
            yield Sample("compactions", ("COMPLETED",))
            if was is not None and now is not None and was > now:
                yield Sample("compaction_tokens_saved", (), was - now)
        case CompactionFailed():
            yield Sample("compactions", ("FAILED",))
        case ContextPruned(tokens_saved=saved):
            yield Sample("prunings")
            if saved is not None and saved > 0:
                yield Sample("pruning_tokens_saved", (), saved)
        case _:
            return


def _of_runtime(event: AnyEvent) -> Iterator[Sample]:
    match event:
        case SteeringReceived() | SteeringApplied() | SteeringExpired():
            yield Sample("steerings", (_STEERED[type(event)],))
        case CancellationRequested():
            yield Sample("cancellations")
        case RetryScheduled():
            yield Sample("retries_scheduled")
        case LoopDetected():
            yield Sample("loops")
        case PolicyViolation():
            yield Sample("policy_violations")
        case _:
            return
