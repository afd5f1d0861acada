"""What two contexts share from their beginning, and where they part. Pure.

A provider caches the beginning of a request. So the later of two contexts should begin
with the whole earlier one, but for a compaction or pruning in between.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import takewhile

from foldline.projections.context import Context
from foldline.projections.explain import ShownMessage, shown_messages
from foldline.projections.token_count import (
    ANYBODY,
    Reader,
    TokenCounter,
    message_tokens,
    sizes_of,
    tools_tokens,
)
from foldline.schemas.recorded import Recorded


@dataclass(frozen=True, slots=True)
class Difference:
    """How the later of two contexts goes on from the earlier one.

    `same_*` is the common prefix, which a provider has cached; `dropped` are messages of
    the earlier that the later one does not have, `new` those of the later alone.
    """

    before_seq: int
    after_seq: int
    same_messages: int
    same_tokens: int
    same_bytes: int
    before_bytes: int
    before_tokens: int
    after_tokens: int
    tools_changed: bool
    dropped: tuple[ShownMessage, ...]
    new: tuple[ShownMessage, ...]

    @property
    def only_grew(self) -> bool:
        """Whether all of the earlier context leads the later one."""
        return not self.tools_changed and not self.dropped


def difference(
    before: Context,
    after: Context,
    counter: TokenCounter,
    *,
    events: Iterable[Recorded] = (),
    reader: Reader = ANYBODY,
    as_bytes: Callable[[Context], bytes] = Context.as_bytes,
) -> Difference:
    """What the later of two contexts shares with the earlier one.

    Args:
        before: the earlier.
        after: the later.
        counter: counts the tokens.
        events: those that messages came from, to say their types.
        reader: whom they are for.
        as_bytes: what bytes are compared: of the context, or of a rendered request.
    """
    by_id = {recorded.envelope.event_id: recorded for recorded in events}
    pairs = zip(before.messages, after.messages, strict=False)
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    tools_changed = before.tools != after.tools
    tools = 0 if tools_changed else tools_tokens(after.tools, counter)

    def alone(context: Context, other: Context) -> tuple[ShownMessage, ...]:
        there = set(other.messages[same:])
        messages = shown_messages(context, by_id, counter, reader=reader)
        return tuple(m for m in messages[same:] if context.messages[m.place] not in there)

    shared = after.messages[:same]
    earlier, later = as_bytes(before), as_bytes(after)
    return Difference(
        before_seq=before.upto_seq,
        after_seq=after.upto_seq,
        same_messages=same,
        same_tokens=tools + sum(message_tokens(m, counter, reader=reader) for m in shared),
        same_bytes=common_bytes(earlier, later),
        before_bytes=len(earlier),
        before_tokens=sizes_of(before, counter, reader=reader).total,
        after_tokens=sizes_of(after, counter, reader=reader).total,
        tools_changed=tools_changed,
        dropped=alone(before, after),
        new=alone(after, before),
    )


def common_bytes(one: bytes, other: bytes) -> int:
    """How many bytes two texts begin with that are the same."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low
