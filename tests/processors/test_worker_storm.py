"""The storm of the whole: writers, workers and brokers, killed and frozen by chance.

    FOLDLINE_STORM_SEED=7 pytest -m storm tests/processors/test_worker_storm.py

The same seed chooses the same faults in the same order. What is left is looked at by the
one checker.
"""

import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from foldline.cli.failures import STORAGE
from foldline.faults import CRASH_POINTS
from tests.cluster.fixtures import MakeLog, OwnCluster
from tests.cluster.jar_cluster import JarCluster
from tests.cluster.logs import FreshLog, Worker, start_worker
from tests.cluster.shared import Broker
from tests.kafka_checker import check
from tests.kafka_feed import Feed
from tests.storm_seed import by_name, storm_rounds, storm_seed

pytestmark = [pytest.mark.kafka, pytest.mark.storm, by_name]

POINTS = sorted(
    name for name in CRASH_POINTS if name.startswith(("CP_WORKER", "CP_RESTORE"))
)

ROUNDS = 16
REBALANCES = 40
"""One every three seconds: two minutes of them."""

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
            self.log, name=slot, crash_at=crash_at, stop_at=stop_at
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


def settled(storm: Storm, rounds: int) -> None:
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
