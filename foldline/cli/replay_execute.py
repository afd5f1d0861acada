"""`foldline replay --execute`: a harness run on a record, and where it leaves it."""

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

from foldline.cli.clean import clean_line
from foldline.cli.failures import NO, OK, UsageError
from foldline.cli.loading import load_attribute
from foldline.errors import FoldlineError
from foldline.producers.client import connect
from foldline.producers.replaying import (
    Harness,
    ReplayReport,
    continue_live,
    replay,
)
from foldline.projections.views import plain

if TYPE_CHECKING:
    from foldline.cli.context import Context
    from foldline.cli.output import Output
    from foldline.processors.stored import AuditableLog


def run_harness(
    context: "Context",
    log: "AuditableLog",
    session_id: str,
    named: str,
    *,
    from_seq: int | None,
    live: bool,
) -> int:
    """Replay a harness on a session, or go on live from a seq, and say what came of it.

    Raises:
        UsageError: the harness cannot be imported, or is none.
    """
    harness: Harness = load_attribute("--execute", named)
    if not callable(harness):
        raise UsageError("--execute", f"{named} is not a function of (session, inputs)")
    if live and from_seq is not None:
        report = asyncio.run(_live(context, log, session_id, harness, from_seq))
    else:
        settings = context.settings()
        report = asyncio.run(
            replay(log, session_id, harness, upto_seq=from_seq, settings=settings)
        )
    if context.out.json:
        context.out.record(view_of(report))
    else:
        _show(context.out, report)
    return OK if report.ok else NO


async def _live(
    context: "Context",
    log: "AuditableLog",
    session_id: str,
    harness: Harness,
    from_seq: int,
) -> ReplayReport:
    async with connect(log, settings=context.settings()) as client:
        try:
            return await continue_live(client, session_id, harness, from_seq=from_seq)
        except FoldlineError:
            raise
        except Exception as error:  # whatever the user's harness raises
            said = f"the harness raised {type(error).__name__}: {error}"
            raise UsageError("--execute", said) from error


def view_of(report: ReplayReport) -> dict[str, Any]:
    """The report for machines."""
    return {"ok": report.ok} | plain(report)


def _show(out: "Output", report: ReplayReport) -> None:
    calls = f"{report.model_calls} of {report.model_calls_recorded} model calls"
    out.line((f"replayed {calls}, {report.turns} turns, ", ""), (_tools(report), ""))
    kinds = Counter(value.kind for value in report.values)
    for kind, count in kinds.most_common():
        out.line((f"  {count:>6,}  ", "dim"), (kind, ""))
    for lost in report.not_given:
        said = f"seq {lost.seq} {lost.type} could not be put back: {lost.rule}"
        out.line(("  " + clean_line(said), "yellow"))
    _show_end(out, report)
    if report.live_session_id:
        out.line(("went on live in session ", ""), (report.live_session_id, "bold"))


def _tools(report: ReplayReport) -> str:
    return f"{report.tool_calls} tool calls answered from the record, none run"


def _show_end(out: "Output", report: ReplayReport) -> None:
    found = report.divergence
    if found is None:
        said = report.ended or "to its end"
        out.line(("the same", "green"), (f" up to seq {report.matched_seq}, {said}", ""))
        return
    out.line(
        (f"differs at seq {found.seq}", "red"),
        (f", the same up to seq {report.matched_seq}", ""),
    )
    out.line(
        ("  cause     ", "dim"), (f"{found.cause}: {clean_line(found.detail)}", "bold")
    )
    if found.recorded or found.replayed:
        out.line(("  recorded  ", "dim"), (clean_line(found.recorded), ""))
        out.line(("  replayed  ", "dim"), (clean_line(found.replayed), ""))
