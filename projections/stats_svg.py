"""Plots as SVG inside a page: bars, columns, stacked columns. Pure.

Colours are the page's (CSS classes), so that they follow its light or dark mode. Every
text is escaped here. A plot says its numbers in its title, too.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 640
ROW = 24
LABEL = 250
NUMBER = 70
HEIGHT = 180
AXIS = 34
BAR_GAP = 4
COLUMN_MAX = 44
TEXT = 70


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: its label, its number as it is told, and its colour's class."""

    label: str
    value: float
    told: str
    style: str = "c-one"


def bars(title: str, rows: Sequence[Bar]) -> str:
    """Horizontal bars, one below the other."""
    most = max((row.value for row in rows), default=0) or 1
    room = WIDTH - LABEL - NUMBER
    parts: list[str] = []
    for number, row in enumerate(rows):
        top = number * ROW
        width = max(room * row.value / most, 1 if row.value else 0)
        parts.append(
            f'<text class="label" x="{LABEL - 8}" y="{top + 16}" text-anchor="end">'
            f"{_cut(row.label)}</text>"
            f'<rect class="{row.style}" x="{LABEL}" y="{top + BAR_GAP}" '
            f'width="{width:.1f}" height="{ROW - 2 * BAR_GAP}" rx="2">'
            f"<title>{escape(row.label)}: {escape(row.told)}</title></rect>"
            f'<text class="number" x="{LABEL + width + 6:.1f}" y="{top + 16}">'
            f"{escape(row.told)}</text>"
        )
    return _svg(title, max(len(rows), 1) * ROW, parts)


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its label below, and its parts from below as (number, class)."""

    label: str
    parts: Sequence[tuple[float, str]]
    told: str


def columns(title: str, given: Sequence[Column]) -> str:
    """Columns side by side, each of one or more parts."""
    most = max((sum(v for v, _ in column.parts) for column in given), default=0) or 1
    step = min(WIDTH / max(len(given), 1), COLUMN_MAX)
    every = math.ceil((TEXT + 8) / step)
    parts: list[str] = []
    for number, column in enumerate(given):
        left, top = number * step, float(HEIGHT)
        for value, style in column.parts:
            height = (HEIGHT - 10) * value / most
            top -= height
            parts.append(
                f'<rect class="{style}" x="{left + 1:.1f}" y="{top:.1f}" '
                f'width="{max(step - 2, 1):.1f}" height="{height:.1f}">'
                f"<title>{escape(column.label)}: {escape(column.told)}</title></rect>"
            )
        if number % every == 0 and left <= WIDTH - TEXT:
            parts.append(
                f'<text class="number" x="{left + 1:.1f}" y="{HEIGHT + 16}">'
                f"{escape(column.label)}</text>"
            )
    parts.append(f'<line class="axis" x1="0" y1="{HEIGHT}" x2="{WIDTH}" y2="{HEIGHT}"/>')
    return _svg(title, HEIGHT + AXIS, parts)


def _svg(title: str, height: float, parts: Sequence[str]) -> str:
    """The plot; where the page is too narrow to read it, one moves along it."""
    return (
        f'<div class="wide"><svg role="img" viewBox="0 0 {WIDTH} {height:.0f}" '
        f'aria-label="{escape(title, quote=True)}"><title>{escape(title)}</title>'
        f"{''.join(parts)}</svg></div>"
    )


LABEL_CHARS = 38


def _cut(label: str) -> str:
    """A label that fits beside its bar."""
    short = label if len(label) <= LABEL_CHARS else f"{label[: LABEL_CHARS - 1]}…"
    return escape(short)
