"""Encodings in the way of the rules: a text as it is once it is decoded.

One layer is taken off at once, wherever it stands: percent and JSON escapes, entities of
HTML, the escape sequences of a terminal, NULs of UTF-16 that was read as something else,
and line breaks in the middle of a token. What base64 and hex hide is decoded apart. A
layer inside a layer is found by taking one off again, up to `LAYERS_MAX`.

A place in what was decoded leads back to the place that it came from. That is worked out
only where something was found, so that a clean text costs little more than the search for
escapes.
"""

import binascii
import bisect
import html
import re
import sys
from collections.abc import Callable, Iterator
from re import Match

from foldline.producers.redaction_shapes import SHAPE_RULES
from foldline.producers.redaction_tree import tree_of
from foldline.producers.redaction_values import is_mixed

LAYERS_MAX = 3
"""How many layers are taken off: two encodings in each other, and one of line breaks."""

ENCODED_MIN = 24
"""Shorter runs of base64, in characters, hide nothing that a rule would find."""

ENCODED_MAX = 1024 * 1024
"""How many characters of a run of base64 or hex are decoded at most."""

CONTEXT_CHARS = 1024
"""So much text on both sides of an escape is decoded with it."""

BLANK_CHARS = 256
"""How far a blank is looked for, so that no token is cut there."""

REST_MIN = 6
"""A shorter rest of a token, in characters, in another record is taken for a word."""

PREFIX_MIN = 3
"""Shorter prefixes of secrets, in characters, stand at the begin of anything."""

_BLANK = re.compile(r"\s")

_PART = r"[A-Za-z0-9_+/.=%~-]"
_HEX_BYTE = r"[0-9A-Fa-f]{2}"

# A line break that a token may run over: it stands right behind one.
_GAP = (
    rf"(?P<gap>(?:(?<={_PART}{{14}}[A-Za-z0-9_+/.=%~\\\r-]{{2}}\n)"
    rf"|(?<=\\)n(?<={_PART}{{16}}\\n))[ \t>|+]{{0,16}})"
)
_ENTITY = r"(?P<entity>(?<=&)(?:quot|amp|lt|gt|apos|\#39|\#x27|\#34);)"

# What makes taking a layer off worth while; rules know `\"` and `\n` themselves. Both
# patterns begin with a set of characters: that makes the search for them quick.
_WORTH = re.compile(
    r"[%\\&\n\x1b\x00\u200b\ufeff](?:"
    r"(?<=%)[2-7][0-9A-Fa-f](?:%[2-7][0-9A-Fa-f])*"
    r"|(?<=\\)u00[0-7][0-9A-Fa-f](?:\\u00[0-7][0-9A-Fa-f])*"
    r"|(?<=\\)x[2-7][0-9A-Fa-f](?:\\x[2-7][0-9A-Fa-f])*"
    r"|(?<=\\)[/\\](?:\\[/\\])*|(?<=\x00)(?:[^\x00]?\x00)*"
    rf"|(?<=[\x1b\u200b\ufeff])|{_ENTITY}|{_GAP})"
)

# Runs of one kind of escape are decoded at once.
_LAYER = re.compile(
    rf"[%\\&=\r\n\x1b\x00\u200b\ufeff](?:{_GAP}|{_ENTITY}"
    rf"|(?P<percent>(?<=%){_HEX_BYTE}(?:%{_HEX_BYTE})*)"
    rf"|(?P<x>(?<=\\)x{_HEX_BYTE}(?:\\x{_HEX_BYTE})*)"
    rf"|(?P<u>(?<=\\)u{_HEX_BYTE}{_HEX_BYTE}(?:\\u{_HEX_BYTE}{_HEX_BYTE})*)"
    r"|(?P<twice>(?<=\\)\\(?:\\\\)*)|(?P<one>(?<=\\)[\"'/nrtbf])"
    r"|(?<=\x1b)(?:\[[0-9;?]{0,16}[A-Za-z]?)?|(?<=\x00)\x00*|(?<=[\u200b\ufeff])"
    r"|(?<=[\\=])\r?(?=\n)|(?<=\r)(?=\n))"
)
_STEPS = {"percent": 3, "x": 4, "u": 6, "twice": 2}
"""How many characters one character of such a run takes."""

_REST_OF_TOKEN = re.compile(
    rf"({_PART}{{1,512}}+)[\"'`,;)}}\]\\]{{0,4}}+(?P<end>\\n|\r?\n|\Z)?"
)
_OWN_LINE = re.compile(
    r"[a-z]{1,40}[.:,]?|[A-Z][a-z]{1,40}[.:,]?|[0-9a-f]{40}|[0-9a-f]{64}"
    r"|[A-Za-z_][A-Za-z0-9_]{0,60}=[^=].{0,512}"
)

# The next secret of a list, not the rest of the one before.
_PREFIXES = {
    anchor
    for rule in SHAPE_RULES
    for anchor in rule.anchors
    if rule.exact_case and len(anchor) >= PREFIX_MIN
}
_OWN_PREFIX = re.compile(tree_of(sorted(_PREFIXES)))

_SIMPLE = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}

_RUN = re.compile(rf"[A-Za-z0-9+/_-]{{{ENCODED_MIN},}}={{0,2}}")
_PIECE = re.compile(rf"[A-Za-z0-9]{{{ENCODED_MIN},}}={{0,2}}")
_HEX = re.compile(r"(?:[0-9a-f]{2}){12,}|(?:[0-9A-F]{2}){12,}")
_URLSAFE = str.maketrans("-_", "+/")
_PRINTED = bytes(range(0x20, 0x7F)) + b"\t\r\n\x1b"


class Layer:
    """A part of a text with one layer of encoding taken off; `at` is where it begins.

    Where `broken` says behind which line breaks of the text tokens go on, they are joined.
    """

    def __init__(self, original: str, at: int, broken: frozenset[int] | None) -> None:
        self._original = original
        self._at = at
        self._broken = broken or frozenset[int]()
        self._decode = _decoded if broken is None else self._joined
        self.text = _LAYER.sub(self._decode, original)
        self._places: list[tuple[int, int, int, int]] = []

    def original_span(self, start: int, end: int) -> tuple[int, int]:
        """Where in the text a part of what was decoded came from."""
        if not self._places:
            self._places = _places(self._original, self._decode)
        return self._at + self._origin(start)[0], self._at + self._origin(end - 1)[1]

    def _joined(self, match: Match[str]) -> str:
        """What an escape stands for; nothing for a line break in a token."""
        if match.lastgroup != "gap":
            return _decoded(match)
        known = self._at + match.end() in self._broken
        return "" if known or _is_broken_token(match) else _decoded(match)

    def _origin(self, at: int) -> tuple[int, int]:
        """Begin and end of what one decoded character came from."""
        index = bisect.bisect_right(self._places, (at, sys.maxsize)) - 1
        decoded, begin, step, end = self._places[index]
        if step == 0:
            return begin, end
        begin += (at - decoded) * step
        return begin, begin + step


def layers_of(text: str) -> Iterator[Layer]:
    """The parts of a text that have a layer, without it.

    A part in which tokens may run over line breaks comes once more with them joined.
    """
    for begin, end, worth, broken in _parts(text):
        part = text[begin:end]
        if broken:
            yield Layer(part, begin, frozenset(broken))
        if worth:
            yield Layer(part, begin, None)


def _parts(text: str) -> Iterator[tuple[int, int, bool, list[int]]]:
    """Begin and end of the parts to decode, whether for escapes, and broken tokens."""
    begin = end = -1
    worth = False
    broken: list[int] = []
    for match in _WORTH.finditer(text):
        gap = match.lastgroup == "gap"
        if gap and not _is_broken_token(match):
            continue
        start, stop = match.span()
        if end < 0 or start - CONTEXT_CHARS > end:
            if end >= 0:
                yield _from_blank(text, begin), _to_blank(text, end), worth, broken
            begin = max(start - CONTEXT_CHARS, 0)
            worth, broken = False, []
        end = stop + CONTEXT_CHARS
        worth = worth or not gap
        if gap:
            broken.append(stop)
    if end >= 0:
        yield _from_blank(text, begin), _to_blank(text, end), worth, broken


def _from_blank(text: str, at: int) -> int:
    """A place at or before this one at which no token is cut, if one is near."""
    low = max(at - BLANK_CHARS, 0)
    blank = max(text.rfind(" ", low, at), text.rfind("\n", low, at))
    return blank + 1 if blank >= 0 else at


def _to_blank(text: str, at: int) -> int:
    blank = _BLANK.search(text, at, at + BLANK_CHARS)
    return blank.start() if blank else at


def hidden_in(text: str) -> Iterator[tuple[int, int, str]]:
    """What base64 and hex in a text hide, where it is text: start, end, and the text."""
    for run in _RUN.finditer(text):
        decoded = _from_base64(run[0])
        if decoded is not None:
            yield (*run.span(), decoded)
            continue
        for piece in _pieces(run):
            decoded = _from_hex(piece[0]) or _from_base64(piece[0])
            if decoded is not None:
                yield (*piece.span(), decoded)


def _pieces(run: Match[str]) -> Iterator[Match[str]]:
    """Parts of a run between `/`, `+`, `-` and `_`, which may be no part of the code."""
    return _PIECE.finditer(run.string, run.start(), run.end())


def _from_base64(encoded: str) -> str | None:
    encoded = encoded[:ENCODED_MAX].rstrip("=")
    if "-" in encoded or "_" in encoded:
        encoded = encoded.translate(_URLSAFE)
    if len(encoded) % 4 == 1:
        encoded = encoded[:-1]
    return _as_text(binascii.a2b_base64(encoded + "=="))


def _from_hex(encoded: str) -> str | None:
    if _HEX.fullmatch(encoded[:ENCODED_MAX]) is None:
        return None
    return _as_text(bytes.fromhex(encoded[:ENCODED_MAX]))


def _as_text(data: bytes) -> str | None:
    """The text of these bytes, if they are any: UTF-8, or ASCII in UTF-16."""
    if len(data.translate(None, _PRINTED)) * 4 > len(data):
        if data.count(0) * 2 < len(data) - 1:
            return None
        data = data.replace(b"\0", b"")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        # The last character may be cut; anything before it is no text.
        return data[: error.start].decode() if error.start > len(data) - 4 else None


def _decoded(match: Match[str]) -> str:
    """What an escape stands for; nothing for what only interrupts."""
    found = match[0]
    match match.lastgroup:
        case "gap":
            return "\n"
        case "percent":
            return bytes.fromhex(found.replace("%", "")).decode("latin-1")
        case "x":
            return bytes.fromhex(found.replace("\\x", "")).decode("latin-1")
        case "u":
            return _from_units(found)
        case "twice":
            return found[::2]
        case "one":
            return _SIMPLE.get(found[1], found[1])
        case "entity":
            return html.unescape(found)
        case _:
            return ""


def _from_units(found: str) -> str:
    r"""A run of `\u0061`: one character for each, halves of a pair by themselves."""
    data = bytes.fromhex(found.replace("\\u", ""))
    text = data.decode("utf-16-be", "surrogatepass")
    if len(text) * _STEPS["u"] == len(found):
        return text
    return "".join(chr(int.from_bytes(data[i : i + 2])) for i in range(0, len(data), 2))


def _is_broken_token(match: Match[str]) -> bool:
    """Whether a token runs over a line break: one stands before it, its rest behind.

    The rest is long, or has a line to itself; it is no word, hash or line of its own.
    """
    rest = _rest_at(match.string, match.end())
    return rest is not None and (rest["end"] is not None or is_mixed(rest[1]))


def goes_on(text: str) -> bool:
    """Whether a text begins with the rest of a token, by its look: no word, no hash."""
    rest = _rest_at(text, 0)
    if rest is None or len(rest[1]) < REST_MIN:
        return False
    return not (rest[1].isalpha() or rest[1].isdigit())


def _rest_at(text: str, at: int) -> Match[str] | None:
    """What may be the rest of a token here; None for a line or a secret of its own."""
    rest = _REST_OF_TOKEN.match(text, at)
    if rest is None or _OWN_LINE.fullmatch(rest[1]) or _OWN_PREFIX.match(rest[1]):
        return None
    return rest


def _places(
    original: str, decode: Callable[[Match[str]], str]
) -> list[tuple[int, int, int, int]]:
    """Runs of the decoded text: where one begins there, and where it came from.

    Begin, characters per character (0: all of it together), and end.
    """
    places: list[tuple[int, int, int, int]] = []
    at = behind = 0
    for match in _LAYER.finditer(original):
        start, end = match.span()
        if start > behind:
            places.append((at, behind, 1, start))
            at += start - behind
        behind = end
        if length := len(decode(match)):
            places.append((at, start, _STEPS.get(match.lastgroup or "", 0), end))
            at += length
    places.append((at, behind, 1, len(original)))
    return places
