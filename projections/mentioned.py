"""What the entries of a history refer to, what matters most first. Pure.

It grows entry by entry, and is never sorted as a whole: names of the same rank stand in
the order in which they were last named.
"""

from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from heapq import merge

from foldline.projections.evidence import evidence_in, quoted_in

LATE_WEIGHT = 4.0
NAMED_MAX = 8
QUOTED_WEIGHT = 1.0
"""How much it counts that something was named late, by how many entries it was named at
the most, and how much less what only stood between quotes."""

Rank = tuple[int, bool]
"""How many entries named something, and whether one had it between quotes only."""


class Mentioned:
    """Every name in the entries that were taken in."""

    def __init__(self) -> None:
        self._entries = 0
        self._rank_of: dict[str, Rank] = {}
        self._ranks: defaultdict[Rank, dict[str, int]] = defaultdict(dict)

    def take(self, text: str) -> None:
        """Take in what one more entry holds."""
        names = evidence_in(text)
        quoted = quoted_in(text) - names
        # Backwards: names of one entry are looked at from the last one on.
        for name in sorted(names | quoted, reverse=True):
            self._name(name, quoted=name in quoted)
        self._entries += 1

    def _name(self, name: str, *, quoted: bool) -> None:
        count, was_quoted = self._rank_of.get(name, (0, False))
        self._ranks[count, was_quoted].pop(name, None)
        rank = min(count + 1, NAMED_MAX), was_quoted or quoted
        self._rank_of[name] = rank
        self._ranks[rank][name] = self._entries

    def in_order(self) -> Iterator[str]:
        """The names; what was named late and by many comes first."""
        ranked = [self._weighed(rank, last) for rank, last in self._ranks.items()]
        return (name for _, name in merge(*ranked))

    def _weighed(self, rank: Rank, last: dict[str, int]) -> Iterator[tuple[float, str]]:
        return map(partial(self._weight, rank), reversed(last.items()))

    def _weight(self, rank: Rank, named: tuple[str, int]) -> tuple[float, str]:
        count, quoted = rank
        name, last = named
        late = last / max(self._entries, 1) * LATE_WEIGHT
        return -(late + count - QUOTED_WEIGHT * quoted), name
