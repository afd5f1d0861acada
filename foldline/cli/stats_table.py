"""How statistics are shown on a terminal: tables of few columns."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from foldline.cli.clean import padded
from foldline.projections.metric_names import MICROS
from foldline.projections.stats_after import AFTER_DENIAL, CALLS_LOOKED_AT
from foldline.projections.stats_endings import BAD, ENDINGS, GOOD, verdict_of
from foldline.projections.stats_html import percent, short_number
from foldline.projections.stats_views import by_count

if TYPE_CHECKING:
    from foldline.cli.output import Output
    from foldline.projections.spread import Spread
    from foldline.projections.stats import Stats

ROWS_SHOWN = 15
"""How many rows a table has: the most frequent ones."""

NAME_CELLS = 44
NUMBER_CELLS = 11

_STYLES = {GOOD: "green", BAD: "red"}
_MEASURES = {
    "model_calls": "model calls",
    "tool_calls": "tool calls",
    "tokens": "tokens",
    "duration_s": "seconds",
}


def show_stats(out: "Output", stats: "Stats", *, clean: Callable[[str], str]) -> None:
    """All of it."""
    _show_whole(out, stats)
    if not stats.sessions:
        return
    _show_endings(out, stats)
    _show_failures(out, stats, clean)
    _show_took(out, stats)
    _show_after(out, stats)
    _show_tools(out, stats, clean)


def _show_whole(out: "Output", stats: "Stats") -> None:
    spent = stats.spent
    good, bad = stats.verdicts.get(GOOD, 0), stats.verdicts.get(BAD, 0)
    parts = [
        f"{stats.sessions:,} sessions",
        f"{percent(good, good + bad)} of those that ended went well",
        f"{spent.model_calls:,} model calls",
        f"{spent.tool_calls:,} tool calls",
        f"{short_number(spent.tokens)} tokens",
        *(f"{micros / MICROS:,.2f} {name}" for name, micros in sorted(spent.costs.items())),
    ]
    out.line((", ".join(parts), "bold"))


def _show_endings(out: "Output", stats: "Stats") -> None:
    out.heading("Why they ended")
    for name, count in by_count(stats.endings, lambda count: count):
        style = _STYLES.get(verdict_of(name), "")
        _row(out, ENDINGS[name][1], [f"{count:,}", percent(count, stats.sessions)], style)


def _show_failures(out: "Output", stats: "Stats", clean: Callable[[str], str]) -> None:
    out.heading("Where it failed")
    _heads(out, ["times", "sessions", "went well"])
    failures = by_count(stats.failures, lambda one: one.count)
    for failure, failed in failures[:ROWS_SHOWN]:
        sessions = failed.sessions.total()
        well = percent(failed.sessions.get(GOOD, 0), sessions)
        name = f"{failure.layer.capitalize()}: {clean(failure.kind)}"
        _row(out, name, [f"{failed.count:,}", f"{sessions:,}", well])
    _show_more(out, len(failures))


def _show_took(out: "Output", stats: "Stats") -> None:
    out.heading("What it took")
    _heads(out, ["sessions", "median", "90 %", "most"])
    for name, label in _MEASURES.items():
        for verdict, took in stats.took.items():
            spread = getattr(took, name)
            if not spread.count:
                continue
            numbers = (spread.quantile(0.5), spread.quantile(0.9), spread.most)
            cells = [f"{spread.count:,}", *map(short_number, numbers)]
            _row(out, f"{label}, {verdict.lower()}", cells, _STYLES.get(verdict, ""))


def _show_after(out: "Output", stats: "Stats") -> None:
    denials = sum(stats.denials.values())
    if denials:
        out.heading(f"What came after {denials:,} denials")
        for name, said in AFTER_DENIAL.items():
            if count := stats.denials.get(name, 0):
                _row(out, said, [f"{count:,}", percent(count, denials)])
    told = stats.compactions
    if not told.count:
        return
    out.heading(f"{told.count:,} compactions, and what came after them")
    sessions = stats.compacted
    well = percent(sessions.get(GOOD, 0), sessions.total())
    until = short_number(told.until_next.quantile(0.5))
    before = percent(told.failed_before, told.calls_before)
    after = percent(told.failed_after, told.calls_after)
    again = percent(told.repeated_after, told.asked_after)
    _row(out, "sessions with one", [f"{sessions.total():,}"])
    _row(out, "of these went well", [well])
    _row(out, "tokens before, median", [_median(told.tokens_before)])
    _row(out, "tokens after, median", [_median(told.tokens_after)])
    _row(out, "model calls to the next, median", [until])
    _row(out, f"of {CALLS_LOOKED_AT} calls before it, failed", [before])
    _row(out, f"of {CALLS_LOOKED_AT} calls after it, failed", [after])
    _row(out, "of these the same as one before it", [again])


def _median(spread: "Spread") -> str:
    return short_number(spread.quantile(0.5)) if spread.count else "-"


def _show_tools(out: "Output", stats: "Stats", clean: Callable[[str], str]) -> None:
    if not stats.tools:
        return
    out.heading("Tools")
    _heads(out, ["calls", "failed", "median, ms", "95 %, ms"])
    tools = by_count(stats.tools, lambda one: one.calls)
    for name, tool in tools[:ROWS_SHOWN]:
        times = [
            short_number(tool.times_ms.quantile(q)) if tool.times_ms.count else "-"
            for q in (0.5, 0.95)
        ]
        failed = percent(tool.failed, tool.calls)
        _row(out, clean(name), [f"{tool.calls:,}", failed, *times])
    _show_more(out, len(tools))


def _show_more(out: "Output", rows: int) -> None:
    if (more := rows - ROWS_SHOWN) > 0:
        out.line((f"  and {more:,} more", "dim"))


def _heads(out: "Output", heads: Sequence[str]) -> None:
    cells = "".join(f"{head:>{NUMBER_CELLS}}" for head in heads)
    out.line((" " * (NAME_CELLS + 2) + cells, "dim"))


def _row(out: "Output", name: str, cells: Sequence[str], style: str = "") -> None:
    numbers = "".join(f"{cell:>{NUMBER_CELLS}}" for cell in cells)
    out.line((f"  {padded(name, cells=NAME_CELLS)}", style), (numbers, ""))
