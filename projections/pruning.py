"""What stands for an output that was pruned: an excerpt, and what it mentions. Pure."""

import json
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import Any, cast

from foldline.projections.evidence import evidence_in, quoted_in, stands_in
from foldline.projections.policy import ContextPolicy
from foldline.projections.token_count import TokenCounter

CHARACTERS_PER_TOKEN = 3
"""An excerpt is cut by characters: text of few tokens has at least so many of each."""

BLANKS = 8
"""So many times its characters are looked at for an excerpt: blanks are no part of it."""

END_SHARE = 4
"""One of so many characters of an excerpt is of the end of its text."""

SEPARATOR = " "

MISSES_MAX = 32
"""How many names in a row may find no room before the room is taken to be full."""

COUNTED_CHARACTERS = 32_768
"""Where it is counted how often a name stands in a text: every name is looked for."""


PRUNED_MARK = "not shown any more]"
"""What every reference says."""


class Names:
    """What references mention: once each, and of one output only so many tokens."""

    def __init__(self, seen: Iterable[str], tokens: int) -> None:
        self.seen = set(seen)
        self._left = tokens

    def of(self, text: str, *, shown: str, tokens: int, counter: TokenCounter) -> list[str]:
        """What a reference to a text mentions, within its own tokens and those left."""
        room = min(tokens, self._left)
        found = mentions(text, shown=shown, seen=self.seen, tokens=room, counter=counter)
        self._left -= sum(counter.count(SEPARATOR + name) for name in found)
        self.seen.update(found)
        return found


def reference_to(
    text: str, *, what: str, names: Names, policy: ContextPolicy, counter: TokenCounter
) -> str:
    """What is shown instead of an output, or of a long string in arguments.

    Args:
        text: the output.
        what: names it: the tool, the event that has it, how many tokens it is.
        names: what may be mentioned yet; what this one does is taken from it.
        policy: how much may be shown.
        counter: counts tokens.
    """
    size = counter.count(text)
    excerpt = excerpt_of(text, tokens=policy.reference_tokens)
    room = int(size * policy.mention_share)
    named = names.of(text, shown=excerpt, tokens=room, counter=counter)
    told = f"[{what}, {PRUNED_MARK} {excerpt}"
    return f"{told}\nIt mentions: {SEPARATOR.join(named)}" if named else told


def mentions(
    text: str, *, shown: str, seen: AbstractSet[str], tokens: int, counter: TokenCounter
) -> list[str]:
    """What a text refers to and nothing else shows, what is named most first.

    Args:
        text: the whole text.
        shown: what is shown of it anyway.
        seen: what is mentioned elsewhere.
        tokens: how much room there is.
        counter: counts tokens.
    """
    named = [one for one in evidence_in(text) if one not in seen]
    counted = text[:COUNTED_CHARACTERS]
    often = {one: counted.count(one) for one in evidence_in(counted) | quoted_in(counted)}
    # What first stands behind it comes last.
    places = {one: counted.find(one) for one in named if often.get(one)}
    named.sort(key=lambda one: (-often.get(one, 0), places.get(one, len(text)), one))
    quoted = [one for one in quoted_in(text) if one not in seen]
    quoted.sort(key=lambda one: (-often.get(one, 0), len(one), one))
    return within([*named, *quoted], shown=shown, tokens=tokens, counter=counter)


def within(
    names: Iterable[str], *, shown: str, tokens: int, counter: TokenCounter
) -> list[str]:
    """The names, in their order, that have room and are not shown already."""
    taken: list[str] = []
    left, misses = tokens, 0
    for name in names:
        if left <= 0 or misses >= MISSES_MAX:
            break
        if stands_in(name, shown):
            continue
        cost = counter.count(SEPARATOR + name)
        misses = misses + 1 if cost > left else 0
        if cost <= left:
            taken.append(name)
            shown += SEPARATOR + name
            left -= cost
    return taken


def excerpt_of(text: str, *, tokens: int) -> str:
    """The beginning and the end of a text, on one line."""
    room = tokens * CHARACTERS_PER_TOKEN
    flat = _flat(text[: room * BLANKS])
    if len(flat) <= room:
        return flat
    end = _flat(text[-room:])[-room // END_SHARE :]
    return f"{flat[: room - room // END_SHARE]} … {end}"


def fitted(text: str, *, tokens: int, counter: TokenCounter) -> str:
    """A text of so many tokens at the most: whole, its beginning and end, or nothing."""
    size = counter.count(text)
    short, room = text, tokens
    while size > tokens and room > 0:
        short = excerpt_of(text, tokens=room)
        size = counter.count(short)
        room = room * tokens // max(size, 1)
    return short if size <= tokens else ""


def ending_of(text: str, *, tokens: int) -> str:
    """The end of a text, on one line: what a command says last is how it went."""
    room = tokens * CHARACTERS_PER_TOKEN
    flat = _flat(text[-room * BLANKS :])
    return flat if len(flat) <= room else f"… {flat[-room:]}"


def _flat(text: str) -> str:
    return " ".join(text.split())


def shortened(arguments: str, shorten: Callable[[str], str]) -> str:
    """Arguments with their long strings shortened; still JSON of the same form."""
    try:
        value: object = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return json.dumps(_mapped(value, shorten), ensure_ascii=False)


def strings_in(arguments: str) -> Iterator[str]:
    """The strings that `shortened` would shorten."""
    try:
        value: object = json.loads(arguments)
    except (ValueError, RecursionError):
        return iter(())
    return _leaves(value)


def _leaves(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case list():
            for item in cast("list[Any]", value):
                yield from _leaves(item)
        case dict():
            yield from _leaves(list(cast("dict[str, Any]", value).values()))
        case _:
            pass


def _mapped(value: object, shorten: Callable[[str], str]) -> object:
    match value:
        case str():
            return shorten(value)
        case list():
            return [_mapped(item, shorten) for item in cast("list[Any]", value)]
        case dict():
            items = cast("dict[str, Any]", value).items()
            return {key: _mapped(item, shorten) for key, item in items}
        case _:
            return value
