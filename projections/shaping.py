"""How a context is made smaller: what to prune or compact next, by a policy. Pure.

`plan` looks at a built context and says the next step, if there is one. An owner records
it (`ContextPruned`, `CompactionCompleted`), and builds again: from then on it is a fact of
the log. `foldline.projections.shaper` does so for a history that nobody shaped.

1. Outputs and long arguments before the window become references, many at once; where a
   section is above its budget (`foldline.projections.sections`), as many as that needs.
2. Above the budget, what lies before the window is compacted into a summary. The cut
   goes between messages, and before what still waits: a call whose result may come, and
   steering that was not applied.
3. Each changes the prefix that a provider has cached. So both are done together, and
   then not again before the model has answered a few times (`apart_calls`). Above the
   budget there is no waiting, if a compaction can bring the context within it.
4. Where words were taken back that a summary may tell, it is made anew at once, from what
   is left: also by a policy that makes nothing smaller.
5. A summary takes a part of the room that is left of the budget, never all of it: the
   steps after it need some.

All are decided by the tokens of the context as it is, so that what was just done cannot
cause itself again. What failed is tried again on a context that has grown.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from foldline.projections.context import Context
from foldline.projections.grouping import (
    Group,
    calls_behind,
    cut_of,
    groups_of,
    is_fresh,
    is_summary,
    kept_of,
    tokens_of,
    unseen_of,
    window_of,
)
from foldline.projections.policy import NO_LIMIT, ContextPolicy
from foldline.projections.prune_step import Prune, prune
from foldline.projections.sections import prune_sections
from foldline.projections.token_count import ANYBODY, Reader, TokenCounter

EXTRACTIVE = "extractive/2"
"""The strategy of a summary that no model made."""

REASON = "budget"
RENEWAL = "retraction"
"""Why there is a compaction: for the policy, or for words that were taken back."""

STEPS_MAX = 8
"""How many steps in a row one context takes; more would be a loop."""

FAILED_GROWTH = 0.25
"""The share by which a context grows before a failed compaction is tried again."""

SUMMARY_OF_ROOM = 0.5
"""The share of a summary in what the budget leaves beside all that stays."""

SUMMARY_GAIN = 0.2
"""The least share of the newly compacted tokens that a compaction must save."""


@dataclass(frozen=True, slots=True)
class Compact:
    """Put a summary in the place of all events up to `to_seq`, but for those kept.

    `summary_tokens` is what the summary may have. `renews`: a summary stands there already,
    and tells of what was taken back since.
    """

    to_seq: int
    tokens_before: int
    kept: tuple[str, ...] = ()
    summary_tokens: int = 0
    renews: bool = False


Step = Prune | Compact


def plan(
    context: Context,
    *,
    policy: ContextPolicy,
    counter: TokenCounter,
    reader: Reader = ANYBODY,
    seen_seq: int | None = None,
) -> Step | None:
    """What makes the context smaller next; None where it may stay as it is.

    What the model has not seen yet stays in full, however large.

    Args:
        context: as it was built.
        policy: how small it is to be.
        counter: counts its tokens.
        reader: whom it is for; reasoning that is dropped for it does not count.
        seen_seq: up to where the last context went that a model was shown; where nobody
            knows, all from the last thing it said counts as new.
    """
    if not policy.makes_smaller and not context.shaped.stale_seq:
        return None
    groups = groups_of(context.messages, counter, reader)
    if context.shaped.stale_seq and (step := _renewed(groups, context, policy)):
        return step
    if not policy.makes_smaller:
        return None
    window = min(window_of(groups, policy.window_tokens), unseen_of(groups, seen_seq))
    planning = _Planning(context, groups, window, policy)
    may = planning.may_change()
    step = prune_sections(groups, window, policy, counter, reader, may_change=may)
    if step is not None:
        return step
    if not may:
        return planning.forced()
    if policy.prune_step_tokens != NO_LIMIT:
        step = prune(groups[:window], policy, counter, reader)
        if step is not None:
            return step
    return planning.compaction()


def _renewed(
    groups: Sequence[Group], context: Context, policy: ContextPolicy
) -> Compact | None:
    """The compaction that makes the newest summary anew; None where none is shown."""
    to_seq = max((group.seq for group in groups if is_summary(group)), default=0)
    cut = cut_of(groups, _place_behind(groups, to_seq), context.held_seq)
    if not any(is_summary(group) for group in groups[:cut]):
        return None
    return replace(compact(groups, cut, policy), to_seq=to_seq, renews=True)


class _Planning:
    """What one context allows."""

    def __init__(
        self,
        context: Context,
        groups: Sequence[Group],
        window: int,
        policy: ContextPolicy,
    ) -> None:
        self._groups = groups
        self._policy = policy
        self._past = context.shaped
        self._total = tokens_of(groups)
        self._cut = cut_of(groups, window, context.held_seq)
        before = groups[: self._cut]
        self._fresh = tokens_of(g for g in before if is_fresh(g, policy))

    def may_change(self) -> bool:
        """Whether the prefix may change: it just has, or was the same for long enough."""
        last_seq = self._past.last_seq
        calls = calls_behind(self._groups, last_seq)
        return not last_seq or not calls or calls >= self._policy.apart_calls

    def forced(self) -> Compact | None:
        """The compaction that cannot wait: it brings the context within its budget."""
        within = self._total - self._fresh < self._policy.budget_tokens
        return self._compact() if within and self._is_above() else None

    def compaction(self) -> Compact | None:
        """The compaction that is due."""
        step = self._policy.compact_step_tokens
        wanted = step != NO_LIMIT and self._fresh >= step
        return self._compact() if wanted or self._is_above() else None

    def _is_above(self) -> bool:
        """Whether it is above its budget, and something can be done about it."""
        budget = self._policy.budget_tokens
        above = budget != NO_LIMIT and self._total > budget
        return above and self._fresh > self._policy.window_tokens

    def _compact(self) -> Compact | None:
        failed = self._past.failed_tokens
        if failed and self._total < failed * (1 + FAILED_GROWTH):
            return None
        return compact(self._groups, self._cut, self._policy)


def compact(groups: Sequence[Group], cut: int, policy: ContextPolicy) -> Compact:
    """The compaction of so many groups."""
    before = groups[:cut]
    return Compact(
        to_seq=max(group.last_seq for group in before),
        tokens_before=tokens_of(groups),
        kept=kept_of(before, policy),
        summary_tokens=_summary_tokens(groups, cut, policy),
    )


def _summary_tokens(groups: Sequence[Group], cut: int, policy: ContextPolicy) -> int:
    """How much the summary may have, so that there is less than before, and room."""
    fresh = tokens_of(g for g in groups[:cut] if is_fresh(g, policy))
    replaced = fresh + tokens_of(g for g in groups[:cut] if is_summary(g))
    most = min(
        policy.summary_tokens,
        policy.sections.summary or policy.summary_tokens,
        replaced - int(fresh * SUMMARY_GAIN),
    )
    if policy.budget_tokens == NO_LIMIT:
        return most
    room = policy.budget_tokens - (tokens_of(groups) - replaced)
    return min(most, max(int(room * SUMMARY_OF_ROOM), int(fresh * SUMMARY_GAIN)))


def compaction(
    context: Context,
    *,
    policy: ContextPolicy,
    counter: TokenCounter,
    reader: Reader = ANYBODY,
    to_seq: int | None = None,
) -> Compact | None:
    """The compaction that somebody asks for, whatever the budget; None: nothing to do.

    Args:
        context: as it was built.
        policy: what its window is, and what is pinned.
        counter: counts its tokens.
        reader: as in `plan`.
        to_seq: compact up to there, or as far before it as a cut can go; otherwise up to
            the window.
    """
    groups = groups_of(context.messages, counter, reader)
    if to_seq is None:
        wanted = min(window_of(groups, policy.window_tokens), unseen_of(groups, None))
    else:
        wanted = _place_behind(groups, to_seq)
    cut = cut_of(groups, wanted, context.held_seq)
    if not any(is_fresh(group, policy) for group in groups[:cut]):
        return None
    step = compact(groups, cut, policy)
    if to_seq is not None and cut == wanted and _lies_between(groups, cut, context, to_seq):
        step = replace(step, to_seq=to_seq)
    return step


def _place_behind(groups: Sequence[Group], seq: int) -> int:
    """How many groups rest on events up to a seq; what leads the context, on any."""

    def is_before(group: Group) -> bool:
        return group.role == "system" or is_summary(group) or group.last_seq <= seq

    return sum(1 for _ in takewhile(is_before, groups))


def _lies_between(groups: Sequence[Group], cut: int, context: Context, to_seq: int) -> bool:
    """Whether nothing that stays in the context lies at a seq or before it."""
    held = context.held_seq is not None and context.held_seq <= to_seq
    later = all(group.seq > to_seq for group in groups[cut:] if group.seq)
    return later and not held and to_seq <= context.upto_seq
