"""`foldline replay --execute`: a harness run on a record, and where it leaves it."""

import asyncio
import os
import threading
from collections import Counter
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from foldline.cli.clean import clean_line
from foldline.cli.failures import NO, OK, UsageError
from foldline.cli.loading import load_attribute
from foldline.errors import FoldlineError
from foldline.producers.client import connect
from foldline.producers.identity import elapsed_clock_s
from foldline.producers.replaying import (
    STOP_GRACE_S,
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
    over = True
    if live and from_seq is not None:
        report = asyncio.run(_live(context, log, session_id, harness, from_seq))
    else:
        settings = context.settings()
        report, over = run_to_end(
            replay(log, session_id, harness, upto_seq=from_seq, settings=settings)
        )
    if context.out.json:
        context.out.record(view_of(report))
    else:
        _show(context.out, report)
    code = OK if report.ok else NO
    if not over:
        context.out.remark("foldline: the harness left something running: it is ended")
        context.out.flush()
        os._exit(code)
    return code


def run_to_end(replaying: Coroutine[Any, Any, ReplayReport]) -> tuple[ReplayReport, bool]:
    """Run a replay; gives its report, and whether nothing of the harness runs on.

    A task that ignores its cancellation, or a thread that does not end, would keep
    `asyncio.run` and the process waiting for ever.
    """
    before = set(threading.enumerate())
    runner = asyncio.Runner()
    threads = ThreadPoolExecutor(thread_name_prefix="foldline-replay")
    runner.get_loop().set_default_executor(threads)
    try:
        report = runner.run(replaying)
    finally:
        over = runner.run(_tasks_end())
        threads.shutdown(wait=False, cancel_futures=True)
        over = _threads_end(before) and over
        if over:
            runner.close()
    return report, over


def _threads_end(before: set[threading.Thread]) -> bool:
    """Whether all threads that were begun since have ended, after some grace."""
    begun = {t for t in threading.enumerate() if t not in before and not t.daemon}
    until_s = elapsed_clock_s() + STOP_GRACE_S
    for thread in begun:
        thread.join(max(until_s - elapsed_clock_s(), 0))
    return not any(thread.is_alive() for thread in begun)


async def _tasks_end() -> bool:
    """Cancel what tasks there still are; whether all of them have ended by that."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=STOP_GRACE_S)
    return all(task.done() for task in tasks)


async def _live(
    context: "Context",
    log: "AuditableLog",
    session_id: str,
    harness: Harness,
    from_seq: int,
) -> ReplayReport:
    def tell(fork_id: str) -> None:
        context.out.remark(f"foldline: going on live in session {fork_id}")
        context.out.flush()

    async with connect(log, settings=context.settings()) as client:
        try:
            return await continue_live(
                client, session_id, harness, from_seq=from_seq, told=tell
            )
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
        said = "went on live in session " if report.ok else "nothing was run in session "
        out.line((said, ""), (report.live_session_id, "bold"))


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
