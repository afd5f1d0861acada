"""From append to verdict, at a rate: open loop, in a process of its own.

Usage: worker_latency.py RATE SECONDS SESSIONS THREADS

Appends are due at times that are fixed beforehand (a Poisson process from a seed), and
each is measured from when it was due, not from when somebody had time for it: a stall
counts for every append that it delays. Threads take the due appends in order, each of
another session, through `Log.append` of one client; a thread that is not free in time
is the client's own delay and counts as well. The first second is not counted.

One line of JSON on stdout: `{"sent": n, "ms": [...]}`.
"""

import itertools
import json
import os
import random
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from workload import Step, Writer, blocks

from foldline.processors.log import Log
from foldline.processors.open_log import open_log
from foldline.schemas.events import SessionCreated, SystemObservation
from foldline.schemas.verdicts import ACCEPTED

WARM_UP_S = 1.0
LEAD_S = 0.2
SEED = 20_260
TEXT_CHARACTERS = 320
"""So much is said that an event has about 500 bytes."""

CREATE_AT_ONCE = 500


def due_times(rate: float, seconds: float) -> Iterator[float]:
    """When appends are due, in seconds from the start."""
    chance = random.Random(SEED)
    at = 0.0
    while True:
        at += chance.expovariate(rate)
        if at > seconds:
            return
        yield at


def make_sessions(log: Log, count: int) -> list[Writer]:
    """So many sessions, each created and in no turn."""
    prefix = f"latency-{os.getpid()}-{time.time_ns()}"
    writers = [Writer(log, f"{prefix}-{number}") for number in range(count)]
    created = Step(SessionCreated(agent="coder"))
    for first in range(0, count, CREATE_AT_ONCE):
        some = writers[first : first + CREATE_AT_ONCE]
        verdicts = log.append([writer.prepared(created) for writer in some])
        for writer, verdict in zip(some, verdicts, strict=True):
            assert verdict.kind == ACCEPTED, verdict
            writer.seq = verdict.seq
    return writers


class Arrivals:
    """The due appends, handed out in order to whoever is free."""

    def __init__(self, times: list[float], writers: list[Writer]) -> None:
        self._due = zip(times, itertools.cycle(writers), itertools.count())
        self._lock = threading.Lock()
        self.began_s = time.perf_counter() + LEAD_S
        self.taken: list[tuple[float, float]] = []

    def work(self) -> None:
        """Take due appends until there are none; runs in every thread."""
        mine: list[tuple[float, float]] = []
        while (due := self._next()) is not None:
            at, writer, number = due
            step = Step(
                SystemObservation(origin="harness", blocks=blocks(TEXT_CHARACTERS, number))
            )
            wait_s = self.began_s + at - time.perf_counter()
            if wait_s > 0:
                time.sleep(wait_s)
            writer.append_one(step)
            mine.append((at, time.perf_counter() - self.began_s - at))
        with self._lock:
            self.taken += mine

    def _next(self) -> tuple[float, Writer, int] | None:
        with self._lock:
            return next(self._due, None)


def main() -> None:
    """Connect, make sessions, append at the rate."""
    rate, seconds = float(sys.argv[1]), float(sys.argv[2])
    sessions, threads = int(sys.argv[3]), int(sys.argv[4])
    log = open_log(os.environ["FOLDLINE_URL"])
    writers = make_sessions(log, sessions)
    arrivals = Arrivals(list(due_times(rate, WARM_UP_S + seconds)), writers)
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(arrivals.work) for _ in range(threads)]:
            done.result()
    log.close()
    counted = [took * 1000 for at, took in sorted(arrivals.taken) if at >= WARM_UP_S]
    print(json.dumps({"sent": len(arrivals.taken), "ms": counted}))


main()
