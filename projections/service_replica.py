"""A node's replica of its partitions: caught up once, then kept up with every read."""

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from foldline.errors import FoldlineError, LogUnavailableError
from foldline.processors.replica import Replica
from foldline.projections.service_node import Standing

SYNC_MS = 1_000
"""How long one look at whether a partition is caught up waits for it."""

RETRY_S = 1.0
"""How long a partition that cannot go on is left before it is looked at again."""

_logger = logging.getLogger("foldline.service")

Say = Callable[[str], None]


class ReplicaNode:
    """Which partitions this node serves, and how far each is.

    A partition is ready once everything that was committed when this began is here.
    From then on every read waits for itself, so it stays ready unless it stops.
    """

    def __init__(self, replica: Replica, served: range) -> None:
        self._replica = replica
        self._served = served
        self._caught_up: set[int] = set()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def partitions(self) -> int:
        """How many the log has."""
        return self._replica.partition_count

    @property
    def served(self) -> range:
        """Those that this node serves."""
        return self._served

    def partition_of(self, session_id: str) -> int:
        """The partition of a session."""
        return self._replica.partition_of(session_id)

    @property
    def caught_up(self) -> bool:
        """Whether every served partition was read to its end once."""
        return self._caught_up.issuperset(self._served)

    def standings(self) -> Sequence[Standing]:
        """How far each served partition is."""
        return [
            Standing(
                found.partition,
                found.next_offset,
                found.end,
                found.partition in self._caught_up,
                found.problem,
                found.read_bytes,
                found.skipped,
                found.stopped,
            )
            for found in self._replica.progress()
            if found.partition in self._served
        ]

    def start(self, *, checkpoint: Path | None, say: Say) -> None:
        """Begin each partition, from its copy where there is one, and catch up."""
        for partition in self._served:
            copy = checkpoint / str(partition) if checkpoint else None
            if copy is not None and copy.is_dir() and self._replica.adopt(partition, copy):
                say(f"partition {partition}: started from {copy}")
            self._replica.store(partition)
        self._thread = threading.Thread(
            target=self._catch_up, args=(say,), name="foldline-catch-up", daemon=True
        )
        self._thread.start()

    def _catch_up(self, say: Say) -> None:
        while not self._closing.is_set():
            left = [p for p in self._served if p not in self._caught_up]
            if not left:
                say("ready: every partition is caught up")
                return
            for partition in left:
                if self._is_there(partition):
                    self._caught_up.add(partition)
            for standing in self.standings():
                if not standing.caught_up:
                    say(_line_of(standing))

    def _is_there(self, partition: int) -> bool:
        try:
            self._replica.sync(partition, timeout_ms=SYNC_MS)
        except LogUnavailableError:
            return False
        except (
            FoldlineError
        ) as error:  # it has stopped: the node stays unready, and says so
            _logger.warning("partition %d: %s", partition, error)
            self._closing.wait(RETRY_S)
            return False
        return True

    def checkpoint(self, folder: Path) -> Sequence[int]:
        """Write a copy of each partition that is caught up below a folder."""
        folder.mkdir(parents=True)
        copied = [p for p in self._served if p in self._caught_up]
        for partition in copied:
            self._replica.checkpoint(partition, folder / str(partition))
        return copied

    def close(self) -> None:
        """End catching up."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()


def _line_of(standing: Standing) -> str:
    share = 100 * standing.position // max(standing.end, 1)
    line = (
        f"partition {standing.partition}: {standing.position} of {standing.end} ({share} %)"
    )
    return f"{line}: {standing.problem}" if standing.problem else line


def range_of(text: str, partitions: int) -> range:
    """The partitions of `0-7`, or all of them for an empty text.

    Raises:
        ValueError: no such range.
    """
    if not text:
        return range(partitions)
    first, _, last = text.partition("-")
    if not first.isdigit() or (last and not last.isdigit()):
        raise ValueError(f"{text!r} is no range like 0-7")
    found = range(int(first), int(last or first) + 1)
    if not found or found.stop > partitions:
        raise ValueError(f"{text!r} is not among partitions 0-{partitions - 1}")
    return found
