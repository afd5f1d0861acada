"""Handing a session on: another agent goes on with it, and the owner stays the same.

One batch: HandedOff, and the instructions and tools of who takes over. With the call that
asked for it their ids follow from the call, so that the same again is recorded once.
"""

from foldline.producers.identity import derived_id
from foldline.producers.ownership import Ownership
from foldline.producers.prepare import Said, blocks_of
from foldline.producers.tools import Toolbox
from foldline.schemas.events import (
    HandedOff,
    InstructionsSet,
    KnownEvent,
    ToolsDeclared,
    type_of,
)
from foldline.schemas.verdicts import Verdict


async def hand_off(
    owner: Ownership,
    to_agent: str,
    *,
    call_id: str | None,
    instructions: Said,
    tools: Toolbox | None,
    said: Said,
) -> Verdict:
    """Record who goes on, and act as that agent from here on."""
    state = await owner.state()
    handed = HandedOff(
        from_agent=state.agent, to_agent=to_agent, call_id=call_id, blocks=blocks_of(said)
    )
    events: list[KnownEvent] = [handed]
    if instructions:
        events.append(InstructionsSet(role="system", blocks=blocks_of(instructions)))
    if tools is not None:
        events.append(ToolsDeclared(tools=tools.declarations()))
    turn_id = state.turn.turn_id if state.turn else None
    ids = [_event_id(owner.session_id, call_id, event) for event in events]
    answers = await owner.decide(
        [
            owner.draft(event, turn_id=turn_id, event_id=event_id)
            for event, event_id in zip(events, ids, strict=True)
        ]
    )
    owner.act_as(to_agent)
    return answers[0].verdict


def _event_id(session_id: str, call_id: str | None, event: KnownEvent) -> str | None:
    """The id of a part of a hand-off, as it follows from the call that asked for it."""
    if call_id is None:
        return None
    return derived_id("hand-off", session_id, call_id, type_of(event))
