"""What is acknowledged, and its order, while the brokers themselves are restarted."""

from typing import Any

import pytest

from foldline import kafka
from tests.cluster.fixtures import MakeLog, OwnCluster
from tests.cluster.logs import FreshLog, Worker, start_worker
from tests.cluster.processes import wait_until
from tests.cluster.shared import Broker
from tests.kafka_checker import Checked, check
from tests.kafka_feed import Feed

pytestmark = [pytest.mark.kafka, pytest.mark.crash, pytest.mark.slow]

BROKERS = 3
IN_SYNC_S = 120
SETTLE_S = 120.0
"""In which everything is answered after a broker has gone: far more than it takes."""


@pytest.mark.storm
@pytest.mark.skipif(
    "'storm' not in config.getoption('markexpr')", reason="by name only: -m storm"
)
def test_a_rolling_restart_of_three_brokers_loses_and_reorders_nothing(
    own_cluster: OwnCluster, broker: Broker, make_fresh_log: MakeLog
) -> None:
    """Row 8: one after the other hands its partitions over, ends, and comes back.

    The next is not touched before every partition has all its copies in sync, as an
    operator does it. Appends are sent all the time, and answered each time round.
    """
    cluster = own_cluster(brokers=BROKERS)
    three = Broker(cluster.bootstrap, broker.registry_url, "own")
    log = make_fresh_log(on=three, partitions=2, replication=BROKERS)
    feed = Feed(log, seed=8)
    workers = Supervised(log, "w1", "w2")
    try:
        feed.tell(50)
        feed.settle(SETTLE_S)
        for index in range(BROKERS):
            feed.tell(50)
            cluster.shut_down(index)
            workers.tend()
            _tell(feed, workers, waves=10)
            feed.settle(SETTLE_S)
            feed.tell(50)
            cluster.start(index)
            _tell(feed, workers, waves=10)
            wait_until(
                lambda: workers.tend() or _all_in_sync(log),
                timeout_s=IN_SYNC_S,
                what=lambda: "every copy in sync",
            )
        feed.settle(SETTLE_S)
        workers.terminate()
    finally:
        workers.kill()
    checked = check(log, feed.answers)
    assert checked.events > 0
    assert_in_order(checked, feed)
    feed.close()


class Supervised:
    """Workers that are started again when they end, as a supervisor does."""

    def __init__(self, log: FreshLog, *names: str) -> None:
        self._log = log
        self._workers = [start_worker(log, name=name) for name in names]
        for worker in self._workers:
            worker.wait_ready()

    def tend(self) -> None:
        """Start again whichever has ended."""
        self._workers = [self._alive(worker) for worker in self._workers]

    def _alive(self, worker: Worker) -> Worker:
        if worker.process.running:
            return worker
        return start_worker(self._log, name=worker.name)

    def terminate(self) -> None:
        """End them in order."""
        assert [worker.terminate() for worker in self._workers] == [0] * len(self._workers)

    def kill(self) -> None:
        """End them however they are."""
        for worker in self._workers:
            worker.kill()


def _tell(feed: Feed, workers: Supervised, *, waves: int) -> None:
    for _ in range(waves):
        feed.tell(5)
        feed.take(0.3)
        workers.tend()


def _all_in_sync(log: FreshLog) -> bool:
    client: Any = kafka.admin(log.cluster, log.settings)
    topics = client.list_topics(timeout=10).topics.values()
    partitions = [one for topic in topics for one in topic.partitions.values()]
    return bool(partitions) and all(len(one.isrs) == BROKERS for one in partitions)


def assert_in_order(checked: Checked, feed: Feed) -> None:
    """What is recorded of a session is in the order in which it was sent."""
    places = {event_id: place for place, event_id in enumerate(feed.sent)}
    for session_id, session in checked.sessions.items():
        found = [places[event.envelope.event_id] for event in session]
        assert found == sorted(found), session_id
