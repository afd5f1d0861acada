"""What a record did to make its contexts smaller, done again in a replay.

A replay does not shape by itself: references and summaries name events by their numbers
in the record, and a model perhaps made a summary. So the recorded steps are taken over,
their targets and their cut found again in the replay's own events.
"""

from collections.abc import Iterable, Mapping, Sequence

from foldline.producers.ownership import Ownership
from foldline.producers.replay_script import Script
from foldline.producers.shaping import Way
from foldline.projections.building import build
from foldline.projections.context import SUMMARY, Context, Message, Sources
from foldline.projections.prune_step import OWN_RULES
from foldline.projections.recorded_steps import SHAPING
from foldline.schemas.events import (
    AnyEvent,
    AssistantMessage,
    CompactionCompleted,
    ContextPruned,
    KnownEvent,
    ToolCallRequested,
)
from foldline.schemas.recorded import Recorded


class RecordedShaping:
    """The recorded steps of one turn, each taken once."""

    def __init__(self, owner: Ownership, script: Script, *, turn_id: str) -> None:
        self._owner = owner
        self._script = script
        self._turn_id = turn_id

    async def shaped(self, context: Context, way: Way) -> Context:
        """The context with what the record did up to the next step of its harness."""
        bound = self._script.bound()
        steps = [r for r in self._script.shaping_upto(bound) if _is_shaping(r)]
        pruned = [r.event for r in steps if isinstance(r.event, ContextPruned)]
        compacted = [r.event for r in steps if isinstance(r.event, CompactionCompleted)]
        if not steps:
            return context
        own = await self._own_ids()
        events: list[KnownEvent] = []
        if compacted:
            # What the last one left is what there is; those before it are within it.
            events += self._compaction(compacted[-1], context, bound, own)
        events += [
            event.model_copy(update={"targets": _mapped(event.targets, own)})
            for event in pruned
        ]
        drafts = [self._owner.draft(event, turn_id=self._turn_id) for event in events]
        await self._owner.decide(drafts)
        return await way.build()

    async def _own_ids(self) -> dict[str, str]:
        """The ids that recorded events have here, where the harness made them again."""
        made = {_name_of(r.event): r.envelope.event_id for r in await self._owner.events()}
        return {
            recorded.envelope.event_id: made[name]
            for recorded in self._script.recording.events
            for name in [_name_of(recorded.event)]
            if name and name in made
        }

    def _compaction(
        self,
        recorded: CompactionCompleted,
        context: Context,
        bound: int,
        own: Mapping[str, str],
    ) -> list[KnownEvent]:
        """The same with the cut before as many messages; none where they are not there."""
        recording = self._script.recording
        events = [r for r in recording.events if r.seq <= bound]
        shown = build(Sources(events, texts=recording.texts))
        stay = len(_places(m for m in shown.messages if m.seq > recorded.to_seq))
        places = _places(context.messages)
        if stay >= len(places):
            return []
        changed = {
            "to_seq": places[-stay] - 1 if stay else context.upto_seq,
            "base_seq": context.upto_seq,
            "kept": _mapped(recorded.kept, own),
        }
        return [recorded.model_copy(update=changed)]


def _name_of(event: AnyEvent) -> str:
    """What a harness's own event is called in the record and in a replay alike."""
    match event:
        case ToolCallRequested(call_id=call_id):
            return f"call {call_id}"
        case AssistantMessage(model_call_id=str() as call_id, part=part):
            return f"answer {call_id} {part}"
        case _:
            return ""


def _mapped(names: Iterable[str], own: Mapping[str, str]) -> tuple[str, ...]:
    """Ids of the record as they are here; most are the same."""
    return tuple(own.get(name, name) for name in names)


def _is_shaping(recorded: Recorded) -> bool:
    match recorded.event:
        case ContextPruned(rule=rule):
            return rule in OWN_RULES
        case CompactionCompleted(compaction_id=name):
            return name.startswith(SHAPING)
        case _:
            return False


def _places(messages: Iterable[Message]) -> Sequence[int]:
    """Where messages stand that somebody said, a message and its results once."""
    said = (m for m in messages if m.role != "system" and m.origin != SUMMARY)
    return list(dict.fromkeys(message.seq for message in said))
