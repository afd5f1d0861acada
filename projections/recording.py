"""A recorded session as a replay takes it: model calls, turns, and what is given. Pure.

recording_of(session_id, events)    the steps that a harness makes again
recording.gives(recorded)           whether a replay gives an event to the harness
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from foldline.projections.building import build
from foldline.projections.context import Context, Sources
from foldline.projections.recorded_steps import (
    RecordedCall,
    RecordedTurn,
    about_calls,
    calls_in,
    turns_of,
)
from foldline.schemas.authority import authority_of
from foldline.schemas.events import (
    InstructionsSet,
    SessionCreated,
    SessionResumed,
    SubagentEnded,
    SubagentStarted,
    ToolDeclaration,
    ToolsDeclared,
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

_ENDS = frozenset({"SessionCompleted", "SessionFailed", "SessionCancelled"})

_SET_BY_EITHER = frozenset(
    {"GoalSet", "ConstraintSet", "ConstraintLifted", "BudgetSet", "LabelsSet"}
)
"""Set by a person or by the harness; whose it was its writer tells.

What was set before the first turn is given: it came from whoever wanted the session.
"""


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
    turns = turns_of(own)
    return Recording(
        session_id=session_id,
        events=events,
        first_seq=first_seq,
        calls=calls_in(own),
        turns=turns,
        call_of=about_calls(events),
        texts=texts or {},
        owners=frozenset(r.envelope.writer for r in own if r.envelope.epoch),
        openings=frozenset(turn.message_event_id for turn in turns),
    )
