"""How numbers are spread, in little memory however many there are. Pure.

Numbers go into buckets that are each 9 % wider than the one before, so a quantile is off
by at most half of that; one of whole numbers is whole. Those below LEAST count as 0. Count,
sum, least and most are exact.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

WIDER = 2.0 ** (1 / 8)
"""The factor by which a bucket is wider than the one before."""

LEAST = 1e-6
"""What is less is nothing: of seconds, a microsecond, the finest time that events have."""

_LOG_WIDER = math.log(WIDER)


@dataclass(slots=True)
class Spread:
    """Numbers from 0 on. `buckets` counts them by the power of WIDER that they reach."""

    count: int = 0
    total: float = 0.0
    least: float = 0.0
    most: float = 0.0
    zeros: int = 0
    whole: bool = True
    buckets: dict[int, int] = field(default_factory=dict[int, int])

    def add(self, value: float) -> None:
        """Take one more number; less than 0 is 0."""
        value = max(value, 0.0)
        self.least = value if not self.count else min(self.least, value)
        self.most = max(self.most, value)
        self.count += 1
        self.total += value
        self.whole = self.whole and value == int(value)
        if value < LEAST:
            self.zeros += 1
            return
        power = math.ceil(math.log(value) / _LOG_WIDER - 1e-9)
        self.buckets[power] = self.buckets.get(power, 0) + 1

    def join(self, other: "Spread") -> None:
        """Take all numbers of another one."""
        if not other.count:
            return
        self.least = min(self.least, other.least) if self.count else other.least
        self.most = max(self.most, other.most)
        self.count += other.count
        self.total += other.total
        self.zeros += other.zeros
        self.whole = self.whole and other.whole
        for power, held in other.buckets.items():
            self.buckets[power] = self.buckets.get(power, 0) + held

    @property
    def mean(self) -> float:
        """The mean; 0 of nothing."""
        return self.total / self.count if self.count else 0.0

    def quantile(self, share: float) -> float:
        """The number that this share of all is not above; 0 of nothing."""
        wanted = max(math.ceil(self.count * share), 1)
        seen = self.zeros
        if not self.count or seen >= wanted:
            return self.least if self.count else 0.0
        for power in sorted(self.buckets):
            seen += self.buckets[power]
            if seen >= wanted:
                middle = WIDER ** (power - 0.5)
                middle = round(middle) if self.whole else middle
                return min(max(middle, self.least), self.most)
        return self.most

    def columns(self, most: int) -> Iterator[tuple[float, float, int]]:
        """At most so many columns of a picture: from, to, and how many numbers.

        Columns that no whole number fits in are left out where all numbers are whole.
        """
        if self.zeros:
            yield 0.0, 0.0, self.zeros
        if not self.buckets:
            return
        first, last = min(self.buckets), max(self.buckets)
        step = max(math.ceil((last - first + 1) / max(most - 1, 1)), 1)
        for power in range(first, last + 1, step):
            held = sum(self.buckets.get(p, 0) for p in range(power, power + step))
            low, high = WIDER ** (power - 1), WIDER ** (power + step - 1)
            if self.whole:
                low, high = math.floor(low + 1e-9) + 1, math.floor(high + 1e-9)
            if low <= high:
                yield low, high, held
