"""`foldline verify`: are these the events that were recorded, and is this their fold?"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from foldline.cli.context import Context, chosen
from foldline.cli.failures import NO, OK

if TYPE_CHECKING:
    from foldline.cli.output import Output
    from foldline.processors.verify import Report


def verify(*session: str, context: Annotated[Context, Parameter(parse=False)]) -> int:
    """Check hash chains and states of a log. Exit code 1 if anything is wrong.

    Every event is read, its hash compared with what the next one says, every session
    folded again and compared with the stored state and with snapshot plus tail.

    Args:
        session: Only these; without any, all of the log.
        context: Where to read and write.
    """
    from foldline.processors.verify import verify as check  # late: --help does without

    out = context.out
    with context.reading() as log:
        session_ids = chosen(log, session) if session else None
        report = check(log, session_ids, on_progress=_progress(out))
        out.end_progress()
    if out.json:
        out.record(view_of(report))
    else:
        _show(out, report)
    return OK if report.ok else NO


def view_of(report: "Report") -> dict[str, Any]:
    """The report for machines: at most the first problems, and how many there are."""
    from foldline.projections.views import plain  # late: --help does without

    return {"ok": report.ok} | plain(report)


def _progress(out: "Output") -> Callable[[int, int], None] | None:
    show = out.progress()
    if show is None:
        return None
    return lambda done, total: show(f"{done:,} of {total:,} sessions verified")


def _show(out: "Output", report: "Report") -> None:
    from foldline.cli.clean import clean_line

    for problem in report.problems:
        where = f"{problem.session_id or 'the log'}, seq {problem.seq}: "
        out.line((clean_line(where) + " ", "bold"), (clean_line(problem.reason), ""))
    count = report.problem_count
    out.line(
        ("ok", "green") if report.ok else ("not ok", "red"),
        (f", {report.sessions:,} sessions, {report.events:,} events", ""),
        (f", {count:,} problems" if count else "", "red"),
    )
