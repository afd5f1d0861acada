"""Redaction of JSON text: values by the names of their fields, every string as text.

What comes out is JSON again; what holds no secret comes out as it was, to the byte.
Numbers keep their digits, objects their order and their repeated keys.
"""

import json
from collections import Counter
from collections.abc import Callable
from typing import cast

from foldline.producers.redaction_values import name_says_secret

JSON_MAX_CHARS = 16 * 1024 * 1024
"""Longer texts are gone over as plain text."""

DEPTH_MAX = 100
"""What is nested deeper is gone over as plain text."""

Said = Callable[[str, Counter[str]], str]
"""Redacts one string, as text."""

Named = Callable[[str, str, Counter[str]], str | None]
"""Replaces a value because of its name; None where the name says nothing."""


class _Members(list[tuple[str, object]]):
    """An object's members, repeated keys included."""


class _Literal(str):
    """A number as it was written."""

    __slots__ = ()


class _TooDeepError(Exception):
    """Nested deeper than DEPTH_MAX."""


def redacted_json(text: str, said: Said, named: Named, counts: Counter[str]) -> str | None:
    """The JSON text without secrets; None if it is no JSON, or beyond the limits."""
    if len(text) > JSON_MAX_CHARS:
        return None
    try:
        tree = _DECODER.decode(text.strip())
        found: Counter[str] = Counter()
        redacted = _walked(tree, said, named, found, 0)
    except (ValueError, RecursionError, _TooDeepError):
        return None
    if not found:
        return text
    counts.update(found)
    spaced = '": ' in text
    return "".join(_written(redacted, ", " if spaced else ",", ": " if spaced else ":"))


_DECODER = json.JSONDecoder(
    object_pairs_hook=_Members,
    parse_int=_Literal,
    parse_float=_Literal,
    parse_constant=_Literal,
)


def _walked(
    node: object, said: Said, named: Named, counts: Counter[str], depth: int
) -> object:
    if depth > DEPTH_MAX:
        raise _TooDeepError
    if isinstance(node, _Members):
        return _members(node, said, named, counts, depth)
    if isinstance(node, list):
        return _items(cast("list[object]", node), said, named, counts, depth)
    if isinstance(node, str) and not isinstance(node, _Literal):
        return said(node, counts)
    return node


def _members(
    members: _Members, said: Said, named: Named, counts: Counter[str], depth: int
) -> _Members:
    title = _title(members)
    done = _Members()
    for key, value in members:
        name = title if key.lower() == "value" and title else key
        done.append((said(key, counts), _under(name, value, said, named, counts, depth)))
    return done


def _title(members: _Members) -> str:
    """The name in `{"name": "Authorization", "value": ...}` and its like."""
    for key, value in members:
        if key.lower() in ("name", "key", "header") and isinstance(value, str):
            return value
    return ""


def _under(
    name: str,
    value: object,
    said: Said,
    named: Named,
    counts: Counter[str],
    depth: int,
) -> object:
    """A value under a name; in a list under a telling name every string is a secret."""
    if isinstance(value, str) and not isinstance(value, _Literal):
        replaced = named(name, value, counts)
        return said(value, counts) if replaced is None else replaced
    if isinstance(value, list) and not isinstance(value, _Members):
        items = cast("list[object]", value)
        if name_says_secret(name):
            return [_under(name, item, said, named, counts, depth + 1) for item in items]
    return _walked(cast("object", value), said, named, counts, depth + 1)


def _items(
    items: list[object], said: Said, named: Named, counts: Counter[str], depth: int
) -> list[object]:
    """A list; in a command line the word after `--password` is one."""
    done: list[object] = []
    before = ""
    for item in items:
        option = before if before.startswith("--") else ""
        done.append(_under(option, item, said, named, counts, depth))
        before = item if isinstance(item, str) else ""
    return done


def _written(node: object, comma: str, colon: str) -> list[str]:
    out: list[str] = []
    _write(node, comma, colon, out)
    return out


def _write(node: object, comma: str, colon: str, out: list[str]) -> None:
    if isinstance(node, _Literal):
        out.append(str(node))
    elif isinstance(node, _Members):
        out.append("{")
        for index, (key, value) in enumerate(node):
            out.append(f"{comma if index else ''}{_string(key)}{colon}")
            _write(value, comma, colon, out)
        out.append("}")
    elif isinstance(node, list):
        out.append("[")
        for index, item in enumerate(cast("list[object]", node)):
            out.append(comma if index else "")
            _write(item, comma, colon, out)
        out.append("]")
    else:
        out.append(_string(node))


def _string(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
