"""`foldline fleet`: every session seen at once, in windows, with the loops in them."""

from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from foldline.cli.clean import clean_line
from foldline.cli.context import Context
from foldline.cli.failures import OK, UsageError
from foldline.cli.moments import moment_us
from foldline.cli.signals import stop_on_signals
from foldline.cli.worker import log_to_stderr

if TYPE_CHECKING:
    from foldline.processors.kafka_log import KafkaLog
    from foldline.processors.worker_health import Health
    from foldline.projections.fleet_folding import FleetFolding
    from foldline.projections.fleet_latest import FoundLoop
    from foldline.projections.fleet_local import Seen
    from foldline.projections.fleet_windows import Window
    from foldline.settings import Settings

SINCE = "24h"

FAUST = ("faust", "mode", "aiokafka", "foldline.processors")
"""What these loggers say is of interest when it warns: they tell of every step."""

EXTRA = "pip install 'foldline[fleet]'"

fleet = App(
    name="fleet",
    help="All sessions at once: windows by tool, model and agent, and loops.",
    help_format="plaintext",
    help_epilogue="",
    version_flags=(),
)


@fleet.command(name="worker")
def worker(
    *,
    mirrored: bool = False,
    context: Annotated[Context, Parameter(parse=False)],
) -> int:
    """Run one fleet worker of a log on Kafka, until SIGTERM or Ctrl-C.

    Any number of them share the partitions. It counts what sessions do in windows, and
    appends LoopDetected to those that go round in a circle now: what was recorded more
    than FOLDLINE_FLEET_TELL_MS ago is only counted. Health, readiness, metrics and the
    windows (/fleet/windows, /fleet/loops) are at FOLDLINE_HEALTH_PORT. Needs the extra
    `fleet`.

    Args:
        mirrored: Append to mirrored sessions, too; give it to all workers or to none.
        context: Where to read and append.
    """
    import asyncio  # late: --help does without

    from foldline.kafka import cluster_of  # late: --help does without
    from foldline.kafka_admin import create_fleet_changelog
    from foldline.processors.kafka_log import KafkaLog
    from foldline.processors.worker_health import listening
    from foldline.projections.fleet_folding import FleetFolding
    from foldline.topics import KAFKA

    settings = context.settings()
    if not settings.url.startswith(KAFKA):
        raise UsageError("--log", "a log on Kafka; of any other, see: fleet show")
    log_to_stderr(json_wanted=context.out.json, warnings_of=FAUST)
    cluster = cluster_of(settings)
    with (
        listening(settings) as (health, port),
        closing(KafkaLog(cluster, settings=settings)) as log,
    ):
        folding = FleetFolding(settings, mirrored=mirrored)
        create_fleet_changelog(
            cluster, settings, folding.version, partitions=log.partitions
        )
        asyncio.run(_run(context, settings, log, folding, health, port))
    return OK


async def _run(
    context: Context,
    settings: "Settings",
    log: "KafkaLog",
    folding: "FleetFolding",
    health: "Health",
    port: int | None,
) -> None:
    import asyncio  # late: with what it imports

    from foldline.kafka import cluster_of
    from foldline.processors.worker_slot import Slot
    from foldline.projections.fleet_text import FleetMetrics, FleetPages

    try:
        from foldline.processors.fleet import Fleet
    except ModuleNotFoundError as error:
        raise UsageError("fleet worker", f"the extra `fleet`: {EXTRA}") from error
    below = settings.model_copy(
        update={"state_dir": settings.state_dir / "fleet", "worker_slot": ""}
    )
    slot = Slot.take(below, log_id=log.log_id)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    try:
        fleet_ = Fleet(
            cluster_of(settings),
            settings,
            log=log,
            folding=folding,
            slot=slot,
            health=health,
            on_ready=lambda partitions: _say_ready(context, partitions, port),
        )
        pages = FleetPages(folding, settings)
        health.metrics = FleetMetrics(folding, pages, fleet_.lag.behind).text
        health.pages.update(pages.pages)
        stop_on_signals(lambda: loop.call_soon_threadsafe(stopping.set))
        await fleet_.run(stopping)
    finally:
        slot.release()


def _say_ready(context: Context, partitions: list[int], port: int | None) -> None:
    if context.out.json:
        view = {"ready": True, "partitions": partitions, "health_port": port}
        context.out.record(view)
    else:
        listed = ", ".join(map(str, partitions)) or "none yet"
        where = f"; health and windows at port {port}" if port is not None else ""
        context.out.line((f"fleet worker is ready: partitions {listed}{where}", "bold"))
    context.out.flush()


@fleet.command(name="show")
def show(
    *,
    since: str = SINCE,
    window: int | None = None,
    step: int | None = None,
    context: Annotated[Context, Parameter(parse=False)],
) -> int:
    """Show what all sessions of any log did, by tool, model and agent, and their loops.

    The same counts as a fleet worker's, made now, in this process.

    Args:
        since: From when on: a date or time, or how long ago, as in 7d, 12h, 30m.
        window: Show windows of so many seconds, not one sum.
        step: Begin a window every so many seconds; without it, side by side.
        context: Where to read.
    """
    from foldline.projections.fleet_fold import limits_of  # late: see above
    from foldline.projections.fleet_local import look

    settings = context.settings()
    since_us = moment_us("--since", since)
    pane_s = settings.fleet_pane_ms // 1_000
    with context.reading() as log:
        seen = look(log, pane_s=pane_s, since_us=since_us, limits=limits_of(settings))
    _show(context, seen, _windows_of(seen, window, step, pane_s=pane_s))
    return OK


def _windows_of(
    seen: "Seen", size_s: int | None, step_s: int | None, *, pane_s: int
) -> list["Window"]:
    """The windows that were asked for; by default one for each name, of everything."""
    from foldline.processors.worker_health import BadQueryError  # late: see above
    from foldline.projections.fleet_text import span_of
    from foldline.projections.fleet_windows import whole

    if size_s is None and step_s is None:
        return whole(seen.board.snapshot(), pane_s=pane_s)
    try:
        span = span_of(size_s or step_s or 0, step_s or size_s or 0, pane_s=pane_s)
    except BadQueryError as error:
        option = "--window" if error.name == "size_s" else "--step"
        raise UsageError(option, error.wanted) from error
    return seen.board.windows(span)


def _show(context: Context, seen: "Seen", windows: list["Window"]) -> None:
    from foldline.projections.fleet_text import loop_view  # late: see above
    from foldline.projections.fleet_windows import window_view

    for session_id, why in seen.lost.items():
        said = f"{session_id} is counted only up to what cannot be read: {why}"
        context.out.remark(clean_line(said))
    if context.out.json:
        context.out.record(
            {
                "sessions": seen.sessions,
                "events": seen.events,
                "windows": [window_view(window) for window in windows],
                "loops": [loop_view(found) for found in seen.loops],
            }
        )
        return
    context.out.line((f"{seen.events} events of {seen.sessions} sessions", "bold"))
    rows = [_COLUMNS, *(_row(window) for window in windows)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for number, row in enumerate(rows if windows else ()):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        context.out.line(("  ".join(cells).rstrip(), "" if number else "dim"))
    for found in seen.loops:
        context.out.line((_loop_line(found), "yellow"))


_COLUMNS = (
    *("from", "by", "name", "calls", "errors", "p95", "retries"),
    *("approvals", "wait", "loops"),
)


def _row(window: "Window") -> tuple[str, ...]:
    from foldline.projections.fleet_windows import tally_view  # late: see above

    tally: dict[str, Any] = tally_view(window.tally)
    errors = f"{tally['errors']} ({tally['error_rate']:.0%})" if tally["calls"] else "-"
    return (
        _time(window.start_s),
        window.by,
        clean_line(window.name),
        str(tally["calls"]),
        errors,
        _seconds(tally["duration_p95_s"]),
        str(tally["retries"]),
        str(tally["approvals"]),
        _seconds(tally["approval_wait_mean_s"]),
        str(tally["loops"]),
    )


def _time(second: int) -> str:
    from datetime import UTC, datetime  # late: see above

    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%d %H:%M")


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:g} s"


def _loop_line(found: "FoundLoop") -> str:
    loop = found.loop
    what = clean_line(loop.tool or "")
    where = f"session {clean_line(found.session_id)}, seq {loop.from_seq} to {loop.to_seq}"
    return f"{loop.kind} {what + ' ' if what else ''}{loop.count} times: {where}"
