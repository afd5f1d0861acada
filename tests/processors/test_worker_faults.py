"""What a worker does when a step fails, somebody else has its place, or it was frozen."""

import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from foldline import kafka
from foldline.schemas.events import SessionCreated, TurnStarted
from foldline.schemas.verdicts import ACCEPTED, FENCED, ILLEGAL, TOO_LARGE
from foldline.testing.samples import created, said
from tests.cluster.fixtures import MakeLog
from tests.cluster.logs import FreshLog, Worker, running_worker, start_worker
from tests.cluster.processes import wait_until
from tests.kafka_checker import check
from tests.kafka_feed import Feed

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def failing(point: str, every: int) -> dict[str, str]:
    """The environment of a worker that fails at a step every so often."""
    return {"FOLDLINE_FAIL_AT": f"{point}:{every}"}


def test_aborted_batches_are_run_again_to_the_same_bytes(make_fresh_log: MakeLog) -> None:
    log = make_fresh_log(partitions=2, batch_max=10, snapshot_lag_events=30)
    feed = Feed(log, seed=1)
    feed.tell(200)
    faults = failing("CP_WORKER_BEFORE_OFFSETS", 2)
    with running_worker(log, environment=faults) as worker:
        feed.settle()
        assert worker.terminate() == 0
    checked = check(log, feed.answers, tables=[worker.state_dir])
    assert checked.aborted > 0
    assert worker.said().count("aborted and run again") > 3


def test_a_lost_reply_to_a_commit_is_answered_by_a_restore(
    make_fresh_log: MakeLog,
) -> None:
    log = make_fresh_log(partitions=2, batch_max=10)
    feed = Feed(log, seed=2)
    feed.tell(100)
    faults = failing("CP_WORKER_AFTER_COMMIT", 4)
    with running_worker(log, environment=faults) as worker:
        feed.settle()
        assert worker.terminate() == 0
    assert "is restored again: injected" in worker.said()
    check(log, feed.answers, tables=[worker.state_dir])


def test_a_worker_frozen_before_its_commit_is_fenced_when_it_wakes(
    make_fresh_log: MakeLog,
) -> None:
    log = make_fresh_log(partitions=2, batch_max=20, transaction_timeout_ms=4_000)
    feed = Feed(log, seed=3)
    first = start_worker(log, name="w1", stop_at="CP_WORKER_AFTER_OFFSETS:3")
    try:
        first.wait_ready()
        feed.tell(150)
        feed.flush()
        _wait_frozen(first)
        with running_worker(log, name="w2") as second:
            feed.settle()
            first.wake()
            feed.tell(100)
            feed.settle()
            assert "restored again" in first.said()
            assert first.terminate() == 0
            assert second.terminate() == 0
    finally:
        first.kill()
    checked = check(log, feed.answers, tables=[first.state_dir, second.state_dir])
    assert checked.aborted > 0
    assert checked.tables > 0


def test_of_two_workers_in_one_slot_one_ends_and_one_goes_on(
    make_fresh_log: MakeLog,
) -> None:
    log = make_fresh_log(partitions=2)
    feed = Feed(log, seed=4)
    twins = [_twin(log, "a"), _twin(log, "b")]
    try:
        for twin in twins:
            twin.wait_ready()

        def ended() -> list[Worker]:
            feed.tell(4)
            feed.take(0.2)
            return [twin for twin in twins if not twin.process.running]

        (dead,) = wait_until(ended, timeout_s=60, what=lambda: "one of them to end")
        assert dead.wait_dead() == 4
        assert "give each its own slot" in dead.said()
        (alive,) = [twin for twin in twins if twin is not dead]
        feed.settle()
        assert alive.terminate() == 0
    finally:
        for twin in twins:
            twin.kill()
    check(log, feed.answers)


def test_a_table_that_is_lost_during_load_is_built_again(make_fresh_log: MakeLog) -> None:
    log = make_fresh_log(partitions=2, snapshot_lag_events=30)
    feed = Feed(log, seed=5)
    with running_worker(log) as worker:
        feed.tell(150)
        feed.settle()
        feed.tell(50)
        worker.kill()
    shutil.rmtree(worker.state_dir)
    with running_worker(log) as worker:
        feed.settle()
        assert worker.terminate() == 0
    checked = check(log, feed.answers, tables=[worker.state_dir])
    assert checked.tables == 2


def test_a_refused_append_stays_refused_after_offsets_and_tables_are_gone(
    make_fresh_log: MakeLog,
) -> None:
    log = make_fresh_log(partitions=1)
    feed = Feed(log)
    with running_worker(log) as worker:
        feed.append("s", created())
        message = said("first")
        refused = feed.append("s", message, known_seq=3)  # nobody knows seq 3 yet
        for _ in range(5):
            feed.append("s", said())
        feed.settle()
        assert worker.terminate() == 0
    before = check(log, feed.answers)
    assert feed.answers[refused.envelope.event_id].kind == ILLEGAL
    shutil.rmtree(worker.state_dir)
    _forget_group(log)
    with running_worker(log):
        feed.append("s", said("after"), known_seq=1)
        feed.settle()
    assert check(log, feed.answers).events == before.events + 1


def test_appends_around_the_limit_are_all_answered(make_fresh_log: MakeLog) -> None:
    from foldline.processors.admission import MAX_CONTENT_BYTES
    from foldline.schemas.codec import encode_content

    log = make_fresh_log(partitions=1)
    feed = Feed(log)
    rest = len(encode_content(said("x" * MAX_CONTENT_BYTES))) - MAX_CONTENT_BYTES
    sizes = [MAX_CONTENT_BYTES - rest + more for more in (-64, -1, 0, 1, 64)]
    with running_worker(log):
        feed.append("s", created())
        sent = [feed.append("s", said("x" * size)) for size in sizes]
        refused = [feed.append("s", said("x" * size), known_seq=99) for size in sizes[:3]]
        feed.append("s", said("after them"))
        answers = feed.settle()
    kinds = [answers[append.envelope.event_id].kind for append in sent]
    assert kinds == [ACCEPTED] * 3 + [TOO_LARGE] * 2
    assert {answers[append.envelope.event_id].kind for append in refused} == {ILLEGAL}
    check(log, answers)


def test_a_second_copy_that_a_grant_let_through_is_told_so_by_its_offset(
    make_fresh_log: MakeLog,
) -> None:
    log = make_fresh_log(partitions=1)
    feed = Feed(log)
    with running_worker(log):
        feed.append("s", created())
        waits = feed.append("s", TurnStarted(trigger="USER"), epoch=2, known_seq=0)
        feed.append("s", SessionCreated(agent="other"))
        feed.settle()
        feed.send(waits)
        feed.flush()
        wait_until(
            lambda: _copies(feed, waits.envelope.event_id) == 2,
            timeout_s=20,
            what=lambda: "a second verdict",
        )
    first, second = feed.verdicts[waits.envelope.event_id]
    assert first.kind == second.kind == FENCED
    assert 0 <= first.append_offset < second.append_offset


def test_records_of_a_partition_revoked_after_the_poll_are_dropped(
    make_fresh_log: MakeLog,
) -> None:
    pytest.skip("below")


def _copies(feed: Feed, event_id: str) -> int:
    feed.take(0.1)
    return len(feed.verdicts[event_id])


def _twin(log: FreshLog, folder: str) -> Worker:
    """A worker in the same slot as the other, with a folder of its own."""
    state_dir = log.folder / folder
    return start_worker(
        log,
        name=folder,
        environment={"FOLDLINE_WORKER_SLOT": "twin", "FOLDLINE_STATE_DIR": str(state_dir)},
    )


def _wait_frozen(worker: Worker) -> None:
    stat = Path(f"/proc/{worker.process.pid}/stat")

    def frozen() -> bool:
        return stat.read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "T"

    wait_until(frozen, timeout_s=30, what=worker.said)


def _forget_group(log: FreshLog) -> None:
    """Delete the workers' group with its offsets, once its last member is gone."""
    client: Any = kafka.admin(log.cluster, log.settings)
    time.sleep(0.5)
    client.delete_consumer_groups([log.names.group])[log.names.group].result(10)
