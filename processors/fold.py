"""The fold: how events become a session's state. Pure. Total, and nothing else.

    initial(session_id)        the state before the first event
    evolve(state, recorded)    the state after one more event
    replay(state, events)      the state after many

The fold never refuses: whether an event may be recorded is admission's business. It
also never raises on an admitted event, so that no event can make a session unreadable.
What it is shown may lack content (blocks): it reads structure only.
"""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import fields
from operator import attrgetter
from typing import Any, assert_never

from foldline.processors.anomalies import anomalies_of
from foldline.processors.fold_tools import fold_permission, fold_tool
from foldline.processors.kept import bounded, fit, harness_key, log_time_after, short
from foldline.processors.listing import bump, put, remember
from foldline.schemas.envelope import Envelope
from foldline.schemas.events import (
    AnyEvent,
    AssistantMessage,
    BackgroundEnded,
    BudgetSet,
    CancellationRequested,
    CheckpointCreated,
    CompactionCompleted,
    CompactionFailed,
    CompactionStarted,
    ConfigChanged,
    ConstraintLifted,
    ConstraintSet,
    ContextCleared,
    ContextPruned,
    ForeignRecord,
    GoalSet,
    HandedOff,
    HarnessStateSet,
    HistoryRewound,
    HookRan,
    InputProvided,
    InputRequested,
    InstructionsSet,
    KnownEvent,
    LabelsSet,
    LoopDetected,
    MessageRetracted,
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
    RedactionApplied,
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
    SubagentEnded,
    SubagentStarted,
    SummaryCreated,
    SystemObservation,
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
    ToolResultProjected,
    ToolsDeclared,
    TurnEnded,
    TurnStarted,
    UnknownEvent,
    Usage,
    UsageCorrected,
    UserFeedback,
    UserMessage,
)
from foldline.schemas.recorded import Recorded
from foldline.schemas.state import (
    CALL_ABANDONED,
    CANCELLED,
    COMPLETED,
    CREATED,
    FAILED,
    FINISHED_KEPT,
    IDLE,
    MIRRORED,
    NOT_BEGUN,
    RUNNING,
    SUSPENDED,
    Call,
    CallUsage,
    Cancellation,
    Compaction,
    ModelCall,
    OpenCompaction,
    Ref,
    Retry,
    SessionState,
    Steering,
    Subagent,
    Turn,
    UsageTotals,
    copied_call,
    copier,
)


def initial(session_id: str) -> SessionState:
    """The state of a session without events."""
    return SessionState(session_id=session_id)


def evolve(state: SessionState, recorded: Recorded) -> SessionState:
    """The state after one more event; the given state is left as it is."""
    after = copy_of(state)
    fold_in(after, recorded)
    return after


def replay(state: SessionState, events: Iterable[Recorded]) -> SessionState:
    """The state after these events, in their order; the given state is left alone."""
    after = copy_of(state)
    last: Recorded | None = None
    for last in events:
        _step(after, last.envelope, last.event)
    if last is not None:
        after.chain_head = hashlib.sha256(last.body).digest()
    return after


def fold_in(state: SessionState, recorded: Recorded) -> None:
    """Evolve a state in place: for whoever owns it alone (a log's cache)."""
    _step(state, recorded.envelope, recorded.event)
    state.chain_head = hashlib.sha256(recorded.body).digest()


_copied_usage = copier(UsageTotals)
_copied_compaction = copier(Compaction)


def _copied_calls(calls: dict[str, Call]) -> dict[str, Call]:
    return {key: copied_call(call) for key, call in calls.items()}


_LISTED = frozenset(
    item.name
    for item in fields(SessionState)
    if type(getattr(initial(""), item.name)) is dict
)
_COUNTERS = frozenset({"counts", "anomalies"})
_ANEW: dict[str, Callable[[Any], Any]] = {
    "usage": _copied_usage,
    "compaction": _copied_compaction,
    "calls": _copied_calls,
}
_copied_lightly = copier(SessionState, listed=_COUNTERS)
_copied_state = copier(SessionState, listed=_LISTED - _ANEW.keys(), anew=_ANEW)


def copy_of(state: SessionState) -> SessionState:
    """A state that shares nothing that the fold changes in place.

    The fold changes open calls, totals and the compaction; everything else that a state
    lists is put there once and taken out again. A finished call to be changed is copied
    first.
    """
    return _copied_state(state)


def light_copy_of(state: SessionState) -> SessionState:
    """A state that shares all that is listed with the given one, but the counters."""
    return _copied_lightly(state)


def copier_for(event: AnyEvent) -> Callable[[SessionState], SessionState]:
    """A function that copies exactly what folding this event may change in place.

    It is `copy_of` where nothing less is known to do.
    """
    copied = _COPIERS.get(type(event))
    if copied is None:
        copied = _COPIERS[type(event)] = _copier_of(event)
    return copied


_Copied = Callable[[SessionState], SessionState]
_COPIERS: dict[type[AnyEvent], _Copied] = {}
"""What `_copier_of` says of each type, once."""


def _copier_of(event: AnyEvent) -> _Copied:
    fold = copy_of if isinstance(event, UnknownEvent) else _fold_for(event)
    if fold is _nothing:
        return light_copy_of
    changed = _CHANGES.get(fold)
    if changed is None:
        return copy_of
    return copier(
        SessionState,
        listed=_COUNTERS | (changed - _ANEW.keys()),
        anew={name: make for name, make in _ANEW.items() if name in changed},
    )


def _step(state: SessionState, envelope: Envelope, event: AnyEvent) -> None:
    """Fold one event in. Anomalies are judged on the state before it."""
    event = bounded(event)
    for anomaly in anomalies_of(state, envelope, event):
        bump(state.anomalies, anomaly)
    state.seq = envelope.seq
    state.recorded_at = envelope.recorded_at
    state.remember(envelope.event_id)
    _dispatch(state, envelope, event)


def _dispatch(state: SessionState, envelope: Envelope, event: AnyEvent) -> None:
    if isinstance(event, UnknownEvent):
        bump(state.counts, short(event.type))
        return
    _fold_for(event)(state, envelope, event)
    bump(state.counts, type(event).__name__)


def _fold_for(event: KnownEvent) -> "_Fold":
    kind = type(event)
    if (fold := _FOLDS.get(kind)) is None:
        fold = _FOLDS[kind] = _fold_of(event)
    return fold


_Fold = Callable[[SessionState, Envelope, Any], None]
_FOLDS: dict[type[KnownEvent], _Fold] = {}
"""What `_fold_of` says of each type, once: asking it for each event takes longer than
folding most of them."""


def _fold_of(event: KnownEvent) -> _Fold:
    """The fold function for this event's type."""
    match event:
        case (
            ToolCallRequested()
            | ToolExecutionStarted()
            | ToolExecutionCompleted()
            | ToolCallValidated()
            | ToolExecutionFailed()
            | ToolExecutionCancelled()
            | ToolExecutionTimedOut()
            | ToolBackgrounded()
            | BackgroundEnded()
            | ToolOutcomeUnknown()
            | ToolOutcomeResolved()
        ):
            return fold_tool
        case (
            ModelCallStarted()
            | ModelCallCompleted()
            | ModelCallFailed()
            | ModelCallCancelled()
            | UsageCorrected()
        ):
            return _model
        case (
            AssistantMessage()
            | UserMessage()
            | SystemObservation()
            | ToolResultProjected()
            | UserFeedback()
            | MessageRetracted()
            | ContextPruned()
            | LoopDetected()
            | PolicyViolation()
            | HookRan()
            | RedactionApplied()
            | ForeignRecord()
        ):
            return _nothing
        case TurnStarted() | TurnEnded():
            return _turn
        case (
            PermissionRequested()
            | PermissionGranted()
            | PermissionDenied()
            | PermissionExpired()
            | InputRequested()
            | InputProvided()
        ):
            return fold_permission
        case SteeringReceived() | SteeringApplied() | SteeringExpired():
            return _steering
        case (
            CompactionStarted()
            | CompactionCompleted()
            | CompactionFailed()
            | SummaryCreated()
            | ContextCleared()
            | HistoryRewound()
        ):
            return _context
        case (
            SessionCreated()
            | SessionSuspended()
            | SessionResumed()
            | SessionCompleted()
            | SessionFailed()
            | SessionCancelled()
            | SessionReopened()
            | CheckpointCreated()
        ):
            return _session
        case (
            GoalSet()
            | PlanUpdated()
            | BudgetSet()
            | ToolsDeclared()
            | ConfigChanged()
            | LabelsSet()
            | InstructionsSet()
            | ConstraintSet()
            | ConstraintLifted()
            | HarnessStateSet()
        ):
            return _in_force
        case (
            SubagentStarted()
            | SubagentEnded()
            | HandedOff()
            | RetryScheduled()
            | CancellationRequested()
        ):
            return _runtime
        case _:
            assert_never(event)


def _nothing(state: SessionState, envelope: Envelope, event: KnownEvent) -> None:
    """Fold nothing in: these events are only counted, their content is for projections."""


def _turn(state: SessionState, envelope: Envelope, event: TurnStarted | TurnEnded) -> None:
    match event:
        case TurnStarted():
            turn_id = short(envelope.turn_id or envelope.event_id)
            state.turn = Turn(turn_id, event.trigger, envelope.seq)
            _enter(state, RUNNING)
        case TurnEnded():
            _end_turn(state, envelope)
            _enter(state, IDLE)
        case _:
            assert_never(event)


def _enter(state: SessionState, phase: str) -> None:
    """Step the status; a suspended mirror stays what its source says it is."""
    state.phase = phase
    state.suspended_from = ""


def _end_turn(state: SessionState, envelope: Envelope) -> None:
    """What a turn's end takes along: its requests, grants, retries, calls never begun."""
    state.requests.clear()
    state.retries.clear()
    for grant in [g for g in state.grants.values() if g.scope == "TURN"]:
        del state.grants[grant.grant_id]
    if state.mode != MIRRORED:
        for call in [c for c in state.calls.values() if c.status in NOT_BEGUN]:
            call.status = CALL_ABANDONED
            remember(state, call, envelope.seq)
    if state.cancellation is not None and state.cancellation.target == "TURN":
        state.cancellation = None
    state.turn = None


def _model(
    state: SessionState,
    envelope: Envelope,
    event: ModelCallStarted
    | ModelCallCompleted
    | ModelCallFailed
    | ModelCallCancelled
    | UsageCorrected,
) -> None:
    match event:
        case ModelCallStarted():
            call = ModelCall(
                event.model_call_id,
                event.provider,
                event.model,
                event.purpose,
                event.attempt,
                envelope.seq,
                envelope.epoch,
                envelope.writer,
                log_time_after(envelope, event.deadline_ms),
            )
            put(state, "model_calls", state.model_calls, event.model_call_id, call)
            state.retries.pop(event.model_call_id, None)
        case ModelCallCompleted() | ModelCallFailed() | ModelCallCancelled():
            begun = state.model_calls.pop(event.model_call_id, None)
            _set_usage(state, envelope, event.model_call_id, event.usage, begun)
        case UsageCorrected():
            # Of a call no longer listed nobody knows what was counted: better not twice.
            if event.model_call_id in state.model_usage:
                _set_usage(state, envelope, event.model_call_id, event.usage)
        case _:
            assert_never(event)


_CHANGES: dict[Callable[..., Any], frozenset[str]] = {
    _model: frozenset({"model_calls", "model_usage", "usage", "retries", "dropped"}),
    _turn: frozenset({"requests", "retries", "grants", "calls", "finished"}),
    fold_tool: frozenset(
        {"calls", "finished", "handles", "requests", "retries", "dropped"}
    ),
}
"""What the commonest folds change in place, beside the counters."""


_TOKEN_FIELDS = (
    "input_tokens",
    "output_tokens",
    "cache_read_input_tokens",
    "cache_write_input_tokens",
    "reasoning_output_tokens",
)


_AGE = attrgetter("seq", "model_call_id")


def _set_usage(
    state: SessionState,
    envelope: Envelope,
    model_call_id: str,
    usage: Usage | None,
    begun: ModelCall | None = None,
) -> None:
    """Replace what was said of this call's usage: totals grow by the difference."""
    known = state.model_usage.get(model_call_id)
    now = UsageTotals()
    for name in _TOKEN_FIELDS:
        new = fit((getattr(usage, name) or 0) if usage else 0)
        old = getattr(known.usage, name) if known else 0
        setattr(now, name, new)
        if new != old:
            setattr(state.usage, name, fit(getattr(state.usage, name) + new - old))
    # The tokens are a fact of whoever began the call, also when another ended it.
    by = begun or known or envelope
    state.model_usage[model_call_id] = CallUsage(
        model_call_id, envelope.seq, by.epoch, by.writer, now
    )
    if len(state.model_usage) > FINISHED_KEPT:
        oldest = min(state.model_usage.values(), key=_AGE)
        del state.model_usage[oldest.model_call_id]


def _steering(
    state: SessionState,
    envelope: Envelope,
    event: SteeringReceived | SteeringApplied | SteeringExpired,
) -> None:
    match event:
        case SteeringReceived():
            steering = Steering(envelope.event_id, envelope.seq, event.mode)
            put(state, "steering", state.steering, envelope.event_id, steering)
            state.steering_latest = Ref(envelope.event_id, envelope.seq)
        case SteeringApplied() | SteeringExpired():
            state.steering.pop(event.steering_event_id, None)
        case _:
            assert_never(event)


def _context(
    state: SessionState,
    envelope: Envelope,
    event: CompactionStarted
    | CompactionCompleted
    | CompactionFailed
    | SummaryCreated
    | ContextCleared
    | HistoryRewound,
) -> None:
    match event:
        case CompactionStarted():
            state.open_compaction = OpenCompaction(
                event.compaction_id, event.base_seq, envelope.seq, envelope.epoch
            )
        case CompactionCompleted():
            state.open_compaction = None
            state.compaction = Compaction(
                envelope.seq, event.from_seq, event.to_seq, event.base_seq
            )
        case CompactionFailed():
            state.open_compaction = None
        case SummaryCreated():
            if state.compaction is not None:
                state.compaction.summary_seq = envelope.seq
        case ContextCleared():
            state.cleared_seq = envelope.seq
            state.compaction = None
        case HistoryRewound():
            state.rewound_seq = envelope.seq
            state.rewound_to = event.to_seq
            if state.compaction is not None and event.to_seq < state.compaction.seq:
                state.compaction = None  # it was itself taken back
        case _:
            assert_never(event)


def _session(
    state: SessionState,
    envelope: Envelope,
    event: SessionCreated
    | SessionSuspended
    | SessionResumed
    | SessionCompleted
    | SessionFailed
    | SessionCancelled
    | SessionReopened
    | CheckpointCreated,
) -> None:
    match event:
        case SessionCreated():
            _created(state, envelope, event)
        case SessionSuspended():
            if state.phase != SUSPENDED:
                state.suspended_from = state.phase
            state.phase = SUSPENDED
            state.reason = event.reason
        case SessionResumed():
            if state.phase == SUSPENDED:
                was = state.suspended_from
                _enter(state, IDLE if was in ("", CREATED) else was)
                state.reason = ""
            _claim(state, envelope)
        case SessionReopened():
            _enter(state, IDLE)
            state.reason = ""
            _claim(state, envelope)
        case SessionCompleted():
            _end(state, envelope, COMPLETED, event.outcome)
        case SessionFailed():
            _end(state, envelope, FAILED, event.error_type)
        case SessionCancelled():
            _end(state, envelope, CANCELLED, event.reason)
        case CheckpointCreated():
            state.checkpoint_seq = envelope.seq
        case _:
            assert_never(event)


def _created(state: SessionState, envelope: Envelope, event: SessionCreated) -> None:
    state.session_id = envelope.session_id
    state.tenant = envelope.tenant
    state.agent = event.agent
    state.mode = event.mode
    state.relation = event.relation
    state.parent_session_id = event.parent_session_id or ""
    state.parent_call_id = event.parent_call_id or ""
    state.fork_seq = event.fork_seq or 0
    state.created_event_id = envelope.event_id
    state.created_at = envelope.recorded_at
    if state.mode != MIRRORED and envelope.epoch == 1:
        _claim(state, envelope)
    if event.labels:
        state.labels = Ref(envelope.event_id, envelope.seq)
    for name in event.inherits:
        _inherit(state, envelope, name)


def _inherit(state: SessionState, envelope: Envelope, name: str) -> None:
    """What a fork goes on with is held by its creation."""
    kind, _, key = name.partition(":")
    key = short(key)
    ref = Ref(envelope.event_id, envelope.seq, key)
    match kind:
        case "goal":
            state.goal = ref
        case "plan":
            state.plan = ref
        case "budget":
            state.budget = ref
        case "tools":
            state.tools = ref
        case "instructions":
            put(state, "instructions", state.instructions, key, ref)
        case "constraint":
            put(state, "constraints", state.constraints, key, ref)
        case _:
            bump(state.dropped, "inherits")


def _claim(state: SessionState, envelope: Envelope) -> None:
    """A new epoch; what the old owner had begun to compact is void."""
    if state.mode == MIRRORED:
        return
    state.epoch = envelope.epoch
    state.owner = envelope.writer
    state.claimed_seq = envelope.seq
    state.open_compaction = None


def _end(state: SessionState, envelope: Envelope, phase: str, reason: str) -> None:
    _end_turn(state, envelope)
    state.cancellation = None
    state.reason = reason
    _enter(state, phase)


def _in_force(
    state: SessionState,
    envelope: Envelope,
    event: GoalSet
    | PlanUpdated
    | BudgetSet
    | ToolsDeclared
    | ConfigChanged
    | LabelsSet
    | InstructionsSet
    | ConstraintSet
    | ConstraintLifted
    | HarnessStateSet,
) -> None:
    """Set-up and intent: the state says which event holds what is in force."""
    ref = Ref(envelope.event_id, envelope.seq)
    match event:
        case GoalSet():
            state.goal = ref
        case PlanUpdated():
            state.plan = ref
        case BudgetSet():
            state.budget = ref
        case ToolsDeclared():
            state.tools = ref
        case ConfigChanged():
            state.config = ref
        case LabelsSet():
            state.labels = ref
        case InstructionsSet():
            ref.key = event.role
            put(state, "instructions", state.instructions, event.role, ref)
        case ConstraintSet():
            ref.key = event.constraint_id
            put(state, "constraints", state.constraints, event.constraint_id, ref)
        case ConstraintLifted():
            state.constraints.pop(event.constraint_id, None)
        case HarnessStateSet():
            ref.key = harness_key(event.state_namespace, event.key)
            if event.removed:
                state.harness_state.pop(ref.key, None)
            else:
                put(state, "harness_state", state.harness_state, ref.key, ref)
        case _:
            assert_never(event)


def _runtime(
    state: SessionState,
    envelope: Envelope,
    event: (
        SubagentStarted | SubagentEnded | HandedOff | RetryScheduled | CancellationRequested
    ),
) -> None:
    match event:
        case SubagentStarted():
            child = Subagent(event.child_session_id, event.call_id or "", envelope.seq)
            put(state, "subagents", state.subagents, event.child_session_id, child)
        case SubagentEnded():
            state.subagents.pop(event.child_session_id, None)
        case HandedOff():
            state.agent = event.to_agent
        case RetryScheduled():
            retry = Retry(
                event.target,
                event.attempt,
                log_time_after(envelope, event.not_before_ms),
                envelope.seq,
            )
            put(state, "retries", state.retries, event.target, retry)
        case CancellationRequested():
            _cancel(state, envelope, event)
        case _:
            assert_never(event)


_WIDTH = {"CALL": 1, "TURN": 2, "SESSION": 3}


def _cancel(state: SessionState, envelope: Envelope, event: CancellationRequested) -> None:
    """A call remembers that it is to stop; of the others the widest request counts."""
    if (call := state.calls.get(event.target_id or "")) is not None:
        call.cancel_seq = envelope.seq
    before = state.cancellation
    if before is None or _WIDTH.get(event.target, 0) >= _WIDTH.get(before.target, 0):
        state.cancellation = Cancellation(
            event.target, event.target_id or "", event.reason, envelope.seq
        )
