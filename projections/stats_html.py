"""Statistics as one page: plots and tables, nothing loaded from anywhere. Pure.

Every name that somebody gave comes cleaned and is escaped; the page forbids scripts and
whatever would be fetched.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from itertools import islice

from foldline.projections.metric_names import MICROS
from foldline.projections.spread import Spread
from foldline.projections.stats import VERDICTS, Stats, Took
from foldline.projections.stats_after import AFTER_DENIAL, CALLS_LOOKED_AT
from foldline.projections.stats_endings import BAD, ENDINGS, GOOD, OPEN, verdict_of
from foldline.projections.stats_failures import LAYERS
from foldline.projections.stats_page import STYLE
from foldline.projections.stats_svg import Bar, Column, bars, columns
from foldline.projections.stats_views import Clean, by_count, day_of, share

ROWS_SHOWN = 40
"""How many rows a table has: the most frequent ones."""

COLUMNS_SHOWN = 24
"""How many columns a histogram has at most."""

PERIODS_SHOWN = 60
"""How many columns time has at most."""

_STYLES = {GOOD: "c-good", BAD: "c-bad", OPEN: "c-open"}
_MEASURES = {
    "model_calls": "model calls",
    "tool_calls": "tool calls",
    "turns": "turns",
    "tokens": "tokens",
    "output_tokens": "output tokens",
    "duration_s": "seconds",
    "failures": "failures",
}


def page_of(stats: Stats, *, clean: Clean, about: str) -> str:
    """The whole page.

    Args:
        stats: of all sessions.
        clean: what is done to a name that somebody gave.
        about: which sessions these are.
    """
    body = [
        f"<h1>Sessions</h1><p class='about'>{escape(about)}</p>",
        _cards(stats),
        _section("Why they ended", _endings(stats), _LEGEND),
        _section("When they began", _days(stats)),
        _section("Where it failed", _layers(stats), _failures(stats, clean)),
        _section("What it took", *_took(stats)),
        _section("What came after a denial", _denials(stats)),
        _section("Compactions, and what came after them", _compactions(stats)),
        _section("Tools", _tools(stats, clean)),
        _section("Agents", _agents(stats, clean)),
    ]
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta http-equiv='Content-Security-Policy' "
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        "<meta name='color-scheme' content='light dark'>"
        f"<title>foldline stats</title><style>{STYLE}</style></head>"
        f"<body><main>{''.join(body)}</main></body></html>\n"
    )


_LEGEND = (
    "<p class='legend'><span class='k-good'></span> went well "
    "<span class='k-bad'></span> did not <span class='k-open'></span> still open</p>"
)


def _section(title: str, *parts: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{''.join(parts)}</section>"


def _cards(stats: Stats) -> str:
    spent = stats.spent
    good, bad = stats.verdicts.get(GOOD, 0), stats.verdicts.get(BAD, 0)
    cards = [
        ("sessions", f"{stats.sessions:,}"),
        ("went well, of those that ended", percent(good, good + bad)),
        ("model calls", short_number(spent.model_calls)),
        ("tool calls", short_number(spent.tool_calls)),
        ("tokens", short_number(spent.tokens)),
        ("of the input from a cache", percent(spent.cached_tokens, spent.input_tokens)),
        ("failures", short_number(sum(f.count for f in stats.layers.values()))),
        *(
            (f"spent, {name}", f"{micros / MICROS:,.2f}")
            for name, micros in sorted(spent.costs.items())
        ),
    ]
    told = (f"<div><b>{escape(v)}</b><span>{escape(n)}</span></div>" for n, v in cards)
    return f"<div class='cards'>{''.join(told)}</div>"


def _endings(stats: Stats) -> str:
    rows = [
        Bar(ENDINGS[name][1], count, f"{count:,}", _STYLES[verdict_of(name)])
        for name, count in by_count(stats.endings, lambda count: count)
    ]
    return bars("Sessions by why they ended, or where they stand", rows)


def _days(stats: Stats) -> str:
    """Days, or as many of them together as make few enough columns."""
    days = [(day, verdicts) for day, verdicts in stats.days_in_order() if day]
    if not days:
        return "<p>Nobody says when.</p>"
    first, last = days[0][0], days[-1][0]
    size = max(-(-(last - first + 1) // PERIODS_SHOWN), 1)
    periods: dict[int, Counter[str]] = {
        begin: Counter() for begin in range(first, last + 1, size)
    }
    for day, verdicts in days:
        periods[first + (day - first) // size * size].update(verdicts)
    given = [
        Column(
            day_of(begin),
            [(verdicts.get(verdict, 0), _STYLES[verdict]) for verdict in VERDICTS],
            f"{verdicts.total():,} sessions",
        )
        for begin, verdicts in periods.items()
    ]
    each = "a day" if size == 1 else f"{size} days"
    note = f"<p class='note'>A column is {each}. Sessions without a time are left out.</p>"
    return columns("Sessions by when they began", given) + note


def _layers(stats: Stats) -> str:
    rows = [
        Bar(layer.capitalize(), failed.count, f"{failed.count:,}", "c-bad")
        for layer in LAYERS
        if (failed := stats.layers.get(layer)) is not None
    ]
    return bars("Failures by layer", rows) if rows else "<p>Nothing failed.</p>"


def _failures(stats: Stats, clean: Clean) -> str:
    rows = [
        (
            failure.layer.capitalize(),
            clean(failure.kind),
            f"{failed.count:,}",
            f"{failed.sessions.total():,}",
            percent(failed.sessions.get(GOOD, 0), failed.sessions.total()),
        )
        for failure, failed in by_count(stats.failures, lambda one: one.count)
    ]
    heads = ("layer", "what", "times", "sessions", "of these went well")
    return _table(heads, rows, texts=2)


def _took(stats: Stats) -> Iterable[str]:
    good, bad = stats.took[GOOD], stats.took[BAD]
    yield _histogram("Model calls of sessions that went well", good.model_calls, "c-good")
    yield _histogram("Tokens of sessions that went well", good.tokens, "c-good")
    yield _histogram("Model calls of sessions that did not", bad.model_calls, "c-bad")
    heads = ("", "", "sessions", "mean", "median", "90 %", "most")
    rows = [
        (_MEASURES[name], verdict.lower(), *_quantiles(took, name))
        for name in _MEASURES
        for verdict, took in stats.took.items()
        if took.turns.count
    ]
    yield _table(heads, rows, texts=2)


def _quantiles(took: Took, name: str) -> Sequence[str]:
    spread: Spread = getattr(took, name)
    numbers = (spread.mean, spread.quantile(0.5), spread.quantile(0.9), spread.most)
    return (f"{spread.count:,}", *map(short_number, numbers))


def _histogram(title: str, spread: Spread, style: str) -> str:
    if not spread.count:
        return f"<p class='note'>{escape(title)}: there are none.</p>"
    given = [
        Column(
            short_number(high),
            [(count, style)],
            f"{count:,} from {short_number(low)} to {short_number(high)}",
        )
        for low, high, count in spread.columns(COLUMNS_SHOWN)
    ]
    note = "<p class='note'>Below a column is the most in it; each is wider.</p>"
    return f"<h3>{escape(title)}</h3>{columns(title, given)}{note}"


def _denials(stats: Stats) -> str:
    whole = sum(stats.denials.values())
    if not whole:
        return "<p>Nothing was denied.</p>"
    rows = [
        Bar(said, count, f"{count:,} ({percent(count, whole)})", "c-one")
        for name, said in AFTER_DENIAL.items()
        if (count := stats.denials.get(name, 0))
    ]
    return bars("What came first after a denial", rows)


def _compactions(stats: Stats) -> str:
    told = stats.compactions
    if not told.count:
        return "<p>Nothing was compacted.</p>"
    sessions = stats.compacted
    before = percent(told.failed_before, told.calls_before)
    after = percent(told.failed_after, told.calls_after)
    rows = [
        ("compactions", f"{told.count:,}"),
        ("sessions with one", f"{sessions.total():,}"),
        ("of these went well", percent(sessions.get(GOOD, 0), sessions.total())),
        ("tokens before, median", short_number(told.tokens_before.quantile(0.5))),
        ("tokens after, median", short_number(told.tokens_after.quantile(0.5))),
        (
            "model calls to the next, median",
            short_number(told.until_next.quantile(0.5)),
        ),
        (f"of {CALLS_LOOKED_AT} calls before it, failed", before),
        (f"of {CALLS_LOOKED_AT} calls after it, failed", after),
        (
            "of these the same as one before it",
            percent(told.repeated_after, told.asked_after),
        ),
    ]
    return _table(("", ""), rows)


def _tools(stats: Stats, clean: Clean) -> str:
    heads = ("tool", "calls", "failed", "sessions", "median, ms", "95 %, ms")
    rows = [
        (
            clean(name),
            f"{tool.calls:,}",
            percent(tool.failed, tool.calls),
            f"{tool.sessions:,}",
            *(
                short_number(tool.times_ms.quantile(q)) if tool.times_ms.count else "-"
                for q in (0.5, 0.95)
            ),
        )
        for name, tool in by_count(stats.tools, lambda one: one.calls)
    ]
    return _table(heads, rows)


def _agents(stats: Stats, clean: Clean) -> str:
    heads = ("agent", "sessions", "went well", "did not", "open", "model calls", "tokens")
    rows = [
        (
            clean(name),
            f"{agent.sessions.total():,}",
            *(f"{agent.sessions.get(verdict, 0):,}" for verdict in VERDICTS),
            short_number(agent.spent.model_calls),
            short_number(agent.spent.tokens),
        )
        for name, agent in by_count(stats.agents, lambda one: one.sessions.total())
    ]
    return _table(heads, rows)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, texts: int = 1) -> str:
    """A table whose first columns are texts, and all others numbers."""
    styles = ["text" if number < texts else "" for number in range(len(heads))]
    head = _cells("th", heads, styles)
    told = "".join(
        f"<tr>{_cells('td', row, styles)}</tr>" for row in islice(rows, ROWS_SHOWN)
    )
    more = len(rows) - ROWS_SHOWN
    note = f"<p class='note'>and {more:,} more</p>" if more > 0 else ""
    if not rows:
        return "<p>There are none.</p>"
    return (
        "<div class='wide'><table><thead><tr>"
        f"{head}</tr></thead><tbody>{told}</tbody></table></div>{note}"
    )


def _cells(tag: str, texts: Sequence[str], styles: Sequence[str]) -> str:
    return "".join(
        f"<{tag} class='{style}'>{escape(text)}</{tag}>"
        for text, style in zip(texts, styles, strict=True)
    )


def percent(part: float, whole: float) -> str:
    """A share in percent; of nothing none."""
    return f"{share(part, whole):.0%}" if whole else "-"


def short_number(number: float) -> str:
    """A number of few digits: 12, 3.4, 56 k, 7.8 M."""
    for unit, size in ((" G", 1e9), (" M", 1e6), (" k", 1e3)):
        if number >= size:
            return f"{number / size:,.3g}{unit}"
    return f"{number:.3g}"
