"""Windows over what sessions do, by tool, model and agent. Pure.

Events are added to *panes*: one for each name and `pane_s` seconds, side by side. A window
is the sum of the panes that it covers, so tumbling windows (step = size) and hopping ones
(step < size) of any multiple of a pane need nothing more to be stored, and always agree.

| by | a call is | its errors | its duration |
| --- | --- | --- | --- |
| tool | an execution that began | failed or timed out | to its outcome |
| model | a model call that ended | failed | to its whole answer |
| agent | a turn that ended | did not end as DONE | of the turn |

Sums do not depend on the order of events; times are whole microseconds.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from foldline.projections.metric_names import MICROS

TOOL = "tool"
MODEL = "model"
AGENT = "agent"
BYS = (TOOL, MODEL, AGENT)

BUCKETS_S = (
    *(0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
    *(60.0, 300.0, 1_800.0, 3_600.0, 14_400.0),
)
"""Upper bounds of durations that are told apart; the last bucket is above all."""

P95 = 0.95


class Tally(msgspec.Struct, array_like=True):
    """What is counted in a pane or a window. Times are microseconds."""

    calls: int = 0
    errors: int = 0
    retries: int = 0
    approvals: int = 0
    """Requests to people that were answered, expired or abandoned."""
    approval_us: int = 0
    loops: int = 0
    durations: int = 0
    duration_us: int = 0
    buckets: list[int] = msgspec.field(default_factory=list[int])
    """Durations by bucket; empty as long as there is none."""


class Increment(NamedTuple):
    """What one event adds to the panes of one name: a field of Tally, and how much."""

    by: str
    name: str
    field: str
    value: int = 1


class Pane(NamedTuple):
    """Where increments are added: a name, and the second at which the pane begins."""

    by: str
    name: str
    start_s: int


@dataclass(frozen=True, slots=True)
class Span:
    """Windows of `size_s` that begin every `step_s`: multiples of a pane."""

    size_s: int
    step_s: int


class Window(NamedTuple):
    """One window of one name."""

    by: str
    name: str
    start_s: int
    end_s: int
    tally: Tally


def pane_of(increment: Increment, at_us: int, pane_s: int) -> Pane:
    """The pane into which an increment of this moment goes."""
    second = at_us // MICROS
    return Pane(increment.by, increment.name, second - second % pane_s)


def add(tally: Tally, field: str, value: int) -> None:
    """Add to one field; of durations and waits, one of so many microseconds."""
    match field:
        case "durations":
            tally.durations += 1
            tally.duration_us += value
            tally.buckets = tally.buckets or [0] * (len(BUCKETS_S) + 1)
            tally.buckets[bisect_left(BUCKETS_S, value / MICROS)] += 1
        case "approvals":
            tally.approvals += 1
            tally.approval_us += value
        case _:
            setattr(tally, field, getattr(tally, field) + value)


def merge(into: Tally, other: Tally) -> None:
    """Add all of another tally."""
    for name in Tally.__struct_fields__[:-1]:
        setattr(into, name, getattr(into, name) + getattr(other, name))
    if other.buckets:
        pairs = zip(into.buckets or [0] * len(other.buckets), other.buckets, strict=True)
        into.buckets = [mine + theirs for mine, theirs in pairs]


def windows(panes: Iterable[tuple[Pane, Tally]], span: Span) -> list[Window]:
    """The windows that have anything in them, in the order of time, then of names."""
    sums: dict[tuple[int, str, str], Tally] = {}
    for pane, tally in panes:
        for start_s in _starts(pane.start_s, span):
            merge(sums.setdefault((start_s, pane.by, pane.name), Tally()), tally)
    return [
        Window(by, name, start_s, start_s + span.size_s, tally)
        for (start_s, by, name), tally in sorted(sums.items(), key=lambda item: item[0])
    ]


def merges(panes: int, span: Span) -> int:
    """How often a pane is added to a window, for so many panes."""
    return panes * -(-span.size_s // span.step_s)


def single(
    panes: Iterable[tuple[Pane, Tally]], *, start_s: int, end_s: int
) -> list[Window]:
    """One window of each name, of the panes that begin in it."""
    sums: dict[tuple[str, str], Tally] = {}
    for pane, tally in panes:
        if start_s <= pane.start_s < end_s:
            merge(sums.setdefault((pane.by, pane.name), Tally()), tally)
    return [Window(by, name, start_s, end_s, sums[by, name]) for by, name in sorted(sums)]


def whole(panes: Iterable[tuple[Pane, Tally]], *, pane_s: int) -> list[Window]:
    """One window for each name, from its first pane to its last."""
    found: dict[tuple[str, str], tuple[int, int, Tally]] = {}
    for pane, tally in panes:
        begun = (pane.start_s, pane.start_s, Tally())
        first_s, last_s, total = found.get((pane.by, pane.name), begun)
        merge(total, tally)
        times = min(first_s, pane.start_s), max(last_s, pane.start_s)
        found[pane.by, pane.name] = (*times, total)
    return [
        Window(by, name, first_s, last_s + pane_s, total)
        for (by, name), (first_s, last_s, total) in sorted(found.items())
    ]


def _starts(second: int, span: Span) -> Iterator[int]:
    """The starts of the windows that cover a second, the earliest first."""
    last = second - second % span.step_s
    first = last - (span.size_s - 1) // span.step_s * span.step_s
    for start_s in range(first, last + 1, span.step_s):
        if start_s <= second < start_s + span.size_s:
            yield start_s


def p95_s(tally: Tally) -> float | None:
    """The bound under which 95 of 100 durations are, in seconds; None without any.

    It is the upper bound of a bucket; what is above all of them is told as the last.
    """
    wanted = tally.durations * P95
    seen = 0
    for bound, count in zip((*BUCKETS_S, BUCKETS_S[-1]), tally.buckets, strict=False):
        seen += count
        if count and seen >= wanted:
            return bound
    return None


def rate(part: int, calls: int) -> float | None:
    """A part of the calls; None without calls."""
    return part / calls if calls else None


def tally_view(tally: Tally) -> dict[str, Any]:
    """A tally as JSON: counts, and what follows from them."""
    approvals = tally.approvals
    return {
        "calls": tally.calls,
        "errors": tally.errors,
        "error_rate": rate(tally.errors, tally.calls),
        "durations": tally.durations,
        "duration_mean_s": mean_s(tally.duration_us, tally.durations),
        "duration_p95_s": p95_s(tally),
        "retries": tally.retries,
        "approvals": approvals,
        "approval_wait_mean_s": mean_s(tally.approval_us, approvals),
        "loops": tally.loops,
        "loop_rate": rate(tally.loops, tally.calls),
    }


def window_view(window: Window) -> dict[str, Any]:
    """A window as JSON; times are seconds since 1970 UTC."""
    named = {"by": window.by, "name": window.name}
    times = {"start_s": window.start_s, "end_s": window.end_s}
    return named | times | tally_view(window.tally)


def mean_s(total_us: int, count: int) -> float | None:
    """A mean in seconds; None of nothing."""
    return total_us / count / MICROS if count else None
