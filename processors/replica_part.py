"""One partition of a replica: its store, its trouble, and who waits for it."""

import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field

from foldline.errors import FoldlineError
from foldline.processors.event_store import EventStore


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a partition is: `next_offset` of `end`, as it was last seen.

    `problem` says why it does not go on (`stopped`), or is tried again; empty where all
    is well.
    """

    partition: int
    next_offset: int
    end: int
    sessions: int
    events: int
    problem: str = ""
    read_bytes: int = 0
    """Bytes of values that brokers have sent of it since it was opened."""
    skipped: int = 0
    """Records that no worker wrote, since it was opened."""
    stopped: bool = False

    @property
    def complete(self) -> bool:
        """Whether it has all that was last seen."""
        return not self.problem and self.next_offset >= self.end


class SharedAnswer:
    """A number that many ask for at once: one question at a time goes out.

    An answer counts for whoever asked before its question went out. So who comes while
    one is under way shares the next one with all who come meanwhile.
    """

    def __init__(self, question: Callable[[float], int]) -> None:
        """`question(timeout_s)` gives the number."""
        self._question = question
        self._changed = threading.Condition()
        self._asked = 0
        self._answered = 0
        self._asking = False
        self._value = 0

    def get(self, deadline: float) -> int:
        """The number as it is now, or will be before `deadline` (`time.monotonic`).

        Raises:
            TimeoutError: another one's question was not answered in time.
        """
        with self._changed:
            wanted = self._asked + 1
            in_time = self._changed.wait_for(
                lambda: not self._asking or self._answered >= wanted, left_s(deadline)
            )
            if self._answered >= wanted:
                return self._value
            if not in_time:
                raise TimeoutError
            self._asking = True
            self._asked += 1
        try:
            value = self._question(left_s(deadline))
            with self._changed:
                self._answered, self._value = self._asked, value
            return value
        finally:
            with self._changed:
                self._asking = False
                self._changed.notify_all()


@dataclass(slots=True)
class Part:
    """One partition. `changed` is notified when its store or its trouble changes.

    `stopped` is why it is read no further; `trouble` why it is tried again at
    `retry_at` (monotonic seconds, 0: it is being read); `broken` why its store must be
    set aside first.
    """

    partition: int
    store: EventStore
    topic_id: str
    end: SharedAnswer
    changed: threading.Condition = field(default_factory=threading.Condition)
    seen_end: int = 0
    read_bytes: int = 0
    skipped: int = 0
    synced: bool = False
    """Whether a read has waited for its end once: from then on it is kept near it."""
    stopped: FoldlineError | None = None
    trouble: str = ""
    broken: str = ""
    retry_at: float = 0.0
    cut: "Future[bool] | None" = None
    """Whether it could go on behind records that were deleted, while that is tried."""
    first_offset: int = 0
    """The first record that was left then."""
    _watchers: dict[str, set[threading.Event]] = field(
        default_factory=dict[str, set[threading.Event]]
    )

    def progress(self) -> Progress:
        """How far it is."""
        store = self.store
        return Progress(
            self.partition,
            store.next_offset,
            max(self.seen_end, store.next_offset),
            store.session_count,
            store.event_count,
            str(self.stopped or self.trouble),
            self.read_bytes,
            self.skipped,
            self.stopped is not None,
        )

    def reached(self, session_id: str, seq: int) -> bool:
        """Whether a session has come to a seq."""
        head = self.store.head(session_id)
        return head is not None and head.seq >= seq

    @contextmanager
    def watching(self, session_id: str) -> Generator[threading.Event]:
        """An event that is set whenever the session, or the trouble, changes."""
        arrived = threading.Event()
        with self.changed:
            self._watchers.setdefault(session_id, set()).add(arrived)
        try:
            yield arrived
        finally:
            with self.changed:
                watching = self._watchers[session_id]
                watching.discard(arrived)
                if not watching:
                    del self._watchers[session_id]

    def tell(self, sessions: set[str] | None = None) -> None:
        """Wake who waits for the partition, and for these sessions (None: for any)."""
        with self.changed:
            self.changed.notify_all()
            if not self._watchers:
                return
            for session_id in list(self._watchers) if sessions is None else sessions:
                for arrived in self._watchers.get(session_id, ()):
                    arrived.set()


def left_s(deadline: float) -> float:
    """The seconds until a deadline, not below 0."""
    return max(deadline - time.monotonic(), 0)
