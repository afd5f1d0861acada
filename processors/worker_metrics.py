"""What a worker measures, for Prometheus: its own registry, nothing global.

What partitions count is read when it is asked for; the poll loop only observes batches.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client import Counter as Total
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from foldline.processors.partition import Counters, Partition
from foldline.processors.restore_ways import Restored
from foldline.processors.worker_assignment import (
    BLOCKED,
    FAILED,
    RESTORED,
    RESTORING,
    RUNNING,
    Owned,
)

_PREFIX = "foldline_worker_"
_PHASES = (RESTORING, RESTORED, RUNNING, BLOCKED, FAILED)
_SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 10_000)
_TIMES_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)

_RESTORE_TIMES_S = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1_800)


class WorkerMetrics:
    """One worker's metrics. `owned` is called by the scraping thread."""

    def __init__(self, owned: Callable[[], list[Owned]]) -> None:
        self._owned = owned
        self._gone = Counters()
        self._lags: dict[int, _Lag] = {}
        self.registry = CollectorRegistry()
        self.batch = self._histogram("batch_appends", "Appends of a batch.", _SIZES)
        self.batch_s = self._histogram(
            "batch_seconds", "Time of a batch from consume to merge.", _TIMES_S
        )
        self.commit_s = self._histogram(
            "commit_seconds", "Time from begin to commit of a transaction.", _TIMES_S
        )
        self.restore_s = self._histogram(
            "restore_seconds", "Time that a partition was restored.", _RESTORE_TIMES_S
        )
        self.restored = self._total("restored_events", "Events that restores folded.")
        self.skipped = self._total(
            "skipped_events", "Records of events that no worker wrote, seen by restores."
        )
        self.aborts = self._total("aborts", "Transactions that were aborted and run again.")
        self.fences = self._total("fences", "Times that the producer was fenced.")
        self.losses = self._total("producer_losses", "Times that everything was restored.")
        self.verdicts_unsent = self._total(
            "verdicts_unsent", "Verdicts that were not delivered; a resend asks again."
        )
        self.dropped = self._total(
            "dropped_records", "Records of partitions no longer owned, dropped unread."
        )
        self.registry.register(cast("Any", self))

    def _histogram(self, name: str, text: str, buckets: Iterable[float]) -> Histogram:
        return Histogram(
            _PREFIX + name, text, buckets=tuple(buckets), registry=self.registry
        )

    def _total(self, name: str, text: str) -> Total:
        return Total(_PREFIX + name, text, registry=self.registry)

    def drop(self, partition: Partition) -> None:
        """Keep the counts of a partition that goes elsewhere."""
        _add(self._gone, partition.counters)

    def restore(self, restored: Restored) -> None:
        """Note that a partition is back: so long it was not worked on here."""
        self.restore_s.observe(restored.took_ms / 1000)
        self.restored.inc(restored.refolded)
        self.skipped.inc(restored.skipped)

    def text(self) -> bytes:
        """Everything in Prometheus' text format."""
        return generate_latest(self.registry)

    def collect(self) -> Iterator[Metric]:
        """What is read when it is asked for."""
        owned = self._owned()
        yield from self._counts(owned)
        yield from self._gauges(owned)

    def _counts(self, owned: list[Owned]) -> Iterator[Metric]:
        counters = _sum(self._gone, owned)
        verdicts = CounterMetricFamily(
            f"{_PREFIX}verdicts", "Verdicts by kind.", labels=["kind"]
        )
        for kind, count in sorted(counters.verdicts.items()):
            verdicts.add_metric([kind], count)
        yield verdicts
        poison = CounterMetricFamily(
            f"{_PREFIX}dead_letters", "Dead letters by reason.", labels=["reason"]
        )
        for reason, count in sorted(counters.reasons.items()):
            poison.add_metric([reason], count)
        yield poison
        for name, text, value in (
            ("events", "Events published.", counters.events),
            ("event_bytes", "Bytes of their values.", counters.event_bytes),
            ("snapshots", "Snapshots published.", counters.snapshots),
            ("snapshot_bytes", "Bytes of their values.", counters.snapshot_bytes),
            ("snapshots_starved", "Due snapshots that had to wait.", counters.starved),
        ):
            yield CounterMetricFamily(_PREFIX + name, text, value=value)

    def _gauges(self, owned: list[Owned]) -> Iterator[Metric]:
        phases = Counter(one.shown for one in owned)
        states = GaugeMetricFamily(
            f"{_PREFIX}partitions", "Partitions by phase.", labels=["phase"]
        )
        for phase in _PHASES:
            states.add_metric([phase], phases[phase])
        yield states
        gauges = {
            name: GaugeMetricFamily(_PREFIX + name, text, labels=["partition"])
            for name, text in (
                ("lag_appends", "Appends not admitted yet."),
                ("oldest_append_seconds", "For how long the next append has waited."),
                ("snapshot_lag_events", "Events above the low-water mark."),
                ("lost_sessions", "Sessions that are UNRECOVERABLE."),
                ("restore_done_records", "Records that a restore has read."),
                ("restore_total_records", "Records that it has to read."),
            )
        }
        for one in owned:
            for name, value in self._of(one).items():
                gauges[name].add_metric([str(one.index)], value)
        yield from gauges.values()

    def _of(self, one: Owned) -> dict[str, float]:
        values: dict[str, float] = {}
        if one.phase == RESTORING:
            values["restore_done_records"] = one.progress.done
            values["restore_total_records"] = one.progress.total
        if one.partition is None:
            return values
        values["snapshot_lag_events"] = one.partition.lag
        values["lost_sessions"] = one.partition.lost_sessions
        lag = self._lags.get(one.index)
        if lag is not None:
            values["lag_appends"] = lag.appends
            values["oldest_append_seconds"] = lag.waited_s()
        return values

    def watch(self, ends: Mapping[int, int]) -> None:
        """Compare positions with the ends of their partitions of `appends`.

        To be called regularly: a wait is measured from the first look. The poll loop
        does it, because a consumer that two threads call at once may hang.
        """
        lags: dict[int, _Lag] = {}
        for one in self._owned():
            end = ends.get(one.index)
            if one.partition is None or end is None:
                continue
            position = one.partition.position.input_offset
            before = self._lags.get(one.index)
            waits = before is not None and before.position == position and before.appends
            since_s = before.since_s if before and waits else time.monotonic()
            lags[one.index] = _Lag(position, max(end - position, 0), since_s)
        self._lags = lags


@dataclass(frozen=True, slots=True)
class _Lag:
    """How many appends wait at a position, and since when they were seen to."""

    position: int
    appends: int
    since_s: float

    def waited_s(self) -> float:
        """How long it has waited, in seconds."""
        return time.monotonic() - self.since_s if self.appends else 0.0


def _sum(gone: Counters, owned: list[Owned]) -> Counters:
    total = Counters()
    _add(total, gone)
    for one in owned:
        if one.partition is not None:
            _add(total, one.partition.counters)
    return total


def _add(total: Counters, more: Counters) -> None:
    for kind, count in dict(more.verdicts).items():
        total.verdicts[kind] = total.verdicts.get(kind, 0) + count
    for reason, count in dict(more.reasons).items():
        total.reasons[reason] = total.reasons.get(reason, 0) + count
    total.events += more.events
    total.event_bytes += more.event_bytes
    total.snapshots += more.snapshots
    total.snapshot_bytes += more.snapshot_bytes
    total.starved += more.starved
