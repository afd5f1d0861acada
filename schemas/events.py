"""Every event: what people edit; the frozen Avro schemas are made from it. Pure.

Conventions, fixed for ever:

- structure first (ids, status, counts), content (blocks) last, so that a reader can
  decode the front of a record and leave the bulk alone;
- what may grow (reasons, kinds, outcomes) is a string, never an enum;
- a time that others judge is `..._ms`: milliseconds after the event's own `recorded_at`,
  never a writer's wall clock;
- free-form structure is a string of RFC 8785 JSON, in fields that end in `_json`;
- an event's turn is `envelope.turn_id`, its session `envelope.session_id`.

To add a field give it a default and run `foldline schemas freeze`; to change a meaning
make a new record and an upcaster (`docs/decisions/0007`).
"""

from foldline.schemas.blocks import Blob, Blocks, Body
from foldline.schemas.record import Record


class Event(Record):
    """The base of every event type: only the fields beyond the envelope."""


# --- parts ---------------------------------------------------------------------------


class Label(Record):
    """A key and its value."""

    key: str
    value: str


class Usage(Record):
    """Tokens of one model call, absolute; null where the provider does not say."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_write_input_tokens: int | None = None
    reasoning_output_tokens: int | None = None
    extra_json: str | None = None


class Cost(Record):
    """Money in millionths of a currency unit (ISO 4217 code)."""

    amount_micros: int
    currency: str


class SeqRange(Record):
    """Seqs from `from_seq` to `to_seq`, both included."""

    from_seq: int
    to_seq: int


class RequestRef(Record):
    """How to rebuild a model request byte for byte, instead of a copy of it.

    `sha256` is of the rebuilt request.
    """

    ranges: tuple[SeqRange, ...]
    renderer: str
    renderer_version: int
    policy: str
    policy_version: int
    instructions_event_ids: tuple[str, ...]
    tools_event_id: str | None = None
    parameters_json: str
    sha256: bytes


class PlanItem(Record):
    """One step of a plan; `status` is PENDING, IN_PROGRESS, COMPLETED or DROPPED."""

    item_id: str
    status: str
    blocks: Blocks


class ToolDeclaration(Record):
    """A tool as the model sees it, and what repeating it does (`effect`)."""

    name: str
    effect: str
    cancellable: bool = False
    timeout_ms: int | None = None
    origin: str | None = None
    description: Body = ""
    input_schema: Body = "{}"


class Instruction(Record):
    """Instructions in force: a role and what was said in it."""

    role: str
    blocks: Blocks


class Constraint(Record):
    """A constraint in force."""

    constraint_id: str
    blocks: Blocks


class Inherited(Record):
    """What goes on from a parent into a fork, in the child's own words."""

    budget_json: str | None = None
    tools: tuple[ToolDeclaration, ...] = ()
    goal: Blocks = ()
    plan: tuple[PlanItem, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    instructions: tuple[Instruction, ...] = ()


class RuleCount(Record):
    """How often a redaction rule replaced something."""

    rule: str
    count: int


# --- conversation --------------------------------------------------------------------


class UserMessage(Event):
    """A person said something to the agent; `replaces` names an edited message."""

    message_id: str
    replaces: str | None = None
    blocks: Blocks


class AssistantMessage(Event):
    """The model said something. A message of several parts counts them from 0.

    `final` is null where the source does not say whether another part follows.
    """

    message_id: str
    model_call_id: str | None = None
    part: int = 0
    final: bool | None = None
    blocks: Blocks


class SystemObservation(Event):
    """The harness told the model something (a reminder, a summary of the environment)."""

    origin: str
    blocks: Blocks


class UserFeedback(Event):
    """A person judged something; `target` is an event_id, message_id or call_id."""

    target: str
    score: float | None = None
    blocks: Blocks = ()


class MessageRetracted(Event):
    """Messages that are no longer part of the conversation."""

    message_ids: tuple[str, ...]


class HistoryRewound(Event):
    """The conversation goes on from `to_seq`; what came after stays in the log."""

    to_seq: int


class ContextCleared(Event):
    """The model's context starts from nothing; the log keeps all."""

    reason: str = ""


# --- steering ------------------------------------------------------------------------


class SteeringReceived(Event):
    """Somebody outside steers the agent; mode is INTERRUPT, NEXT_TURN or ON_IDLE."""

    mode: str = "INTERRUPT"
    idempotency_key: str | None = None
    blocks: Blocks


class SteeringApplied(Event):
    """The steering was put into the model's context."""

    steering_event_id: str


class SteeringExpired(Event):
    """The steering will not be applied."""

    steering_event_id: str
    reason: str


# --- intent --------------------------------------------------------------------------


class GoalSet(Event):
    """What the session is to reach."""

    blocks: Blocks


class PlanUpdated(Event):
    """The whole plan as it is now."""

    items: tuple[PlanItem, ...]


class ConstraintSet(Event):
    """Something the agent must heed until it is lifted."""

    constraint_id: str
    blocks: Blocks


class ConstraintLifted(Event):
    """A constraint no longer holds."""

    constraint_id: str


class BudgetSet(Event):
    """Limits of the session, by name."""

    limits_json: str


# --- turn ----------------------------------------------------------------------------


class TurnStarted(Event):
    """A turn begins: `trigger` is USER, STEERING, SCHEDULE, PARENT or another."""

    trigger: str


class TurnEnded(Event):
    """The agent is idle again: `outcome` is DONE, ABORTED, FAILED or LIMIT."""

    outcome: str
    reason: str = ""


# --- model ---------------------------------------------------------------------------


class ModelCallStarted(Event):
    """A request goes to a model; `purpose` is TURN, COMPACTION or another."""

    model_call_id: str
    attempt: int = 1
    retry_of: str | None = None
    purpose: str = "TURN"
    provider: str
    model: str
    deadline_ms: int | None = None
    request: RequestRef | Blob | None = None


class ModelCallCompleted(Event):
    """The model answered; usage is absolute for this call."""

    model_call_id: str
    response_id: str | None = None
    model: str | None = None
    finish_reason: str | None = None
    usage: Usage | None = None
    cost: Cost | None = None
    ttft_ms: int | None = None
    latency_ms: int | None = None


class ModelCallFailed(Event):
    """The call failed; `received` says whether a part of the answer had come."""

    model_call_id: str
    error_type: str
    retryable: bool | None = None
    received: bool | None = None
    usage: Usage | None = None
    blocks: Blocks = ()


class ModelCallCancelled(Event):
    """The call was cancelled before its answer was whole."""

    model_call_id: str
    reason: str
    received: bool | None = None
    usage: Usage | None = None


class UsageCorrected(Event):
    """The usage of a call as now known: absolute, it replaces what was said before."""

    model_call_id: str
    usage: Usage


# --- set-up --------------------------------------------------------------------------


class InstructionsSet(Event):
    """Instructions in force from here on, per role (system, developer)."""

    role: str
    blocks: Blocks


class ToolsDeclared(Event):
    """The tools in force from here on: the whole set."""

    tools: tuple[ToolDeclaration, ...]


class ConfigChanged(Event):
    """Configuration in force from here on; null means unchanged."""

    model: str | None = None
    permission_mode: str | None = None
    cwd: str | None = None
    sandbox: str | None = None
    parameters_json: str | None = None


class LabelsSet(Event):
    """Labels of the session: the whole set."""

    labels: tuple[Label, ...]


# --- tools ---------------------------------------------------------------------------


class ToolCallRequested(Event):
    """The model asked for a tool. `call_id` is ours: `<model_call_id>:<block index>`.

    `provider_call_id` is the provider's and may repeat or be empty. `args_hash` is over
    the RFC 8785 form of the arguments, over their raw bytes if they do not parse.
    `position` is the index of the call's block in its message.
    """

    call_id: str
    provider_call_id: str = ""
    kind: str = "FUNCTION"
    namespace: str | None = None
    tool: str
    args_hash: str
    message_id: str
    position: int
    continues_handle: str | None = None
    arguments: Blocks


class ToolCallValidated(Event):
    """The harness checked the arguments; an invalid call is closed by this event."""

    call_id: str
    valid: bool
    problem: str = ""


class ToolExecutionStarted(Event):
    """An effect may begin, but only before `start_by_ms` after this was recorded."""

    call_id: str
    attempt: int = 1
    effect: str
    operation_id: str
    cancellable: bool = False
    start_by_ms: int | None = None
    deadline_ms: int | None = None


class ToolExecutionCompleted(Event):
    """The tool ran to its end and said this."""

    call_id: str
    attempt: int = 1
    exit_code: int | None = None
    duration_ms: int | None = None
    output: Blocks


class ToolExecutionFailed(Event):
    """The tool failed in `layer` (TOOL, HARNESS, ENVIRONMENT, MODEL).

    `executed` is YES, NO or UNKNOWN: whether its effect happened.
    """

    call_id: str
    attempt: int = 1
    layer: str
    error_type: str
    executed: str = "UNKNOWN"
    duration_ms: int | None = None
    blocks: Blocks = ()


class ToolExecutionCancelled(Event):
    """The tool was told to stop. Without `stop_confirmed` it may still be running."""

    call_id: str
    attempt: int = 1
    reason: str
    stop_confirmed: bool
    blocks: Blocks = ()


class ToolExecutionTimedOut(Event):
    """Nobody waits any longer. Without `stop_confirmed` it may still be running."""

    call_id: str
    attempt: int = 1
    after_ms: int | None = None
    stop_confirmed: bool
    blocks: Blocks = ()


class ToolBackgrounded(Event):
    """The tool goes on in the background under `handle`; its end comes later."""

    call_id: str
    attempt: int = 1
    handle: str
    output: Blocks = ()


class BackgroundEnded(Event):
    """What ran under `handle` ended: COMPLETED, FAILED, CANCELLED or UNKNOWN."""

    handle: str
    outcome: str
    output: Blocks = ()


class ToolOutcomeUnknown(Event):
    """The execution started and nobody knows how it ended. The call stays open."""

    call_id: str
    attempt: int = 1
    reason: str


class ToolOutcomeResolved(Event):
    """Somebody found out: COMPLETED, FAILED or NOT_EXECUTED, on this evidence."""

    call_id: str
    attempt: int = 1
    outcome: str
    resolver: str
    evidence: Blocks = ()
    output: Blocks = ()


class ToolResultProjected(Event):
    """What the model was shown of a result, frozen: a late outcome does not rewrite it."""

    call_id: str
    form: str
    tokens: int | None = None
    blocks: Blocks


# --- permission ----------------------------------------------------------------------


class PermissionRequested(Event):
    """A call waits for somebody's permission. Bound to the call and its arguments.

    `approvers` are the roles of which a person must have one to answer; empty: anybody
    who may approve. A request that bubbled up from a subagent names the session at the
    root of its tree.
    """

    request_id: str
    kind: str = "TOOL"
    call_id: str | None = None
    args_hash: str | None = None
    expires_ms: int | None = None
    root_session_id: str | None = None
    options: tuple[str, ...] = ()
    approvers: tuple[str, ...] = ()
    display: Blocks


class PermissionGranted(Event):
    """Permission: `decided_by` PERSON, POLICY or EARLIER_GRANT.

    `scope` is CALL, TURN or SESSION. `edited_args_hash` goes with `edited_arguments`:
    the call runs with these instead of the model's.
    """

    request_id: str | None = None
    call_id: str | None = None
    args_hash: str | None = None
    scope: str = "CALL"
    decided_by: str
    policy: str | None = None
    grant_id: str
    edited_args_hash: str | None = None
    edited_arguments: Blocks = ()


class PermissionDenied(Event):
    """No permission; `feedback` is for the model."""

    request_id: str | None = None
    call_id: str | None = None
    decided_by: str
    policy: str | None = None
    may_request_again: bool = False
    feedback: Blocks = ()


class PermissionExpired(Event):
    """Nobody answered in time; the call may be asked for again."""

    request_id: str


class InputRequested(Event):
    """The agent asks a person something.

    A question with a `call_id` is about that call: whatever ends or resolves the call
    answers it too.
    """

    request_id: str
    call_id: str | None = None
    answer_schema_json: str | None = None
    expires_ms: int | None = None
    prompt: Blocks


class InputProvided(Event):
    """A person answered."""

    request_id: str
    blocks: Blocks


# --- context -------------------------------------------------------------------------


class CompactionStarted(Event):
    """A compaction of the context begins, on the state at `base_seq`."""

    compaction_id: str
    base_seq: int
    reason: str
    token_before: int | None = None


class CompactionCompleted(Event):
    """Events `from_seq` to `to_seq` are replaced in context by `kept` and `blocks`."""

    compaction_id: str
    from_seq: int
    to_seq: int
    base_seq: int
    strategy: str
    token_before: int | None = None
    token_after: int | None = None
    kept: tuple[str, ...] = ()
    blocks: Blocks = ()


class CompactionFailed(Event):
    """The compaction came to nothing; the context stays as it was."""

    compaction_id: str
    reason: str


class ContextPruned(Event):
    """Old content left the context by a rule; `targets` are event or call ids.

    `blocks` say what is shown instead, one for each target in their order, so that what
    was shown once is shown for ever. Without them it is a default reference.
    """

    rule: str
    tokens_saved: int | None = None
    targets: tuple[str, ...] = ()
    blocks: Blocks = ()


class SummaryCreated(Event):
    """A summary of events `from_seq` to `to_seq`."""

    from_seq: int
    to_seq: int
    blocks: Blocks


# --- session -------------------------------------------------------------------------


class SessionCreated(Event):
    """The first event of a session.

    `mode` is OWNED or MIRRORED; `relation` ROOT, FORK, SUBAGENT or CONTINUATION.
    An `envelope.epoch` of 1 makes the writer the first owner.
    `inherits` names what `inherited` holds (goal, plan, budget, tools,
    instructions:<role>, constraint:<id>), so that a fold need not read it.
    """

    agent: str
    mode: str = "OWNED"
    relation: str = "ROOT"
    parent_session_id: str | None = None
    fork_seq: int | None = None
    parent_call_id: str | None = None
    labels: tuple[Label, ...] = ()
    environment_json: str | None = None
    inherits: tuple[str, ...] = ()
    inherited: Inherited | None = None


class SessionSuspended(Event):
    """Nothing happens until somebody resumes it."""

    reason: str


class SessionResumed(Event):
    """A writer claims the session: `envelope.epoch` is the current one plus 1."""

    reason: str
    environment_json: str | None = None


class CheckpointCreated(Event):
    """Keep the state just before this event; `verify` checks its hash."""

    upto_seq: int
    state_hash: bytes
    fold_version: int


class SessionCompleted(Event):
    """The session reached its end."""

    outcome: str = "DONE"
    blocks: Blocks = ()


class SessionFailed(Event):
    """The session ended in an error."""

    error_type: str
    blocks: Blocks = ()


class SessionCancelled(Event):
    """Somebody ended the session."""

    reason: str


class SessionReopened(Event):
    """A writer claims an ended session, with a new epoch."""

    reason: str


class SubagentStarted(Event):
    """A child session works on a call of this one."""

    child_session_id: str
    call_id: str | None = None


class SubagentEnded(Event):
    """The child session came to an end."""

    child_session_id: str
    outcome: str


class HandedOff(Event):
    """Another agent goes on with this session; `call_id` is the call that asked for it.

    The owner stays who it is. Instructions and tools of the agent that takes over are
    set by events of their own.
    """

    from_agent: str
    to_agent: str
    call_id: str | None = None
    blocks: Blocks = ()


# --- runtime -------------------------------------------------------------------------


class RetryScheduled(Event):
    """`target` (a call or model call id) is tried again, not before `not_before_ms`."""

    target: str
    attempt: int
    not_before_ms: int
    reason: str


class CancellationRequested(Event):
    """Somebody wants a stop: `target` is SESSION, TURN or CALL."""

    target: str
    target_id: str | None = None
    reason: str = ""


class LoopDetected(Event):
    """A detector found that the session goes round in a circle. An observation.

    `kind` is SAME_CALL (a call, again and again), SAME_FAILURE (one failure, whatever is
    tried), NO_PROGRESS (compactions that lead nowhere), PERMISSION_PING_PONG (asked,
    denied, asked again) or another. `count` says how often it has happened by now;
    `from_seq` and `to_seq` are the first and the last of it, `seqs` the latest.
    `fingerprint` is the same for whatever goes round in the same circle; it shows
    nothing of what was said. `call_id` and `tool` are those at `to_seq`.
    """

    kind: str
    fingerprint: str
    count: int
    from_seq: int
    to_seq: int
    detector: str
    detector_version: int = 1
    call_id: str | None = None
    tool: str | None = None
    seqs: tuple[int, ...] = ()


class PolicyViolation(Event):
    """A rule of a policy was broken. An observation.

    `severity` is INFO, WARNING or CRITICAL; `action` is what the policy asks for beside
    this: NONE, STEER or CANCEL. What broke the rule is the event of `subject_event_id`,
    at `subject_seq`. `blocks` say it for people.
    """

    policy: str
    rule: str
    rule_version: int = 1
    severity: str
    action: str = "NONE"
    subject_event_id: str | None = None
    subject_seq: int | None = None
    call_id: str | None = None
    blocks: Blocks = ()


class HookRan(Event):
    """A hook of the harness ran."""

    hook: str
    call_id: str | None = None
    decision: str | None = None
    changes_json: str | None = None
    blocks: Blocks = ()


class HarnessStateSet(Event):
    """A value that the harness wants back after a crash, or that it removes."""

    state_namespace: str
    key: str
    removed: bool = False
    blocks: Blocks = ()


# --- security and foreign ------------------------------------------------------------


class RedactionApplied(Event):
    """How much was redacted in `target_event_id`, by rule. Never what."""

    target_event_id: str
    rules: tuple[RuleCount, ...]


class ForeignRecord(Event):
    """A record that a mirror cannot map: kept as it is (redacted), in its place."""

    system: str
    record_type: str
    record_id: str | None = None
    parent_record_id: str | None = None
    reason: str = ""
    blocks: Blocks


KnownEvent = (
    UserMessage
    | AssistantMessage
    | SystemObservation
    | UserFeedback
    | MessageRetracted
    | HistoryRewound
    | ContextCleared
    | SteeringReceived
    | SteeringApplied
    | SteeringExpired
    | GoalSet
    | PlanUpdated
    | ConstraintSet
    | ConstraintLifted
    | BudgetSet
    | TurnStarted
    | TurnEnded
    | ModelCallStarted
    | ModelCallCompleted
    | ModelCallFailed
    | ModelCallCancelled
    | UsageCorrected
    | InstructionsSet
    | ToolsDeclared
    | ConfigChanged
    | LabelsSet
    | ToolCallRequested
    | ToolCallValidated
    | ToolExecutionStarted
    | ToolExecutionCompleted
    | ToolExecutionFailed
    | ToolExecutionCancelled
    | ToolExecutionTimedOut
    | ToolBackgrounded
    | BackgroundEnded
    | ToolOutcomeUnknown
    | ToolOutcomeResolved
    | ToolResultProjected
    | PermissionRequested
    | PermissionGranted
    | PermissionDenied
    | PermissionExpired
    | InputRequested
    | InputProvided
    | CompactionStarted
    | CompactionCompleted
    | CompactionFailed
    | ContextPruned
    | SummaryCreated
    | SessionCreated
    | SessionSuspended
    | SessionResumed
    | CheckpointCreated
    | SessionCompleted
    | SessionFailed
    | SessionCancelled
    | SessionReopened
    | SubagentStarted
    | SubagentEnded
    | HandedOff
    | RetryScheduled
    | CancellationRequested
    | LoopDetected
    | PolicyViolation
    | HookRan
    | HarnessStateSet
    | RedactionApplied
    | ForeignRecord
)

EVENT_TYPES: dict[str, type[KnownEvent]] = {
    cls.__name__: cls for cls in KnownEvent.__args__
}


class UnknownEvent:
    """An event of a type that this foldline does not know: kept, never guessed at.

    `type` is the logical type, `fields` what the writer's schema says (for people and
    projections). Its stored bytes are passed on as they are.
    """

    __slots__ = ("fields", "type")
    __match_args__ = ("type", "fields")

    def __init__(self, type_: str, fields: dict[str, object]) -> None:
        self.type = type_
        self.fields = fields

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, UnknownEvent)
            and self.type == other.type
            and self.fields == other.fields
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"UnknownEvent({self.type!r}, {self.fields!r})"


AnyEvent = KnownEvent | UnknownEvent


def type_of(event: AnyEvent) -> str:
    """The logical type of an event."""
    return event.type if isinstance(event, UnknownEvent) else type(event).__name__
