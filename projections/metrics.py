"""Events to counts: the fold of metrics. Pure.

    tracked = Tracked(initial(session_id))
    for recorded in events:
        counts.add_all(count(tracked, recorded))

`count` folds an event into what is tracked of its session and gives what it adds. The
session's own state says its status, what is open and its tokens, so that no two answers
differ; only when things began is kept beside it. Sums do not depend on the order of
sessions.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from foldline.processors.fold import fold_in
from foldline.projections.metric_names import (
    FAMILIES,
    HISTOGRAM,
    LABEL_VALUES_MAX,
    MICROS,
    NONE,
    OPEN_LABELS,
    OTHER,
    Family,
    is_open,
    known_word,
    name_or_other,
)
from foldline.projections.metrics_tracked import Sample, Tracked, before_of
from foldline.projections.metrics_types import counted
from foldline.schemas.recorded import Recorded
from foldline.schemas.state import SessionState


class Key(NamedTuple):
    """One series: a metric's name and the values of its labels."""

    name: str
    labels: tuple[str, ...]


@dataclass(slots=True)
class Counts:
    """All counts of a log, by series.

    A counter or gauge has one number; a histogram one for each bucket (what is at most
    its bound and above the one before), one for what is above all, and the sum in
    microseconds. `names` are the values of open labels that are told apart: the first
    LABEL_VALUES_MAX of each.
    """

    series: dict[Key, tuple[int, ...]] = field(default_factory=dict[Key, tuple[int, ...]])
    names: dict[str, set[str]] = field(
        default_factory=lambda: {label: set[str]() for label in OPEN_LABELS}
    )
    changed: set[Key] = field(default_factory=set[Key])
    """Series that have changed since somebody emptied this."""

    @classmethod
    def of(cls, rows: Iterable[tuple[Key, tuple[int, ...]]]) -> "Counts":
        """Counts as they were stored."""
        counts = cls(dict(rows))
        for key in counts.series:
            for label, value in zip(FAMILIES[key.name].labels, key.labels, strict=True):
                if is_open(label) and value not in (NONE, OTHER):
                    counts.names[label].add(value)
        return counts

    def add(self, sample: Sample) -> None:
        """Add what one event adds."""
        family = FAMILIES[sample.name]
        key = Key(family.name, self._labels(family, sample.labels))
        have = self.series.get(key)
        if family.kind == HISTOGRAM:
            self.series[key] = _observed(family, have, sample.value)
        else:
            self.series[key] = ((have[0] if have else 0) + sample.value,)
        self.changed.add(key)

    def _labels(self, family: Family, given: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(
            self._told_apart(label, value)
            if is_open(label)
            else known_word(family, label, value)
            for label, value in zip(family.labels, given, strict=True)
        )

    def _told_apart(self, label: str, value: str) -> str:
        value = name_or_other(value)
        known = self.names[label]
        if value in known or value in (NONE, OTHER):
            return value
        if len(known) >= LABEL_VALUES_MAX:
            return OTHER
        known.add(value)
        return value


def _observed(family: Family, have: tuple[int, ...] | None, micros: int) -> tuple[int, ...]:
    values = list(have or (0,) * (len(family.buckets) + 2))
    values[bisect_left(family.buckets, micros / MICROS)] += 1
    values[-1] += micros
    return tuple(values)


def count(tracked: Tracked, recorded: Recorded) -> Iterator[Sample]:
    """Fold one event in, and give what it adds. Events come in the order of their seqs."""
    before = before_of(tracked, recorded)
    fold_in(tracked.state, recorded)
    yield Sample("events", (recorded.type,))
    yield from _woken(tracked, recorded)
    yield from counted(tracked, before, recorded)
    yield from _moved(before.status, tracked.state)
    yield from _changed("turns_open", before.in_turn, tracked.state.turn is not None)
    yield from _changed("approvals_waiting", before.waiting, len(tracked.state.requests))
    yield from _changed("unknown_outcomes_open", before.unknown, tracked.unknown)
    tracked.forget()


def _woken(tracked: Tracked, recorded: Recorded) -> Iterator[Sample]:
    """How long a claim took to the first thing that the new owner did."""
    claim = tracked.claim
    if claim is None or recorded.envelope.epoch != claim.epoch:
        return
    tracked.claim = None
    yield Sample("wake_seconds", (claim.status,), max(tracked.now - claim.at, 0))


def _moved(status: str, state: SessionState) -> Iterator[Sample]:
    if status == state.status:
        return
    if status:
        yield Sample("sessions", (status,), -1)
    yield Sample("sessions", (state.status,))


def _changed(name: str, before: int, after: int) -> Iterator[Sample]:
    if before != after:
        yield Sample(name, (), after - before)
