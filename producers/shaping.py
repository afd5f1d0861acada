"""Making a session's context smaller as its owner: by events, before a model sees it.

For each context, at most so many times in a row:

1. What to do is planned on the context as it is (`foldline.projections.shaping`). Tokens
   are counted then, not remembered, so nothing that was done causes itself again.
2. Outputs that become references are recorded (ContextPruned).
3. What is compacted is (`foldline.producers.compacting`), if the agent got anywhere since
   the last few times; otherwise a person is asked and the session rests.
4. The context is built again.

What cannot be made smaller is said once, and shown as it is.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace

from foldline.faults import crash_point
from foldline.producers.compacting import DONE, FAILED, STALE, Compacting, Wanted
from foldline.producers.history import History
from foldline.producers.originals import Origins, Taking, read_origins
from foldline.producers.ownership import Ownership
from foldline.producers.parking import rest_with_question
from foldline.producers.summarisers import Extractive, OpenModelCall, Summariser
from foldline.projections.calibrating import Calibrating
from foldline.projections.context import Context, Message
from foldline.projections.policy import (
    FULL,
    NO_LIMIT,
    NO_SECTIONS,
    POLICIES,
    ContextPolicy,
    policy_named,
)
from foldline.projections.progress import compactions_without_progress
from foldline.projections.prune_step import RULE, Prune
from foldline.projections.reopening import READ_EVENT
from foldline.projections.request import Form
from foldline.projections.room import LEAST_BYTES_PER_TOKEN, BytesAsTokens
from foldline.projections.shaped import Shaped
from foldline.projections.shaping import (
    REASON,
    RENEWAL,
    STEPS_MAX,
    Compact,
    Step,
    compaction,
    plan,
)
from foldline.projections.token_count import ANYBODY, Reader, TokenCounter, message_tokens
from foldline.schemas.events import ContextPruned, Usage
from foldline.tokenizers import Tokens, default_counter

PRUNED_AT_ONCE_MAX = 256
"""How many outputs one ContextPruned names, so that it has room in a record."""

ASKED = "asked"
"""The reason of a compaction that somebody asked for."""

NamedPolicy = ContextPolicy | str | None

_logger = logging.getLogger(__name__)


def policy_of(named: NamedPolicy, default: ContextPolicy) -> ContextPolicy:
    """The policy that is meant: itself, by its name, or the default.

    Raises:
        SettingsError: no policy has this name.
    """
    if named is None:
        return default
    if isinstance(named, ContextPolicy):
        return named
    return policy_named(named)


@dataclass(frozen=True, slots=True)
class Way:
    """How one context is to be made smaller, and what a turn gives for it."""

    policy: ContextPolicy
    summariser: Summariser
    turn_id: str
    build: Callable[[], Awaitable[Context]]
    model_call: OpenModelCall


class Shaping:
    """Shapes the contexts of one session; remembers what a model was shown of them."""

    def __init__(
        self, owner: Ownership, history: History, *, policy: NamedPolicy = None
    ) -> None:
        self.given = None if policy is None else policy_of(policy, FULL)
        """What the harness said, if it did."""
        self.summariser: Summariser = Extractive()
        self.over_tokens = 0
        """How far the last context was above its budget, with nothing left to take away."""
        self._owner = owner
        self._history = history
        self._counter: Tokens = default_counter()
        self._reader: Reader = ANYBODY
        self._seen_seq: int | None = None
        self._calibrating = Calibrating()
        self._loads = False
        self._told_over = False
        self._told_policy = ""
        self._taking = Taking()
        self._last = Shaped()

    async def built(self) -> Context:
        """The context at the head, as the events have it."""
        context = await self._history.context()
        self._last = context.shaped
        if self._reader == ANYBODY:
            self._reader = Reader(self._last.provider, self._last.model)
        self._tell_if_unknown(self._last.policy)
        return context

    def _tell_if_unknown(self, policy: str) -> None:
        """The harness has a policy of its own, and did not give it again: say so once."""
        if self.given is None and policy and policy not in (*POLICIES, self._told_policy):
            _logger.warning(
                "the contexts of session %s were kept by the policy %r, which its harness "
                "did not give again; %r is used",
                self._owner.session_id,
                policy,
                self.policy.name,
            )
            self._told_policy = policy

    @property
    def policy(self) -> ContextPolicy:
        """How small contexts are kept: as the harness says, or as they were so far.

        Before anything was built here, the log was not asked yet.
        """
        if self.given is not None:
            return self.given
        default = POLICIES[self._owner.link.settings.context_policy]
        return POLICIES.get(self._last.policy, default)

    async def chosen(self) -> ContextPolicy:
        """The same, after the log was asked."""
        if self.given is None and self._last == Shaped():
            await self.built()
        return self.policy

    def saw(self, context: Context, form: Form, usage: Usage | None) -> None:
        """A model has answered to this context."""
        self._seen_seq = context.upto_seq
        self._reader = form.reader
        self._calibrating.answered(context, form.reader, usage)

    # --- one context -----------------------------------------------------------------

    async def shape(self, context: Context, way: Way) -> tuple[Context, str]:
        """The context as small as the policy wants it, and why the session rests, if so.

        Raises:
            FencedError: another owner has the session.
            LogError: something could not be recorded; the same again goes on from there.
        """
        for _ in range(STEPS_MAX):
            step = await self._next(context, way.policy)
            if isinstance(step, Prune):
                await self._prune(step, way)
            elif isinstance(step, Compact):
                goes_on, parked = await self._compacted_or_parked(step, context, way)
                if not goes_on:
                    return context, parked
            else:
                break
            context = await way.build()
        return context, ""

    async def compact(self, context: Context, way: Way, *, to_seq: int | None) -> bool:
        """Compact because somebody asks for it; whether anything was.

        What somebody took back meanwhile is planned without, as often as `STEPS_MAX`.
        """
        counter = await self._loaded()
        for _ in range(STEPS_MAX):
            step = compaction(
                context,
                policy=way.policy,
                counter=counter,
                reader=self._reader,
                to_seq=to_seq,
            )
            if step is None:
                return False
            past = await self._past(context)
            ended = await self._compacted(step, context, way, ASKED, past)
            if ended != STALE:
                return ended == DONE
            context = await way.build()
        return False

    async def _next(self, context: Context, policy: ContextPolicy) -> Step | None:
        """The next step; where bytes say already that there is none, nothing is counted."""
        guess = not self._counter.loaded and policy.sections == NO_SECTIONS
        if (
            guess
            and await self._planned(context, policy, BytesAsTokens()) is None
            and (self._surely_within(context, policy) or self._is_first_of_taken())
        ):
            return None
        counter = await self._loaded()
        policy = await self._owner.link.read(self._as_counted, policy, counter)
        step = await self._planned(context, policy, counter)
        if step is None:
            self._tell_if_over(context, policy, counter)
        return step

    def _surely_within(self, context: Context, policy: ContextPolicy) -> bool:
        """Whether no count can find the context above its budget."""
        most = BytesAsTokens(LEAST_BYTES_PER_TOKEN)
        budget = policy.budget_tokens
        return budget == NO_LIMIT or self._total(context, most) <= budget

    def _is_first_of_taken(self) -> bool:
        """Whether a guess will do: for the first context of a session taken over.

        Its owner before kept it within the budget by a count. A vocabulary takes a second
        to load, ten times as long as the rest of a wake: it is loaded meanwhile, and the
        next context is counted.
        """
        if self._loads or self._owner.epoch == 1:
            return False
        self._loads = True
        self._owner.link.readers.submit(self._counter.load)
        return True

    async def _planned(
        self, context: Context, policy: ContextPolicy, counter: TokenCounter
    ) -> Step | None:
        return await self._owner.link.read(
            plan,
            context,
            policy=policy,
            counter=counter,
            reader=self._reader,
            seen_seq=self._seen_seq,
        )

    def _as_counted(self, policy: ContextPolicy, counter: TokenCounter) -> ContextPolicy:
        """The policy with its budget as it may be counted here."""
        if policy.budget_tokens == NO_LIMIT:
            return policy
        budget = self._calibrating.budget(policy.budget_tokens, counter, self._reader)
        return replace(policy, budget_tokens=max(budget, 1))

    async def _loaded(self) -> TokenCounter:
        if not self._counter.loaded:
            await self._owner.link.read(self._counter.load)
        return self._counter

    def _tell_if_over(
        self, context: Context, policy: ContextPolicy, counter: TokenCounter
    ) -> None:
        """Nothing more can be taken away: say so once, if it is too much all the same."""
        over = 0
        if policy.budget_tokens != NO_LIMIT:
            over = max(self._total(context, counter) - policy.budget_tokens, 0)
        if over and not self._told_over:
            _logger.warning(
                "the context of session %s is %d tokens above its budget of %d, and what "
                "is left of it cannot be made smaller",
                self._owner.session_id,
                over,
                policy.budget_tokens,
            )
        self.over_tokens, self._told_over = over, bool(over)

    # --- steps -----------------------------------------------------------------------

    async def _prune(self, step: Prune, way: Way) -> None:
        count = len(step.targets)
        drafts = [
            self._owner.draft(
                ContextPruned(
                    rule=RULE,
                    tokens_saved=step.tokens_saved * len(step.targets[some]) // count,
                    targets=step.targets[some],
                    blocks=step.blocks[some],
                ),
                turn_id=way.turn_id,
            )
            for first in range(0, count, PRUNED_AT_ONCE_MAX)
            for some in [slice(first, first + PRUNED_AT_ONCE_MAX)]
        ]
        await self._owner.decide(drafts)
        crash_point("CP_CONTEXT_AFTER_PRUNED")

    async def _compacted_or_parked(
        self, step: Compact, context: Context, way: Way
    ) -> tuple[bool, str]:
        """Compact, or ask a person: whether to go on, and why the session rests."""
        past = await self._past(context)
        fruitless = compactions_without_progress(past.events)
        if fruitless >= way.policy.no_progress_max:
            why = f"the context was compacted {fruitless} times without progress"
            return False, await rest_with_question(self._owner, why, turn_id=way.turn_id)
        reason = RENEWAL if step.renews else REASON
        ended = await self._compacted(step, context, way, reason, past)
        return ended != FAILED, ""

    async def _compacted(
        self, step: Compact, context: Context, way: Way, reason: str, past: Origins
    ) -> str:
        """Compact; gives how it ended. Unless it is DONE the context stays as it was."""
        counter = await self._loaded()
        wanted = Wanted(
            step=step,
            base_seq=context.upto_seq,
            reason=reason,
            originals=past.upto(step.to_seq),
            tokens=self._replaced(step, context, counter),
            mentions_tool=any(tool.name == READ_EVENT for tool in context.tools),
        )
        policy = replace(way.policy, summary_tokens=step.summary_tokens)
        compacting = Compacting(self._owner, policy, counter, way.turn_id, way.model_call)
        return await compacting.run(wanted, way.summariser)

    async def _past(self, context: Context) -> Origins:
        state, link = await self._owner.state(), self._owner.link
        return await link.read(
            read_origins, link.log, state, context.upto_seq, self._taking
        )

    def _total(self, context: Context, counter: TokenCounter) -> int:
        """The tokens of a context's messages, as its reader gets them."""
        return self._tokens(context.messages, counter)

    def _replaced(self, step: Compact, context: Context, counter: TokenCounter) -> int:
        """The tokens of what a summary is to stand for: nothing of what is kept."""
        kept = set(step.kept)
        gone = [
            message
            for message in context.messages
            if 0 < message.last_seq <= step.to_seq
            and not kept.intersection(message.event_ids)
        ]
        return self._tokens(gone, counter)

    def _tokens(self, messages: Iterable[Message], counter: TokenCounter) -> int:
        return sum(message_tokens(m, counter, reader=self._reader) for m in messages)
