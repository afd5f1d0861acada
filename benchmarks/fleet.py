"""The fleet: events a second, how soon it tells a loop, and what a kill does to windows.

A worker admits events of many sessions; then (but for 2) it ends, and

1. *Throughput*: one fleet worker reads them all, from the first to the last; measured
   from its own counters, warm: without the start of Python and of the group.
2. *Detection*: a session asks for the same three times, while a worker and a fleet worker
   run; from the answer to the third request until its LoopDetected can be read.
3. *Kill*: another one, with a place of its own, is killed (SIGKILL) so often while it
   reads, and begun again. In the end its windows are compared with a recount of the log.

    FOLDLINE_TEST_BOOTSTRAP=host:port FOLDLINE_TEST_REGISTRY=URL benchmarks/fleet.py
"""

import json
import tempfile
import time
import urllib.request
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from measure import finish, machine, options, percentile, say, table, target
from worker_load import make_load, records
from worker_log import BenchLog, Cluster, Running, cluster, fresh_log

from foldline.processors.open_log import open_log
from foldline.processors.stored import AuditableLog
from foldline.projections.fleet_fold import limits_of
from foldline.projections.fleet_local import look
from foldline.projections.fleet_windows import Span, window_view
from foldline.schemas.events import ToolCallRequested, TurnStarted
from foldline.schemas.registry_client import registry_of
from foldline.testing import LogStory
from foldline.testing.samples import created

PARTITIONS = 4
SESSION_EVENTS = 100
EVENTS = 20_000
QUICK_EVENTS = 2_000
KILLS = 3
LOOPS = 50
QUICK_LOOPS = 10
LOOP_CALLS = 3
TOLD_WITHIN_MS = 1_000
LIMIT_S = 600.0
LIMIT = 100_000
ASK_S = 0.5

Part = Callable[[BenchLog, int], dict[str, Any]]


class Asked:
    """A fleet worker over HTTP."""

    def __init__(self, running: Running, port: int) -> None:
        self.running = running
        self._url = f"http://127.0.0.1:{port}"

    def get(self, path: str) -> bytes:
        """What it answers."""
        with urllib.request.urlopen(self._url + path, timeout=30) as answer:  # noqa: S310 - our own process
            return answer.read()

    def counter(self, name: str) -> int:
        """One of its own counters."""
        wanted = f"foldline_fleet_{name}_total "
        lines = self.get("/metrics").decode().splitlines()
        return int(float(next(x for x in lines if x.startswith(wanted)).split()[1]))

    def windows(self) -> list[Any]:
        """Its windows of one pane."""
        found = self.get(f"/fleet/windows?size_s=60&limit={LIMIT}")
        return json.loads(found)["windows"]


@contextmanager
def fleet(log: BenchLog) -> Generator[Asked]:
    """A fleet worker, once its partitions are restored."""
    with log.running("fleet", "worker", "--json") as running:
        assert running.process.stdout is not None
        line = running.process.stdout.readline()
        assert line, f"it ended: {running.said()}"
        yield Asked(running, json.loads(line)["health_port"])


def filled(log: BenchLog, events: int) -> None:
    """Have so many events admitted, of sessions with turns and tools in them."""
    registry = registry_of(log.settings)
    load = make_load(registry, events_per_session=SESSION_EVENTS)
    registry.close()
    sessions = events // SESSION_EVENTS
    appends = records(load, sessions=sessions, partitions=log.partitions)
    count = log.cluster.broker.fill(log.names.appends, appends)
    assert count == events, f"{count} appends"
    with log.worker() as worker:
        done = log.cluster.broker.wait_consumed(
            log.names.group,
            log.names.appends,
            limit_s=LIMIT_S,
            alive=lambda: worker.alive,
        )
    assert done, f"{count} appends were not admitted in {LIMIT_S} s"


def read_to_end(asked: Asked, events: int) -> list[tuple[float, int]]:
    """Wait until it has folded all events; how many it had when."""
    samples: list[tuple[float, int]] = []
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until:
        folded = asked.counter("events")
        samples.append((time.monotonic(), folded))
        if folded >= events:
            return samples
        time.sleep(ASK_S)
    raise AssertionError(f"{samples[-1][1]} of {events} events in {LIMIT_S} s")


def throughput(log: BenchLog, events: int) -> dict[str, Any]:
    """One worker reads everything."""
    with fleet(log) as asked:
        samples = [one for one in read_to_end(asked, events) if one[1]]
        memory_mb = asked.running.memory_mb()[1]
    (begin_s, first), (end_s, last) = samples[0], samples[-1]
    return {
        "events": events,
        "events_per_s": round((last - first) / max(end_s - begin_s, 0.001)),
        "memory_mb": memory_mb,
    }


def detection(log: BenchLog, events: int) -> dict[str, Any]:
    """From the answer to a third request until its loop is in the session."""
    loops = QUICK_LOOPS if events <= QUICK_EVENTS else LOOPS
    with log.worker(), fleet(log) as asked, closing(_opened(log)) as opened:
        read_to_end(asked, events)
        _told_after_ms(opened)  # warm: both replicas are there
        took_ms = sorted(_told_after_ms(opened) for _ in range(loops))
        listed = len(json.loads(asked.get("/fleet/loops"))["loops"])
    return {
        "loops": listed,
        "told_p50_ms": round(percentile(took_ms, 50), 1),
        "told_p99_ms": round(percentile(took_ms, 99), 1),
        "told_max_ms": round(took_ms[-1], 1),
    }


def _told_after_ms(log: AuditableLog) -> float:
    """One session goes round, and is told so."""
    story = LogStory(log).given(created(), TurnStarted(trigger="USER"))
    for number in range(LOOP_CALLS):
        story.given(_request(number))
    began_s = time.monotonic()
    until_s = began_s + LIMIT_S / 10
    while time.monotonic() < until_s:
        found = log.follow(story.session_id, after_seq=story.seq, timeout_ms=1_000)
        if any(one.type == "LoopDetected" for one in found):
            return (time.monotonic() - began_s) * 1_000
    raise AssertionError(f"session {story.session_id} was not told")


def _request(number: int) -> ToolCallRequested:
    return ToolCallRequested(
        call_id=f"m:{number}",
        tool="ls",
        args_hash="same",
        message_id="m",
        position=0,
        arguments=(),
    )


def kills(log: BenchLog, events: int) -> dict[str, Any]:
    """Killed while it reads, and begun again; what its windows are in the end."""
    ready_after_s: list[float] = []
    for _ in range(KILLS):
        with timed(log, ready_after_s) as asked:
            read_to_end(asked, events // (2 * KILLS))
            asked.running.kill()
    recount = _recount(log)
    with timed(log, ready_after_s) as asked:
        found = _settled(asked, recount)
        repeats = asked.counter("repeats")
    return {
        "kills": KILLS,
        "ready_after_s": ready_after_s,
        "repeats_after_the_last": repeats,
        "windows": len(recount),
        "windows_that_differ": sum(one not in found for one in recount)
        + sum(one not in recount for one in found),
    }


@contextmanager
def timed(log: BenchLog, ready_after_s: list[float]) -> Generator[Asked]:
    """A fleet worker, and how long it took until it was ready."""
    began_s = time.monotonic()
    with fleet(log) as asked:
        ready_after_s.append(round(time.monotonic() - began_s, 1))
        yield asked


def _settled(asked: Asked, wanted: list[Any]) -> list[Any]:
    """Its windows, once they are these, or after a while as they are."""
    until = time.monotonic() + LIMIT_S / 4
    while time.monotonic() < until and asked.windows() != wanted:
        time.sleep(1)
    return asked.windows()


def _recount(log: BenchLog) -> list[Any]:
    with closing(_opened(log)) as opened:
        seen = look(opened, pane_s=60, since_us=0, limits=limits_of(log.settings))
    return [window_view(one) for one in seen.board.windows(Span(60, 60))]


def _opened(log: BenchLog) -> AuditableLog:
    return open_log(log.url, settings=log.settings)


def main() -> None:
    """Run all parts."""
    parser = options("events a second of a fleet worker, and its windows after kills")
    parser.add_argument("--events", type=int, default=0)
    arguments = parser.parse_args()
    events = arguments.events or (QUICK_EVENTS if arguments.quick else EVENTS)
    with tempfile.TemporaryDirectory() as below, cluster(Path(below)) as place:
        found = {
            part.__name__: _on_a_log(place, Path(below), part, events)
            for part in (throughput, detection, kills)
        }
    say(table(("what", "value"), [*_rows(found)]))
    slowest_ms = found["detection"]["told_p99_ms"]
    target("a loop is told, p99, in ms", slowest_ms, TOLD_WITHIN_MS)
    say(str(machine()))
    finish(arguments, found)


def _on_a_log(place: Cluster, below: Path, part: Part, events: int) -> dict[str, Any]:
    """Run one part on a log of its own, which is filled before."""
    with fresh_log(place, below, part.__name__, partitions=PARTITIONS) as log:
        filled(log, events)
        say(f"{part.__name__}: {events} events are admitted")
        return part(log, events)


def _rows(found: dict[str, Any]) -> Generator[tuple[str, object]]:
    for part, values in found.items():
        for name, value in values.items():
            yield f"{part}: {name}", value if isinstance(value, int) else str(value)


if __name__ == "__main__":
    main()
