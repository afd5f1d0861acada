"""Registered values: secrets that are known, found however they are written.

Each value is looked for as it is and as JSON, a URL, base64 and hex write it, and as each
of these writes what another wrote. In base64 it is also found in the middle of something
longer: there, it has one of three forms, by where it begins.
"""

import base64
import json
import re
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

from foldline.producers.redaction_tree import tree_of

REGISTERED_MIN = 6
"""Registered values shorter than this, in characters, would match by accident."""

_LABEL = re.compile(r"[^a-z0-9]+")


class Known:
    """Values with their names, and one pattern that finds all their forms.

    The pattern is made when it is first needed after a value was added.
    """

    def __init__(self) -> None:
        self._forms: dict[str, tuple[str, str]] = {}
        self._made: tuple[dict[str, tuple[str, str]], re.Pattern[str]] | None = None

    def add(self, value: str, label: str) -> None:
        """Look for this value from now on."""
        clean = label_of(label)
        forms = dict(self._forms)
        for form in _forms(value):
            if form == value or form not in forms:
                forms[form] = (clean, value)
        self._forms = forms

    def spans(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Where values stand, and their names."""
        forms = self._forms
        if not forms:
            return
        made = self._made
        if made is None or made[0] is not forms:
            made = self._made = (forms, re.compile(tree_of(sorted(forms))))
        pattern = made[1]
        for match in pattern.finditer(text):
            yield (*match.span(), forms[match[0]][0])

    def secret_of(self, found: str) -> str | None:
        """The value of which this is a form."""
        known = self._forms.get(found)
        return None if known is None else known[1]


def label_of(name: str) -> str:
    """A name as it goes into a placeholder."""
    return _LABEL.sub("-", name.lower())[:40].strip("-") or "registered"


def _forms(value: str) -> Iterator[str]:
    once = set(_written(value))
    yield value
    yield from once
    for form in once - {value}:
        yield from _written(form)


def _written(value: str) -> Iterator[str]:
    data = value.encode("utf-8", "surrogatepass")
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1].replace("/", "\\/")
    yield quote(data, safe="")
    yield quote(data)
    yield quote_plus(data)
    yield data.hex()
    yield data.hex().upper()
    for before in range(3):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            form = _inside(encode(b"\0" * before + data).decode(), before, len(data))
            if len(form) >= REGISTERED_MIN:
                yield form


def _inside(encoded: str, before: int, length: int) -> str:
    """The characters of base64 that the value alone decides."""
    begin = -(-before * 8 // 6)
    return encoded[begin : (before + length) * 8 // 6]
