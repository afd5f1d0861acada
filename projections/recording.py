"""A recorded session as a replay takes it: model calls, turns, and what is given. Pure.

recording_of(session_id, events)   the steps that a harness makes again
is_given(recording, recorded)      whether a replay gives an event to the harness
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from foldline.projections.building import build
from foldline.projections.context import Context, Sources
from foldline.schemas.authority import authority_of
from foldline.schemas.blocks import Blocks
from foldline.schemas.events import (
    AssistantMessage,
    BackgroundEnded,
    CompactionCompleted,
    CompactionFailed,
    CompactionStarted,
    InputProvided,
    InputRequested,
    InstructionsSet,
    ModelCallCompleted,
    ModelCallFailed,
    ModelCallStarted,
    PermissionExpired,
    PermissionRequested,
    RequestRef,
    SessionCreated,
    SessionResumed,
    SubagentEnded,
    SubagentStarted,
    ToolBackgrounded,
    ToolCallRequested,
    ToolDeclaration,
    ToolsDeclared,
    TurnEnded,
    TurnStarted,
    UserMessage,
)
from foldline.schemas.recorded import Recorded

_OF_THE_RUN = frozenset(
    {
        "ToolCallValidated",
        "ToolExecutionStarted",
        "ToolExecutionCompleted",
        "ToolExecutionFailed",
        "ToolExecutionCancelled",
        "ToolExecutionTimedOut",
        "ToolBackgrounded",
        "BackgroundEnded",
        "ToolOutcomeUnknown",
        "ToolOutcomeResolved",
        "PermissionRequested",
        "PermissionGranted",
        "PermissionDenied",
        "PermissionExpired",
        "InputRequested",
        "InputProvided",
        "SubagentStarted",
        "SubagentEnded",
    }
)
"""What becomes of a tool call: never made by a replay, only given."""

_SAID_BY_OTHERS = frozenset(
    {
        "UserMessage",
        "UserFeedback",
        "MessageRetracted",
        "SteeringReceived",
        "CancellationRequested",
        "InputProvided",
        "PermissionGranted",
        "PermissionDenied",
        "BackgroundEnded",
    }
)
"""Said by persons, or found out by others, whoever's process appended it."""

COMPACTION = "COMPACTION"
"""The purpose of a model call that makes a summary."""

SHAPING = "shaping:"
"""What the id of a compaction begins with that foldline makes by itself."""

_ENDS = frozenset({"SessionCompleted", "SessionFailed", "SessionCancelled"})

_SET_BY_EITHER = frozenset(
    {"GoalSet", "ConstraintSet", "ConstraintLifted", "BudgetSet", "LabelsSet"}
)
"""Set by a person or by the harness; whose it was its writer tells.

What was set before the first turn is given: it came from whoever wanted the session.
"""


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A model call that was answered, or failed.

    `upto_seq` is where its context ends, `end_seq` the last event of its answer.
    """

    seq: int
    started: ModelCallStarted
    upto_seq: int
    end_seq: int
    failed: ModelCallFailed | None = None
    completed: ModelCallCompleted | None = None
    blocks: Blocks = ()
    requests: Mapping[str, ToolCallRequested] = field(
        default_factory=dict[str, ToolCallRequested]
    )


@dataclass(frozen=True, slots=True)
class RecordedTurn:
    """A turn and what opened it; `end_seq` is None where it is still open."""

    seq: int
    turn_id: str
    trigger: str
    message: UserMessage | None = None
    message_event_id: str = ""
    end_seq: int | None = None
    outcome: str = ""


@dataclass(frozen=True, slots=True)
class Environment:
    """What a harness said of where it runs, as JSON; `seq` is the event that has it."""

    seq: int
    said_json: str


@dataclass(frozen=True, slots=True)
class Recording:
    """A session as a replay takes it: its events, and what is read out of them.

    `first_seq` is where the harness begins: in a fork behind what its ancestors did.
    `call_of` names the tool call that an event is about, by the event's seq; `owners` are
    the writers that have owned the session, `openings` the ids of what opened its turns.
    """

    session_id: str
    events: Sequence[Recorded]
    first_seq: int
    calls: Sequence[RecordedCall]
    turns: Sequence[RecordedTurn]
    call_of: Mapping[int, str]
    texts: Mapping[bytes, str]
    owners: frozenset[str]
    openings: frozenset[str]

    @property
    def last_seq(self) -> int:
        """The seq of the last event."""
        return self.events[-1].seq if self.events else 0

    def context_of(self, call: RecordedCall) -> Context:
        """What the model was shown, built again from the events."""
        events = [recorded for recorded in self.events if recorded.seq <= call.upto_seq]
        return build(Sources(events, texts=self.texts))

    def tools_at(self, seq: int) -> tuple[ToolDeclaration, ...] | None:
        """The tools that were declared at a seq; None where nobody had declared any."""
        declared = None
        for recorded in self.events:
            if recorded.seq > seq:
                break
            if isinstance(recorded.event, ToolsDeclared):
                declared = recorded.event.tools
        return declared

    def environment_at(self, seq: int) -> Environment | None:
        """What was said last of the environment by a seq, by an ancestor perhaps.

        None where nobody had said any.
        """
        found = None
        for recorded in self.events:
            if recorded.seq > seq:
                break
            event = recorded.event
            if isinstance(event, (SessionCreated, SessionResumed)):
                said = event.environment_json
                found = found if said is None else Environment(recorded.seq, said)
        return found

    def gives(self, recorded: Recorded) -> bool:
        """Whether a replay gives this event, because the harness does not make it."""
        name = recorded.type
        if name in _OF_THE_RUN and recorded.seq in self.call_of:
            return True
        if name == "UserMessage":
            return recorded.envelope.event_id not in self.openings
        if name in _SET_BY_EITHER:
            before = not self.turns or recorded.seq < self.turns[0].seq
            return before or recorded.envelope.writer not in self.owners
        if name in ("PermissionGranted", "PermissionDenied"):
            return authority_of(recorded.event) == "external"
        return name in _SAID_BY_OTHERS

    def instructions_at(self, seq: int, *, role: str) -> InstructionsSet | None:
        """The instructions of a role that were set last at a seq."""
        found = None
        for recorded in self.events:
            event = recorded.event
            if recorded.seq > seq:
                break
            if isinstance(event, InstructionsSet) and event.role == role:
                found = event
        return found

    def child_of(self, call_id: str) -> str | None:
        """The session of the subagent that worked on a call; None where there was none."""
        for recorded in self.events:
            event = recorded.event
            if isinstance(event, SubagentStarted) and event.call_id == call_id:
                return event.child_session_id
        return None

    def end_of(self, child_session_id: str) -> str:
        """How a subagent ended; empty where the record does not say."""
        for recorded in self.events:
            event = recorded.event
            if isinstance(event, SubagentEnded) and (
                event.child_session_id == child_session_id
            ):
                return event.outcome
        return ""

    def session_end(self) -> Recorded | None:
        """What ended the session after its last turn; None where it goes on, or rests."""
        for recorded in reversed(self.events):
            if recorded.type in _ENDS:
                return recorded
            if recorded.seq < self.first_seq or recorded.type == "TurnStarted":
                return None
        return None

    def set_up(self) -> list[Recorded]:
        """The instructions and tools that were set before the first turn."""
        first = self.turns[0].seq if self.turns else self.last_seq + 1
        return [
            recorded
            for recorded in self.events
            if self.first_seq <= recorded.seq < first
            and isinstance(recorded.event, (InstructionsSet, ToolsDeclared))
        ]

    def type_of(self, event_id: str) -> str:
        """The type of an event; empty where the recording has no such event."""
        for recorded in self.events:
            if recorded.envelope.event_id == event_id:
                return recorded.type
        return ""


def recording_of(
    session_id: str,
    events: Sequence[Recorded],
    *,
    first_seq: int = 1,
    texts: Mapping[bytes, str] | None = None,
) -> Recording:
    """The steps in a session's events.

    Args:
        session_id: the session.
        events: whole events in order, those of its ancestors included.
        first_seq: the first that is the session's own.
        texts: the whole text of blobs, by their hash.
    """
    own = [recorded for recorded in events if recorded.seq >= first_seq]
    turns = _turns_of(own)
    return Recording(
        session_id=session_id,
        events=events,
        first_seq=first_seq,
        calls=_calls_of(own),
        turns=turns,
        call_of=_about_calls(events),
        texts=texts or {},
        owners=frozenset(r.envelope.writer for r in own if r.envelope.epoch),
        openings=frozenset(turn.message_event_id for turn in turns),
    )


@dataclass(slots=True)
class _OpenCall:
    seq: int
    started: ModelCallStarted
    end_seq: int
    failed: ModelCallFailed | None = None
    completed: ModelCallCompleted | None = None
    blocks: Blocks = ()
    requests: dict[str, ToolCallRequested] = field(
        default_factory=dict[str, ToolCallRequested]
    )


def _calls_of(events: Iterable[Recorded]) -> list[RecordedCall]:
    """The model calls with an answer or a failure.

    One that nobody saw end is left out: its process died, or gave it up, and whoever
    went on asked anew.
    """
    found: dict[str, _OpenCall] = {}
    messages: dict[str, _OpenCall] = {}
    shaping = False
    for recorded in events:
        event = recorded.event
        if isinstance(event, (CompactionStarted, CompactionCompleted, CompactionFailed)):
            began = isinstance(event, CompactionStarted)
            shaping = began and event.compaction_id.startswith(SHAPING)
        elif isinstance(event, ModelCallStarted):
            if shaping and event.purpose == COMPACTION:
                continue  # no harness makes it again: what came of it is given
            found[event.model_call_id] = _OpenCall(recorded.seq, event, recorded.seq)
        elif isinstance(event, ToolCallRequested):
            _take(messages.get(event.message_id), recorded)
        elif isinstance(event, (ModelCallCompleted, ModelCallFailed, AssistantMessage)):
            call = found.get(event.model_call_id or "")
            _take(call, recorded)
            if call is not None and isinstance(event, AssistantMessage):
                messages[event.message_id] = call
    return [_closed(call) for call in found.values() if call.failed or call.completed]


def _take(call: _OpenCall | None, recorded: Recorded) -> None:
    """Take a part of a call's answer, or its failure."""
    if call is None:
        return
    call.end_seq = recorded.seq
    match recorded.event:
        case ModelCallFailed() as failed:
            call.failed = failed
        case ModelCallCompleted() as completed:
            call.completed = completed
        case AssistantMessage(blocks=blocks):
            call.blocks = (*call.blocks, *blocks)
        case ToolCallRequested() as request:
            call.requests[request.call_id] = request
        case _:
            pass


def _closed(call: _OpenCall) -> RecordedCall:
    request = call.started.request
    shown = request.ranges if isinstance(request, RequestRef) else ()
    return RecordedCall(
        call.seq,
        call.started,
        upto_seq=shown[-1].to_seq if shown else call.seq - 1,
        end_seq=call.end_seq,
        failed=call.failed,
        completed=call.completed,
        blocks=call.blocks,
        requests=call.requests,
    )


def _turns_of(events: Iterable[Recorded]) -> list[RecordedTurn]:
    found: dict[str, RecordedTurn] = {}
    for recorded in events:
        turn_id = recorded.envelope.turn_id or ""
        turn = found.get(turn_id)
        match recorded.event:
            case TurnStarted(trigger=trigger):
                found[turn_id] = RecordedTurn(recorded.seq, turn_id, trigger)
            case UserMessage() as message if turn is not None and turn.message is None:
                found[turn_id] = RecordedTurn(
                    turn.seq, turn_id, turn.trigger, message, recorded.envelope.event_id
                )
            case TurnEnded(outcome=outcome) if turn is not None:
                found[turn_id] = RecordedTurn(
                    turn.seq,
                    turn_id,
                    turn.trigger,
                    turn.message,
                    turn.message_event_id,
                    recorded.seq,
                    outcome,
                )
            case _:
                pass
    return list(found.values())


def _about_calls(events: Iterable[Recorded]) -> dict[int, str]:
    """The tool call that each event is about: named, or by a request, handle or child."""
    by_name: dict[str, str] = {}
    found: dict[int, str] = {}
    for recorded in events:
        event = recorded.event
        call_id: str = getattr(event, "call_id", None) or ""
        match event:
            case PermissionRequested(request_id=name) | InputRequested(request_id=name):
                by_name[name] = call_id
            case ToolBackgrounded(handle=name) | SubagentStarted(child_session_id=name):
                by_name[name] = call_id
            case PermissionExpired(request_id=name) | InputProvided(request_id=name):
                call_id = by_name.get(name, "")
            case BackgroundEnded(handle=name) | SubagentEnded(child_session_id=name):
                call_id = by_name.get(name, "")
            case _:
                pass
        if call_id:
            found[recorded.seq] = call_id
    return found
