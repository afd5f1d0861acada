"""Redaction of one plain text: spans by rule, merged, replaced by placeholders.

One pass:

1. every rule, and every registered value, gives spans; spans that overlap become one;
2. a span inside a placeholder is dropped, one that overlaps a placeholder takes it in;
3. each span is replaced.

Passes go on until one finds nothing, so that redacting twice is redacting once.
"""

import bisect
import hashlib
import hmac
import itertools
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from urllib.parse import quote

from foldline.producers.redaction_rules import Rule
from foldline.producers.redaction_values import is_reference

PLACEHOLDER = re.compile(r"‹(?:secret:[a-z0-9-]{1,40}:[0-9a-f]{8}|redaction-failed)›")
WITHHELD = "‹redaction-failed›"
"""What stands where the engine could not judge a text."""

PASSES_MAX = 16
"""How often a text is gone over: replacing one secret may lay open another."""

_LABEL = re.compile(r"[^a-z0-9]+")
_Place = tuple[int, int]
_Span = tuple[int, int, str]


class TextRedactor:
    """Finds and replaces secrets in plain text, by rules and by registered values."""

    def __init__(self, key: bytes, rules: Sequence[Rule]) -> None:
        self._key = key
        self._rules = tuple(rules)
        exact = [rule for rule in self._rules if rule.exact_case]
        self._any_exact = _any_of(exact)
        self._any_lowered = _any_of([rule for rule in self._rules if rule not in exact])
        self._registered: dict[str, tuple[str, str]] = {}
        self._known: re.Pattern[str] | None = None

    def register(self, value: str, label: str) -> None:
        """Replace this value wherever it occurs: plain, JSON-escaped or URL-encoded."""
        clean = _LABEL.sub("-", label.lower()).strip("-")[:40] or "registered"
        for form in _forms(value):
            self._registered[form] = (clean, value)
        longest_first = sorted(self._registered, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, longest_first)))

    def placeholder(self, label: str, secret: str) -> str:
        """What stands for a secret: the same for the same secret under the same key."""
        data = secret.encode("utf-8", "surrogatepass")
        digest = hmac.new(self._key, data, hashlib.sha256).hexdigest()
        return f"‹secret:{label}:{digest[:8]}›"

    def redact(self, text: str, counts: Counter[str]) -> str:
        """The text without secrets; what was replaced is counted by rule."""
        for _ in range(PASSES_MAX):
            spans = self._spans(text)
            if not spans:
                break
            text = "".join(self._replaced(text, spans, counts))
        return text

    def redact_parts(self, parts: Sequence[str], counts: Counter[str]) -> list[str]:
        """Texts that belong together, without secrets that run over their borders.

        Such a secret's placeholder stands where it begins. Secrets within one part are
        left to `redact`.
        """
        borders: list[int] = []
        for part in parts[:-1]:
            borders.append((borders[-1] if borders else 0) + len(part))
        joined = "".join(parts)
        crossing = [
            (start, end, label)
            for start, end, label in self._spans(joined)
            if any(start < border < end for border in borders)
        ]
        if not crossing:
            return list(parts)
        return self._cut(joined, [*borders, len(joined)], crossing, counts)

    def _cut(
        self, joined: str, ends: list[int], spans: list[_Span], counts: Counter[str]
    ) -> list[str]:
        cut: list[str] = []
        begin = 0
        for end in ends:
            inside: list[str] = []
            at = begin
            for start, stop, label in spans:
                if stop <= at or start >= end:
                    continue
                inside.append(joined[at:start] if start > at else "")
                if start >= begin:
                    inside.append(self._counted(joined[start:stop], label, counts))
                at = min(stop, end)
            inside.append(joined[at:end])
            cut.append("".join(inside))
            begin = end
        return cut

    def _replaced(
        self, text: str, spans: list[_Span], counts: Counter[str]
    ) -> Iterator[str]:
        at = 0
        for start, end, label in spans:
            yield text[at:start]
            yield self._counted(text[start:end], label, counts)
            at = end
        yield text[at:]

    def _counted(self, found: str, label: str, counts: Counter[str]) -> str:
        counts[label] += 1
        _, secret = self._registered.get(found, (label, found))
        return self.placeholder(label, secret)

    def _spans(self, text: str) -> list[_Span]:
        """What to replace: in order, apart from each other, no placeholder among them."""
        kept = [m.span() for m in PLACEHOLDER.finditer(text)] if "‹" in text else []
        found = sorted(self._found(text, kept), key=lambda span: (span[0], -span[1]))
        merged: list[_Span] = []
        for start, end, label in found:
            if merged and start < merged[-1][1]:
                before = merged[-1]
                merged[-1] = (before[0], max(end, before[1]), before[2])
            else:
                merged.append((start, end, label))
        return list(_around(merged, kept)) if kept else merged

    def _found(self, text: str, kept: list[_Place]) -> Iterator[_Span]:
        if self._known is not None:
            for match in self._known.finditer(text):
                yield (*match.span(), self._registered[match[0]][0])
        lowered = _lowered(text)
        has_exact = self._any_exact.search(text) is not None
        has_lowered = self._any_lowered.search(lowered) is not None
        for rule in self._rules:
            if not (has_exact if rule.exact_case else has_lowered):
                continue
            hay = text if rule.exact_case else lowered
            for anchor in rule.anchors:
                if (at := hay.find(anchor)) >= 0:
                    yield from _at_anchors(rule, anchor, at, hay, text, kept)


def _any_of(rules: Sequence[Rule]) -> re.Pattern[str]:
    """Finds out in one search that a text has no anchor of any of these rules."""
    anchors = {anchor for rule in rules for anchor in rule.anchors}
    return re.compile(_tree(sorted(anchors)) or "(?!)")


def _tree(words: Sequence[str]) -> str:
    """A pattern of some words that tries each letter once, not each word."""
    if "" in words:
        return ""
    branches: list[str] = []
    for letter, group in itertools.groupby(words, key=lambda word: word[0]):
        branches.append(re.escape(letter) + _tree([word[1:] for word in group]))
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"


def _at_anchors(
    rule: Rule, anchor: str, at: int, hay: str, text: str, kept: list[_Place]
) -> Iterator[_Span]:
    while at >= 0:
        after = at + 1
        match = None if _inside(at, kept) else rule.pattern.match(text, at)
        if match is not None and (rule.check is None or rule.check(match)):
            start, end = match.span("s")
            end = end if rule.extend is None else rule.extend(match)
            yield start, end, rule.name
            after = max(after, end)
        at = hay.find(anchor, after)


def _inside(at: int, kept: list[_Place]) -> bool:
    """Whether a place is in a placeholder: what stands there is no name of anything."""
    index = bisect.bisect_right(kept, (at, sys.maxsize)) - 1
    return index >= 0 and kept[index][0] <= at < kept[index][1]


def _around(spans: list[_Span], kept: list[_Place]) -> Iterator[_Span]:
    """Spans that do not cut placeholders: those inside one go, others take it in."""
    ends = [last for _, last in kept]
    for start, end, label in spans:
        low, high = start, end
        index = bisect.bisect_right(ends, start)
        inside = index < len(kept) and kept[index][0] <= start and end <= ends[index]
        while index < len(kept) and kept[index][0] < end:
            low, high = min(low, kept[index][0]), max(high, ends[index])
            index += 1
        if not inside:
            yield low, high, label


def _lowered(text: str) -> str:
    """The text in lower case, every character at its place."""
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered
    return "".join(c.lower() if len(c.lower()) == 1 else c for c in text)


def _forms(value: str) -> Iterator[str]:
    yield value
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    yield quote(value, safe="")


def is_placeholder(value: str) -> bool:
    """Whether a value was redacted already, or never was a secret."""
    return PLACEHOLDER.fullmatch(value) is not None or is_reference(value)
