"""`foldline stats`: many sessions summed up: why they ended, what failed, what it took."""

import csv
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from foldline.cli.clean import clean_line
from foldline.cli.context import Context, redactor_of
from foldline.cli.failures import OK, UsageError
from foldline.cli.signals import undone_by_signals

if TYPE_CHECKING:
    from foldline.cli.output import Output
    from foldline.processors.stored import AuditableLog, StoredSession
    from foldline.projections.stats import Stats
    from foldline.projections.stats_walk import Told

NAME_MAX_CHARS = 80
"""How much of a name that somebody gave is shown."""

HTML = "--html"

PROGRESS_EVERY = 16
"""How many sessions are read before progress is told again."""


def stats(  # the options of a command
    *,
    since: str | None = None,
    agent: str | None = None,
    mode: str | None = None,
    tenant: str | None = None,
    csv_: Annotated[bool, Parameter(name="--csv")] = False,
    html: Path | None = None,
    context: Annotated[Context, Parameter(parse=False)],
) -> int:
    """Sum up many sessions: why they ended, at which layer it failed, what success took.

    Each session's events are read once; what is kept does not grow with their number.

    Args:
        since: Only sessions with an event from then on: 2026-11-30, or 7d for a week.
        agent: Only sessions of these agents (a glob, as in coder*).
        mode: Only OWNED or MIRRORED sessions.
        tenant: Only sessions of this tenant.
        csv_: One row for each session instead, as CSV.
        html: Also write a page with plots to this file.
        context: Where to read and write.
    """
    if csv_ and context.out.json:
        raise UsageError("--csv", "either --csv or --json")
    if html is not None:
        from foldline.cli.whole_file import check_place  # late: --help does without

        check_place(html, log_url=context.settings().url, option=HTML)
    if mode is not None and mode.upper() not in ("OWNED", "MIRRORED"):
        raise UsageError("--mode", "OWNED or MIRRORED")
    from foldline.cli.moments import moment_us  # late: --help does without
    from foldline.projections.stats import Stats

    since_us = moment_us("--since", since) if since else 0

    def wanted(row: "StoredSession") -> bool:
        return (
            row.recorded_at >= since_us
            and (agent is None or fnmatchcase(row.agent, agent))
            and (mode is None or row.mode == mode.upper())
            and (tenant is None or row.tenant == tenant)
        )

    whole = Stats()
    with context.reading() as log:
        clean = _cleaner(context, log)
        sessions = _each(context, log, wanted, since_us)
        if csv_:
            _write_rows(context.out, sessions, whole, clean)
        else:
            for told in sessions:
                whole.add(told)
    context.out.end_progress()
    if html is not None:
        _write_page(html, whole, clean, _about(since, agent, mode, tenant))
    if context.out.json:
        from foldline.projections.stats_views import view_of

        context.out.record(view_of(whole, clean=clean))
    elif not csv_:
        from foldline.cli.stats_table import show_stats

        show_stats(context.out, whole, clean=clean)
    return OK


def _each(
    context: Context,
    log: "AuditableLog",
    wanted: "Callable[[StoredSession], bool]",
    since_us: int,
) -> "Iterator[Told]":
    """Each session, walked; one whose events cannot be read is named and left out."""
    from foldline.errors import UNREADABLE
    from foldline.projections.stats_walk import SessionWalk

    rows = [row for row in log.stored_sessions() if wanted(row)]
    show = context.out.progress()
    for number, row in enumerate(rows):
        if show is not None and number % PROGRESS_EVERY == 0:
            show(f"{number:,} of {len(rows):,} sessions")
        walk = SessionWalk(row.session_id)
        try:
            for recorded in log.structure(row.session_id):
                walk.take(recorded)
        except UNREADABLE as error:
            context.out.remark(clean_line(f"{row.session_id} is left out: {error}"))
            continue
        told = walk.told()
        if told.ended_us >= since_us or not told.ended_us:
            yield told


def _cleaner(context: Context, log: "AuditableLog") -> Callable[[str], str]:
    """What makes a name fit to be shown: without secrets, on one line, not too long."""
    redactor = redactor_of(log, context.settings())

    def clean(name: str) -> str:
        text, _ = redactor.redact_text(name)
        return clean_line(text, max_chars=NAME_MAX_CHARS)

    return clean


class _Lines:
    """A file for rows: each goes to where the command's answer goes."""

    def __init__(self, out: "Output") -> None:
        self._out = out

    def write(self, text: str) -> object:
        """Write a row."""
        self._out.text(text)
        return None


def _write_rows(
    out: "Output", sessions: "Iterator[Told]", whole: "Stats", clean: Callable[[str], str]
) -> None:
    from foldline.projections.stats_views import COLUMNS, row_of

    rows = csv.writer(_Lines(out), lineterminator="\n")
    rows.writerow(COLUMNS)
    for told in sessions:
        whole.add(told)
        rows.writerow(row_of(told, clean=clean))


def _write_page(
    path: Path, whole: "Stats", clean: Callable[[str], str], about: str
) -> None:
    from foldline.cli.whole_file import whole_file  # late: --help does without
    from foldline.projections.stats_html import page_of

    page = page_of(whole, clean=clean, about=about)
    try:
        with undone_by_signals(), whole_file(path, option=HTML) as file:
            file.write(page.encode())
    except OSError as error:
        raise UsageError(HTML, f"a file that can be written: {error}") from error


def _about(*given: str | None) -> str:
    names = ("since", "agent", "mode", "tenant")
    said = [f"{name} {text}" for name, text in zip(names, given, strict=True) if text]
    return f"Sessions of one log; {', '.join(said) or 'all of them'}."
