"""One compaction, carried out by the session's owner.

1. CompactionStarted, on the state that the context was built from. A crash from here on
   leaves it open; whoever claims the session voids it.
2. The summariser makes a summary of the original events. If it fails, or says nothing, or
   as much as it stands for, CompactionFailed says so, and extracts are tried instead.
3. CompactionCompleted, at a head on which nobody took anything back since; otherwise
   CompactionFailed, and the owner plans anew on what is there now.

Whatever comes of it, the context is always one of two: as it was, or with the summary.
"""

import asyncio
from dataclasses import dataclass

from foldline.errors import AppendRefusedError, FencedError, LogError
from foldline.faults import crash_point
from foldline.producers.appender import raise_refused
from foldline.producers.identity import fresh_id
from foldline.producers.ownership import Ownership
from foldline.producers.summarisers import (
    Extractive,
    OpenModelCall,
    Summariser,
    SummaryRequest,
)
from foldline.projections.live import takes_back
from foldline.projections.policy import ContextPolicy
from foldline.projections.recorded_steps import SHAPING
from foldline.projections.reopening import READ_EVENT
from foldline.projections.shaped import CANCELLED, CHANGED, LEFT_OPEN
from foldline.projections.shaping import EXTRACTIVE, Compact
from foldline.projections.summarising import Originals, facts_of
from foldline.projections.token_count import TokenCounter
from foldline.schemas.blocks import Blocks, text_block, text_of
from foldline.schemas.events import (
    AnyEvent,
    CompactionCompleted,
    CompactionFailed,
    CompactionStarted,
    ContextCleared,
    KnownEvent,
    MessageRetracted,
)
from foldline.schemas.verdicts import CONFLICT

DONE, STALE, FAILED = "DONE", "STALE", "FAILED"
"""How a compaction ended. STALE: the history is another by now, to be planned anew."""

COMPLETE_TRIES_MAX = 16
"""How often an end is sent again because somebody appended in between."""

REASON_CHARS = 500
"""How much is recorded of why a summariser failed."""

_STALE_RULES = frozenset({"compaction_stale", "range", "compaction_open"})

HINT = f"{READ_EVENT} shows an event by its number."
"""Said in a summary, where the model has the tool."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A compaction that is planned.

    `base_seq` is the head that it was planned on, `tokens` what the summary is to stand
    for. `mentions_tool`: the model can read events again.
    """

    step: Compact
    base_seq: int
    reason: str
    originals: Originals
    tokens: int
    mentions_tool: bool


class SummaryError(Exception):
    """A summariser gave nothing that can stand for what it was given."""


class Compacting:
    """Carries compactions out in one turn."""

    def __init__(
        self,
        owner: Ownership,
        policy: ContextPolicy,
        counter: TokenCounter,
        turn_id: str,
        model_call: OpenModelCall,
    ) -> None:
        self._owner = owner
        self._policy = policy
        self._counter = counter
        self._turn_id = turn_id
        self._model_call = model_call

    async def run(self, wanted: Wanted, summariser: Summariser) -> str:
        """Compact, by extracts if the summariser fails; gives how it ended.

        Raises:
            FencedError: another owner has the session.
            LogError: something could not be recorded.
        """
        ended = await self._try(wanted, summariser, wanted.reason)
        if ended == FAILED and summariser.strategy != EXTRACTIVE:
            reason = f"{wanted.reason}: {summariser.strategy} failed"
            ended = await self._try(wanted, Extractive(), reason)
        return ended

    async def _try(self, wanted: Wanted, summariser: Summariser, reason: str) -> str:
        name = f"{SHAPING}{fresh_id()}"
        try:
            return await self._from_start_to_end(name, wanted, summariser, reason)
        except asyncio.CancelledError:
            # What was sent is recorded all the same. Where it has ended this is refused.
            failed = CompactionFailed(compaction_id=name, reason=CANCELLED)
            await self._owner.attempt([self._owner.draft(failed, turn_id=self._turn_id)])
            raise

    async def _from_start_to_end(
        self, name: str, wanted: Wanted, summariser: Summariser, reason: str
    ) -> str:
        if not await self._start(name, wanted, reason):
            return STALE
        crash_point("CP_COMPACTION_AFTER_STARTED")
        try:
            blocks = await self._summary(wanted, summariser)
        except (FencedError, LogError, AppendRefusedError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever a summariser raises
            said = f"{summariser.strategy}: {type(error).__name__}: {error}"
            await self._fail(name, said[:REASON_CHARS])
            return FAILED
        crash_point("CP_COMPACTION_BEFORE_COMPLETED")
        return await self._complete(name, wanted, summariser.strategy, blocks)

    async def _start(self, name: str, wanted: Wanted, reason: str) -> bool:
        state = await self._owner.state()
        if state.open_compaction is not None:
            await self._fail(state.open_compaction.compaction_id, LEFT_OPEN)
        started = CompactionStarted(
            compaction_id=name,
            base_seq=wanted.base_seq,
            reason=reason,
            token_before=wanted.step.tokens_before,
        )
        answers = await self._owner.attempt(
            [self._owner.draft(started, turn_id=self._turn_id)]
        )
        if answers[0].verdict.rule in _STALE_RULES:
            return False
        raise_refused(answers)
        return True

    async def _fail(self, name: str, reason: str) -> None:
        await self._decide(CompactionFailed(compaction_id=name, reason=reason))

    async def _decide(self, event: KnownEvent) -> None:
        await self._owner.decide([self._owner.draft(event, turn_id=self._turn_id)])

    # --- the summary -----------------------------------------------------------------

    async def _summary(self, wanted: Wanted, summariser: Summariser) -> Blocks:
        """The summary with what every summary has.

        Raises:
            SummaryError: it says nothing, or as much as what it stands for.
        """
        facts = await asyncio.to_thread(
            facts_of, wanted.originals, policy=self._policy, counter=self._counter
        )
        request = SummaryRequest(
            wanted.originals, facts, self._policy, self._counter, self._model_call
        )
        said = await summariser.summarise(request)
        if not text_of(said).strip():
            raise SummaryError("the summary is empty")
        blocks = self._framed(said, facts, wanted, summariser.strategy)
        tokens = sum(self._counter.count(text_of((block,))) for block in blocks)
        if tokens >= wanted.tokens and not wanted.step.renews:
            msg = f"the summary has {tokens} tokens and stands for {wanted.tokens}"
            raise SummaryError(msg)
        return blocks

    def _framed(self, said: Blocks, facts: str, wanted: Wanted, strategy: str) -> Blocks:
        framed = said
        if strategy != EXTRACTIVE:
            head = f"[Summary of events 1 to {wanted.step.to_seq}, not shown any more]\n"
            framed = (text_block(head), *framed)
            framed = (*framed, text_block(f"\n{facts}")) if facts else framed
        return (*framed, text_block(f"\n{HINT}")) if wanted.mentions_tool else framed

    # --- the end ---------------------------------------------------------------------

    async def _complete(
        self, name: str, wanted: Wanted, strategy: str, blocks: Blocks
    ) -> str:
        completed = CompactionCompleted(
            compaction_id=name,
            from_seq=1,
            to_seq=wanted.step.to_seq,
            base_seq=wanted.base_seq,
            strategy=strategy,
            token_before=wanted.step.tokens_before,
            token_after=self._after(wanted, blocks),
            kept=wanted.step.kept,
            blocks=blocks,
        )
        seen_seq = wanted.base_seq
        for _ in range(COMPLETE_TRIES_MAX):
            state = await self._owner.state()
            since = await self._owner.events(seen_seq, state.seq)
            if any(_takes_back(recorded.event) for recorded in since):
                break
            seen_seq = state.seq
            draft = self._owner.draft(
                completed, turn_id=self._turn_id, expected_seq=seen_seq
            )
            answers = await self._owner.attempt([draft])
            verdict = answers[0].verdict
            if verdict.rule in _STALE_RULES:
                break
            if verdict.kind != CONFLICT:
                raise_refused(answers)
                return DONE
        await self._fail(name, CHANGED)
        return STALE

    def _after(self, wanted: Wanted, blocks: Blocks) -> int:
        summary = sum(self._counter.count(text_of((block,))) for block in blocks)
        return wanted.step.tokens_before - wanted.tokens + summary


def _takes_back(event: AnyEvent) -> bool:
    """Whether this takes something back that the summary may tell of."""
    return isinstance(event, (ContextCleared, MessageRetracted)) or takes_back(event)
