"""Building a context from the events of a history. Pure.

A history may be given from its first event on, or from a base with what was in force
there: what is built is the same. So the events before the newest base are looked at for
what they set up, and for nothing else.

What holds of every build is said, and checked, in `foldline.projections.context`.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from foldline.projections.base import base_in, reaches_back
from foldline.projections.context import Context, Sources
from foldline.projections.invariants import check
from foldline.projections.live import live_of
from foldline.projections.pieces import Pieces
from foldline.projections.shaped import shaped_by
from foldline.projections.tales import told_by
from foldline.projections.walking import Walk
from foldline.schemas.events import (
    AssistantMessage,
    ModelCallCompleted,
    ModelCallStarted,
    PermissionGranted,
    PermissionRequested,
    ToolCallRequested,
    ToolExecutionStarted,
    ToolResultProjected,
    TurnEnded,
    TurnStarted,
    UsageCorrected,
)
from foldline.schemas.recorded import Recorded

_SILENT: frozenset[type] = frozenset(
    {
        ModelCallCompleted,
        ModelCallStarted,
        PermissionGranted,
        PermissionRequested,
        ToolExecutionStarted,
        ToolResultProjected,
        TurnEnded,
        TurnStarted,
        UsageCorrected,
    }
)
"""The most frequent events that say nothing by themselves: seen at once, to be quick."""

_SHOWING: frozenset[type] = frozenset(
    {AssistantMessage, ModelCallStarted, ToolCallRequested, ToolResultProjected}
)
"""Events that tell what the model was shown of a call."""


def build(sources: Sources) -> Context:
    """The context of a history."""
    history = _from_base(sources)
    walk = Walk(Pieces(sources.texts), told_by(_told(history)))
    for recorded in history.set_up:
        walk.hold(recorded)
    walk.begin()
    for recorded in history.live:
        if type(recorded.event) not in _SILENT:
            walk.step(recorded)
    messages, stand_ins = walk.messages()
    events = sources.events
    return check(
        Context(
            messages=tuple(messages),
            tools=walk.in_force.tools,
            base_seq=sources.base_seq,
            upto_seq=events[-1].seq if events else sources.base_seq,
            stand_ins=stand_ins,
            instructions_event_ids=walk.in_force.instructions_event_ids(),
            tools_event_id=walk.in_force.tools_event_id,
            held_seq=walk.held_seq(),
            shaped=shaped_by(history.events, history.live),
        )
    )


class _History(NamedTuple):
    """Events, those of them that are live, and what was set up before them."""

    set_up: Sequence[Recorded]
    events: Sequence[Recorded]
    live: Sequence[Recorded]


def _told(history: _History) -> Iterable[Recorded]:
    """All events except retracted ones that record what the model was shown.

    What became of a call is known whatever was rewound; so it may be shown instead.
    """
    if len(history.live) == len(history.events):
        return history.events
    live = {recorded.envelope.event_id for recorded in history.live}
    return (
        recorded
        for recorded in history.events
        if type(recorded.event) not in _SHOWING or recorded.envelope.event_id in live
    )


def _from_base(sources: Sources) -> _History:
    """The history from its newest base on; as it is where it needs what lies before."""
    events, live = sources.events, live_of(sources.events)
    base_seq = base_in(live, sources.base_seq)
    if base_seq <= sources.base_seq:
        return _History(sources.set_up, events, live)
    behind = [recorded for recorded in events if recorded.seq > base_seq]
    if reaches_back(behind, base_seq):
        return _History(sources.set_up, events, live)
    before = [recorded for recorded in live if recorded.seq <= base_seq]
    return _History(
        [*sources.set_up, *before],
        behind,
        [recorded for recorded in live if recorded.seq > base_seq],
    )
