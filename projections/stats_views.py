"""Statistics as plain data: one object for all sessions, one row for each. Pure.

Durations are in seconds, times of tools in milliseconds, money in whole units.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from foldline.projections.metric_names import MICROS
from foldline.projections.spread import Spread
from foldline.projections.stats import VERDICTS, Failed, OfTool, Stats
from foldline.projections.stats_after import AFTER_DENIAL, Compactions
from foldline.projections.stats_endings import ENDINGS
from foldline.projections.stats_failures import LAYERS
from foldline.projections.stats_walk import Told
from foldline.projections.views import iso_time

Clean = Callable[[str], str]
"""What is done to a name that somebody gave before it is shown."""

QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95}


def view_of(stats: Stats, *, clean: Clean) -> dict[str, Any]:
    """All of it as one object."""
    return {
        "sessions": stats.sessions,
        "verdicts": _counts(stats.verdicts, VERDICTS),
        "modes": dict(sorted(stats.modes.items())),
        "endings": _counts(stats.endings, ENDINGS),
        "spent": stats.spent.view(),
        "took": {
            verdict: {name: spread_view(getattr(took, name)) for name in took.__slots__}
            for verdict, took in stats.took.items()
        },
        "layers": {
            layer: _failed_view(stats.layers[layer])
            for layer in LAYERS
            if layer in stats.layers
        },
        "failures": [
            {"layer": failure.layer, "kind": clean(failure.kind)} | _failed_view(failed)
            for failure, failed in by_count(stats.failures, lambda one: one.count)
        ],
        "denials": {
            "count": sum(stats.denials.values()),
            "after": _counts(stats.denials, AFTER_DENIAL),
            "sessions": _counts(stats.denied, VERDICTS),
        },
        "compactions": _compactions_view(stats.compactions)
        | {"sessions": _counts(stats.compacted, VERDICTS)},
        "tools": [
            {"tool": clean(name)} | _tool_view(tool)
            for name, tool in by_count(stats.tools, lambda one: one.calls)
        ],
        "agents": [
            {
                "agent": clean(name),
                "sessions": _counts(agent.sessions, VERDICTS),
                "spent": agent.spent.view(),
            }
            for name, agent in by_count(stats.agents, lambda one: one.sessions.total())
        ],
        "days": [
            {"day": day_of(day), **_counts(verdicts, VERDICTS)}
            for day, verdicts in stats.days_in_order()
        ],
    }


def by_count(
    parts: Mapping[Any, Any], count: Callable[[Any], int]
) -> list[tuple[Any, Any]]:
    """Names and what they name, the most frequent first."""
    return sorted(parts.items(), key=lambda item: (-count(item[1]), item[0]))


def day_of(day: int) -> str:
    """A day since 1970 as a date."""
    return (iso_time(day * 86_400 * MICROS) or "-")[:10] if day else "-"


def share(part: float, whole: float) -> float:
    """A part of a whole, from 0 to 1; 0 of nothing."""
    return part / whole if whole else 0.0


def spread_view(spread: Spread) -> dict[str, float]:
    """A spread by its mean and quantiles."""
    return {
        "count": spread.count,
        "mean": round(spread.mean, 3),
        "min": spread.least,
        **{name: round(spread.quantile(q), 3) for name, q in QUANTILES.items()},
        "max": spread.most,
    }


def _counts(counts: Counter[str], names: Any) -> dict[str, int]:
    return {name: counts.get(name, 0) for name in names}


def _failed_view(failed: Failed) -> dict[str, Any]:
    sessions = failed.sessions.total()
    return {
        "count": failed.count,
        "sessions": sessions,
        "sessions_good": failed.sessions.get(VERDICTS[0], 0),
    }


def _tool_view(tool: OfTool) -> dict[str, Any]:
    return {
        "calls": tool.calls,
        "failed": tool.failed,
        "sessions": tool.sessions,
        "times_ms": spread_view(tool.times_ms),
    }


def _compactions_view(compactions: Compactions) -> dict[str, Any]:
    return {
        "count": compactions.count,
        "tokens_before": spread_view(compactions.tokens_before),
        "tokens_after": spread_view(compactions.tokens_after),
        "model_calls_until_next": spread_view(compactions.until_next),
        "calls_before": compactions.calls_before,
        "failed_before": compactions.failed_before,
        "calls_after": compactions.calls_after,
        "failed_after": compactions.failed_after,
        "asked_after": compactions.asked_after,
        "repeated_after": compactions.repeated_after,
    }


# --- one row for each session --------------------------------------------------------

COLUMNS = (
    "session_id",
    "agent",
    "mode",
    "relation",
    "began",
    "ended",
    "duration_s",
    "verdict",
    "ending",
    "reason",
    "events",
    "turns",
    "model_calls",
    "tool_calls",
    "input_tokens",
    "cached_tokens",
    "output_tokens",
    "cost",
    *(f"failures_{layer.lower()}" for layer in LAYERS),
    "denials",
    "asked_again",
    "compactions",
)
"""The columns of a row, in their order."""

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a cell begins with that a spreadsheet would compute."""


def row_of(told: Told, *, clean: Clean) -> list[str]:
    """One session as the cells of a row."""
    spent = told.spent
    cells: list[object] = [
        _safe(clean(told.session_id)),
        _safe(clean(told.agent)),
        told.mode,
        told.relation,
        iso_time(told.began_us) if told.began_us else "",
        iso_time(told.ended_us) if told.ended_us else "",
        spent.duration_us / MICROS,
        told.verdict,
        told.ending,
        _safe(clean(told.reason)),
        spent.events,
        spent.turns,
        spent.model_calls,
        spent.tool_calls,
        spent.input_tokens,
        spent.cached_tokens,
        spent.output_tokens,
        " ".join(f"{m / MICROS} {_safe(clean(n))}" for n, m in sorted(spent.costs.items())),
        *(told.failures_at(layer) for layer in LAYERS),
        sum(told.denials.values()),
        told.denials.get("ASKED_AGAIN", 0),
        told.compactions.count,
    ]
    return [str(cell) for cell in cells]


def _safe(text: str) -> str:
    """A cell that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text
