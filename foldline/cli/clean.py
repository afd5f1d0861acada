"""Makes text safe to print: what agents and tools say is written by whoever they read.

A terminal obeys escape sequences, and shows text backwards when it is told to. Here
every such character is written out (as backslash, x, 1b) and so seen, not obeyed; white
space is one blank, and everything has a length.
"""

import re
import textwrap

LINE_MAX_CHARS = 2_000
"""How much of a text is looked at for one line; the rest is only counted."""

ELLIPSIS = "…"

# Controls, format characters (bidi overrides, zero width, tags), surrogates, private use
# and the two line separators. A test compares this with the Unicode database.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e"
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff0-\uffff\U000110bd\U000110cd"
    "\U00013430-\U0001345f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff\ud800-\uf8ff\U000f0000-\U0010ffff]"
)
_BLANKS = re.compile(r"[ \t\r\n]+")
_KEPT = "\ufffc\ufffd"  # "object" and "replacement": signs that are there to be seen


def clean_line(text: str, *, max_chars: int = LINE_MAX_CHARS) -> str:
    """One printable line of a text, at most `max_chars` of it looked at."""
    line = _UNSAFE.sub(_escaped, _BLANKS.sub(" ", text[:max_chars]).strip())
    return line + ELLIPSIS if len(text) > max_chars else line


def _escaped(match: re.Match[str]) -> str:
    char = match.group()
    if char in _KEPT:
        return char
    code = ord(char)
    if code <= 0xFF:  # noqa: PLR2004 - two hex digits hold no more
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004


def crop(line: str, *, cells: int) -> str:
    """A line that takes no more than `cells` columns; wide characters take two."""
    from rich.cells import cell_len, set_cell_size  # late: rich is not needed for --json

    if cell_len(line) <= cells:
        return line
    return set_cell_size(line, max(cells - 1, 0)).rstrip() + ELLIPSIS


def wrapped(line: str, *, cells: int) -> list[str]:
    """A line as several, broken between words."""
    return textwrap.wrap(line, max(cells, 1), break_on_hyphens=False)


def padded(text: str, *, cells: int) -> str:
    """A line of exactly `cells` columns."""
    from rich.cells import set_cell_size  # late: rich is not needed for --json

    return set_cell_size(crop(text, cells=cells), cells)


def size_of(count: int) -> str:
    """A number of bytes for people."""
    for unit in ("B", "KB", "MB"):
        if count < 1024:  # noqa: PLR2004 - what a KB is
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024  # type: ignore[assignment]
    return f"{count:.1f} GB"
