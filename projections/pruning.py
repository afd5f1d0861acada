"""What stands for an output that was pruned: an excerpt, and what it mentions. Pure."""

import json
from collections.abc import Callable, Iterable
from typing import Any, cast

from foldline.projections.evidence import evidence_in, quoted_in
from foldline.projections.policy import ContextPolicy
from foldline.projections.token_count import TokenCounter

CHARACTERS_PER_TOKEN = 3
"""An excerpt is cut by characters: text of few tokens has at least so many of each."""

SEPARATOR = " "

COUNTED_CHARACTERS = 32_768
"""Where it is counted how often a name stands in a text: every name is looked for."""


def reference_to(
    text: str,
    *,
    what: str,
    seen: set[str],
    policy: ContextPolicy,
    counter: TokenCounter,
) -> str:
    """What is shown instead of an output.

    Args:
        text: the output.
        what: names it: the tool, and the event that has it.
        seen: what the references before it mention; what this one does is added.
        policy: how much may be shown.
        counter: counts tokens.
    """
    size = counter.count(text)
    excerpt = excerpt_of(text, tokens=policy.reference_tokens)
    limit = int(size * policy.mention_share)
    names = mentions(text, shown=excerpt, seen=seen, tokens=limit, counter=counter)
    seen.update(names)
    told = f"[{what}: {size} tokens, not shown any more] {excerpt}"
    return f"{told}\nIt mentions: {SEPARATOR.join(names)}" if names else told


def mentions(
    text: str, *, shown: str, seen: set[str], tokens: int, counter: TokenCounter
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
    # What first stands behind it comes last: -1 becomes the end.
    places = {one: counted.find(one) % len(text) for one in named}
    named.sort(key=lambda one: (-counted.count(one), places[one], one))
    quoted = [one for one in quoted_in(text) if one not in seen]
    quoted.sort(key=lambda one: (-counted.count(one), len(one), one))
    return within([*named, *quoted], shown=shown, tokens=tokens, counter=counter)


def within(
    names: Iterable[str], *, shown: str, tokens: int, counter: TokenCounter
) -> list[str]:
    """Of names in their order those that have room, each that is not shown already."""
    taken: list[str] = []
    left = tokens
    for name in names:
        if left <= 0:
            break
        if name in shown:
            continue
        cost = counter.count(SEPARATOR + name)
        if cost <= left:
            taken.append(name)
            shown += SEPARATOR + name
            left -= cost
    return taken


def excerpt_of(text: str, *, tokens: int) -> str:
    """The beginning and the end of a text, on one line."""
    room = tokens * CHARACTERS_PER_TOKEN
    flat = " ".join(text[: room * 8].split()) if len(text) > room * 8 else _flat(text)
    if len(flat) <= room:
        return flat
    end = _flat(text[-room:])[-room // 4 :]
    return f"{flat[: room - room // 4]} … {end}"


def ending_of(text: str, *, tokens: int) -> str:
    """The end of a text, on one line: what a command says last is how it went."""
    room = tokens * CHARACTERS_PER_TOKEN
    flat = _flat(text[-room * 8 :])
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
