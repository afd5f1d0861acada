"""The storm of the whole: writers, workers and brokers, killed and frozen by chance.

    FOLDLINE_STORM_SEED=7 pytest -m storm tests/processors/test_worker_storm.py

The same seed chooses the same faults in the same order. What is left is looked at by the
one checker.
"""

import os
import random
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from foldline.cli.failures import STORAGE
from foldline.faults import CRASH_POINTS
from foldline.testing.log_story import new_id
from tests.cluster.bad_network import BadNetwork
from tests.cluster.clocks import wrong_clock
from tests.cluster.fixtures import MakeLog, OwnCluster
from tests.cluster.jar_cluster import JarCluster
from tests.cluster.logs import FreshLog, Worker, start_worker
from tests.cluster.processes import Process, free_ports
from tests.cluster.shared import Broker
from tests.kafka_checker import Checked, check
from tests.kafka_feed import Feed
from tests.processors.skewed_child import EVENTS
from tests.storm_seed import by_name, storm_rounds, storm_seed

pytestmark = [pytest.mark.kafka, pytest.mark.storm, by_name]

POINTS = sorted(
    name for name in CRASH_POINTS if name.startswith(("CP_WORKER", "CP_RESTORE"))
)

ROUNDS = 16
REBALANCES = 40
"""One every three seconds: two minutes of them."""

WEATHER = ("slow", "deaf", "mute", "cut", "half-open")
HOUR_S = 3_600
SLACK_US = 60_000_000
CHILD = Path(__file__).with_name("skewed_child.py")

SLOTS = 3
BROKERS = 3
SETTLE_S = 240.0

ENDS = {0, STORAGE, -signal.SIGTERM, -signal.SIGKILL}
"""How a worker may end: in order, without brokers, before it could hear, at a point."""
STARTS_MAX = 10


@dataclass
class Storm:
    """Workers by slot, two writers, and perhaps brokers of its own."""

    log: FreshLog
    chance: random.Random
    cluster: JarCluster | None = None
    network: BadNetwork | None = None
    clocks: Mapping[str, Mapping[str, str]] = field(
        default_factory=dict[str, Mapping[str, str]]
    )
    """What hosts have wrong clocks, by slot."""
    weather: list[str] = field(default_factory=list[str])
    """What a bad network is next."""
    writers: list[Process] = field(default_factory=list[Process])
    """More of them, as processes that end by themselves."""
    workers: dict[str, Worker] = field(default_factory=dict[str, Worker])
    said: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        seeds = [self.chance.randrange(1_000) for _ in range(2)]
        self.feeds = [Feed(self.log, seed=s, sessions=12) for s in seeds]

    def blow(self, rounds: int) -> None:
        """So many faults, one after the other, while writers go on."""
        faults: list[Callable[[], None]] = [
            self.a_worker_dies_at_a_point,
            self.a_worker_freezes_at_a_point,
            self.a_worker_is_killed,
            self.a_worker_is_rolled,
        ]
        if self.cluster is not None:
            faults += [self.a_broker_dies_while_a_worker_is_at_a_point] * 2
        if self.network is not None:
            faults += [self.the_network_is_bad] * 8
        for slot in self.slots:
            self.start(slot)
        self.write(3)
        for _ in range(rounds):
            self.chance.choice(faults)()
            self.write(3)
            self.revive()

    @property
    def slots(self) -> list[str]:
        """The names of the workers' places."""
        return [f"w{number}" for number in range(SLOTS)]

    def start(self, slot: str, *, crash_at: str = "", stop_at: str = "") -> Worker:
        """A worker in a slot, in the place of the one before it."""
        if slot in self.workers:
            self.workers[slot].kill()
        self.workers[slot] = start_worker(
            self.log,
            name=slot,
            crash_at=crash_at,
            stop_at=stop_at,
            environment=self.clocks.get(slot),
        )
        return self.workers[slot]

    def write(self, seconds: float) -> None:
        """Append for a while; nobody waits for answers."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for feed in self.feeds:
                feed.tell(3)
                feed.take(0.05)

    def revive(self) -> None:
        """Whoever has ended is started again, as a supervisor does."""
        for slot in self.slots:
            if not self.workers[slot].process.running:
                self.start(slot)

    def end(self) -> list[Path]:
        """Let one worker answer everything; gives the folders of tables."""
        for worker in self.workers.values():
            worker.kill()
        last = self.start("w0")
        for _ in range(STARTS_MAX):
            try:
                last.wait_ready()
                break
            except AssertionError:
                assert not last.process.running, last.said()
                last = self.start("w0")
        for feed in self.feeds:
            feed.settle(SETTLE_S)
        for writer in self.writers:
            assert writer.wait(SETTLE_S) == 0, writer.said()
        assert last.terminate() == 0
        return [last.state_dir]

    def drawn(self) -> tuple[str, str]:
        """A slot, and a point at a pass of it."""
        slot = self.chance.choice(self.slots)
        point = f"{self.chance.choice(POINTS)}:{self.chance.randint(1, 6)}"
        self.note(f"{slot} at {point}")
        return slot, point

    def note(self, text: str) -> None:
        """For whoever reads what a failed storm did."""
        self.said.append(text)
        print(text)  # noqa: T201

    # --- faults ----------------------------------------------------------------------

    def a_worker_dies_at_a_point(self) -> None:
        slot, point = self.drawn()
        worker = self.start(slot, crash_at=point)
        self.write(self.chance.uniform(2, 6))
        if not worker.process.running:
            assert worker.wait_dead() in ENDS, worker.said()

    def a_worker_freezes_at_a_point(self) -> None:
        slot, point = self.drawn()
        worker = self.start(slot, stop_at=point)
        self.write(self.chance.choice((3, 12)))  # shorter or longer than its session
        worker.wake()

    def a_worker_is_killed(self) -> None:
        slot = self.chance.choice(self.slots)
        self.note(f"{slot} is killed")
        self.workers[slot].kill()

    def a_worker_is_rolled(self) -> None:
        slot = self.chance.choice(self.slots)
        self.note(f"{slot} is rolled")
        assert self.workers[slot].terminate() in ENDS, self.workers[slot].said()

    def a_broker_dies_while_a_worker_is_at_a_point(self) -> None:
        """It freezes itself there; the broker goes; it wakes and meets what is left."""
        assert self.cluster is not None
        slot, point = self.drawn()
        worker = self.start(slot, stop_at=point)
        self.write(4)
        broker = self.chance.randrange(BROKERS)
        self.note(f"broker {broker} is killed")
        self.cluster.kill(broker)
        worker.wake()
        self.write(self.chance.uniform(2, 8))
        self.cluster.start(broker)

    def the_network_is_bad(self) -> None:
        """Slow, lossy, cut one way or both, or with ends that are not there any more."""
        network = self.network
        assert network is not None
        if not self.weather:  # each kind once before any comes again
            self.weather = self.chance.sample(WEATHER, len(WEATHER))
        match self.weather.pop():
            case "slow" as how:
                network.latency_s, network.loss = 0.2, 0.05
            case "deaf" as how:
                network.deaf = True
            case "mute" as how:
                network.mute = True
            case "cut" as how:
                network.deaf = network.mute = True
            case how:
                network.forget()
        seconds = self.chance.choice((3, 8, 15))  # below and above what clients wait for
        self.note(f"the network is {how} for {seconds} s")
        self.write(seconds)
        network.heal()


def test_workers_writers_and_brokers_of_a_seed(
    own_cluster: OwnCluster, broker: Broker, make_fresh_log: MakeLog
) -> None:
    chance = random.Random(storm_seed())
    cluster = own_cluster(brokers=BROKERS)
    three = Broker(cluster.bootstrap, broker.registry_url, "own")
    log = make_fresh_log(
        on=three,
        partitions=4,
        replication=3,
        worker_batch_max=25,
        snapshot_lag_events=100,
        table_flush_ms=200,
    )
    settled(Storm(log, chance, cluster), storm_rounds(ROUNDS))


def test_workers_and_writers_of_a_seed(make_fresh_log: MakeLog) -> None:
    """The same on brokers that stay: many more faults of workers."""
    chance = random.Random(storm_seed())
    log = make_fresh_log(
        partitions=4, worker_batch_max=25, snapshot_lag_events=100, table_flush_ms=200
    )
    settled(Storm(log, chance), storm_rounds(2 * ROUNDS))


def test_a_bad_network_of_a_seed(
    own_cluster: OwnCluster, broker: Broker, make_fresh_log: MakeLog
) -> None:
    """Row 27: latency and loss, one way cut off, connections that only one end knows."""
    chance = random.Random(storm_seed())
    (port,) = free_ports(1)
    with BadNetwork(port, chance=chance) as network:
        cluster = own_cluster(advertised=[network.address])
        network.target = cluster.port()
        behind = Broker(cluster.bootstrap, broker.registry_url, "behind a bad network")
        log = make_fresh_log(
            on=behind, partitions=4, worker_batch_max=25, snapshot_lag_events=100
        )
        settled(Storm(log, chance, network=network), storm_rounds(ROUNDS))


def test_hosts_whose_clocks_are_an_hour_off(make_fresh_log: MakeLog) -> None:
    """Row 17: log time is the brokers', whatever workers and writers call now.

    One worker's clock is ahead, one behind, and one jumps back while it works; so do
    those of three writers.
    """
    chance = random.Random(storm_seed())
    began_us = time.time_ns() // 1000
    log = make_fresh_log(partitions=4, worker_batch_max=25, snapshot_lag_events=100)
    hosts = [
        wrong_clock(HOUR_S),
        wrong_clock(-HOUR_S),
        wrong_clock(HOUR_S, turns_after_s=5),
    ]
    storm = Storm(log, chance, clocks=dict(zip(("w0", "w1", "w2"), hosts, strict=True)))
    storm.start("w0")
    storm.writers = [
        on_host(log, host, "tell", f"skewed-{number}") for number, host in enumerate(hosts)
    ]
    try:
        checked = settled(storm, storm_rounds(ROUNDS // 2))
    finally:
        for writer in storm.writers:
            writer.kill()
    for number in range(len(hosts)):
        assert_log_time_is_true(checked, f"skewed-{number}", began_us=began_us)


def test_a_lease_is_judged_alike_by_hosts_whose_clocks_differ(
    make_fresh_log: MakeLog,
) -> None:
    log = make_fresh_log(partitions=1)
    ahead, behind = wrong_clock(HOUR_S), wrong_clock(-HOUR_S)
    for holder, looker in ((ahead, behind), (behind, ahead)):
        name = new_id()
        assert on_host(log, holder, "hold", name).wait(SETTLE_S) == 0
        looks = on_host(log, looker, "look", name)
        assert looks.wait(SETTLE_S) == 0, looks.said()
        assert looks.said().splitlines()[-2:] == ["True", "it has run out"]


def on_host(log: FreshLog, clock: Mapping[str, str], *command: str) -> Process:
    """A writer on a host with such a clock."""
    return Process(
        [sys.executable, str(CHILD), command[0], log.url, *command[1:]],
        log=log.folder / f"{'-'.join(command)}-{time.monotonic_ns()}.log",
        environment={**os.environ, **log.environment, **clock},
    )


def assert_log_time_is_true(checked: Checked, session_id: str, *, began_us: int) -> None:
    """Its times of the log are those of this test; what its writer called now is not."""
    session = checked.sessions[session_id]
    assert len(session) == EVENTS
    for event in session:
        envelope = event.envelope
        assert began_us - SLACK_US < envelope.recorded_at < time.time_ns() // 1000
        assert envelope.occurred_at is not None
        assert abs(envelope.occurred_at - envelope.recorded_at) > HOUR_S * 500_000


def settled(storm: Storm, rounds: int) -> Checked:
    """Blow, then let one worker answer all; nothing is lost, doubled or guessed."""
    try:
        storm.blow(rounds)
        tables = storm.end()
    finally:
        for worker in storm.workers.values():
            worker.kill()
    answers = {k: v for feed in storm.feeds for k, v in feed.answers.items()}
    assert len(answers) == sum(len(feed.sent) for feed in storm.feeds)
    checked = check(storm.log, answers, tables=tables)
    assert checked.tables == storm.log.partitions
    assert checked.events > 100
    return checked


def test_a_rebalance_every_three_seconds(make_fresh_log: MakeLog) -> None:
    """Row 10: one worker comes or goes each time; what is folded again stays bounded."""
    chance = random.Random(storm_seed())
    log = make_fresh_log(partitions=6, worker_batch_max=50, snapshot_lag_events=200)
    storm = Storm(log, chance)
    storm.start("w0")
    number = 0
    try:
        for _ in range(storm_rounds(REBALANCES)):
            if len(storm.workers) > 3 or (len(storm.workers) > 1 and chance.random() < 0.5):
                leaving = storm.workers.pop(chance.choice(sorted(storm.workers)))
                leaving.kill() if chance.random() < 0.3 else leaving.terminate()
                assert "lock" not in leaving.said(), leaving.said()
            else:
                number += 1
                storm.start(f"n{number}")
            storm.write(3)
        for worker in storm.workers.values():
            worker.kill()
        tables = storm.end()
    finally:
        for worker in storm.workers.values():
            worker.kill()
    answers = {k: v for feed in storm.feeds for k, v in feed.answers.items()}
    check(log, answers, tables=tables)
