"""The events that are still part of the conversation. Pure.

A rewind takes back what was said since, and what was done to the context since: it was
compacted, pruned or cleared. It takes back nothing that holds of the session: its goal,
plan, constraints, instructions and tools are what its state says they are, whoever set
them. Nor what others gave: a message that they retracted stays retracted, and steering
that waits is still to be applied. What became of a call that was asked for before is known
as well as ever.

A retraction, or another message in its place, takes back what was said before it, and with
a message of the model what became of its calls.

What stands on a branch (a subagent that another harness keeps in its parent's transcript)
was said to another model: the parent's knows its call and the result.
"""

from collections.abc import Sequence

from foldline.projections.calls import ENDS
from foldline.projections.tales import Names
from foldline.schemas.events import (
    AnyEvent,
    BudgetSet,
    ConfigChanged,
    ConstraintLifted,
    ConstraintSet,
    GoalSet,
    HistoryRewound,
    InstructionsSet,
    LabelsSet,
    MessageRetracted,
    PlanUpdated,
    SessionCreated,
    SteeringApplied,
    SteeringExpired,
    SteeringReceived,
    ToolCallRequested,
    ToolsDeclared,
    UserMessage,
)
from foldline.schemas.recorded import Recorded

OUTLASTS_REWINDS: frozenset[type] = frozenset(
    {
        BudgetSet,
        ConfigChanged,
        ConstraintLifted,
        ConstraintSet,
        GoalSet,
        InstructionsSet,
        LabelsSet,
        MessageRetracted,
        PlanUpdated,
        SessionCreated,
        SteeringReceived,
        ToolsDeclared,
    }
)
"""Events that a rewind does not take back."""

TAKES_BACK: frozenset[type] = frozenset({MessageRetracted, UserMessage})
"""Events that may take back messages."""

_MAY_TAKE_BACK: frozenset[type] = TAKES_BACK | {HistoryRewound}


def live_of(events: Sequence[Recorded]) -> list[Recorded]:
    """The events that are still part of the conversation, after every rewind."""
    if any(recorded.envelope.branch is not None for recorded in events):
        events = [recorded for recorded in events if recorded.envelope.branch is None]
    if not any(takes_back(r.event) for r in events if type(r.event) in _MAY_TAKE_BACK):
        return list(events)
    live: list[Recorded] = []
    for recorded in events:
        if isinstance(recorded.event, HistoryRewound):
            live = _rewound(live, recorded.event.to_seq)
        else:
            live.append(recorded)
    return _without_ends(_unretracted(live), live, events)


def takes_back(event: AnyEvent) -> bool:
    """Whether what was told before is no longer true."""
    return isinstance(event, HistoryRewound) or bool(taken_back_by(event))


def _rewound(live: list[Recorded], to_seq: int) -> list[Recorded]:
    """What a rewind leaves; steering that was applied, or expired, is not to come again."""
    taken = [recorded for recorded in live if recorded.seq > to_seq]
    settled = {
        recorded.event.steering_event_id
        for recorded in taken
        if isinstance(recorded.event, (SteeringApplied, SteeringExpired))
    }
    ends = _ends(taken)
    return [
        recorded
        for recorded in live
        if (
            recorded.seq <= to_seq
            or type(recorded.event) in OUTLASTS_REWINDS
            or recorded.envelope.event_id in ends
        )
        and recorded.envelope.event_id not in settled
    ]


def _ends(taken: list[Recorded]) -> set[str]:
    """Ends of calls that were requested before what is taken back."""
    requested: set[str] = set()
    names = Names()
    found: set[str] = set()
    for recorded in taken:
        event = recorded.event
        if isinstance(event, ToolCallRequested):
            requested.add(event.call_id)
        names.learn(event)
        if type(event) in ENDS and names.about(event)[0] not in requested:
            found.add(recorded.envelope.event_id)
    return found


def taken_back_by(event: AnyEvent) -> tuple[str, ...]:
    """The messages that an event takes back: retracted, or with another in their place."""
    match event:
        case MessageRetracted(message_ids=message_ids):
            return message_ids
        case UserMessage(replaces=str() as replaced):
            return (replaced,)
        case _:
            return ()


def _unretracted(live: list[Recorded]) -> list[Recorded]:
    gone: set[object] = set()
    kept: list[Recorded] = []
    for recorded in reversed(live):
        if recorded.event.__dict__.get("message_id") not in gone:
            kept.append(recorded)
        gone.update(taken_back_by(recorded.event))
    kept.reverse()
    return kept


def _without_ends(
    kept: list[Recorded], live: Sequence[Recorded], events: Sequence[Recorded]
) -> list[Recorded]:
    """Without the ends of calls that went with the message which asked for them."""
    gone = _requested(live) - _requested(kept)
    if not gone:
        return kept
    names = Names()
    for recorded in events:
        names.learn(recorded.event)
    return [
        recorded
        for recorded in kept
        if type(recorded.event) not in ENDS or names.about(recorded.event)[0] not in gone
    ]


def _requested(events: Sequence[Recorded]) -> set[str]:
    return {r.event.call_id for r in events if isinstance(r.event, ToolCallRequested)}
