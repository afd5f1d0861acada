"""How a context is made smaller: what to prune or compact next, by a policy. Pure.

`plan` looks at a built context and says the next step, if there is one. An owner records
it (`ContextPruned`, `CompactionCompleted`), and builds again: from then on it is a fact of
the log. `foldline.projections.shaper` does so for a history that nobody shaped.

1. Outputs and long arguments before the window become references, many at once.
2. Above the budget, what lies before the window is compacted into a summary. The cut
   goes between messages, and before what still waits: a call whose result may come, and
   steering that was not applied.

Both are decided by the tokens of the context as it is, so that what was just done cannot
cause itself again.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, takewhile

from foldline.projections.context import (
    SUMMARY,
    Context,
    Message,
    Part,
)
from foldline.projections.policy import NO_LIMIT, ContextPolicy
from foldline.projections.pruning import reference_to, shortened
from foldline.projections.token_count import ANYBODY, Reader, TokenCounter, message_tokens
from foldline.schemas.blocks import Block, Blocks, json_block, text_block

RULE = "reference/1"
"""The rule of a pruning; a reference made otherwise has another."""

EXTRACTIVE = "extractive/1"
"""The strategy of a summary that no model made."""

REASON = "budget"

ERROR_FACTOR = 4
"""A failure stays longer: it is pruned only where it is so many times larger."""

LONG_STRING_TOKENS = 60
"""Strings in pruned arguments that become references."""

STEPS_MAX = 8
"""How many steps in a row one context takes; more would be a loop."""

_SHOWN = frozenset({"OUTCOME", "PROJECTED"})


@dataclass(frozen=True, slots=True)
class Prune:
    """Show `blocks` for `targets` (ids of calls, and of requests for their arguments)."""

    targets: tuple[str, ...]
    blocks: Blocks
    tokens_saved: int


@dataclass(frozen=True, slots=True)
class Compact:
    """Put a summary in the place of all events up to `to_seq`, but for those kept."""

    to_seq: int
    tokens_before: int
    kept: tuple[str, ...] = ()


Step = Prune | Compact


@dataclass(frozen=True, slots=True)
class _Group:
    """A message with the results of its calls: what no cut divides."""

    messages: tuple[Message, ...]
    tokens: int

    @property
    def seq(self) -> int:
        return self.messages[0].seq

    @property
    def last_seq(self) -> int:
        return self.messages[0].last_seq


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
    groups = _groups(context.messages, counter, reader)
    window = min(_window(groups, policy.window_tokens), _unseen(groups, seen_seq))
    if policy.prune_step_tokens != NO_LIMIT:
        step = _prune(groups[:window], policy, counter)
        if step is not None:
            return step
    return _compact(groups, window, context.held_seq, policy)


def _compact(
    groups: Sequence[_Group], window: int, held_seq: int | None, policy: ContextPolicy
) -> Compact | None:
    total = sum(group.tokens for group in groups)
    cut = _cut(groups, window, held_seq)
    fresh = sum(group.tokens for group in groups[:cut] if _is_fresh(group, policy))
    above = policy.budget_tokens != NO_LIMIT and total > policy.budget_tokens
    step = policy.compact_step_tokens
    wanted = step != NO_LIMIT and fresh >= step
    if not wanted and not (above and fresh > policy.window_tokens):
        return None
    to_seq = max(group.last_seq for group in groups[:cut])
    return Compact(to_seq, total, _kept(groups[:cut], policy))


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
    groups = _groups(context.messages, counter, reader)
    if to_seq is None:
        wanted = min(_window(groups, policy.window_tokens), _unseen(groups, None))
    else:
        whole = takewhile(lambda group: group.last_seq <= to_seq, groups)
        wanted = sum(1 for _ in whole)
    cut = _cut(groups, wanted, context.held_seq)
    if not any(_is_fresh(group, policy) for group in groups[:cut]):
        return None
    total = sum(group.tokens for group in groups)
    last_seq = max(group.last_seq for group in groups[:cut])
    if to_seq is not None and cut == wanted and _lies_between(groups, cut, context, to_seq):
        last_seq = to_seq
    return Compact(last_seq, total, _kept(groups[:cut], policy))


def _lies_between(
    groups: Sequence[_Group], cut: int, context: Context, to_seq: int
) -> bool:
    """Whether nothing that stays in the context lies at a seq or before it."""
    held = context.held_seq is not None and context.held_seq <= to_seq
    later = all(group.seq > to_seq for group in groups[cut:] if group.seq)
    return later and not held and to_seq <= context.upto_seq


def _is_fresh(group: _Group, policy: ContextPolicy) -> bool:
    """Whether a compaction would newly take this away."""
    said = group.messages[0]
    taken = said.role != "system" and said.origin != SUMMARY
    return taken and not _is_pinned(group, policy)


def _is_pinned(group: _Group, policy: ContextPolicy) -> bool:
    pinned = set(policy.pinned)
    return any(
        pinned.intersection(message.event_ids)
        or any({part.call_id, part.event_id} & pinned for part in message.parts)
        for message in group.messages
    )


def _kept(groups: Iterable[_Group], policy: ContextPolicy) -> tuple[str, ...]:
    """The events of what is pinned, which stays through a compaction."""
    kept = [group.messages[0].event_ids for group in groups if _is_pinned(group, policy)]
    return tuple(event_id for ids in kept for event_id in ids)


def _groups(
    messages: Iterable[Message], counter: TokenCounter, reader: Reader
) -> list[_Group]:
    return [
        _Group(tuple(same), sum(message_tokens(m, counter, reader=reader) for m in same))
        for _, together in groupby(messages, lambda m: (m.seq, m.origin, m.event_ids))
        for same in [list(together)]
    ]


def _window(groups: Sequence[_Group], tokens: int) -> int:
    """Where the newest messages begin that have so many tokens at the most.

    The newest one is always among them, however large.
    """
    left = tokens
    for index in range(len(groups) - 1, -1, -1):
        left -= groups[index].tokens
        if left < 0:
            return min(index + 1, len(groups) - 1)
    return 0


def _unseen(groups: Sequence[_Group], seen_seq: int | None) -> int:
    """Where the messages begin that the model has not seen yet."""
    for index, group in enumerate(groups):
        if seen_seq is not None and group.last_seq > seen_seq:
            return index
    if seen_seq is not None:
        return len(groups)
    said = [i for i, group in enumerate(groups) if group.messages[0].role == "assistant"]
    return said[-1] if said else 0


# --- pruning --------------------------------------------------------------------------


def _prune(
    groups: Sequence[_Group], policy: ContextPolicy, counter: TokenCounter
) -> Prune | None:
    found = [
        part
        for group in groups
        for message in group.messages
        for part in message.parts
        if _prunable(part, policy, counter)
    ]
    if _saving(found, policy, counter) < policy.prune_step_tokens:
        return None
    seen: set[str] = set()
    targets: list[str] = []
    blocks: list[Block] = []
    saved = 0
    for part in found:
        block = _reference(part, seen, policy, counter)
        gain = _size(part, counter) - counter.count(str(block.body))
        if gain > 0:
            targets.append(_target(part))
            blocks.append(block)
            saved += gain
    return Prune(tuple(targets), tuple(blocks), saved) if targets else None


def _prunable(part: Part, policy: ContextPolicy, counter: TokenCounter) -> bool:
    if {part.call_id, part.event_id} & set(policy.pinned):
        return False
    if part.kind == "call":
        long = counter.count(part.text) > policy.prune_argument_tokens
        return long and PRUNED_MARK not in part.text
    if part.kind != "result" or part.form not in _SHOWN or policy.keeps(part.tool):
        return False
    factor = ERROR_FACTOR if part.error else 1
    return _size(part, counter) > policy.prune_result_tokens * factor


def _saving(found: Iterable[Part], policy: ContextPolicy, counter: TokenCounter) -> int:
    """About how many tokens pruning these saves."""
    saving = 0.0
    for part in found:
        size = _size(part, counter)
        saving += size * (1 - policy.mention_share) - policy.reference_tokens
    return int(saving)


def _size(part: Part, counter: TokenCounter) -> int:
    """The tokens of what a call or a result says."""
    return counter.count(part.text) + sum(_size(piece, counter) for piece in part.parts)


PRUNED_MARK = "not shown any more]"
"""What every reference says."""


def _target(part: Part) -> str:
    """A call's id means its result, the id of its request its arguments."""
    return part.call_id if part.kind == "result" else part.event_id


def _reference(
    part: Part,
    seen: set[str],
    policy: ContextPolicy,
    counter: TokenCounter,
) -> Block:
    where = f"event {part.seq}"

    def stand_in(text: str, what: str) -> str:
        return reference_to(text, what=what, seen=seen, policy=policy, counter=counter)

    if part.kind == "result":
        text = "\n".join(piece.text for piece in part.parts)
        return text_block(stand_in(text, f"{part.tool}, {where}"))

    def shorten(text: str) -> str:
        short = counter.count(text) <= LONG_STRING_TOKENS
        return text if short else stand_in(text, where)

    return json_block(shortened(part.text, shorten))


# --- compacting -----------------------------------------------------------------------


def _cut(groups: Sequence[_Group], window: int, held_seq: int | None) -> int:
    """How many groups may be compacted: those before the window, or fewer.

    No event of theirs may lie behind an event of those that stay, nothing may come for
    them any more, and what is held stays.
    """
    cut = window
    while cut > 0 and not _divides(groups, cut, held_seq):
        cut -= 1
    return cut


def _divides(groups: Sequence[_Group], cut: int, held_seq: int | None) -> bool:
    to_seq = max(group.last_seq for group in groups[:cut])
    if held_seq is not None and held_seq <= to_seq:
        return False
    if any(group.seq <= to_seq for group in groups[cut:] if group.seq):
        return False
    return not any(_waits(groups, index) for index in range(cut))


def _waits(groups: Sequence[_Group], index: int) -> bool:
    """Whether a call's result may still come: nobody was asked anything since."""
    if not groups[index].messages[0].pending:
        return False
    later = groups[index + 1 :]
    return not any(group.messages[0].role == "assistant" for group in later)
