"""A fleet's windows for whoever asks: JSON over HTTP, and the latest ones for Prometheus.

| path | what it gives |
| --- | --- |
| `/fleet/windows` | windows: `by`, `name`, `size_s`, `step_s`, `since_s`, `limit` |
| `/fleet/loops` | the loops that were detected last: `session`, `limit` |
"""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl

from prometheus_client.core import Metric

from foldline.processors.worker_health import BadQueryError
from foldline.projections.fleet_folding import FleetFolding
from foldline.projections.fleet_latest import FoundLoop
from foldline.projections.fleet_states import COMPARISONS
from foldline.projections.fleet_windows import (
    BYS,
    Pane,
    Span,
    Tally,
    Window,
    mean_s,
    merges,
    p95_s,
    rate,
    single,
    window_view,
    windows,
)
from foldline.projections.metric_names import FLEET
from foldline.projections.metrics_text import AskedMetrics, Numbers, metric_of
from foldline.settings import Settings

WINDOWS = "/fleet/windows"
LOOPS = "/fleet/loops"

WINDOWS_SHOWN = 1_000
WINDOWS_SHOWN_MAX = 100_000
"""How many windows one answer has, unless told otherwise and at the most: the latest."""

SPANS_MAX = 1_000
"""How many windows may cover one moment."""

MERGES_MAX = 500_000
"""How often panes are added to windows that overlap, for one answer: about a second."""

Lag = Callable[[], Mapping[int, int]]


def loop_view(found: FoundLoop) -> dict[str, Any]:
    """A loop as JSON; `at_us` is when it was closed."""
    view = found.loop.model_dump(mode="json")
    return {"session_id": found.session_id, "at_us": found.at_us} | view


def span_of(size_s: int, step_s: int, *, pane_s: int) -> Span:
    """A window of so many seconds, every so many.

    Raises:
        BadQueryError: they are no multiples of a pane, or too many overlap.
    """
    for name, seconds in (("size_s", size_s), ("step_s", step_s)):
        if seconds < pane_s or seconds % pane_s:
            raise BadQueryError(name, f"a multiple of {pane_s}, which is a pane")
    if step_s > size_s or size_s > SPANS_MAX * step_s:
        raise BadQueryError("step_s", f"from size_s / {SPANS_MAX} to size_s")
    return Span(size_s, step_s)


class FleetPages:
    """What a fleet worker serves, beside its health. Any thread may ask."""

    def __init__(self, folding: FleetFolding, settings: Settings) -> None:
        self._folding = folding
        self._pane_s = settings.fleet_pane_ms // 1_000
        self._size_s = settings.fleet_window_ms // 1_000
        self.pages = {WINDOWS: self.windows, LOOPS: self.loops}

    def windows(self, query: str) -> dict[str, Any]:
        """The windows of a query, the latest last."""
        given = _given(query, {"by", "name", "size_s", "step_s", "since_s", "limit"})
        by = given.get("by")
        if by is not None and by not in BYS:
            raise BadQueryError("by", ", ".join(BYS))
        size_s = _number(given, "size_s", self._size_s)
        step_s = _number(given, "step_s", size_s)
        span = span_of(size_s, step_s, pane_s=self._pane_s)
        limit = min(_number(given, "limit", WINDOWS_SHOWN), WINDOWS_SHOWN_MAX)
        since_s = _number(given, "since_s", 0)
        panes = self._panes(by, given.get("name"), after_s=since_s - size_s)
        if step_s < size_s and merges(len(panes), span) > MERGES_MAX:
            raise BadQueryError("since_s", "later, or a larger step_s, or one name")
        found = [one for one in windows(panes, span) if one.end_s > since_s]
        shown = found[-limit:] if limit else []
        return {
            "size_s": span.size_s,
            "step_s": span.step_s,
            "windows": [window_view(window) for window in shown],
            "more": len(found) - len(shown),
        }

    def _panes(
        self, by: str | None, name: str | None, *, after_s: int
    ) -> list[tuple[Pane, Tally]]:
        """What windows are made of, as little of it as they need."""
        return [
            (pane, tally)
            for pane, tally in self._folding.board.snapshot()
            if pane.start_s > after_s
            and by in (None, pane.by)
            and name in (None, pane.name)
        ]

    def loops(self, query: str) -> dict[str, Any]:
        """The latest loops, the last one last."""
        given = _given(query, {"session", "limit"})
        limit = _number(given, "limit", WINDOWS_SHOWN)
        found = [
            loop_view(found)
            for found in self._folding.latest.all()
            if given.get("session", found.session_id) == found.session_id
        ]
        return {"loops": found[-limit:] if limit else []}

    def latest(self, now_s: float) -> list[Window]:
        """The windows of the last whole size, one for each name."""
        end_s = int(now_s) // self._pane_s * self._pane_s
        start_s = end_s - self._size_s
        panes = self._panes(None, None, after_s=start_s - 1)
        return single(panes, start_s=start_s, end_s=end_s)


def _given(query: str, known: set[str]) -> dict[str, str]:
    given = dict(parse_qsl(query, keep_blank_values=True))
    for name in given:
        if name not in known:
            raise BadQueryError(name, f"one of {', '.join(sorted(known))}")
    return given


def _number(given: Mapping[str, str], name: str, default: int) -> int:
    text = given.get(name)
    if text is None:
        return default
    if not text.isdecimal() or len(text) > len(str(2**40)):
        raise BadQueryError(name, "a whole number")
    return int(text)


class FleetMetrics(AskedMetrics):
    """What a fleet worker counts, with the latest windows when somebody asks."""

    def __init__(self, folding: FleetFolding, pages: FleetPages, lag: Lag) -> None:
        self._folding = folding
        self._pages = pages
        self._lag = lag
        super().__init__()

    def collect(self) -> Iterator[Metric]:
        """Every metric, also those without any series yet."""
        numbers = self._of_itself()
        latest = self._pages.latest(time.time())
        for name, value_of in _OF_WINDOW.items():
            values = {(one.by, one.name): value_of(one.tally) for one in latest}
            numbers[name] = {
                labels: (value,) for labels, value in values.items() if value is not None
            }
        for name, family in FLEET.items():
            yield metric_of(family, numbers[name])

    def _of_itself(self) -> dict[str, Numbers]:
        folding = self._folding
        return {
            "fleet_loops_detected": _by_word(folding.loops),
            "fleet_loop_verdicts": _by_word(folding.verdicts),
            "fleet_loops_untold": _by_word(folding.untold),
            "fleet_events": {(): (folding.events,)},
            "fleet_repeats": {(): (folding.repeats,)},
            "fleet_late_events": {(): (folding.late,)},
            "fleet_gaps": {(): (folding.gaps,)},
            "fleet_skipped_records": {(): (folding.skips,)},
            "fleet_states_compared": {
                (result,): (folding.compared[result],) for result in COMPARISONS
            },
            "fleet_panes": {(): (folding.board.count,)},
            "fleet_panes_dropped": {(): (folding.board.dropped_early,)},
            "fleet_lag_records": {
                (str(partition),): (lag,) for partition, lag in self._lag().items()
            },
        }


def _by_word(counts: Mapping[str, int]) -> Numbers:
    return {(word,): (number,) for word, number in sorted(dict(counts).items())}


_OF_WINDOW: dict[str, Callable[[Tally], float | None]] = {
    "fleet_calls": lambda tally: tally.calls,
    "fleet_errors": lambda tally: tally.errors,
    "fleet_error_ratio": lambda tally: rate(tally.errors, tally.calls),
    "fleet_duration_p95_seconds": p95_s,
    "fleet_retries": lambda tally: tally.retries,
    "fleet_approvals": lambda tally: tally.approvals,
    "fleet_approval_wait_seconds": lambda tally: mean_s(tally.approval_us, tally.approvals),
    "fleet_loops": lambda tally: tally.loops,
}
