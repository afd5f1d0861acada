"""What a text refers to: paths, identifiers, numbers, quoted strings. Pure.

A model's next action names what it has seen: a file, a function, a line number, an id, a
string to be replaced. So this is what must not leave the context unseen, and what is
measured when it is made smaller.
"""

import re
from functools import lru_cache

IDENTIFIER_MIN = 3
"""Characters; shorter names say nothing."""

EVIDENCE_MAX = 200
"""Characters of one piece of evidence; what is longer is content, no reference."""

QUOTED_MIN = 3
QUOTED_MAX = 120
"""Characters between quotes."""

CACHED_TEXTS = 2_048
"""Texts whose evidence is kept: the same outputs are looked at again and again."""

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


@lru_cache(maxsize=CACHED_TEXTS)
def evidence_in(text: str) -> frozenset[str]:
    """Paths, identifiers and numbers in a text.

    A plain word is none, unless it is called or a member: `parse(` and `.parse` are.
    """
    found = set(_PATH.findall(text))
    found.update(_NUMBER.findall(text))
    found.update(_HASH.findall(text))
    found.update(name for name in _NAME.findall(text) if _is_identifier(name))
    for called, member in _USED.findall(text):
        found.add(called or member)
    return frozenset(one for one in found if len(one) <= EVIDENCE_MAX)


@lru_cache(maxsize=CACHED_TEXTS)
def quoted_in(text: str) -> frozenset[str]:
    """What stands between quotes of three kinds, on one line."""
    return frozenset(match[1] for match in _QUOTED.findall(text) if match[1].strip())


def _is_identifier(name: str) -> bool:
    """Whether a name is no plain word: snake case, camel case, or with digits."""
    if len(name) < IDENTIFIER_MIN:
        return False
    inner = name[1:]
    if "_" in name.strip("_") or "$" in name or any(c.isdigit() for c in inner):
        return True
    return any(c.isupper() for c in inner) and any(c.islower() for c in name)
