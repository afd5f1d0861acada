"""The loops that were detected last, by partition. Pure.

They are kept with the panes, so that the list outlives a process.
"""

from collections import deque
from collections.abc import Iterable
from itertools import chain
from typing import NamedTuple

from foldline.schemas.events import LoopDetected

LATEST_LOOPS = 1_000
"""How many loops of a partition are listed: the latest ones."""


class FoundLoop(NamedTuple):
    """A loop, in which session, and when it was closed (microseconds since 1970)."""

    session_id: str
    at_us: int
    loop: LoopDetected


def place_of(found: FoundLoop) -> tuple[str, int, str]:
    """What tells a loop from every other: its session, where it was closed, its kind."""
    return found.session_id, found.loop.to_seq, found.loop.kind


class LatestLoops:
    """Loops of the partitions of a process. For one thread, but `all`."""

    def __init__(self) -> None:
        self._of: dict[int, deque[FoundLoop]] = {}

    def load(self, partition: int, loops: Iterable[FoundLoop]) -> None:
        """Take a partition over, as it was stored."""
        self._of[partition] = deque(loops)

    def forget(self, partition: int) -> None:
        """Let go of a partition that others have now."""
        self._of.pop(partition, None)

    def add(self, partition: int, found: FoundLoop) -> FoundLoop | None:
        """Take one more, or once more after a kill; of too many the oldest one goes."""
        loops = self._of.setdefault(partition, deque())
        place = place_of(found)
        if any(place_of(one) == place for one in loops):
            return None
        loops.append(found)
        return loops.popleft() if len(loops) > LATEST_LOOPS else None

    def all(self) -> list[FoundLoop]:
        """Those of every partition, the last one last. Any thread may ask."""
        found = chain.from_iterable(loops.copy() for loops in self._of.copy().values())
        return in_order(found)


def in_order(loops: Iterable[FoundLoop]) -> list[FoundLoop]:
    """Loops as they are listed, the last one last."""
    return sorted(loops, key=lambda found: (found.at_us, found.session_id))
