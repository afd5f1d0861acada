"""Which old outputs and long arguments become references next. Pure.

1. Found are the results and arguments before the window that are large enough, and that
   no reference stands for yet.
2. What it would save is guessed first: finding what a text mentions takes longer. Of
   arguments only the long strings can become shorter.
3. The references are made, and what they really save is counted. What saves nothing
   stays; where all together save less than a step, nothing is done.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from foldline.projections.context import Part
from foldline.projections.grouping import Group
from foldline.projections.policy import ContextPolicy
from foldline.projections.pruning import (
    PRUNED_MARK,
    Names,
    reference_to,
    shortened,
    strings_in,
)
from foldline.projections.token_count import TokenCounter
from foldline.schemas.blocks import Block, Blocks, json_block, text_block

RULE = "reference/1"
"""The rule of a pruning; a reference made otherwise has another."""

ERROR_FACTOR = 4
"""A failure stays longer: it is pruned only where it is so many times larger."""

LONG_STRING_TOKENS = 60
"""Strings in pruned arguments that become references."""

_SHOWN = frozenset({"OUTCOME", "PROJECTED"})


@dataclass(frozen=True, slots=True)
class Prune:
    """Show `blocks` for `targets` (ids of calls, and of requests for their arguments)."""

    targets: tuple[str, ...]
    blocks: Blocks
    tokens_saved: int


def prune(
    groups: Sequence[Group], policy: ContextPolicy, counter: TokenCounter
) -> Prune | None:
    """What in these groups is to be pruned; None where it saves too little."""
    found = [
        part
        for group in groups
        for message in group.messages
        for part in message.parts
        if _prunable(part, policy, counter)
    ]
    if _guessed(found, policy, counter) < policy.prune_step_tokens:
        return None
    step = _pruning(found, policy, counter)
    return step if step.tokens_saved >= policy.prune_step_tokens else None


def _pruning(found: Iterable[Part], policy: ContextPolicy, counter: TokenCounter) -> Prune:
    seen: set[str] = set()
    targets: list[str] = []
    blocks: list[Block] = []
    saved = 0
    for part in found:
        names = Names(seen, policy.mention_tokens)
        block = _reference(part, names, policy, counter)
        gain = _size(part, counter) - counter.count(str(block.body))
        if gain > 0:
            targets.append(_target(part))
            blocks.append(block)
            saved += gain
            seen = names.seen
    return Prune(tuple(targets), tuple(blocks), saved)


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


def _guessed(found: Iterable[Part], policy: ContextPolicy, counter: TokenCounter) -> int:
    """About how many tokens pruning these saves."""
    sizes = (size for part in found for size in _long_sizes(part, counter))
    return int(
        sum(
            size
            - min(size * policy.mention_share, policy.mention_tokens)
            - policy.reference_tokens
            for size in sizes
        )
    )


def _long_sizes(part: Part, counter: TokenCounter) -> list[int]:
    """The tokens of each text that a reference would stand for."""
    if part.kind == "result":
        return [_size(part, counter)]
    sizes = [counter.count(text) for text in strings_in(part.text)]
    return [size for size in sizes if size > LONG_STRING_TOKENS]


def _size(part: Part, counter: TokenCounter) -> int:
    """The tokens of what a call or a result says."""
    return counter.count(part.text) + sum(_size(piece, counter) for piece in part.parts)


def _target(part: Part) -> str:
    """A call's id means its result, the id of its request its arguments."""
    return part.call_id if part.kind == "result" else part.event_id


def _reference(
    part: Part, names: Names, policy: ContextPolicy, counter: TokenCounter
) -> Block:
    where = f"event {part.seq}"

    def stand_in(text: str, what: str) -> str:
        return reference_to(text, what=what, names=names, policy=policy, counter=counter)

    if part.kind == "result":
        text = "\n".join(piece.text for piece in part.parts)
        return text_block(stand_in(text, f"{part.tool}, {where}"))

    def shorten(text: str) -> str:
        short = counter.count(text) <= LONG_STRING_TOKENS
        return text if short else stand_in(text, where)

    return json_block(shortened(part.text, shorten))
