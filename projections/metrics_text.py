"""Counts for Prometheus, by its own client, and for other machines as JSON."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from typing import Any, cast

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from foldline.projections.metric_names import (
    CONSUMER,
    COUNTER,
    FAMILIES,
    GAUGE,
    MICROS,
    Family,
)
from foldline.projections.metrics_counting import Shown

Numbers = Mapping[tuple[str, ...], tuple[float, ...]]
"""The series of one metric, by the values of its labels."""


class AskedMetrics(ABC):
    """A registry of its own, with what `collect` gives when somebody asks."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(cast("Any", self))

    def text(self) -> bytes:
        """Everything in Prometheus' text format."""
        return generate_latest(self.registry)

    def describe(self) -> list[Metric]:
        """Nothing is asked for when it is registered."""
        return []

    @abstractmethod
    def collect(self) -> Iterator[Metric]:
        """Every metric, also those without any series yet."""


class SessionMetrics(AskedMetrics):
    """The metrics of what `shown` gives."""

    def __init__(self, shown: Callable[[], Shown]) -> None:
        self._shown = shown
        super().__init__()

    def collect(self) -> Iterator[Metric]:
        """Every metric, also those without any series yet."""
        shown = self._shown()
        series = by_metric(shown)
        for name, family in FAMILIES.items():
            yield metric_of(family, series.get(name, {}))
        for name, family in CONSUMER.items():
            yield metric_of(family, _of_consumer(shown, name))


def by_metric(shown: Shown) -> dict[str, dict[tuple[str, ...], tuple[int, ...]]]:
    """The series by metric; in the order of their labels."""
    found: dict[str, dict[tuple[str, ...], tuple[int, ...]]] = {}
    for key, numbers in sorted(shown.series.items()):
        found.setdefault(key.name, {})[key.labels] = numbers
    return found


def _of_consumer(shown: Shown, name: str) -> Numbers:
    match name:
        case "metrics_lag_events":
            return {
                ("" if partition is None else str(partition),): (lag,)
                for partition, lag in shown.lag.items()
            }
        case "metrics_repeats":
            return {(): (shown.repeats,)}
        case "metrics_skipped_records":
            return {(): (shown.skipped,)}
        case "metrics_live_timestamp_seconds":
            return {(): (shown.live_since / MICROS,)}
        case "approvals_oldest_timestamp_seconds":
            return {(): (shown.waiting_since / MICROS,)}
        case _:
            return {(): (shown.gaps,)}


def metric_of(family: Family, numbers: Numbers) -> Metric:
    """One metric with its series; one without labels is there from the beginning."""
    labels = list(family.labels)
    if not labels and not numbers:
        numbers = {(): (0,) * (len(family.buckets) + 2 if family.buckets else 1)}
    if family.kind == COUNTER:
        counter = CounterMetricFamily(family.shown, family.text, labels=labels)
        for values, (number,) in numbers.items():
            counter.add_metric(values, number)
        return counter
    if family.kind == GAUGE:
        gauge = GaugeMetricFamily(family.shown, family.text, labels=labels)
        for values, (number,) in numbers.items():
            gauge.add_metric(values, number)
        return gauge
    histogram = HistogramMetricFamily(family.shown, family.text, labels=labels)
    bounds = _bounds(family)
    for values, (*each, micros) in numbers.items():
        buckets = list(zip(bounds, accumulate(each), strict=True))
        histogram.add_metric(values, buckets, micros / MICROS)
    return histogram


def _bounds(family: Family) -> list[str]:
    return [*map(str, family.buckets), "+Inf"]


def view_of(shown: Shown) -> dict[str, Any]:
    """The same numbers as JSON, with what can only be said of them together."""
    series = by_metric(shown)
    metrics = {
        family.shown + ("_total" if family.kind == COUNTER else ""): _series_views(
            family, series.get(name, {})
        )
        for name, family in FAMILIES.items()
    }
    return {
        "metrics": metrics,
        "tokens": _net_tokens(series),
        "recovery_rate": _recovery_rate(series),
        "lag_events": sum(shown.lag.values()),
        "gaps": shown.gaps,
        "waiting_since_us": shown.waiting_since,
    }


def _series_views(family: Family, numbers: Numbers) -> list[dict[str, Any]]:
    views: list[dict[str, Any]] = []
    for values, have in numbers.items():
        labels = dict(zip(family.labels, values, strict=True))
        if not family.buckets:
            views.append({"labels": labels, "value": have[0]})
            continue
        *each, micros = have
        buckets = dict(zip(_bounds(family), accumulate(each), strict=True))
        views.append(
            {
                "labels": labels,
                "count": sum(each),
                "sum": micros / MICROS,
                "buckets": buckets,
            }
        )
    return views


def _net_tokens(
    series: Mapping[str, Numbers],
) -> dict[str, int]:
    """Tokens by kind, less what was taken back: each call's last usage, once."""
    totals: dict[str, int] = {}
    for name, sign in (("tokens", 1), ("tokens_taken_back", -1)):
        for (_, kind), (number,) in series.get(name, {}).items():
            totals[kind] = totals.get(kind, 0) + sign * int(number)
    return totals


def _recovery_rate(series: Mapping[str, Numbers]) -> float | None:
    """The part of the finished recoveries that went well; None before the first."""
    results = {
        values[0]: numbers[0]
        for values, numbers in series.get("recovery_results", {}).items()
    }
    over = sum(results.values())
    return results.get("RECOVERED", 0) / over if over else None
