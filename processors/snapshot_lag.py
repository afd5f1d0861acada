"""Which sessions a restore would have to refold, and which snapshots are due.

A session is dirty from its first event that no published snapshot covers. The low-water
mark is the first uncovered offset of the oldest session still dirty: a restore loads
the snapshots and refolds `events` from there. So that this takes a bounded time, the
longest dirty are published until the mark is near enough to the end.
"""

from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile

MAX_CREDIT_BYTES = 8 * 1024 * 1024
"""How many bytes of snapshots may be due at once after a quiet time: it bounds what one
transaction takes."""


class DirtyIndex:
    """The dirty sessions of one partition; what a batch changes counts once committed."""

    def __init__(self, dirty: Mapping[str, int]) -> None:
        self._offsets = OrderedDict(sorted(dirty.items(), key=lambda item: item[1]))
        self._changes: dict[str, int | None] = {}
        self._handed: dict[str, int | None] = {}
        self._credit = 0
        self._pinned: set[str] = set()
        self.drop()

    def drop(self) -> None:
        """Forget the batch."""
        self._fresh: dict[str, int] = {}
        self._covered: set[str] = set()
        self._gained = 0
        self._oldest: Iterator[tuple[str, int]] | None = None
        self._first: tuple[str, int] | None = None

    def touch(self, session_id: str, index: int, size: int) -> None:
        """An event was admitted.

        Args:
            session_id: its session.
            index: its place among the batch's events.
            size: its bytes: so many bytes of snapshots may be written for it.
        """
        self._gained += size
        if session_id in self._pinned:
            self._pinned.remove(session_id)
            self._oldest = None
        if session_id not in self._offsets or session_id in self._covered:
            self._fresh.setdefault(session_id, index)

    def forget(self, session_id: str) -> None:
        """A session is lost: no snapshot of it will ever be due."""
        self._pinned.discard(session_id)
        if self._offsets.pop(session_id, None) is not None:
            self._changes[session_id] = None
            self._oldest = None

    def refolded(self, session_id: str, offset: int) -> None:
        """An event that no snapshot covers was folded during a restore."""
        if session_id not in self._offsets:
            self._offsets[session_id] = offset
            self._changes[session_id] = offset
            self._oldest = None

    @property
    def may_spend(self) -> bool:
        """Whether there is credit for a snapshot."""
        return min(self._credit, MAX_CREDIT_BYTES) + self._gained > 0

    def oldest(self) -> tuple[str, int] | None:
        """The longest dirty session that can be published, and since when, in this batch.

        Those that became dirty in it count only once it is committed.
        """
        if self._oldest is None:
            self._oldest = iter(self._offsets.items())
            self._first = next(self._oldest, None)
        while self._first is not None and (
            self._first[0] in self._covered or self._first[0] in self._pinned
        ):
            self._first = next(self._oldest, None)
        return self._first

    def pin(self, session_id: str) -> None:
        """A session cannot be published as it is: it stays dirty, and holds the mark."""
        self._pinned.add(session_id)

    def published(self, session_id: str, size: int) -> None:
        """A snapshot of all that the batch made of a session goes out with it."""
        self._gained -= size
        self._covered.add(session_id)
        self._fresh.pop(session_id, None)

    def commit(self, offsets: Sequence[int]) -> None:
        """Merge the batch.

        Args:
            offsets: those of the batch's events.
        """
        for session_id in self._covered:
            if self._offsets.pop(session_id, None) is not None:
                self._changes[session_id] = None
        for session_id, index in self._fresh.items():
            self._offsets[session_id] = self._changes[session_id] = offsets[index]
        self._credit = min(self._credit + self._gained, MAX_CREDIT_BYTES)
        self.drop()

    def hand_over(self) -> tuple[dict[str, int], list[str]]:
        """The sessions that became dirty, and clean, since what was last `handed_over`."""
        changes = self._handed = self._handed | self._changes
        self._changes = {}
        dirty = {key: offset for key, offset in changes.items() if offset is not None}
        return dirty, [key for key, offset in changes.items() if offset is None]

    def handed_over(self) -> None:
        """The last `hand_over` is kept."""
        self._handed = {}

    def low_water(self, otherwise: int) -> int:
        """The first uncovered offset of the oldest dirty session, else another."""
        first = self.oldest()
        marks = [first[1]] if first is not None else []
        marks += [self._offsets[key] for key in self._pinned if key in self._offsets]
        return min(marks, default=otherwise)


MARK_STEP_OFFSETS = 32
"""How far apart two places of InputMarks are in `events`, at the least."""


class InputMarks:
    """From which offset of `appends` on the events above a low-water mark were asked for.

    Events stand in the order of their appends. So if `events` is cut off above the mark,
    it is in `appends` from there on that the deleted ones can be looked for.
    """

    def __init__(self) -> None:
        self._marks: deque[tuple[int, int]] = deque()

    def note(self, event_offset: int, input_offset: int) -> None:
        """Every event from one offset on was asked for at or above the other.

        To be told in the order of the offsets.
        """
        if not self._marks or event_offset - self._marks[-1][0] >= MARK_STEP_OFFSETS:
            self._marks.append((event_offset, input_offset))

    def under(self, low: int) -> int:
        """The offset of `appends` for a low-water mark; 0 where it is not known."""
        below = takewhile(lambda mark: mark[0] <= low, self._marks)
        return max((input_offset for _, input_offset in below), default=0)

    def forget_below(self, low: int) -> None:
        """No lower mark will be asked for again."""
        while len(self._marks) > 1 and self._marks[1][0] <= low:
            self._marks.popleft()
