"""`foldline metrics`: what all sessions of a log did, in numbers."""

import hashlib
import threading
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from foldline.cli.clean import clean_line
from foldline.cli.context import Context
from foldline.cli.failures import OK, UsageError
from foldline.cli.health import serve_health
from foldline.cli.signals import stop_on_signals

if TYPE_CHECKING:
    from foldline.processors.kafka_log import KafkaLog
    from foldline.processors.stored import AuditableLog
    from foldline.processors.worker_health import Health
    from foldline.projections.metrics_counting import Counting

LOOK_EVERY_S = 1.0
"""How often a log of one machine is looked at for new events."""

RETRY_S = 1.0
"""How long one waits before asking brokers again that did not answer."""

IN_MEMORY = Path(":memory:")


def metrics(
    *,
    serve: str | None = None,
    partitions: str = "",
    context: Annotated[Context, Parameter(parse=False)],
) -> int:
    """Count what all sessions did, from the log's events, in Prometheus' text format.

    Without --serve every event is counted now. With it, counts are kept below the state
    folder together with how far they are, and are exact over restarts.

    Args:
        serve: Serve them at HOST:PORT under /metrics, until SIGTERM or Ctrl-C.
        partitions: Only these of a log on Kafka, as in 0-7.
        context: Where to read and write.
    """
    if serve is None:
        _print(context, partitions)
    else:
        _serve(context, serve, partitions)
    return OK


Count = Callable[[], int]
"""Counts some of what is new; gives how much."""


def _print(context: Context, partitions: str) -> None:
    from foldline.projections.metrics_text import SessionMetrics, view_of

    with _counter(context, partitions, stored=False) as (counting, count):
        count()
        while any(counting.lag.values()):
            count()
        shown = counting.shown
    if context.out.json:
        context.out.record(view_of(shown))
    else:
        context.out.text(SessionMetrics(lambda: shown).text().decode())


def _serve(context: Context, address: str, partitions: str) -> None:
    from foldline.processors.worker_health import Health
    from foldline.projections.metrics_text import SessionMetrics

    stopping = threading.Event()
    health = Health()
    with _counter(context, partitions, stored=True) as (counting, count), ExitStack() as up:
        health.metrics = SessionMetrics(lambda: counting.shown).text
        server = serve_health("--serve", address, health)
        up.callback(server.close)
        stop_on_signals(stopping.set)
        _say(context, f"http://{server.host}:{server.port}/metrics")
        _count_on(counting, count, health, stopping)


def _count_on(
    counting: "Counting", count: Count, health: "Health", stopping: threading.Event
) -> None:
    """Count until told to stop. Brokers that do not answer are asked again."""
    from foldline.errors import LogUnavailableError

    while not stopping.is_set():
        try:
            found = count()
        except LogUnavailableError as error:
            health.turned(str(error))
            stopping.wait(RETRY_S)
            continue
        behind = sum(counting.lag.values())
        if not behind:
            counting.go_live(time.time_ns() // 1_000)
        health.turned(*([f"{behind} records are not counted"] if behind else []))
        if not found:
            stopping.wait(0 if behind else LOOK_EVERY_S)


def _say(context: Context, url: str) -> None:
    log_url = context.settings().url
    if context.out.json:
        context.out.record({"serving": log_url, "url": url})
    else:
        context.out.line((f"metrics of {clean_line(log_url)} at {url}", "bold"))
    context.out.flush()


@contextmanager
def _counter(
    context: Context, partitions: str, *, stored: bool
) -> Generator[tuple["Counting", Count]]:
    """What counts the log, from its store or in memory."""
    from foldline.processors.kafka_log import KafkaLog  # late: only here

    with context.reading() as log:
        if isinstance(log, KafkaLog):
            with _kafka_counter(context, log, partitions, stored=stored) as counter:
                yield counter
            return
        if partitions:
            raise UsageError("--partitions", "a log on Kafka; any other is counted whole")
        with _local_counter(context, log, stored=stored) as counter:
            yield counter


@contextmanager
def _local_counter(
    context: Context, log: "AuditableLog", *, stored: bool
) -> Generator[tuple["Counting", Count]]:
    from foldline.projections.metrics_local import LocalCounter
    from foldline.projections.metrics_store import MetricsStore

    path = _path(context, log.url) if stored else IN_MEMORY
    store = MetricsStore(path, identity=log.url)
    try:
        counter = LocalCounter(log, store)
        yield counter.counting, counter.catch_up
    finally:
        store.close()


@contextmanager
def _kafka_counter(
    context: Context, log: "KafkaLog", partitions: str, *, stored: bool
) -> Generator[tuple["Counting", Count]]:
    from foldline.kafka import cluster_of
    from foldline.projections.metrics_kafka import KafkaCounter
    from foldline.projections.service_replica import range_of

    settings = context.settings()
    try:
        counted = range_of(partitions, log.partitions)
    except ValueError as error:
        raise UsageError("--partitions", str(error)) from error
    name = f"{log.log_id} {counted.start}-{counted.stop}"
    counter = KafkaCounter(
        cluster_of(settings),
        settings,
        codec=log.codec,
        partitions=counted,
        path=_path(context, name) if stored else IN_MEMORY,
    )
    try:
        yield counter.counting, counter.count_some
    finally:
        counter.close()


def _path(context: Context, name: str) -> Path:
    """The file with the counts of one log, below the state folder."""
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    return context.settings().state_dir / "metrics" / f"{digest}.db"
