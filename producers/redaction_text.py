"""Redaction of one plain text: spans by rule, merged, replaced by placeholders.

One pass:

1. every rule, and every registered value, gives spans; spans that overlap become one;
2. a span inside a placeholder is dropped, one that overlaps a placeholder takes it in;
3. each span is replaced.

Rules look at the text as it is, and at what is left of it when encodings are taken off
(`foldline.producers.redaction_views`); of what base64 hides the whole code is replaced.

Passes go on until one finds nothing, so that redacting twice is redacting once.
"""

import bisect
import hashlib
import hmac
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from foldline.errors import RedactionError
from foldline.producers.redaction_anchors import anchors_of
from foldline.producers.redaction_engines import Finds
from foldline.producers.redaction_known import REGISTERED_MIN, Known, label_of
from foldline.producers.redaction_rule import Rule
from foldline.producers.redaction_views import LAYERS_MAX, goes_on, hidden_in, layers_of

PLACEHOLDER = re.compile(r"‹(?:secret:[a-z0-9-]{1,40}:[0-9a-f]{8}|redaction-failed)›")
WITHHELD = "‹redaction-failed›"
"""What stands where the engine could not judge a text."""

PASSES_MAX = 16
"""How often a text is gone over: replacing one secret may lay open another."""

NEAR_CHARS = 16
"""What begins so soon behind the border of two texts is looked for in both together."""

_MASK = "‹"
_APART = "\n--\n\n"
_Place = tuple[int, int]
_Span = tuple[int, int, str]


class TextRedactor:
    """Finds and replaces secrets in plain text, by rules and by registered values."""

    def __init__(
        self, key: bytes, rules: Sequence[Rule], engines: Sequence[Finds] = ()
    ) -> None:
        self._hmac = hmac.new(key, digestmod=hashlib.sha256)
        self._rules = tuple(rules)
        self._exact = anchors_of(self._rules, exact_case=True)
        self._lowered = anchors_of(self._rules, exact_case=False)
        self._everywhere = [rule for rule in self._rules if not rule.anchors]
        self._engines = tuple(engines)
        self._known = Known()

    def register(self, value: str, label: str) -> None:
        """Replace this value wherever it occurs, however it is written.

        Raises:
            RedactionError: it is too short to be told from ordinary text.
        """
        if len(value) < REGISTERED_MIN:
            raise RedactionError(label, f"shorter than {REGISTERED_MIN} characters")
        self._known.add(value, label)

    def placeholder(self, label: str, secret: str) -> str:
        """What stands for a secret: the same for the same secret under the same key."""
        data = secret.encode("utf-8", "surrogatepass")
        keyed = self._hmac.copy()  # what the key costs is paid once
        keyed.update(data)
        return f"‹secret:{label}:{keyed.hexdigest()[:8]}›"

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

        Such a secret's placeholder stands where it begins. One right behind a border may
        be known only by what stands before it. The others are left to `redact`.
        """
        borders: list[int] = []
        for part in parts[:-1]:
            borders.append((borders[-1] if borders else 0) + len(part))
        joined = "".join(parts)
        crossing = [
            (start, end, label)
            for start, end, label in self._spans(joined)
            if any(start < border + NEAR_CHARS and border < end for border in borders)
        ]
        if not crossing:
            return list(parts)
        return self._cut(joined, [*borders, len(joined)], crossing, counts)

    def redact_rest(self, before: str, text: str, counts: Counter[str]) -> str:
        """A text without the ends of secrets that begin in what stood before it.

        Where what stood before it ends in a whole secret, the text may be a new sentence.
        """
        border = len(before)
        whole = any(end == border for _, end, _ in self._spans(before))
        at_least = border + NEAR_CHARS if whole and not goes_on(text) else border
        joined = before + text
        rest = border
        said = ""
        for start, end, label in self._spans(joined):
            if start < border + NEAR_CHARS and at_least < end:
                secret = self._counted(joined[start:end], label, counts)
                said += joined[rest : max(start, rest)] + secret
                rest = end
        return said + joined[rest:]

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
        return self.placeholder(label, self._known.secret_of(found) or found)

    def _spans(self, text: str) -> list[_Span]:
        """What to replace: in order, apart from each other, no placeholder among them."""
        found = [*self._found(text, LAYERS_MAX), *self._by_engines(text)]
        if not found:
            return []
        kept = [match.span() for match in PLACEHOLDER.finditer(text)]
        found.sort(key=lambda span: (span[0], -span[1]))
        merged: list[_Span] = []
        for start, end, label in found:
            if merged and start < merged[-1][1]:
                before = merged[-1]
                merged[-1] = (before[0], max(end, before[1]), before[2])
            else:
                merged.append((start, end, label))
        return list(_around(merged, kept)) if kept else merged

    def _found(self, text: str, layers: int) -> Iterator[_Span]:
        """What is in a text, and in what is left of it without up to so many layers."""
        text = _masked(text)
        yield from self._known.spans(text)
        yield from self._by_rules(text)
        if layers == 0:
            return
        hidden = list(hidden_in(text))
        if hidden:
            yield from self._hidden(hidden, layers - 1)
        for layer in layers_of(text):
            for start, end, label in self._found(layer.text, layers - 1):
                yield (*layer.original_span(start, end), label)

    def _hidden(self, hidden: list[tuple[int, int, str]], layers: int) -> Iterator[_Span]:
        """The codes in whose text there is something: gone over together, as one text."""
        ends = list(itertools.accumulate(len(text) + len(_APART) for *_, text in hidden))
        together = _APART.join(text for *_, text in hidden)
        for start, end, label in self._found(together, layers):
            first = bisect.bisect_right(ends, start)
            for begin, stop, _ in hidden[first : bisect.bisect_left(ends, end) + 1]:
                yield begin, stop, label

    def _by_rules(self, text: str) -> Iterator[_Span]:
        lowered = _lowered(text)
        possible = self._exact.possible_in(text) | self._lowered.possible_in(lowered)
        for place, anchor in sorted(possible):
            rule = self._rules[place]
            hay = text if rule.exact_case else lowered
            if (at := hay.find(anchor)) >= 0:
                yield from _at_anchors(rule, anchor, at, hay, text)
        for rule in self._everywhere:
            yield from _anywhere(rule, text)

    def _by_engines(self, text: str) -> Iterator[_Span]:
        for engine in self._engines:
            for found in engine.find(text):
                label = label_of(found.kind)
                at = text.find(found.value)
                while found.value and at >= 0:
                    yield at, at + len(found.value), label
                    at = text.find(found.value, at + len(found.value))


def _masked(text: str) -> str:
    """The text with nothing to find in its placeholders, every character at its place."""
    return PLACEHOLDER.sub(_mask, text) if _MASK in text else text


def _mask(match: re.Match[str]) -> str:
    return _MASK * len(match[0])


def _anywhere(rule: Rule, text: str) -> Iterator[_Span]:
    for match in rule.pattern.finditer(text):
        if rule.check is None or rule.check(match):
            yield (*match.span("s"), rule.name)


def _at_anchors(rule: Rule, anchor: str, at: int, hay: str, text: str) -> Iterator[_Span]:
    name, check, extend = rule.name, rule.check, rule.extend
    matched, find = rule.pattern.match, hay.find
    while at >= 0:
        after = at + 1
        match = matched(text, at)
        if match is not None:
            start, end = match.span("s")
            if text[start] == _MASK and not text[start:end].strip(_MASK):
                after = end
            elif check is None or check(match):
                end = end if extend is None else extend(match)
                yield start, end, name
                after = max(after, end)
        at = find(anchor, after)


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
    return text.replace("\u0130", "i").lower()  # the only one that grows


def is_placeholder(value: str) -> bool:
    """Whether a value was redacted already."""
    return PLACEHOLDER.fullmatch(value) is not None
