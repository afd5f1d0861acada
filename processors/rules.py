"""The rules of an owned session: what may follow what. Each has a name and a sentence.

`broken_rule` gives the first rule that an append breaks, `broken_limit` the first list
that is full. `LEGAL_IN` is the status table; `docs/states.md` prints it. Pure.
"""

from collections.abc import Callable
from dataclasses import dataclass

from foldline.processors.kept import attempt_bit, harness_key, short
from foldline.processors.listing import LIMITS, running_under
from foldline.schemas.authority import CLAIMS
from foldline.schemas.envelope import Envelope
from foldline.schemas.events import (
    AnyEvent,
    AssistantMessage,
    BackgroundEnded,
    CheckpointCreated,
    CompactionCompleted,
    CompactionFailed,
    CompactionStarted,
    ConstraintLifted,
    ConstraintSet,
    HandedOff,
    HarnessStateSet,
    HistoryRewound,
    InputProvided,
    InputRequested,
    InstructionsSet,
    ModelCallCancelled,
    ModelCallCompleted,
    ModelCallFailed,
    ModelCallStarted,
    PermissionDenied,
    PermissionExpired,
    PermissionGranted,
    PermissionRequested,
    RetryScheduled,
    SessionCompleted,
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
    UnknownEvent,
    UsageCorrected,
)
from foldline.schemas.recorded import Append
from foldline.schemas.state import (
    CALL_BACKGROUND,
    CALL_CANCELLED,
    CALL_DENIED,
    CALL_EXPIRED,
    CALL_FAILED,
    CALL_GRANTED,
    CALL_NOT_EXECUTED,
    CALL_REQUESTED,
    CALL_RUNNING,
    CALL_TIMED_OUT,
    CALL_UNKNOWN,
    CALL_WAITING,
    CREATED,
    ENDED,
    EXECUTING,
    IDLE,
    NOT_BEGUN,
    RUNNING,
    STATUSES,
    SUSPENDED,
    WAITING_APPROVAL,
    Attempt,
    Call,
    PendingRequest,
    SessionState,
)

RULES: dict[str, str] = {
    "known_seq": "known_seq is above the session's last seq",
    "mode": "mode is OWNED or MIRRORED",
    "fork_point": "a fork, and nothing else, names its parent, the seq it forks at, "
    "and the hash of the event there",
    "claim_without_expected_seq": "a claim must carry the seq it was planned from",
    "requires": "an event that this append requires is not recorded",
    "status": "an event of this type does not happen in this status",
    "turn_id": "the event names another turn than the open one",
    "call_exists": "a call of this id was already requested",
    "redelivered": "the provider sent an open call again; it runs once",
    "no_request": "nobody requested this call",
    "call_waiting": "the call waits for permission already",
    "call_denied": "the call was denied",
    "call_expired": "the request for permission expired; ask again",
    "call_begun": "the call has begun or ended",
    "call_running": "the call is executing",
    "attempt": "attempts are counted from 1, one by one",
    "unsafe_retry": "what began may have happened, and repeating it is not safe",
    "start_by_not_passed": "until its start_by has passed the effect may still begin",
    "operation_id": "a retry carries the operation_id of the first attempt",
    "effect": "effect is READ_ONLY, IDEMPOTENT, RECONCILABLE or UNSAFE, and a retry's "
    "is that of the first attempt",
    "not_started": "an outcome of an attempt that was not started",
    "already_ended": "the attempt has a confirmed end",
    "not_unknown": "only what began and has no confirmed end is unknown or resolved",
    "outcome": "the outcome is none of those this event may have",
    "unknown_handle": "nothing runs under this handle",
    "handle_exists": "something runs under this handle",
    "request_exists": "a request of this id is pending",
    "request_kind": "INPUT is the kind of a question to a person, not of a permission",
    "no_pending_request": "no request of this id and kind is pending",
    "request_expired": "the request expired by log time; make a new one",
    "args_hash": "the answer is about other arguments than the call's",
    "not_a_person": "a decision by a PERSON comes from an actor of kind PERSON",
    "scope": "scope is CALL, TURN or SESSION",
    "grant_exists": "a new grant has an id of its own",
    "no_such_grant": "no grant of this id is in force for this tool",
    "open_work": "a turn or session is not done while a call of it has no outcome",
    "model_call_exists": "a model call of this id is open or has ended",
    "model_call_not_open": "no model call of this id is open",
    "usage_unknown": "no usage of this model call is known any more",
    "no_such_steering": "no steering of this event id is pending",
    "steering_mode": "mode is INTERRUPT, NEXT_TURN or ON_IDLE",
    "no_such_constraint": "no constraint of this id is in force",
    "compaction_beyond_base": "a compaction ends at or before its base_seq",
    "compaction_stale": "since base_seq came a compaction, a rewind or a new epoch",
    "compaction_open": "another compaction is open",
    "no_such_compaction": "no compaction of this id is open",
    "range": "a range of seqs that the session does not have",
    "checkpoint_seq": "upto_seq is not the session's last seq",
    "subagent_exists": "a child of this id is open",
    "no_such_subagent": "no child of this id is open",
    "not_its_agent": "an agent hands off a session that it works in",
    "unknown_type": "a writer may not decide by an event this log does not know",
}
"""Every rule by name, with what it says."""

EFFECTS = ("READ_ONLY", "IDEMPOTENT", "RECONCILABLE", "UNSAFE")
SCOPES = ("CALL", "TURN", "SESSION")
TURN_OUTCOMES = ("DONE", "ABORTED", "FAILED", "LIMIT")
BACKGROUND_OUTCOMES = ("COMPLETED", "FAILED", "CANCELLED", "UNKNOWN")
RESOLVED_OUTCOMES = ("COMPLETED", "FAILED", CALL_NOT_EXECUTED)
SAFE_TO_REPEAT = ("READ_ONLY", "IDEMPOTENT")
STEERING_MODES = ("INTERRUPT", "NEXT_TURN", "ON_IDLE")

_ALL = frozenset(STATUSES)
_OPEN = _ALL - ENDED
_ACTIVE = _OPEN - {SUSPENDED}
_IN_TURN = frozenset({RUNNING, WAITING_APPROVAL})
_ANSWERABLE = _IN_TURN | {SUSPENDED}

LEGAL_IN: dict[str, frozenset[str]] = {
    "TurnStarted": frozenset({CREATED, IDLE}),
    "TurnEnded": _IN_TURN,
    "AssistantMessage": _IN_TURN,
    "ModelCallStarted": _ACTIVE,
    "ToolCallRequested": _IN_TURN,
    "ToolCallValidated": _IN_TURN,
    "ToolExecutionStarted": _IN_TURN,
    "ToolBackgrounded": _ALL,
    "ToolExecutionCompleted": _ALL,
    "ToolExecutionFailed": _ALL,
    "ToolExecutionCancelled": _ALL,
    "ToolExecutionTimedOut": _ALL,
    "BackgroundEnded": _ALL,
    "ToolOutcomeUnknown": _OPEN,
    "ToolOutcomeResolved": _ALL,
    "ModelCallCompleted": _ALL,
    "ModelCallFailed": _ALL,
    "ModelCallCancelled": _ALL,
    "UsageCorrected": _ALL,
    "PermissionRequested": _IN_TURN,
    "PermissionGranted": _ANSWERABLE,
    "PermissionDenied": _ANSWERABLE,
    "PermissionExpired": _ANSWERABLE,
    "InputRequested": _IN_TURN,
    "InputProvided": _ANSWERABLE,
    "CompactionStarted": _ACTIVE,
    "CompactionCompleted": _ACTIVE,
    "CompactionFailed": _ACTIVE,
    "SessionSuspended": _ACTIVE,
    "SessionResumed": _OPEN,
    "SessionCompleted": frozenset({RUNNING, IDLE}),
    "SessionFailed": _OPEN,
    "SessionCancelled": _OPEN,
    "SessionReopened": ENDED,
    "UserFeedback": _ALL,
    "LabelsSet": _ALL,
    "RedactionApplied": _ALL,
    "LoopDetected": _ALL,
    "PolicyViolation": _ALL,
}
"""In which statuses an event may be recorded; a type not listed: in every open one."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A rule that an append breaks; `related` is an open call that it repeats."""

    rule: str
    related: str | None = None


def legal_in(event_type: str) -> frozenset[str]:
    """The statuses in which an event of this type may be recorded."""
    return LEGAL_IN.get(event_type, _OPEN)


def facts_owner(state: SessionState, event: AnyEvent) -> tuple[int, str] | None:
    """Epoch and writer that began what this fact ends, if it is still open."""
    match event:
        case (
            ToolExecutionCompleted()
            | ToolExecutionFailed()
            | ToolExecutionCancelled()
            | ToolExecutionTimedOut()
            | ToolBackgrounded()
        ):
            begun = _open_attempt(state, event.call_id, event.attempt)
        case BackgroundEnded():
            begun = running_under(state, event.handle)
        case ModelCallCompleted() | ModelCallFailed() | ModelCallCancelled():
            begun = state.model_calls.get(event.model_call_id)
        case UsageCorrected():
            begun = state.model_usage.get(event.model_call_id)
        case _:
            begun = None
    return (begun.epoch, begun.writer) if begun is not None else None


def _open_attempt(state: SessionState, call_id: str, attempt: int) -> Call | Attempt | None:
    """What knows who began an attempt; None if it was not begun or has an end."""
    call = state.calls.get(call_id) or state.finished.get(call_id)
    if call is None or call.confirmed & attempt_bit(attempt):
        return None
    return call if call.attempt == attempt else call.earlier.get(attempt)


def broken_limit(state: SessionState, event: AnyEvent) -> str | None:
    """The name of a list that this event would make too long."""
    return full_list(state, event) if type(event) in LISTED else None


def full_list(state: SessionState, event: AnyEvent) -> str | None:
    """The same for an event of any type: looking at the patterns takes longer."""
    match event:
        case ToolCallRequested():
            name, count = "open_calls", len(state.calls)
        case SteeringReceived():
            name, count = "steering", len(state.steering)
        case PermissionRequested() | InputRequested():
            name, count = "requests", len(state.requests)
        case ToolBackgrounded():
            name, count = "handles", len(state.handles)
        case PermissionGranted(scope="TURN" | "SESSION"):
            name, count = "grants", len(state.grants)
        case ModelCallStarted():
            name, count = "model_calls", len(state.model_calls)
        case ConstraintSet() if event.constraint_id not in state.constraints:
            name, count = "constraints", len(state.constraints)
        case InstructionsSet() if event.role not in state.instructions:
            name, count = "instructions", len(state.instructions)
        case HarnessStateSet() if _state_key(event) not in state.harness_state:
            name, count = "harness_state", len(state.harness_state)
        case SubagentStarted():
            name, count = "subagents", len(state.subagents)
        case RetryScheduled() if event.target not in state.retries:
            name, count = "retries", len(state.retries)
        case ToolExecutionStarted():
            name, count = "attempts", event.attempt - 1
        case _:
            return None
    return name if count >= LIMITS[name] else None


def _state_key(event: HarnessStateSet) -> str:
    return harness_key(event.state_namespace, event.key)


def broken_rule(state: SessionState, append: Append, now: int) -> Broken | None:
    """The first rule that the append breaks; None if it may be recorded."""
    rule = _general(state, append)
    if rule:
        return Broken(rule)
    for check in CHECKS_OF.get(type(append.event), ()):
        rule = check(state, append, now)
        if rule:
            return rule if isinstance(rule, Broken) else Broken(rule)
    return None


def _general(state: SessionState, append: Append) -> str:
    event = append.event
    if append.expected_seq is None and type(event) in CLAIMS:
        return "claim_without_expected_seq"
    if append.requires and any(state.seq_of(i) is None for i in append.requires):
        return "requires"
    if isinstance(event, UnknownEvent):
        return "unknown_type"
    return "" if state.status in legal_in(type(event).__name__) else "status"


def _turn_rule(state: SessionState, append: Append, now: int) -> str:  # noqa: ARG001
    turn_id = append.envelope.turn_id
    is_open = state.turn is not None and short(turn_id or "") == state.turn.turn_id
    match append.event:
        case TurnStarted():
            return "" if turn_id else "turn_id"
        case TurnEnded():
            if not is_open:
                return "turn_id"
            if append.event.outcome not in TURN_OUTCOMES:
                return "outcome"
            done = append.event.outcome == "DONE"
            return "open_work" if done and _turn_is_busy(state) else ""
        case AssistantMessage() | ToolCallRequested():
            return "" if is_open or turn_id is None else "turn_id"
        case SessionCompleted():
            return "open_work" if any(map(_is_busy, state.calls.values())) else ""
        case _:
            return ""


def _turn_is_busy(state: SessionState) -> bool:
    turn_id = state.turn.turn_id if state.turn else ""
    return any(_is_busy(call) for call in state.calls.values() if call.turn_id == turn_id)


def _is_busy(call: Call) -> bool:
    """Whether nothing was said yet of how the call ended, or that it goes on."""
    return call.status in (CALL_REQUESTED, CALL_WAITING, CALL_GRANTED, CALL_RUNNING)


def _tool_rule(state: SessionState, append: Append, now: int) -> str | Broken:
    match event := append.event:
        case ToolExecutionCompleted() | ToolExecutionCancelled() | ToolExecutionTimedOut():
            return _outcome_rule(state, event.call_id, event.attempt)
        case ToolCallRequested():
            return _request_rule(state, event)
        case ToolCallValidated():
            call = state.calls.get(event.call_id)
            if call is None:
                return "no_request"
            return "" if call.status in NOT_BEGUN else "call_begun"
        case ToolExecutionStarted():
            return _start_rule(state, append.envelope, event, now)
        case ToolExecutionFailed():
            return _failed_rule(state, append.envelope, event, now)
        case ToolBackgrounded():
            if event.handle in state.handles:
                return "handle_exists"
            return _outcome_rule(state, event.call_id, event.attempt)
        case BackgroundEnded():
            if running_under(state, event.handle) is None:
                return "unknown_handle"
            return "" if event.outcome in BACKGROUND_OUTCOMES else "outcome"
        case ToolOutcomeUnknown():
            return _unknown_rule(state, event.call_id, event.attempt)
        case ToolOutcomeResolved():
            return _resolved_rule(state, event, now)
        case _:
            return ""


def _request_rule(state: SessionState, event: ToolCallRequested) -> str | Broken:
    if event.call_id in state.calls or event.call_id in state.finished:
        return "call_exists"
    turn_id = state.turn.turn_id if state.turn else ""
    for call in state.calls.values():
        if (
            event.provider_call_id
            and call.provider_call_id == event.provider_call_id
            and call.args_hash == event.args_hash
            and call.turn_id == turn_id
        ):
            return Broken("redelivered", call.call_id)
    return ""


_NOT_PERMITTED = {
    CALL_WAITING: "call_waiting",
    CALL_DENIED: "call_denied",
    CALL_EXPIRED: "call_expired",
}


def _start_rule(
    state: SessionState, envelope: Envelope, event: ToolExecutionStarted, now: int
) -> str:
    if event.effect not in EFFECTS:
        return "effect"
    call = state.calls.get(event.call_id)
    if call is None:
        call = state.finished.get(event.call_id)
        if call is None:
            return "no_request"
        if call.status == CALL_DENIED:
            return "call_denied"
        if call.status not in (CALL_FAILED, CALL_TIMED_OUT, CALL_CANCELLED):
            return "already_ended"
    if call.status in _NOT_PERMITTED:
        return _NOT_PERMITTED[call.status]
    if event.attempt != call.attempt + 1:
        return "attempt"
    return _retry_rule(call, envelope, event, now) if call.attempt else ""


def _retry_rule(
    call: Call, envelope: Envelope, event: ToolExecutionStarted, now: int
) -> str:
    """A further attempt: only where repeating is safe, or nothing happened."""
    if event.operation_id != call.operation_id:
        return "operation_id"
    if event.effect != call.effect:
        return "effect"
    happened = call.happened or call.executed != "NO"
    if happened and call.effect not in SAFE_TO_REPEAT:
        return "unsafe_retry"
    if call.status == CALL_BACKGROUND:
        return "call_running"
    return "start_by_not_passed" if _may_still_begin(call, envelope, now) else ""


def _may_still_begin(call: Call, envelope: Envelope, now: int) -> bool:
    """Whether an effect that this writer cannot see may begin yet.

    Who began it knows what became of it as soon as it says so; of another's effect
    nothing is certain before its end is confirmed, or its start_by has passed.
    """
    if now > call.start_by_at or call.confirmed & attempt_bit(call.attempt):
        return False
    own = (call.epoch, call.writer) == (envelope.epoch, envelope.writer)
    return not own or call.status in (CALL_RUNNING, CALL_UNKNOWN)


def _failed_rule(
    state: SessionState, envelope: Envelope, event: ToolExecutionFailed, now: int
) -> str:
    """Another writer may report "not executed" only after start_by has passed."""
    rule = _outcome_rule(state, event.call_id, event.attempt)
    if rule or event.executed not in ("YES", "NO", "UNKNOWN"):
        return rule or "outcome"
    call = state.calls.get(event.call_id)
    if call is None or event.executed != "NO" or event.attempt != call.attempt:
        return ""
    own = (call.epoch, call.writer) == (envelope.epoch, envelope.writer)
    return "" if own or now > call.start_by_at else "start_by_not_passed"


def _outcome_rule(state: SessionState, call_id: str, attempt: int) -> str:
    call = state.calls.get(call_id) or state.finished.get(call_id)
    if call is None:
        return "no_request"
    if not 1 <= attempt <= call.attempt:
        return "not_started"
    return "already_ended" if call.confirmed & attempt_bit(attempt) else ""


def _unknown_rule(state: SessionState, call_id: str, attempt: int) -> str:
    call = state.calls.get(call_id)
    if call is None:
        return "already_ended" if call_id in state.finished else "no_request"
    begun = call.status in EXECUTING or call.status == CALL_BACKGROUND
    return "" if begun and attempt == call.attempt else "not_unknown"


def _resolved_rule(state: SessionState, event: ToolOutcomeResolved, now: int) -> str:
    if event.outcome not in RESOLVED_OUTCOMES:
        return "outcome"
    call = state.calls.get(event.call_id)
    if call is None:
        return "already_ended" if event.call_id in state.finished else "no_request"
    begun = call.status in EXECUTING or call.status in (CALL_BACKGROUND, CALL_UNKNOWN)
    if not begun or event.attempt != call.attempt:
        return "not_unknown"
    if event.outcome == CALL_NOT_EXECUTED and now <= call.start_by_at:
        return "start_by_not_passed"
    return ""


def _permission_rule(state: SessionState, append: Append, now: int) -> str:
    event = append.event
    match event:
        case PermissionRequested():
            return _ask_rule(state, event)
        case InputRequested():
            if event.request_id in state.requests:
                return "request_exists"
            is_open = event.call_id is None or event.call_id in state.calls
            return "" if is_open else "no_request"
        case PermissionGranted() | PermissionDenied():
            person = append.envelope.actor.kind == "PERSON"
            if event.decided_by == "PERSON" and not person:
                return "not_a_person"
            if event.decided_by not in ("PERSON", "POLICY", "EARLIER_GRANT"):
                return "outcome"
            return _answer_rule(state, event, now)
        case PermissionExpired():
            return "" if event.request_id in state.requests else "no_pending_request"
        case InputProvided():
            return _input_rule(state, event, now)
        case _:
            return ""


def _ask_rule(state: SessionState, event: PermissionRequested) -> str:
    if event.request_id in state.requests:
        return "request_exists"
    if event.kind == "INPUT":
        return "request_kind"
    if event.call_id is None:
        return ""
    call = state.calls.get(event.call_id)
    if call is None:
        return "no_request"
    if event.args_hash != call.args_hash:
        return "args_hash"
    if call.status == CALL_WAITING:
        return "call_waiting"
    return "" if call.status in NOT_BEGUN else "call_begun"


def _answer_rule(
    state: SessionState, event: PermissionGranted | PermissionDenied, now: int
) -> str:
    request = state.requests.get(event.request_id or "")
    if request is None:
        if event.request_id or event.decided_by == "PERSON":
            return "no_pending_request"
    elif request.kind == "INPUT" or (event.call_id or "") not in ("", request.call_id):
        return "no_pending_request"
    elif request.expires_at and now > request.expires_at:
        return "request_expired"
    call_id = event.call_id or (request.call_id if request else "")
    call = state.calls.get(call_id)
    if call_id and call is None:
        return "no_request"
    if call is not None and call.status not in NOT_BEGUN:
        return "call_begun"
    if isinstance(event, PermissionGranted):
        return _grant_rule(state, event, request, call)
    return ""


def _grant_rule(
    state: SessionState,
    event: PermissionGranted,
    request: PendingRequest | None,
    call: Call | None,
) -> str:
    if event.scope not in SCOPES:
        return "scope"
    about = call.args_hash if call else request.args_hash if request else ""
    if (event.args_hash or "") != about:
        return "args_hash"
    if event.decided_by == "EARLIER_GRANT":
        grant = state.grants.get(event.grant_id)
        asked = (call.namespace, call.tool) if call else None
        if grant is None or (grant.namespace, grant.tool) != asked:
            return "no_such_grant"
        return ""
    return "grant_exists" if event.grant_id in ("", *state.grants) else ""


def _input_rule(state: SessionState, event: InputProvided, now: int) -> str:
    request = state.requests.get(event.request_id)
    if request is None or request.kind != "INPUT":
        return "no_pending_request"
    if request.expires_at and now > request.expires_at:
        return "request_expired"
    return ""


def _model_rule(state: SessionState, append: Append, now: int) -> str:  # noqa: ARG001
    match event := append.event:
        case ModelCallStarted():
            known = (
                event.model_call_id in state.model_calls
                or event.model_call_id in state.model_usage
            )
            return "model_call_exists" if known else ""
        case ModelCallCompleted() | ModelCallFailed() | ModelCallCancelled():
            is_open = event.model_call_id in state.model_calls
            return "" if is_open else "model_call_not_open"
        case UsageCorrected():
            return "" if event.model_call_id in state.model_usage else "usage_unknown"
        case _:
            return ""


def _context_rule(state: SessionState, append: Append, now: int) -> str:  # noqa: ARG001
    match event := append.event:
        case CompactionStarted():
            if state.open_compaction is not None:
                return "compaction_open"
            return _base_rule(state, event.base_seq)
        case CompactionCompleted():
            begun = state.open_compaction
            if begun is not None and begun.compaction_id != event.compaction_id:
                return "compaction_open"
            if not 1 <= event.from_seq <= event.to_seq:
                return "range"
            if event.to_seq > event.base_seq:
                return "compaction_beyond_base"
            return _base_rule(state, event.base_seq)
        case CompactionFailed():
            is_open = state.open_compaction is not None and (
                state.open_compaction.compaction_id == event.compaction_id
            )
            return "" if is_open else "no_such_compaction"
        case SummaryCreated():
            inside = 1 <= event.from_seq <= event.to_seq <= state.seq
            return "" if inside else "range"
        case HistoryRewound():
            return "" if 0 <= event.to_seq <= state.seq else "range"
        case _:
            return ""


def _base_rule(state: SessionState, base_seq: int) -> str:
    if not 1 <= base_seq <= state.seq:
        return "range"
    newest = max(
        state.compaction.seq if state.compaction else 0,
        state.rewound_seq,
        state.cleared_seq,
        state.claimed_seq,
    )
    return "compaction_stale" if base_seq < newest else ""


def _session_rule(state: SessionState, append: Append, now: int) -> str:  # noqa: ARG001
    match event := append.event:
        case SteeringReceived():
            return "" if event.mode in STEERING_MODES else "steering_mode"
        case SteeringApplied() | SteeringExpired():
            pending = event.steering_event_id in state.steering
            return "" if pending else "no_such_steering"
        case ConstraintLifted():
            known = event.constraint_id in state.constraints
            return "" if known else "no_such_constraint"
        case CheckpointCreated():
            return "" if event.upto_seq == state.seq else "checkpoint_seq"
        case SubagentStarted():
            is_open = event.child_session_id in state.subagents
            return "subagent_exists" if is_open else ""
        case SubagentEnded():
            is_open = event.child_session_id in state.subagents
            return "" if is_open else "no_such_subagent"
        case HandedOff():
            return "" if event.from_agent == state.agent else "not_its_agent"
        case _:
            return ""


_Check = Callable[[SessionState, Append, int], "str | Broken"]

CHECKS_OF: dict[type, tuple[_Check, ...]] = {
    TurnStarted: (_turn_rule,),
    TurnEnded: (_turn_rule,),
    AssistantMessage: (_turn_rule,),
    ToolCallRequested: (_turn_rule, _tool_rule),
    SessionCompleted: (_turn_rule,),
    ToolExecutionCompleted: (_tool_rule,),
    ToolExecutionCancelled: (_tool_rule,),
    ToolExecutionTimedOut: (_tool_rule,),
    ToolCallValidated: (_tool_rule,),
    ToolExecutionStarted: (_tool_rule,),
    ToolExecutionFailed: (_tool_rule,),
    ToolBackgrounded: (_tool_rule,),
    BackgroundEnded: (_tool_rule,),
    ToolOutcomeUnknown: (_tool_rule,),
    ToolOutcomeResolved: (_tool_rule,),
    PermissionRequested: (_permission_rule,),
    InputRequested: (_permission_rule,),
    PermissionGranted: (_permission_rule,),
    PermissionDenied: (_permission_rule,),
    PermissionExpired: (_permission_rule,),
    InputProvided: (_permission_rule,),
    ModelCallStarted: (_model_rule,),
    ModelCallCompleted: (_model_rule,),
    ModelCallFailed: (_model_rule,),
    ModelCallCancelled: (_model_rule,),
    UsageCorrected: (_model_rule,),
    CompactionStarted: (_context_rule,),
    CompactionCompleted: (_context_rule,),
    CompactionFailed: (_context_rule,),
    SummaryCreated: (_context_rule,),
    HistoryRewound: (_context_rule,),
    SteeringReceived: (_session_rule,),
    SteeringApplied: (_session_rule,),
    SteeringExpired: (_session_rule,),
    ConstraintLifted: (_session_rule,),
    CheckpointCreated: (_session_rule,),
    SubagentStarted: (_session_rule,),
    SubagentEnded: (_session_rule,),
    HandedOff: (_session_rule,),
}
"""The rules that look at an event of a type, in the order in which they are asked. They
say nothing of other types, and trying all their patterns takes longer."""

LISTED: frozenset[type] = frozenset(
    {
        ToolCallRequested,
        SteeringReceived,
        PermissionRequested,
        InputRequested,
        ToolBackgrounded,
        PermissionGranted,
        ModelCallStarted,
        ConstraintSet,
        InstructionsSet,
        HarnessStateSet,
        SubagentStarted,
        RetryScheduled,
        ToolExecutionStarted,
    }
)
"""The types that make a list of the state longer: `full_list` says nothing of others."""
