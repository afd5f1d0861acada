"""Restores beside the poll loop: a few threads, one restore of a partition at a time."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from threading import Event, Lock

from foldline.processors.partition_restore import restore_partition
from foldline.processors.partition_source import RestoreCancelledError
from foldline.processors.restore_ways import Progress, Restored, RestoreWays

RESTORES_AT_ONCE = 2
"""How many partitions are restored at the same time: more would only share one core."""


@dataclass(slots=True)
class _Job:
    future: "Future[Restored]"
    cancelled: Event
    progress: Progress


class _Once:
    """Something that must have been done, by whichever thread comes first."""

    def __init__(self, do: Callable[[], None]) -> None:
        self._do = do
        self._lock = Lock()
        self._done = False

    def __call__(self) -> None:
        with self._lock:
            if not self._done:
                self._do()
                self._done = True


class Restores:
    """Restores under way. Called from the poll loop only."""

    def __init__(self, ways: RestoreWays, *, before: Callable[[], None]) -> None:
        """Restore in these ways; none has begun yet.

        Args:
            ways: what every restore shares.
            before: is done once, in the first restore's thread, until it succeeds.
        """
        self._ways = ways
        self._before = _Once(before)
        self._pool = ThreadPoolExecutor(RESTORES_AT_ONCE, "foldline-restore")
        self._jobs: dict[int, _Job] = {}
        self._ending: dict[int, _Job] = {}

    def begin(self, index: int) -> Progress:
        """Restore a partition, after any restore of it that still ends."""
        cancelled, progress = Event(), Progress()
        before = self._ending.pop(index, None)

        def job() -> Restored:
            if before is not None:
                wait([before.future])
                _close(before)
            self._before()
            return restore_partition(
                index, self._ways, cancelled=cancelled, progress=progress
            )

        future = self._pool.submit(job)
        self._jobs[index] = _Job(future, cancelled, progress)
        return progress

    def cancel(self, index: int) -> None:
        """Stop a restore; what it has opened is closed again."""
        job = self._jobs.pop(index, None)
        if job is None:
            return
        job.cancelled.set()
        self._ending[index] = job

    def collect(self) -> list[tuple[int, Restored | BaseException]]:
        """The restores that have ended since the last call, well or not."""
        ended = [(index, job) for index, job in self._jobs.items() if job.future.done()]
        for index, _ in ended:
            del self._jobs[index]
        for index in [i for i, job in self._ending.items() if job.future.done()]:
            _close(self._ending.pop(index))
        return [(index, _result(job)) for index, job in ended]

    def close(self) -> None:
        """Stop every restore, and wait until all have ended."""
        for index in list(self._jobs):
            self.cancel(index)
        self._pool.shutdown(wait=True)
        for job in self._ending.values():
            _close(job)
        self._ending.clear()


def _result(job: _Job) -> Restored | BaseException:
    failure = job.future.exception()
    return job.future.result() if failure is None else failure


def _close(job: _Job) -> None:
    """Close the table of a restore that nobody wants any more."""
    result = _result(job)
    if isinstance(result, Restored):
        result.table.close()
    elif not isinstance(result, RestoreCancelledError):
        _forgotten(result)


def _forgotten(failure: BaseException) -> None:
    """A restore that failed after it was cancelled: whoever begins anew will see why."""
    if not isinstance(failure, Exception):
        raise failure
