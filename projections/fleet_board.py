"""The panes of a fleet, kept in memory: bounded in names, in age and in number. Pure.

Each belongs to a partition: a name that several partitions have has a pane in each, and a
window is the sum of them. A local log is one partition. Where there are too many panes, the
oldest ones go in every partition, so that what is left of a moment is all of it.

A pane knows the offset of the last event that was added to it. Events of a partition come
in the order of their offsets, so one that comes again is added to nothing twice, pane by
pane, whatever had been stored when a process was killed.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from foldline.projections.fleet_windows import (
    BYS,
    Increment,
    Pane,
    Span,
    Tally,
    Window,
    add,
    pane_of,
    windows,
)
from foldline.projections.metric_names import LABEL_VALUES_MAX, MICROS, NONE, OTHER

NEVER_S = 2**62
"""Later than any second."""


class Counted(msgspec.Struct, array_like=True):
    """A pane's tally, and the offset of the last event in it."""

    offset: int = -1
    tally: Tally = msgspec.field(default_factory=Tally)


class Place(NamedTuple):
    """A pane of a partition."""

    partition: int
    pane: Pane


class When(NamedTuple):
    """When an event happened, and log time, in microseconds since 1970 UTC."""

    at_us: int
    log_us: int


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much is kept: seconds of a pane, seconds of age, number of panes."""

    pane_s: int
    keep_s: int
    panes_max: int


@dataclass(frozen=True, slots=True)
class Changed:
    """What an event did to the panes of its partition.

    `dropped` went because of it, also of other partitions. `late` says that it was too
    old to be counted.
    """

    panes: Mapping[Pane, Counted] = field(default_factory=dict[Pane, Counted])
    dropped: tuple[Place, ...] = ()
    late: bool = False


@dataclass(slots=True)
class _Part:
    """The panes of one partition, by the second at which they begin."""

    starts: dict[int, dict[Pane, Counted]] = field(
        default_factory=dict[int, dict[Pane, Counted]]
    )
    log_s: int = 0
    """The latest log time that was seen."""
    oldest_s: int = NEVER_S
    """The first second in `starts`."""


class Board:
    """All panes of a process, by partition. For one thread, but `snapshot`."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._parts: dict[int, _Part] = {}
        self._names = {by: Counter[str]() for by in BYS}
        self._floor_s = -NEVER_S
        self.count = 0
        self.dropped_early = 0
        """How many panes went because there were too many."""

    def load(self, partition: int, panes: Iterable[tuple[Pane, Counted]]) -> list[Place]:
        """Take a partition over, as it was stored; the panes that are too many."""
        self.forget(partition)
        part = self._parts[partition] = _Part()
        for pane, counted in panes:
            self._put(part, pane, counted)
            part.log_s = max(part.log_s, pane.start_s)
        return [*self._too_many()]

    def forget(self, partition: int) -> None:
        """Let go of a partition that others have now."""
        part = self._parts.pop(partition, _Part())
        for start_s in list(part.starts):
            self._drop(part, start_s)

    def add(
        self, partition: int, offset: int, *, when: When, increments: Iterable[Increment]
    ) -> Changed:
        """Add what one event adds, where it was not added yet."""
        part = self._parts.setdefault(partition, _Part())
        part.log_s = max(part.log_s, when.log_us // MICROS)
        at_us = min(when.at_us, part.log_s * MICROS)
        if at_us // MICROS < max(self._since_s(part), self._floor_s):
            return Changed(late=True)
        changed: dict[Pane, Counted] = {}
        for increment in increments:
            pane = pane_of(self._bounded(increment), at_us, self._bounds.pane_s)
            counted = changed.get(pane) or self._open(part, pane)
            if offset > counted.offset:
                add(counted.tally, increment.field, increment.value)
                changed[pane] = counted
        for counted in changed.values():
            counted.offset = offset
        dropped = (*self._too_old(partition, part), *self._too_many())
        return Changed(changed, dropped)

    def _since_s(self, part: _Part) -> int:
        """The first second that is still kept: the beginning of a pane."""
        pane_s = self._bounds.pane_s
        return (part.log_s - self._bounds.keep_s) // pane_s * pane_s

    def _open(self, part: _Part, pane: Pane) -> Counted:
        """The pane to add to, made if there is none."""
        counted = part.starts.get(pane.start_s, {}).get(pane)
        if counted is None:
            counted = Counted()
            self._put(part, pane, counted)
        return counted

    def _bounded(self, increment: Increment) -> Increment:
        """With the name OTHER where there are too many already."""
        names, name = self._names[increment.by], increment.name
        if name in names or name in (NONE, OTHER) or len(names) < LABEL_VALUES_MAX:
            return increment
        return increment._replace(name=OTHER)

    def _put(self, part: _Part, pane: Pane, counted: Counted) -> None:
        part.starts.setdefault(pane.start_s, {})[pane] = counted
        part.oldest_s = min(part.oldest_s, pane.start_s)
        self._names[pane.by][pane.name] += 1
        self.count += 1

    def _drop(self, part: _Part, start_s: int) -> list[Pane]:
        """Let go of all panes that begin at a second."""
        gone = list(part.starts.pop(start_s))
        if start_s == part.oldest_s:
            part.oldest_s = min(part.starts, default=NEVER_S)
        self.count -= len(gone)
        for pane in gone:
            names = self._names[pane.by]
            names[pane.name] -= 1
            if not names[pane.name]:
                del names[pane.name]
        return gone

    def _too_old(self, partition: int, part: _Part) -> Iterator[Place]:
        """Drop what is too old in a partition; never its newest."""
        since_s = self._since_s(part)
        while part.oldest_s < since_s and len(part.starts) > 1:
            for pane in self._drop(part, part.oldest_s):
                yield Place(partition, pane)

    def _too_many(self) -> Iterator[Place]:
        """Drop the oldest of what is too much, in every partition; never the newest.

        What comes for such a second from now on is too late.
        """
        parts = self._parts.values()
        while self.count > self._bounds.panes_max:
            oldest_s = min(part.oldest_s for part in parts)
            if oldest_s == max(max(part.starts, default=oldest_s) for part in parts):
                return
            self._floor_s = oldest_s + self._bounds.pane_s
            for partition, part in self._parts.items():
                if oldest_s in part.starts:
                    gone = self._drop(part, oldest_s)
                    self.dropped_early += len(gone)
                    yield from (Place(partition, pane) for pane in gone)

    def snapshot(self) -> list[tuple[Pane, Tally]]:
        """Every pane as it is, for any thread: tallies only grow."""
        groups = [
            group.copy()
            for part in list(self._parts.values())
            for group in list(part.starts.values())
        ]
        return [(pane, one.tally) for group in groups for pane, one in group.items()]

    def windows(self, span: Span) -> list[Window]:
        """The windows that end after 1970 began, in the order of time, then of names."""
        return [one for one in windows(self.snapshot(), span) if one.end_s > 0]
