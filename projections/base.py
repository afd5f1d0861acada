"""Where a context begins: the seq behind which its events are needed. Pure.

    as_one(states)                    a fork's state, with what its ancestors left out
    without(state, seqs)              the state, as if what stands there had not been
    base_of(state, compaction)        the base, by what a state tells
    base_in(live, base_seq)           the same, by the events themselves
    reaches_back(events, base_seq)    whether the events behind it are not enough after all

A state tells of the last rewind, clearing and compaction only, also of those on a branch,
which say nothing of the conversation: `without` these. What it cannot tell, the
events behind the base do: where one of them reaches further back, all are needed. So a
base is never wrong, only now and then lower than it could be.
"""

from collections.abc import Container, Sequence
from dataclasses import replace

from foldline.projections.calls import ENDS
from foldline.projections.live import TAKES_BACK, taken_back_by
from foldline.projections.tales import NAMING, Names, is_nameless
from foldline.schemas.events import (
    CompactionCompleted,
    ContextCleared,
    HistoryRewound,
    SteeringApplied,
    SteeringReceived,
    ToolCallRequested,
)
from foldline.schemas.recorded import Recorded
from foldline.schemas.state import SessionState


def as_one(states: Sequence[SessionState]) -> SessionState:
    """The state to give `base_of` for the history of these sessions, joined by forks.

    What an ancestor compacted or cleared before the fork point is so for the child, as
    long as nobody rewound since: a state tells of its last rewind only.

    Args:
        states: of each ancestor at the fork point that leads on, the oldest first; then
            that of the session itself.
    """
    one, *later = states
    if any(state.counts.get("HistoryRewound") for state in later):
        return states[-1]
    for state in later:
        before = None if state.cleared_seq else one.compaction
        one = replace(
            state,
            cleared_seq=state.cleared_seq or one.cleared_seq,
            compaction=state.compaction or before,
            rewound_seq=one.rewound_seq,
            rewound_to=one.rewound_to,
        )
    return one


def without(state: SessionState, seqs: Container[int]) -> SessionState:
    """A state for `base_of` that names no clearing or compaction at some seqs.

    What it named before them is not known; so the base may be lower than it could be.
    """
    found = state.compaction
    return replace(
        state,
        cleared_seq=0 if state.cleared_seq in seqs else state.cleared_seq,
        compaction=None if found is not None and found.seq in seqs else found,
    )


def base_of(state: SessionState, compaction: CompactionCompleted | None) -> int:
    """The seq behind which the events of the context lie; 0: all are needed.

    A rewind to before a compaction or clearing undoes it. A compaction that keeps
    events, or leaves some before it, needs the whole history since the clearing. Whether
    there is one still, nobody can tell here who may have missed a rewind.

    Args:
        state: the state at the head.
        compaction: the event of `state.compaction`, None where there is none.
    """
    cleared = 0 if _is_undone(state, state.cleared_seq) else state.cleared_seq
    found = state.compaction
    if found is None or compaction is None or _is_undone(state, found.seq):
        return cleared
    sure = compaction.from_seq <= 1 or state.rewound_seq <= cleared
    if not sure or not _is_whole(compaction, cleared):
        return cleared
    return max(compaction.to_seq, cleared)


def _is_undone(state: SessionState, seq: int) -> bool:
    """Whether the last rewind took back what stood at a seq."""
    return state.rewound_seq > seq > state.rewound_to


def _is_whole(compaction: CompactionCompleted, base_seq: int) -> bool:
    """Whether nothing is shown any more of what lies between a base and its end."""
    return compaction.from_seq <= base_seq + 1 and not compaction.kept


def base_in(live: Sequence[Recorded], base_seq: int) -> int:
    """The newest base that events give by themselves; `base_seq` where they give none.

    Args:
        live: what is part of the conversation, of all events behind `base_seq`.
        base_seq: behind which they lie.
    """
    newest: CompactionCompleted | None = None
    for recorded in reversed(live):
        event = recorded.event
        kind = type(event)
        if kind is ContextCleared:
            base_seq = max(base_seq, recorded.seq)
            break
        if newest is None and isinstance(event, CompactionCompleted):
            newest = event
    if newest is None or not _is_whole(newest, base_seq):
        return base_seq
    return max(newest.to_seq, base_seq)


def reaches_back(events: Sequence[Recorded], base_seq: int) -> bool:
    """Whether one of the events behind a base needs what lies before it.

    So does a rewind to before the base, and steering that was received before it and is
    applied here; and what `_names_a_call_before` finds.
    """
    if not base_seq:
        return False
    received: set[str] = set()
    for recorded in events:
        if recorded.envelope.branch is not None:
            continue
        event = recorded.event
        kind = type(event)
        if kind is SteeringReceived:
            received.add(recorded.envelope.event_id)
        elif isinstance(event, SteeringApplied):
            if event.steering_event_id not in received:
                return True
        elif isinstance(event, HistoryRewound) and event.to_seq < base_seq:
            return True
    return _names_a_call_before(events)


def _names_a_call_before(events: Sequence[Recorded]) -> bool:
    """Whether a call counts whose request, or request for permission, lies before.

    One that is denied by the latter's id only; and one that ends here, where a message is
    taken back: it may be the one that asked for it.
    """
    names = Names()
    requested: set[str] = set()
    strays = takes_back = False
    for recorded in events:
        event = recorded.event
        kind = type(event)
        if isinstance(event, ToolCallRequested):
            requested.add(event.call_id)
        elif kind in NAMING:
            names.learn(event)
        elif kind in ENDS:
            if is_nameless(event) and not names.knows(event.__dict__["request_id"]):
                return True
            strays = strays or names.about(event)[0] not in requested
        if kind in TAKES_BACK:
            takes_back = takes_back or bool(taken_back_by(event))
    return strays and takes_back
