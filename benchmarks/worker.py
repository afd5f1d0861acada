"""Foldline's worker on a real broker: throughput, latency, wake, bytes, restore, memory.

1. *Throughput, exactly once.* `appends` is filled beforehand with 500-byte events of
   10,000 sessions in turns; one worker consumes all. Peers consume as many 500-byte
   events of as many sessions from a topic of their own, one after the other on the same
   broker. For everybody the second half of what came out is measured, by the broker's
   times of the committed records: a JVM is warm then, and foldline publishes snapshots.
   Peers end when they have all or after PEER_LIMIT_S.
2. *Bytes and memory* of that run: what all topics of the log and the broker's own offsets
   and transaction topics grew by, for each byte of event (body, without headers).
3. *Restore*: that worker's folder is wiped and a worker restores from snapshots and
   events; and on a log of one partition without snapshots, from events alone.
4. *Latency* from append to verdict at several rates, open loop (`worker_latency.py`).
5. *Wake* after SIGKILL through the read service (`worker_wake.py`).

What is not the same: the peers do less (see `peers/session_fold.py`), Faust is not
exactly once, and Quix Streams commits every five seconds, foldline after each batch and
Kafka Streams every 100 ms. Ratios are foldline's events a second over a peer's.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import worker_peers as peers
from broker import Rates
from measure import finish, options, percentile, say, table, target
from worker_load import make_load
from worker_load import records as foldline_records
from worker_log import BenchLog, Cluster, Running, cluster, fresh_log
from worker_wake import wakes

from foldline.schemas.registry_client import registry_of

PARTITIONS = 16
SESSIONS = 10_000
RATES = (100, 500, 2_000)
FRAME_BYTES = 5
"""Before each event's body: what says its schema."""

WORKER_LIMIT_S = 600.0
INTERNAL = ("__consumer_offsets", "__transaction_state")
LOOK_S = 0.5


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of everything."""

    events: int
    peer_events: int
    peer_limit_s: float
    latency_s: float
    latency_runs: int
    latency_sessions: int
    latency_threads: int
    wake_events: tuple[int, ...]
    takes: int
    restore_events: int


WHOLE = Sizes(
    events=1_000_000,
    peer_events=400_000,
    peer_limit_s=60.0,
    latency_s=6.0,
    latency_runs=5,
    latency_sessions=1_000,
    latency_threads=128,
    wake_events=(1_000, 10_216, 100_072),
    takes=12,
    restore_events=100_000,
)
QUICK = Sizes(
    events=60_000,
    peer_events=60_000,
    peer_limit_s=15.0,
    latency_s=2.0,
    latency_runs=1,
    latency_sessions=500,
    latency_threads=64,
    wake_events=(1_000, 2_024),
    takes=3,
    restore_events=20_000,
)

PARTS = ("throughput", "restore", "latency", "wake")


# --- throughput, bytes, memory ------------------------------------------------------------


def fill(log: BenchLog, *, events: int) -> int:
    """Fill `appends` with the sessions' events; how many there are."""
    settings = log.settings
    registry = registry_of(settings)
    load = make_load(registry, events_per_session=max(events // SESSIONS, 2))
    registry.close()
    begun = time.perf_counter()
    sessions = min(SESSIONS, events)
    filled = foldline_records(load, sessions=sessions, partitions=log.partitions)
    count = log.cluster.broker.fill(log.names.appends, filled)
    took = time.perf_counter() - begun
    say(f"{count:,} appends, bodies of {load.body_bytes} bytes, in {took:.0f} s")
    return count


class Watch:
    """Memory of a worker and bytes of its log, while it works."""

    def __init__(self, log: BenchLog, running: Running, *, events: int) -> None:
        self._log = log
        self._running = running
        self._events = events
        self._stopped = threading.Event()
        self.memory: list[tuple[int, float]] = []
        self.half: dict[str, int] = {}
        self.half_events = 0
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        broker, names = self._log.cluster.broker, self._log.names
        while not self._stopped.wait(LOOK_S) and self._running.alive:
            done = sum(broker.ends(names.events).values())
            self.memory.append((done, self._running.memory_mb()[0]))
            if not self.half and done >= self._events // 2:
                self.half = broker.log_bytes()
                self.half_events = sum(broker.ends(names.events).values())

    def stop(self) -> None:
        """Look no more."""
        self._stopped.set()
        self._thread.join()


def throughput(log: BenchLog, sizes: Sizes) -> dict[str, Any]:
    """One worker consumes a filled log."""
    broker, names = log.cluster.broker, log.names
    count = fill(log, events=sizes.events)
    appended = broker.log_bytes()[names.appends]
    with log.worker() as running:
        watch = Watch(log, running, events=count)
        done = broker.wait_consumed(
            names.group,
            names.appends,
            limit_s=WORKER_LIMIT_S,
            alive=lambda: running.alive,
        )
        assert done, f"the worker did not consume all: {running.said()}"
        watch.stop()
        bytes_after = broker.log_bytes()
        ends = sum(broker.ends(names.events).values())
        now_mb, highest_mb = running.memory_mb()
        running.stop()
    rates = broker.rates(names.events)
    assert rates.events == count, f"{rates.events} events of {count} appends"
    share = 1 - watch.half_events / ends
    grown = _grown(log, watch.half, bytes_after)
    grown["appends"] = round(appended * share)
    body_bytes = rates.value_bytes - FRAME_BYTES
    event_bytes = body_bytes * count * share
    memory = [megabytes for done, megabytes in watch.memory if done >= count // 2]
    return {
        "events_per_s": rates.warm,
        "events_per_s_whole": rates.whole,
        "events": count,
        "bytes_per_event": body_bytes,
        "bytes_per_event_byte": round(sum(grown.values()) / event_bytes, 2),
        "bytes_per_event_byte_by_topic": {
            topic: round(size / event_bytes, 3) for topic, size in grown.items()
        },
        "rss_mb": highest_mb,
        "rss_mb_at_end": now_mb,
        "rss_mb_second_half": [min(memory), max(memory)] if memory else [],
    }


def _grown(log: BenchLog, before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """By how many bytes each of the log's topics grew, and the broker's own."""
    grown: dict[str, int] = {}
    for topic, size in after.items():
        mine = topic.startswith(log.prefix)
        if mine or topic in INTERNAL:
            name = topic.removeprefix(log.prefix) if mine else topic
            grown[name] = size - before.get(topic, 0)
    return {name: size for name, size in grown.items() if size}


# --- peers --------------------------------------------------------------------------------


def peer_rates(
    place: Cluster, folder: Path, names: list[str], fold: str, sizes: Sizes
) -> dict[str, Rates | str]:
    """Each peer's rates, or why it has none."""
    broker = place.broker
    prefix = f"bench{os.getpid()}-{fold}-{time.time_ns() // 10**6}."
    source = f"{prefix}source"
    broker.create(source, partitions=PARTITIONS)
    events = peers.records(
        fold, events=sizes.peer_events, sessions=SESSIONS, partitions=PARTITIONS
    )
    broker.fill(source, events)
    found: dict[str, Rates | str] = {}
    try:
        for name in names:
            target_topic, group = f"{prefix}{name}.target", f"{prefix}{name}"
            state = folder / f"{fold}-{name}"
            job = peers.Job(fold, broker, source, target_topic, group, state, PARTITIONS)
            try:
                found[name] = peers.measure(name, job, limit_s=sizes.peer_limit_s)
            except peers.MissingToolError as error:
                found[name] = str(error)
            say(f"{name}, {fold}: {found[name]}")
    finally:
        broker.delete(prefix)
    return found


def peer_ratios(mine: int | None, found: dict[str, Rates | str]) -> dict[str, Any]:
    """Foldline's rate over each peer's; null for what was not measured."""

    def warm(*names: str) -> int | None:
        known = [r.warm for n in names if isinstance(r := found.get(n), Rates)]
        return max(known) if known else None

    peer_s = {
        "ratio_quixstreams": warm(peers.QUIXSTREAMS),
        "ratio_faust": warm(peers.FAUST),
        # The faster of the two ways to have a store.
        "ratio_kafka_streams": warm(peers.KAFKA_STREAMS, peers.KAFKA_STREAMS_CACHED),
    }
    return {
        name: round(mine / theirs, 2) if mine and theirs else None
        for name, theirs in peer_s.items()
    }


# --- restore ------------------------------------------------------------------------------


def restore(log: BenchLog) -> float:
    """Seconds from a worker's start, without any table, until it is ready."""
    for found in log.folder.iterdir():
        if found.is_dir():
            shutil.rmtree(found)
    with log.worker() as running:
        return running.ready_s - running.began_s


def restore_rate(place: Cluster, folder: Path, sizes: Sizes) -> dict[str, Any]:
    """How fast one partition is restored from its events alone.

    What a start takes with nothing to restore is measured first and taken off.
    """
    never = str(100_000_000)
    with fresh_log(
        place, folder, "restore", partitions=1, FOLDLINE_SNAPSHOT_LAG_EVENTS=never
    ) as log:
        empty_s = restore(log)
        count = fill(log, events=sizes.restore_events)
        with log.worker() as running:
            log.cluster.broker.wait_consumed(
                log.names.group,
                log.names.appends,
                limit_s=WORKER_LIMIT_S,
                alive=lambda: running.alive,
            )
        took_s = restore(log)
    say(f"restored {count:,} events in {took_s - empty_s:.1f} s beside {empty_s:.1f} s")
    return {"restore_events_per_s": round(count / max(took_s - empty_s, 0.001))}


# --- latency ------------------------------------------------------------------------------


def latency(log: BenchLog, sizes: Sizes) -> dict[str, Any]:
    """p50, p95 and p99 at each rate: medians over runs."""
    found: dict[str, Any] = {}
    with log.worker():
        for rate in RATES:
            runs = [_latency_run(log, rate, sizes) for _ in range(sizes.latency_runs)]
            found[str(rate)] = {
                f"p{percent}": round(
                    percentile([percentile(run, percent) for run in runs], 50), 1
                )
                for percent in (50, 95, 99)
            }
            say(f"{rate} appends/s: {found[str(rate)]}")
    return found


def _latency_run(log: BenchLog, rate: int, sizes: Sizes) -> list[float]:
    script = Path(__file__).with_name("worker_latency.py")
    numbers = (rate, sizes.latency_s, sizes.latency_sessions, sizes.latency_threads)
    done = subprocess.run(
        [sys.executable, script, *map(str, numbers)],
        env={**os.environ, **log.environment},
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])["ms"]


# --- all of it ----------------------------------------------------------------------------


def run(arguments: argparse.Namespace, place: Cluster, folder: Path) -> dict[str, Any]:
    """What was asked for; null where it was not."""
    sizes: Sizes = arguments.sizes
    result: dict[str, Any] = dict.fromkeys(
        (
            "events_per_s",
            "ratio_quixstreams",
            "ratio_faust",
            "ratio_kafka_streams",
            "verdict_ms",
            "wake_ms",
            "bytes_per_event_byte",
            "restore_events_per_s",
            "rss_mb",
        )
    )
    if "throughput" in arguments.parts:
        # Snapshots begin in the first half, so that the second is a steady state.
        lag = max(min(50_000, sizes.events // PARTITIONS // 3), 1)
        settings = {"FOLDLINE_SNAPSHOT_LAG_EVENTS": str(lag)}
        with fresh_log(
            place, folder, "throughput", partitions=PARTITIONS, **settings
        ) as log:
            result |= throughput(log, sizes)
            say(f"foldline: {result['events_per_s']:,} events/s")
            result["restart_s"] = round(restore(log), 1)
    result |= compared(arguments, place, folder, result["events_per_s"])
    if "restore" in arguments.parts:
        result |= restore_rate(place, folder, sizes)
    if "latency" in arguments.parts:
        with fresh_log(place, folder, "latency", partitions=PARTITIONS) as log:
            result["verdict_ms"] = latency(log, sizes)
    if "wake" in arguments.parts:
        with fresh_log(place, folder, "wake", partitions=PARTITIONS) as log, log.worker():
            result["wake_ms"] = wakes(log, sizes.wake_events, takes=sizes.takes)
    return result


def compared(
    arguments: argparse.Namespace, place: Cluster, folder: Path, mine: int | None
) -> dict[str, Any]:
    """Ratios to the peers, and what was measured of them."""
    if not arguments.peers:
        return {}
    seen = {
        fold: peer_rates(place, folder, arguments.peers, fold, arguments.sizes)
        for fold in arguments.folds
    }
    ratios = {fold: peer_ratios(mine, found) for fold, found in seen.items()}
    shown = {
        fold: {
            name: {"warm": r.warm, "whole": r.whole, "events": r.events}
            if isinstance(r, Rates)
            else r
            for name, r in found.items()
        }
        for fold, found in seen.items()
    }
    first = arguments.folds[0]
    return {**ratios[first], "peers": shown, "ratios_by_fold": ratios}


def show(result: dict[str, Any]) -> None:
    """Tables for people, and which targets are reached."""
    say()
    for fold, found in result.get("peers", {}).items():
        rows = [("foldline", result["events_per_s"] or 0)]
        rows += [(n, r["warm"]) for n, r in found.items() if isinstance(r, dict)]
        say(table((f"events/s, peers: {fold}", "second half"), rows))
    for name, limit in (
        ("ratio_quixstreams", 4),
        ("ratio_faust", 15),
        ("ratio_kafka_streams", 1),
        ("events_per_s", 20_000),
    ):
        if result.get(name) is not None:
            target(name, result[name], limit, at_least=True)
    if result["bytes_per_event_byte"] is not None:
        target("bytes per byte of event", result["bytes_per_event_byte"], 3)
    for rate, p50, p99 in (("100", 10, 60), ("500", 20, 80)):
        if result["verdict_ms"] is not None:
            target(f"p50 ms at {rate}/s", result["verdict_ms"][rate]["p50"], p50)
            target(f"p99 ms at {rate}/s", result["verdict_ms"][rate]["p99"], p99)
    wake_ms: dict[str, dict[str, Any]] = result["wake_ms"] or {}
    for events, numbers in wake_ms.items():
        target(f"slowest wake, ms, {events} events", numbers["slowest"], 100)
        say(f"cold, p50 ms, {events} events: {numbers['cold']['context_p50']}")


def listed(text: str) -> list[str]:
    """A list with commas; `none` is an empty one."""
    return [] if text == "none" else text.split(",")


def asked() -> argparse.Namespace:
    """The options."""
    parser = options("The worker on a real broker")
    parser.add_argument("--events", type=int, help="how many appends the worker consumes")
    parser.add_argument(
        "--peers", type=listed, default=list(peers.COMMANDS), help="which, or none"
    )
    parser.add_argument(
        "--folds",
        type=listed,
        default=[peers.ADMITTING, peers.BARE],
        help="what peers do; the first is compared with",
    )
    parser.add_argument(
        "--parts", type=listed, default=list(PARTS), help="of " + str(PARTS)
    )
    arguments = parser.parse_args()
    arguments.sizes = QUICK if arguments.quick else WHOLE
    if arguments.events:
        sizes = arguments.sizes
        arguments.sizes = Sizes(
            **{f: getattr(sizes, f) for f in Sizes.__dataclass_fields__}
            | {"events": arguments.events}
        )
    return arguments


def main() -> None:
    """Run the benchmark."""
    arguments = asked()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        with cluster(folder) as place:
            result = run(arguments, place, folder)
    show(result)
    result["took_s"] = round(time.monotonic() - begun)
    finish(arguments, {"benchmark": "worker", **result})


if __name__ == "__main__":
    main()
