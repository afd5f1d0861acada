"""Ends a worker whose step does not end: a stuck process helps nobody.

A call into the client library can outlast the time-out that it was given: after the
death of a broker `send_offsets_to_transaction` was seen to stay inside for minutes,
alive and in the group, so that its partitions went to nobody. No error comes back
that could be handled. What is left is to end the process: everything that it had not
committed is run again by whoever gets its partitions.
"""

import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

TICK_MS = 250
"""How often steps are looked at."""

FRAMES_SHOWN = 6
"""How many calls, from the innermost, the last line names."""

EXIT_CODE = 4
"""What the process ends with: the log cannot be used by this process as it is."""

_logger = logging.getLogger("foldline.worker")


@dataclass(slots=True, eq=False)
class _Step:
    name: str
    within_ms: int
    left_ms: float
    thread_id: int


class Watch:
    """Steps of one process, each with a bound on how long it may take."""

    def __init__(self, *, end: Callable[[str], None] | None = None) -> None:
        """Watch from now on.

        Args:
            end: what is done about a step that outlasted its bound; by default it is
                logged, and the process ends with EXIT_CODE at once.
        """
        self._end = end or _end_process
        self._steps: list[_Step] = []
        self._closed = threading.Event()
        self._thread = threading.Thread(
            target=self._look, name="foldline-watch", daemon=True
        )
        self._thread.start()

    @contextmanager
    def step(self, name: str, *, within_ms: int) -> Generator[None]:
        """A step that must have ended after so much time in which the process ran."""
        step = _Step(name, within_ms, float(within_ms), threading.get_ident())
        self._steps.append(step)
        try:
            yield
        finally:
            self._steps.remove(step)

    def close(self) -> None:
        """Watch no more."""
        self._closed.set()
        self._thread.join()

    def _look(self) -> None:
        # Ticks are counted, not time: of a process that was frozen, or of a machine that
        # slept, no step has had the time that a clock would say.
        while not self._closed.wait(TICK_MS / 1000):
            for step in tuple(self._steps):
                step.left_ms -= TICK_MS
                if step.left_ms <= 0:
                    self._end(_words(step))
                    return


def _words(step: _Step) -> str:
    """The step, its bound, and where its thread is."""
    frame = sys._current_frames().get(step.thread_id)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - the only way to it
    where = traceback.extract_stack(frame, limit=FRAMES_SHOWN)
    lines = " < ".join(f"{at.filename}:{at.lineno} {at.name}" for at in reversed(where))
    return f"{step.name} has not ended after {step.within_ms} ms, in {lines}"


def _end_process(words: str) -> None:
    _logger.critical(
        "%s: the process ends, its supervisor has to start it again; nothing that it "
        "acknowledged is lost",
        words,
    )
    os._exit(EXIT_CODE)
