"""What a text refers to: paths, identifiers, numbers, quoted strings. Pure.

A model's next action names what it has seen: a file, a function, a line number, an id, a
string to be replaced. So this is what must not leave the context unseen, and what is
measured when it is made smaller.
"""

import re
from collections.abc import Callable
from hashlib import blake2b

IDENTIFIER_MIN = 3
"""Characters; shorter names say nothing."""

EVIDENCE_MAX = 200
"""Characters of one piece of evidence; what is longer is content, no reference."""

QUOTED_MIN = 3
QUOTED_MAX = 120
"""Characters between quotes."""

KEPT_BYTES = 8 * 1024 * 1024
"""How much evidence is kept, about: the same outputs are looked at again and again. The
texts are not, and of evidence that was not asked for in so long at most as much again."""

ENTRY_BYTES = 300
NAME_BYTES = 64
"""What one text's evidence takes at least, and each piece besides its characters."""

# None begins within a word, and words are never given back letter by letter: a long
# text without a blank takes no longer than any other.
_PATH = re.compile(
    r"https?://[^\s\"'`<>()\\]+"
    r"|(?:(?<![\w@.+~-])(?:[~.]{0,2}/|[A-Za-z]:[\\/])|(?<![\w@.+~-]))"
    r"[\w@.+~-]++(?:[\\/][\w@.+~\[\]-]++)+/?"
    r"|(?<![\w@-])[\w@-]++(?:\.[\w-]+)*\.[A-Za-z][A-Za-z0-9]{0,4}\b"
)
_NAME = re.compile(r"[A-Za-z_$][\w$]*")
_NUMBER = re.compile(r"(?<![\w.])\d[\d.,:_-]*\d")
_HASH = re.compile(
    r"\b(?=[0-9a-f-]{0,64}\d)(?=[0-9-]{0,64}[a-f])[0-9a-f]{6,}(?:-[0-9a-f]{2,})*\b"
)
_USED = re.compile(r"(?<!\w)([A-Za-z_]\w{2,}+)\(|(?<=\.)([A-Za-z_]\w{2,})")
_QUOTED = re.compile(rf"([\"'`])((?:(?!\1)[^\n\\]){{{QUOTED_MIN},{QUOTED_MAX}}})\1")


class _Kept:
    """What was found in texts, by their hash, in two generations. For any thread.

    The older one goes as soon as the newer one is full; what is asked for again is new.
    """

    def __init__(self, find: Callable[[str], frozenset[str]]) -> None:
        self._find = find
        self._new: dict[bytes, frozenset[str]] = {}
        self._old: dict[bytes, frozenset[str]] = {}
        self._size = 0

    @property
    def size(self) -> int:
        """How many bytes it holds, about."""
        return sum(map(_size, (*self._new.values(), *self._old.values())))

    def of(self, text: str) -> frozenset[str]:
        """What is in a text."""
        key = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        found = self._new.get(key)
        if found is None:
            known = self._old.get(key)
            found = self._find(text) if known is None else known
            self._keep(key, found)
        return found

    def _keep(self, key: bytes, found: frozenset[str]) -> None:
        size = _size(found)
        if self._size + size > KEPT_BYTES:
            self._new, self._old, self._size = {}, self._new, 0
        if size <= KEPT_BYTES:
            self._new[key] = found
            self._size += size


def _size(found: frozenset[str]) -> int:
    return ENTRY_BYTES + sum(NAME_BYTES + len(one) for one in found)


def evidence_in(text: str) -> frozenset[str]:
    """Paths, identifiers and numbers in a text.

    A plain word is none, unless it is called or a member: `parse(` and `.parse` are.
    """
    return _EVIDENCE.of(text)


def quoted_in(text: str) -> frozenset[str]:
    """What stands between quotes of three kinds, on one line."""
    return _QUOTES.of(text)


def stands_in(name: str, text: str) -> bool:
    """Whether a name stands in a text by itself: 45 does not in 1456."""
    place = text.find(name)
    while place >= 0:
        end = place + len(name)
        before = place > 0 and _joins(text[place - 1], name[0])
        if not before and not (end < len(text) and _joins(name[-1], text[end])):
            return True
        place = text.find(name, place + 1)
    return False


def _joins(one: str, other: str) -> bool:
    """Whether two characters in a row are of one word."""
    return all(char.isalnum() or char == "_" for char in (one, other))


def kept_bytes() -> int:
    """How much of what was found is kept, about."""
    return _EVIDENCE.size + _QUOTES.size


def _evidence(text: str) -> frozenset[str]:
    found = set(_PATH.findall(text))
    found.update(_NUMBER.findall(text))
    found.update(_HASH.findall(text))
    found.update(name for name in _NAME.findall(text) if _is_identifier(name))
    for called, member in _USED.findall(text):
        found.add(called or member)
    return frozenset(one for one in found if len(one) <= EVIDENCE_MAX)


def _quoted(text: str) -> frozenset[str]:
    return frozenset(found[1] for found in _QUOTED.findall(text) if found[1].strip())


def _is_identifier(name: str) -> bool:
    """Whether a name is no plain word: snake case, camel case, or with digits."""
    if len(name) < IDENTIFIER_MIN:
        return False
    inner = name[1:]
    if "_" in name.strip("_") or "$" in name or any(c.isdigit() for c in inner):
        return True
    return any(c.isupper() for c in inner) and any(c.islower() for c in name)


_EVIDENCE = _Kept(_evidence)
_QUOTES = _Kept(_quoted)
