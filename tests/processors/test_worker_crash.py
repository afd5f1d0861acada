"""A worker is killed at every step of its batch, and the next one goes on.

One log per group of steps: each worker is the successor of the one before it, and the
checker looks at what all of them left.
"""

import signal

import pytest

from tests.cluster.fixtures import MakeLog
from tests.cluster.logs import FreshLog, running_worker, start_worker
from tests.kafka_checker import check
from tests.kafka_feed import Feed

pytestmark = [pytest.mark.kafka, pytest.mark.crash, pytest.mark.slow]

BEFORE_COMMIT = (
    "CP_WORKER_AFTER_POLL",
    "CP_WORKER_AFTER_ADMIT",
    "CP_WORKER_AFTER_BEGIN",
    "CP_WORKER_AFTER_PRODUCE",
    "CP_WORKER_AFTER_SNAPSHOT",
)
AROUND_COMMIT = (
    "CP_WORKER_BEFORE_OFFSETS",
    "CP_WORKER_AFTER_OFFSETS",
    "CP_WORKER_AFTER_COMMIT",
    "CP_WORKER_BEFORE_VERDICTS",
)
BESIDE_BATCHES = (
    "CP_WORKER_AFTER_VERDICTS",
    "CP_WORKER_BEFORE_TABLE",
    "CP_WORKER_AFTER_TABLE",
    "CP_RESTORE_AFTER_OFFSET",
    "CP_RESTORE_AFTER_REFOLD",
)


@pytest.mark.parametrize(
    "points",
    [BEFORE_COMMIT, AROUND_COMMIT, BESIDE_BATCHES],
    ids=["before the commit", "around the commit", "beside batches"],
)
def test_a_worker_killed_at_any_step_loses_and_doubles_nothing(
    make_fresh_log: MakeLog, points: tuple[str, ...]
) -> None:
    log = make_fresh_log(
        partitions=2, snapshot_lag_events=30, worker_batch_max=20, table_flush_ms=200
    )
    feed = Feed(log, seed=len(points))
    feed.tell(60)
    feed.flush()
    for point in points:
        _run_to_death(log, feed, point)
    with running_worker(log) as last:
        feed.settle()
        assert last.terminate() == 0
    checked = check(log, feed.answers, tables=[last.state_dir])
    assert checked.tables == 2
    assert checked.snapshots
    feed.close()


def _run_to_death(log: FreshLog, feed: Feed, point: str) -> None:
    """A worker that kills itself at its second pass of a point, while appends come."""
    worker = start_worker(log, crash_at=f"{point}:2")
    try:
        while worker.process.running:
            feed.tell(5)
            feed.take(0.3)
        assert worker.wait_dead() == -signal.SIGKILL, worker.said()
    finally:
        worker.kill()
