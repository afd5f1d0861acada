"""Counting: events in, counts and positions out, together.

1. An event that was counted before (its seq is known) is a repeat: dropped.
2. What it adds is added in memory.
3. `commit` stores counts, sessions and positions in one transaction.
4. Only then the counts are shown: what is shown is never taken back by a restart.
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

from foldline.processors.fold import initial
from foldline.projections.metrics import Counts, Key, count
from foldline.projections.metrics_store import MetricsStore
from foldline.projections.metrics_tracked import Tracked
from foldline.schemas.events import SessionCreated
from foldline.schemas.recorded import Recorded

CACHED_SESSIONS = 2_000
"""How many sessions stay in memory, with what is tracked of them, between batches."""


@dataclass(frozen=True, slots=True)
class Shown:
    """Counts as they were stored last, and what the consumer says of itself.

    `lag` is by partition what there is and is not counted; None for a log of one
    machine. Microseconds: `waiting_since` is when the request began that waits longest,
    `live_since` when everything had been counted for the first time; 0 for neither.
    """

    series: Mapping[Key, tuple[int, ...]]
    lag: Mapping[int | None, int] = field(default_factory=dict[int | None, int])
    repeats: int = 0
    skipped: int = 0
    gaps: int = 0
    waiting_since: int = 0
    live_since: int = 0


class Counting:
    """The counts of one log on their way. Its methods are for one thread, but `shown`."""

    def __init__(self, store: MetricsStore) -> None:
        self._store = store
        self._counts = store.counts()
        self._cached: OrderedDict[str, Tracked] = OrderedDict()
        self._touched: dict[str, Tracked] = {}
        self.repeats = 0
        self.skipped = 0
        self.gaps = 0
        self.lag: dict[int | None, int] = {}
        self._live_since = store.live_since()
        self.show()

    @property
    def shown(self) -> Shown:
        """What any thread may read: the counts of the last commit."""
        return self._shown

    def take(self, recorded: Recorded) -> None:
        """Count an event; events of one session come in their order."""
        tracked = self._tracked(recorded.envelope.session_id)
        if tracked.state.seq and recorded.seq <= tracked.state.seq:
            self.repeats += 1
            return
        if not tracked.state.seq and not isinstance(recorded.event, SessionCreated):
            self.gaps += 1
        self._touched[recorded.envelope.session_id] = tracked
        for sample in count(tracked, recorded):
            self._counts.add(sample)

    def _tracked(self, session_id: str) -> Tracked:
        tracked = self._cached.get(session_id)
        if tracked is None:
            tracked = self._store.session(session_id) or Tracked(initial(session_id))
            self._cached[session_id] = tracked
        return tracked

    def commit(self, positions: Mapping[int, int] | None = None) -> list[Tracked]:
        """Store what was counted, then show it; gives the sessions that were touched."""
        touched = list(self._touched.values())
        if touched or positions:
            self._store.commit(self._counts, touched, positions or {})
        for session_id in self._touched:
            self._cached.move_to_end(session_id)
        self._touched.clear()
        while len(self._cached) > CACHED_SESSIONS:
            self._cached.popitem(last=False)
        self.show()
        return touched

    def show(self) -> None:
        """Show the counts, and how far they are behind. Only what is stored is shown."""
        self._shown = Shown(
            dict(self._counts.series),
            dict(self.lag),
            self.repeats,
            self.skipped,
            self.gaps,
            self._store.waiting_since(),
            self._live_since,
        )

    def go_live(self, now: int) -> None:
        """Note when everything was counted for the first time, in microseconds.

        Until then, and for as long as they look back, alerts on what has changed would
        take history for news.
        """
        if not self._live_since:
            self._store.go_live(now)
            self._live_since = now
            self.show()

    def start_anew(self) -> None:
        """Forget everything: what was counted is of another log."""
        self._store.clear()
        self._counts = Counts()
        self._live_since = 0
        self._cached.clear()
        self._touched.clear()
