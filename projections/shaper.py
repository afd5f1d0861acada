"""Shapes a history that nobody shaped, as if its owner had used a policy all along. Pure.

An imported session has its harness's own compactions at the most. Here `plan` is asked
wherever a model was called, and what an owner would have recorded is kept beside the
events, so that later contexts rest on it as they would rest on the log.

A history only grows, and each of its events is looked at once, but for those that are in
the context, and for all that are before what takes something back (a rewind, a retraction):
how long a session is makes no call slower. A rewind that undoes a compaction brings back
what that stood for, until the next one.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace

from foldline.projections.base import reaches_back
from foldline.projections.building import build
from foldline.projections.context import Context, Sources
from foldline.projections.digest import Digest
from foldline.projections.in_force import SETS_UP
from foldline.projections.live import live_of, takes_back
from foldline.projections.policy import ContextPolicy
from foldline.projections.prune_step import RULE, Prune
from foldline.projections.shaping import EXTRACTIVE, STEPS_MAX, Compact, Step, plan
from foldline.projections.summarising import summary_from
from foldline.projections.token_count import ANYBODY, Reader, TokenCounter
from foldline.schemas.blocks import text_block
from foldline.schemas.events import (
    CompactionCompleted,
    ContextPruned,
    HistoryRewound,
    KnownEvent,
)
from foldline.schemas.recorded import Recorded


class Shaper:
    """Shapes a history as it grows: what an owner would have recorded stays with it.

    `shape` is to be called where a model was called: with the events before, those of
    the call before among them. `texts` has the whole text of their blobs.
    """

    def __init__(
        self,
        policy: ContextPolicy,
        counter: TokenCounter,
        reader: Reader = ANYBODY,
        texts: Mapping[bytes, str] | None = None,
    ) -> None:
        self.policy = policy
        self.steps = 0
        self.merged: list[Recorded] = []
        """The events, with what an owner would have recorded among them."""
        self._counter = counter
        self._reader = reader
        self._texts = texts or {}
        self._seen_seq = 0
        self._events: list[Recorded] = []
        self._live: list[Recorded] = []
        self._digest = Digest(self._texts, counter)
        self._set_up: list[Recorded] = []
        self._bases: list[tuple[int, int]] = []
        """Each compaction that holds: its own seq, and up to where it goes."""
        self.rests_on = 0
        """How many events the last context was built from."""

    def shape(self, events: Sequence[Recorded]) -> Context:
        """The context of these events, made as small as the policy wants it."""
        self._grow(events[len(self._events) :])
        context = self._built()
        for _ in range(STEPS_MAX):
            step = plan(
                context,
                policy=self.policy,
                counter=self._counter,
                reader=self._reader,
                seen_seq=self._seen_seq,
            )
            if step is None:
                break
            self._record(self._event(step))
            context = self._built()
        self._seen_seq = context.upto_seq
        return context

    def _built(self) -> Context:
        sources = self.sources()
        self.rests_on = len(sources.events)
        return build(sources)

    def saw(self, upto_seq: int) -> None:
        """A model was shown the context up to there, at which there was nothing to do."""
        self._seen_seq = upto_seq

    def sources(self) -> Sources:
        """What an owner reads for the context: what came since the last compaction."""
        base = max((to_seq for _, to_seq in self._bases), default=0)
        behind = self.merged[place_behind(self.merged, base) :]
        if reaches_back(behind, base):
            return Sources(self.merged, texts=self._texts)
        set_up = [recorded for recorded in self._set_up if recorded.seq <= base]
        return Sources(behind, base, set_up, self._texts)

    # --- a history that grows ---------------------------------------------------------

    def _grow(self, events: Sequence[Recorded]) -> None:
        """Take in what came since."""
        self._events.extend(events)
        own = [recorded for recorded in events if recorded.envelope.branch is None]
        self._live.extend(own)
        if any(takes_back(recorded.event) for recorded in own):
            self._live = live_of(self._events)
            self._digest = Digest(self._texts, self._counter)
        for recorded in events:
            self._merge(recorded)

    def _merge(self, recorded: Recorded) -> None:
        self.merged.append(recorded)
        if recorded.envelope.branch is not None:
            return
        match recorded.event:
            case HistoryRewound(to_seq=to_seq):
                self._bases = [base for base in self._bases if base[0] <= to_seq]
            case CompactionCompleted(from_seq=1, kept=(), to_seq=to_seq):
                self._bases.append((recorded.seq, to_seq))
            case _ if type(recorded.event) in SETS_UP:
                self._set_up.append(recorded)
            case _:
                pass

    def _record(self, event: KnownEvent) -> None:
        last = self._events[-1]
        self.steps += 1
        event_id = f"{last.envelope.event_id}:shaped:{self.steps}"
        envelope = last.envelope.model_copy(update={"event_id": event_id, "branch": None})
        self._merge(last._replace(envelope=envelope, event=event))

    # --- what an owner would have recorded --------------------------------------------

    def _event(self, step: Step) -> KnownEvent:
        if isinstance(step, Prune):
            return ContextPruned(
                rule=RULE,
                tokens_saved=step.tokens_saved,
                targets=step.targets,
                blocks=step.blocks,
            )
        last = self._events[-1]
        return CompactionCompleted(
            compaction_id=f"{last.envelope.event_id}:{self.steps}",
            from_seq=1,
            to_seq=step.to_seq,
            base_seq=last.seq,
            strategy=EXTRACTIVE,
            token_before=step.tokens_before,
            token_after=None,
            kept=step.kept,
            blocks=(text_block(self._summary(step)),),
        )

    def _summary(self, step: Compact) -> str:
        policy = replace(self.policy, summary_tokens=step.summary_tokens)
        first = place_behind(self._live, self._digest.to_seq)
        new = self._live[first : place_behind(self._live, step.to_seq)]
        if step.to_seq < self._digest.to_seq or not self._digest.fits(new):
            self._digest, new = Digest(self._texts, self._counter), self._live
        self._digest.take(new, step.to_seq)
        return summary_from(self._digest, policy=policy, counter=self._counter)


def place_behind(events: Sequence[Recorded], seq: int) -> int:
    """How many of events, which are in order, stand at a seq or before it."""
    return bisect_right(events, seq, key=lambda recorded: recorded.seq)
