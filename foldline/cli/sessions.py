"""`foldline sessions`: what there is."""

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from foldline.cli.context import Context
from foldline.cli.failures import OK, UsageError

if TYPE_CHECKING:
    from foldline.cli.output import Output, Span
    from foldline.processors.log import SessionSummary

ID_CELLS_MAX = 80
STATUS_CELLS = 16
AGENT_CELLS = 20


def sessions(
    *,
    status: str | None = None,
    tenant: str | None = None,
    limit: int = 50,
    context: Annotated[Context, Parameter(parse=False)],
) -> int:
    """List sessions, the most recently active first. With --json a line per session.

    Args:
        status: Only of this status (RUNNING, WAITING_APPROVAL, COMPLETED and so on).
        tenant: Only of this tenant.
        limit: At most so many.
        context: Where to read and write.
    """
    if limit < 1:
        raise UsageError("--limit", "a number from 1")
    from foldline.projections.views import session_view  # late: --help does without
    from foldline.schemas.state import STATUSES

    wanted = status.upper() if status else None
    if wanted is not None and wanted not in STATUSES:
        raise UsageError("--status", f"one of {', '.join(STATUSES)}")
    with context.reading() as log:
        found = log.sessions(tenant=tenant, status=wanted, limit=limit)
        if context.out.json:
            for summary in found:
                context.out.record(session_view(summary))
            return OK
        _show(context.out, found)
        if not found:
            context.out.remark(f"no such session in {log.url}")
    return OK


def _show(out: "Output", found: list["SessionSummary"]) -> None:
    from foldline.cli.clean import clean_line, padded

    width = min(max((len(s.session_id) for s in found), default=0), ID_CELLS_MAX)
    for summary in found:
        spans: list[Span] = [
            (padded(clean_line(summary.session_id), cells=width) + "  ", "bold"),
            (padded(summary.status, cells=STATUS_CELLS) + "  ", style_of(summary.status)),
            (f"{summary.seq:>7,} events  ", ""),
            (_when(summary.recorded_at) + "  ", "dim"),
            (padded(clean_line(summary.agent), cells=AGENT_CELLS) + "  ", ""),
            (summary.mode.lower() if summary.mode != "OWNED" else "", "dim"),
        ]
        out.line(*spans)


def _when(time_us: int) -> str:
    from foldline.projections.views import moment_of

    moment = moment_of(time_us)
    return moment.strftime("%Y-%m-%d %H:%M:%S") if moment else " " * 19


def style_of(status: str) -> str:
    """The colour of a session's status."""
    return {
        "RUNNING": "cyan",
        "WAITING_APPROVAL": "yellow",
        "SUSPENDED": "yellow",
        "COMPLETED": "green",
        "FAILED": "red",
        "CANCELLED": "red",
    }.get(status, "")
