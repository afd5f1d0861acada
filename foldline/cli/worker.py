"""`foldline worker`: admit, fold and answer the appends of a log on Kafka."""

import gc
import logging
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from foldline.cli.clean import clean_line
from foldline.cli.context import Context
from foldline.cli.failures import NO, OK
from foldline.cli.output import Output
from foldline.cli.signals import stop_on_signals

if TYPE_CHECKING:
    from foldline.processors.worker_health import Health
    from foldline.settings import Settings


SWITCH_INTERVAL_S = 0.0005
"""How long a restore's thread may keep the interpreter from the batch: with Python's
default, ten times that, each step of a commit would wait for it."""

GC_THRESHOLDS = (100_000, 20, 10)
"""After how many new containers Python looks for cycles, and how seldom it looks at older
ones. A batch makes some ten thousand and frees them without it: with the defaults it
walks over the cached states again and again. What may lie about as garbage is bounded by
the first."""


def worker(
    *, shadow: bool = False, context: Annotated[Context, Parameter(parse=False)]
) -> int:
    """Run one worker of a log on Kafka, until SIGTERM or Ctrl-C.

    Any number of them share the partitions; each has a slot of its own. It ends
    after the batch under way, writes its tables and leaves the group; a second signal
    ends it at once. Health, readiness and metrics are at FOLDLINE_HEALTH_PORT.

    Args:
        shadow: Build the snapshots of a new fold version beside the workers of the one
            before, and end when they are near enough to the end of the log.
        context: Where to read and write.
    """
    from foldline.processors.worker_health import listening  # late: --help does without

    log_to_stderr(json_wanted=context.out.json)
    settings = context.settings()
    if shadow:
        return _build_shadow(settings, context.out)
    with listening(settings) as (health, port):
        _run(settings, health, port, context.out)
    return OK


def _run(settings: "Settings", health: "Health", port: int | None, out: Output) -> None:
    from foldline.processors.worker import Worker  # late: with what it imports
    from foldline.processors.worker_setup import Setup

    def ready(partitions: list[int]) -> None:
        _say_ready(out, setup.slot.name, setup.protocol.name, partitions, port)

    sys.setswitchinterval(SWITCH_INTERVAL_S)
    _quieten_gc()
    setup = Setup.prepare(settings, health=health, on_ready=ready)
    try:
        running = Worker(setup, health)
        stop_on_signals(running.stop)
        running.run()
    finally:
        setup.close()


def _quieten_gc() -> None:
    """Leave what is imported out of every collection, and collect seldom."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def _build_shadow(settings: "Settings", out: Output) -> int:
    from foldline.processors.shadow import SHADOW_SLOT, Shadow  # late: see above
    from foldline.processors.worker_health import Health
    from foldline.processors.worker_setup import Setup

    own = settings.model_copy(update={"worker_slot": SHADOW_SLOT})
    setup = Setup.prepare(own, health=Health(), on_ready=lambda _: None)
    try:
        building = Shadow(setup)
        stop_on_signals(building.stop)
        built = building.build()
    finally:
        setup.close()
    if out.json:
        out.record({"built": built, "topic": setup.snapshots})
    elif built:
        out.line((f"{setup.snapshots} is built: roll the workers now", "bold"))
    else:
        out.line((f"stopped: {setup.snapshots} keeps what it has by now", ""))
    return OK if built else NO


def _say_ready(
    out: Output, slot: str, protocol: str, partitions: list[int], port: int | None
) -> None:
    if out.json:
        view: dict[str, Any] = {
            "ready": True,
            "slot": slot,
            "protocol": protocol,
            "partitions": partitions,
            "health_port": port,
        }
        out.record(view)
    else:
        listed = ", ".join(str(index) for index in partitions) or "none yet"
        where = f"; health at port {port}" if port is not None else ""
        out.line((f"worker {slot} is ready: partitions {listed}{where}", "bold"))
    out.flush()


def log_to_stderr(*, json_wanted: bool, warnings_of: Sequence[str] = ()) -> None:
    """Foldline's log lines, for people or as JSON, on stderr.

    Args:
        json_wanted: one JSON object per line.
        warnings_of: other loggers, of which only warnings are shown.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines() if json_wanted else _Lines())
    for name in ("foldline", *warnings_of):
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.setLevel(logging.WARNING if name in warnings_of else logging.INFO)
        logger.propagate = False


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        time = self.formatTime(record, "%H:%M:%S")
        return clean_line(f"{time} {record.levelname.lower():<7} {record.getMessage()}")


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        import json  # late: with the first line

        view = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        return json.dumps(view)
