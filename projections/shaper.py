"""Shapes a history that nobody shaped, as if its owner had used a policy all along. Pure.

An imported session has its harness's own compactions at the most. Here `plan` is asked
wherever a model was called, and what an owner would have recorded is kept beside the
events, so that later contexts rest on it as they would rest on the log.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from foldline.projections.building import build
from foldline.projections.context import Context, Sources, missing_steering
from foldline.projections.live import live_of
from foldline.projections.policy import ContextPolicy
from foldline.projections.shaping import EXTRACTIVE, RULE, STEPS_MAX, Prune, Step, plan
from foldline.projections.summarising import Originals, summary_of
from foldline.projections.token_count import ANYBODY, Reader, TokenCounter
from foldline.schemas.blocks import text_block
from foldline.schemas.events import (
    CompactionCompleted,
    ConstraintLifted,
    ConstraintSet,
    ContextPruned,
    GoalSet,
    HistoryRewound,
    Inherited,
    InstructionsSet,
    KnownEvent,
    SessionCreated,
    ToolsDeclared,
)
from foldline.schemas.recorded import Recorded

_SET_UP = (ConstraintLifted, ConstraintSet, GoalSet, InstructionsSet, ToolsDeclared)


@dataclass(slots=True)
class Shaper:
    """Shapes a history as it grows: what an owner would have recorded stays with it.

    `shape` is to be called where a model was called: with the events before, those of
    the call before among them. `texts` has the whole text of their blobs.
    """

    policy: ContextPolicy
    counter: TokenCounter
    reader: Reader = ANYBODY
    texts: Mapping[bytes, str] = field(default_factory=dict[bytes, str])
    steps: int = 0
    seen_seq: int = 0
    _made: list[tuple[int, Recorded]] = field(default_factory=list[tuple[int, Recorded]])

    def shape(self, events: Sequence[Recorded]) -> Context:
        """The context of these events, made as small as the policy wants it."""
        context = self._build(events)
        for _ in range(STEPS_MAX):
            step = plan(
                context,
                policy=self.policy,
                counter=self.counter,
                reader=self.reader,
                seen_seq=self.seen_seq,
            )
            if step is None:
                break
            self._record(events, self._event(events, step))
            context = self._build(events)
        self.seen_seq = context.upto_seq
        return context

    def sources(self, events: Sequence[Recorded]) -> Sources:
        """What an owner reads for the context: what came since the last compaction."""
        merged = self.merged(events)
        base = self._base_of(merged)
        behind = [recorded for recorded in merged if recorded.seq > base]
        set_up = [r for r in merged if r.seq <= base and isinstance(r.event, _SET_UP)]
        if missing_steering(behind):
            return Sources(merged, texts=self.texts)
        return Sources(behind, base, set_up, self.texts)

    @staticmethod
    def _base_of(merged: Sequence[Recorded]) -> int:
        """The seq behind which events are needed; 0 where that is not simple to say."""
        base = 0
        for recorded in merged:
            match recorded.event:
                case HistoryRewound() | SessionCreated(inherited=Inherited()):
                    return 0
                case CompactionCompleted(from_seq=1, kept=(), to_seq=to_seq):
                    base = max(base, to_seq)
                case _:
                    pass
        return base

    def _build(self, events: Sequence[Recorded]) -> Context:
        return build(self.sources(events))

    def merged(self, events: Sequence[Recorded]) -> list[Recorded]:
        """These events, with what an owner would have recorded among them."""
        merged: list[Recorded] = []
        made = iter(self._made)
        upcoming = next(made, None)
        for recorded in events:
            merged.append(recorded)
            while upcoming is not None and upcoming[0] == recorded.seq:
                merged.append(upcoming[1])
                upcoming = next(made, None)
        return merged

    def _record(self, events: Sequence[Recorded], event: KnownEvent) -> None:
        last = events[-1]
        self.steps += 1
        event_id = f"{last.envelope.event_id}:shaped:{self.steps}"
        envelope = last.envelope.model_copy(update={"event_id": event_id})
        self._made.append((last.seq, last._replace(envelope=envelope, event=event)))

    def _event(self, events: Sequence[Recorded], step: Step) -> KnownEvent:
        if isinstance(step, Prune):
            return ContextPruned(
                rule=RULE,
                tokens_saved=step.tokens_saved,
                targets=step.targets,
                blocks=step.blocks,
            )
        originals = Originals(live_of(events), step.to_seq, self.texts)
        text = summary_of(originals, policy=self.policy, counter=self.counter)
        return CompactionCompleted(
            compaction_id=f"{events[-1].envelope.event_id}:{self.steps}",
            from_seq=1,
            to_seq=step.to_seq,
            base_seq=events[-1].seq,
            strategy=EXTRACTIVE,
            token_before=step.tokens_before,
            token_after=None,
            kept=step.kept,
            blocks=(text_block(text),),
        )
