"""How fast a session on Kafka wakes: the takes of `wake.py`, through the read service.

The state comes from the service, the verdict on the claim from the worker, the first
context from the service again: in one piece, which the service keeps warm, and beside
it (`in_parts`) as from one that does not, part by part. A lease on Kafka dies when it is
not renewed for its time to live, which is set short here, and a taker takes after that:
what is measured is the wake, not the waiting for the dead.

*Connected*, a process whose client is open already measures from the call. *Cold*, it is
from the start of the process, imports and the connections to brokers, registry and service
included. Takes are few, for each waits for a lease: beside the median stands the slowest,
and no percentile.
"""

import os
import socket
import statistics
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from measure import say
from wake import COMPACTED_BEFORE_END, STEPS, Bed
from worker_log import LOOK_S, READY_S, BenchLog, Running
from workload import build

from foldline.processors.open_log import open_log

LEASE_TTL_MS = 1_500
LEASE_RENEW_MS = 300
LEASE_MARGIN_MS = 500
"""So much longer than the lease lives a taker waits after the kill."""

ENVIRONMENT = {
    "FOLDLINE_LEASE_TTL_MS": str(LEASE_TTL_MS),
    "FOLDLINE_LEASE_RENEW_MS": str(LEASE_RENEW_MS),
}


@dataclass
class KafkaBed(Bed):
    """A session on Kafka, whose owner is dead only when its lease is."""

    parts: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """The wakes that read in parts."""

    def kill_owner(self) -> None:
        """SIGKILL to whoever owns the session; then its lease runs out."""
        if self.owner is not None:
            super().kill_owner()
            time.sleep((LEASE_TTL_MS + LEASE_MARGIN_MS) / 1000)


@contextmanager
def read_service(log: BenchLog) -> Generator[tuple[str, Running]]:
    """A read service of the log; its URL."""
    port = _free_port()
    url = f"http://127.0.0.1:{port}"
    served = BenchLog(
        log.cluster,
        log.prefix,
        log.partitions,
        log.folder,
        {**log.more, "FOLDLINE_HTTP_PORT": str(port)},
    )
    with served.running("serve", "--json") as running:
        _wait_for(f"{url}/readyz", running)
        yield url, running


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def _wait_for(url: str, running: Running) -> None:
    until = time.monotonic() + READY_S
    while time.monotonic() < until:
        assert running.alive, f"it ended: {running.said()}"
        try:
            with urllib.request.urlopen(url, timeout=5):  # noqa: S310 - http, see above
                return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(LOOK_S)
    raise AssertionError(f"{url} does not answer: {running.said()}")


def wakes(log: BenchLog, sizes: tuple[int, ...], *, takes: int) -> dict[str, Any]:
    """Median and slowest of a taker's wake, by the session's size in events."""
    with read_service(log) as (url, _):
        settings = {**log.environment, **ENVIRONMENT, "FOLDLINE_READ_URL": url}
        before = {name: os.environ.get(name) for name in settings}
        os.environ.update(settings)
        try:
            return _measure([_bed(log, events) for events in sizes], takes=takes)
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


def _bed(log: BenchLog, events: int) -> KafkaBed:
    say(f"building {events:,} events")
    session_id = f"bench-wake-{events}"
    opened = open_log(log.url)
    build(
        opened,
        session_id,
        events=events,
        compacted_before_end=COMPACTED_BEFORE_END,
        killed=True,
    )
    opened.close()
    return KafkaBed(log.url, events, session_id)


def _measure(beds: list[KafkaBed], *, takes: int) -> dict[str, Any]:
    """Takes of every session in turns; the first of each does not count."""
    try:
        for number in range(-1, takes):
            for bed, in_parts in product(beds, (False, True)):
                bed.in_parts = in_parts
                wake = bed.wake()
                assert wake["seq"] >= bed.events, wake
                if number >= 0:
                    (bed.parts if in_parts else bed.wakes).append(wake)
        for bed in beds * takes:
            bed.in_parts = False
            bed.cold.append(bed.wake_cold())
    finally:
        for bed in beds:
            if bed.owner is not None:
                bed.owner.kill()
                bed.owner.wait()
    return {
        str(bed.events): {
            **_numbers(bed.wakes),
            "in_parts": _numbers(bed.parts),
            "cold": _cold_numbers(bed.cold),
        }
        for bed in beds
    }


def _numbers(wakes: list[dict[str, Any]]) -> dict[str, Any]:
    """Milliseconds of the steps, and what the first context asked the service for."""
    found: dict[str, Any] = {"takes": len(wakes)}
    steps = {
        "": [wake["context"] for wake in wakes],
        "taken_": [wake["taken"] for wake in wakes],
        "first_context_": [wake["context"] - wake["planned"] for wake in wakes],
    }
    for prefix, samples_s in steps.items():
        found[f"{prefix}p50"] = _ms(statistics.median(samples_s))
        found[f"{prefix}slowest"] = _ms(max(samples_s))
    for name in ("asked", "asked_bytes"):
        found[name] = max(wake[name] for wake in wakes)
    return found


def _cold_numbers(wakes: list[dict[str, Any]]) -> dict[str, Any]:
    """Milliseconds from the start of the process up to each step, the medians."""
    found: dict[str, Any] = {"takes": len(wakes)}
    for step in STEPS:
        found[f"{step}_p50"] = _ms(statistics.median(wake[step] for wake in wakes))
    return found | {"context_slowest": _ms(max(wake["context"] for wake in wakes))}


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)
