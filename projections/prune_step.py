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
from foldline.projections.grouping import Group, is_pinned
from foldline.projections.policy import ContextPolicy
from foldline.projections.pruning import (
    PRUNED_MARK,
    Names,
    reference_to,
    shortened,
    strings_in,
)
from foldline.projections.token_count import (
    ANYBODY,
    Reader,
    TokenCounter,
    part_tokens,
)
from foldline.schemas.blocks import Block, Blocks, json_block, text_block

RULE = "reference/2"
"""The rule of a pruning; a reference made otherwise has another. The first one did not
see images."""

OWN_RULES = frozenset({"reference/1", RULE})
"""The rules of the prunings that foldline made by itself, in whatever version."""

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
    groups: Sequence[Group],
    policy: ContextPolicy,
    counter: TokenCounter,
    reader: Reader = ANYBODY,
) -> Prune | None:
    """What in these groups is to be pruned; None where it saves too little."""
    sized = _Sized(counter, reader)
    found = _found(groups, policy, sized)
    if _guessed(found, sized) < policy.prune_step_tokens:
        return None
    step = _pruning(found, sized)
    return step if step.tokens_saved >= policy.prune_step_tokens else None


def prune_oldest(
    groups: Sequence[Group],
    kind: str,
    tokens: int,
    policy: ContextPolicy,
    counter: TokenCounter,
    reader: Reader = ANYBODY,
) -> Prune | None:
    """The oldest results (or calls) in these groups, as many as save so many tokens.

    Fewer where no more can be saved; None where nothing can.
    """
    sized = _Sized(counter, reader)
    found = [(p, own) for p, own in _found(groups, policy, sized) if p.kind == kind]
    step = _pruning(found, sized, enough=tokens)
    return step if step.targets else None


def _found(
    groups: Iterable[Group], policy: ContextPolicy, sized: "_Sized"
) -> list[tuple[Part, ContextPolicy]]:
    """What can be pruned, in its order, with the policy for its tool."""
    return [
        (part, own)
        for group in groups
        if not is_pinned(group, policy)
        for message in group.messages
        for part in message.parts
        for own in (policy.of(part.tool),)
        if _prunable(part, own, sized)
    ]


@dataclass(frozen=True, slots=True)
class _Sized:
    """How many tokens something has, for whom a context is."""

    counter: TokenCounter
    reader: Reader

    def of(self, part: Part) -> int:
        """Tokens of a call's or result's text; an image counts by its provider's rule."""
        return part_tokens(part, self.counter, reader=self.reader)


def _pruning(
    found: Iterable[tuple[Part, ContextPolicy]],
    sized: _Sized,
    *,
    enough: int | None = None,
) -> Prune:
    seen: set[str] = set()
    targets: list[str] = []
    blocks: list[Block] = []
    saved = 0
    for part, own in found:
        if enough is not None and saved >= enough:
            break
        names = Names(seen, own.mention_tokens)
        block = _reference(part, names, own, sized)
        gain = sized.of(part) - sized.counter.count(str(block.body))
        if gain > 0:
            targets.append(_target(part))
            blocks.append(block)
            saved += gain
            seen = names.seen
    return Prune(tuple(targets), tuple(blocks), saved)


def _prunable(part: Part, policy: ContextPolicy, sized: _Sized) -> bool:
    if part.kind == "call":
        long = sized.of(part) > policy.prune_argument_tokens
        return long and PRUNED_MARK not in part.text
    if part.kind != "result" or part.form not in _SHOWN or policy.keeps(part.tool):
        return False
    factor = ERROR_FACTOR if part.error else 1
    return sized.of(part) > policy.prune_result_tokens * factor


def _guessed(found: Iterable[tuple[Part, ContextPolicy]], sized: _Sized) -> int:
    """About how many tokens pruning these saves."""
    sizes = ((size, own) for part, own in found for size in _long_sizes(part, sized))
    return int(
        sum(
            size - min(size * own.mention_share, own.mention_tokens) - own.reference_tokens
            for size, own in sizes
        )
    )


def _long_sizes(part: Part, sized: _Sized) -> list[int]:
    """The tokens of each text, or result, that a reference would stand for."""
    if part.kind == "result":
        return [sized.of(part)]
    sizes = [sized.counter.count(text) for text in strings_in(part.text)]
    return [size for size in sizes if size > LONG_STRING_TOKENS]


def _target(part: Part) -> str:
    """A call's id means its result, the id of its request its arguments."""
    return part.call_id if part.kind == "result" else part.event_id


def _reference(part: Part, names: Names, policy: ContextPolicy, sized: _Sized) -> Block:
    where, counter = f"event {part.seq}", sized.counter

    def stand_in(text: str, what: str, size: int | None = None) -> str:
        size = counter.count(text) if size is None else size
        what = f"{what}: {size} tokens"
        return reference_to(text, what=what, names=names, policy=policy, counter=counter)

    if part.kind == "result":
        text = "\n".join(piece.text for piece in part.parts if piece.text)
        what = f"{part.tool}, {where}{_images(part)}"
        return text_block(stand_in(text, what, sized.of(part)))

    def shorten(text: str) -> str:
        short = counter.count(text) <= LONG_STRING_TOKENS
        return text if short else stand_in(text, where)

    return json_block(shortened(part.text, shorten))


def _images(part: Part) -> str:
    """What a reference says of the images that go with a result; nothing of none."""
    count = sum(piece.kind == "image" for piece in part.parts)
    return f", {count} image{'s' * (count > 1)}" if count else ""
