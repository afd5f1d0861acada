"""What a worker does when a step fails, somebody else has its place, or it was frozen."""

import random
import re
import shutil
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from foldline import kafka
from foldline.kafka_admin import GroupProtocol
from foldline.processors import worker_membership
from foldline.processors.admission import MAX_CONTENT_BYTES
from foldline.processors.worker import Worker as Inside
from foldline.processors.worker_assignment import RUNNING
from foldline.processors.worker_health import Health
from foldline.processors.worker_membership import NOT_YET
from foldline.processors.worker_setup import Setup
from foldline.processors.worker_watch import EXIT_CODE
from foldline.schemas.codec import encode_content
from foldline.schemas.events import TurnStarted
from foldline.schemas.verdicts import ACCEPTED, DUPLICATE, ILLEGAL, TOO_LARGE
from foldline.settings import KafkaSettings
from foldline.testing.samples import created, said
from foldline.topics import partition_for
from tests import happenings
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
    log = make_fresh_log(partitions=2, worker_batch_max=10, snapshot_lag_events=30)
    feed = Feed(log, seed=1)
    feed.tell(200)
    faults = failing("CP_WORKER_BEFORE_OFFSETS", 2)
    with running_worker(log, environment=faults) as worker:
        feed.settle()
        assert worker.terminate() == 0
    checked = check(log, feed.answers, tables=[worker.state_dir])
    assert checked.aborted > 0
    assert worker.said().count("aborted and run again") > 3


def test_a_worker_that_hangs_in_a_call_of_its_client_ends_and_the_next_one_goes_on(
    make_fresh_log: MakeLog,
) -> None:
    log = make_fresh_log(partitions=2, transaction_timeout_ms=1_000)
    feed = Feed(log, seed=8)
    feed.tell(50)
    hanging = {"FOLDLINE_HANG_AT": "CP_WORKER_IN_CALL:2"}
    hangs = start_worker(log, environment=hanging)  # perhaps before it is ready
    try:
        assert hangs.process.wait(timeout_s=60) == EXIT_CODE
        assert "send_offsets_to_transaction has not ended" in hangs.said()
    finally:
        hangs.kill()
    with running_worker(log) as worker:
        feed.settle()
        assert worker.terminate() == 0
    check(log, feed.answers, tables=[worker.state_dir])


def test_a_lost_reply_to_a_commit_is_answered_by_a_restore(
    make_fresh_log: MakeLog,
) -> None:
    log = make_fresh_log(partitions=2, worker_batch_max=10)
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
    log = make_fresh_log(partitions=2, worker_batch_max=20, transaction_timeout_ms=4_000)
    feed = Feed(log, seed=3)
    first = start_worker(log, name="w1", stop_at="CP_WORKER_AFTER_OFFSETS:3")
    try:
        first.wait_ready()
        feed.tell(150)
        feed.flush()
        wait_until(lambda: _is_frozen(first), timeout_s=30, what=first.said)
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


def test_a_worker_frozen_in_a_transaction_holds_up_nobody_else(
    make_fresh_log: MakeLog,
) -> None:
    log = make_fresh_log(partitions=2)
    feed = Feed(log, seed=9)
    with (
        running_worker(log, name="w1", stop_at="CP_WORKER_AFTER_OFFSETS:3") as first,
        running_worker(log, name="w2") as second,
    ):
        (theirs,) = re.findall(r"given partitions (\d)\n", second.said())
        ours, other = _name_in(log, int(theirs)), _name_in(log, 1 - int(theirs))

        def frozen() -> bool:
            feed.append(other, created())
            feed.flush()
            return _is_frozen(first)

        wait_until(frozen, timeout_s=20, what=first.said)
        answered = feed.append(ours, created()).envelope.event_id
        feed.flush()

        def is_answered() -> bool:
            feed.take(0.1)
            return bool(feed.verdicts[answered])

        wait_until(is_answered, timeout_s=20, what=second.said)
        assert _is_frozen(first)
        first.wake()
        feed.settle()
        assert second.terminate() == 0
    check(log, feed.answers)


def test_the_classic_protocol_serves_where_the_brokers_have_no_other(
    make_fresh_log: MakeLog, tmp_path: Path
) -> None:
    log = make_fresh_log(partitions=2)
    feed = Feed(log, seed=10)
    classic = GroupProtocol("classic", "the test wants it", 20_000)
    with in_process(log, tmp_path / "a", protocol=classic) as first:
        _turn_until(first, lambda: len(_running(first)) == 2)
        feed.tell(40)
        feed.flush()
        _turn_until(first, lambda: _settled(feed))
        with in_process(log, tmp_path / "b", protocol=classic) as second:
            pair = (first, second)
            _turn_until(pair, lambda: [len(_running(w)) for w in pair] == [1, 1])
            feed.tell(40)
            feed.flush()
            _turn_until(pair, lambda: _settled(feed))
    check(log, feed.answers)


def test_workers_that_come_and_go_lose_and_double_nothing(
    make_fresh_log: MakeLog,
) -> None:
    log = make_fresh_log(partitions=4, worker_batch_max=20, table_flush_ms=200)
    feed = Feed(log, seed=13)
    chance = random.Random(13)
    workers = [start_worker(log, name="w0")]
    try:
        for number in range(1, 6):
            workers.append(start_worker(log, name=f"w{number}"))
            until = time.monotonic() + 3
            while time.monotonic() < until:
                feed.tell(3)
                feed.take(0.1)
            leaving = workers.pop(chance.randrange(len(workers)))
            leaving.kill() if chance.random() < 0.5 else leaving.terminate()
        feed.settle()
        assert [worker.terminate() for worker in workers] == [0]
    finally:
        for worker in workers:
            worker.kill()
    check(log, feed.answers)


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
        feed.settle()
        early = feed.append("s", said("first"), known_seq=3)  # nobody knows seq 3 yet
        feed.settle()
        assert feed.answers[early.envelope.event_id].kind == ILLEGAL
        for _ in range(5):  # from here on it would be taken
            feed.append("s", said())
        feed.settle()
        assert worker.terminate() == 0
    before = check(log, feed.answers)
    shutil.rmtree(worker.state_dir)
    _forget_group(log)
    with running_worker(log):
        feed.append("s", said("after"))
        feed.settle()
    assert check(log, feed.answers).events == before.events + 1


def test_appends_around_the_limit_are_all_answered(make_fresh_log: MakeLog) -> None:
    log = make_fresh_log(partitions=1)
    feed = Feed(log)
    around = len(encode_content(said("x" * MAX_CONTENT_BYTES))) - MAX_CONTENT_BYTES
    sizes = [MAX_CONTENT_BYTES - around + more for more in (-64, -1, 0, 1, 64)]
    with running_worker(log):
        feed.append("s", created())
        sent = [feed.append("s", said("x" * size)) for size in sizes]
        refused = [feed.append("s", said("x" * size), known_seq=99) for size in sizes[:3]]
        feed.append("s", said("after them"))
        answers = feed.settle()
    kinds = [answers[append.envelope.event_id].kind for append in sent]
    assert kinds[3:] == [TOO_LARGE] * 2
    assert {ACCEPTED, DUPLICATE} >= set(kinds[:3])
    assert {answers[append.envelope.event_id].kind for append in refused} == {ILLEGAL}
    check(log, answers)


def test_a_second_copy_is_taken_if_a_grant_came_between_the_two(
    make_fresh_log: MakeLog,
) -> None:
    log = make_fresh_log(partitions=1)
    feed = Feed(log)
    with running_worker(log):
        feed.append("s", created())
        feed.append("s", TurnStarted(trigger="USER"), epoch=1, turn_id="t")
        feed.append("s", happenings.request(), epoch=1)
        feed.append("s", happenings.ask(), epoch=1)
        copies = feed.append("s", happenings.start(), epoch=1)
        feed.append("s", happenings.grant())
        feed.send(copies)
        verdict = feed.settle()[copies.envelope.event_id]
    first = feed.verdicts[copies.envelope.event_id][0]
    assert (first.kind, verdict.kind) == (ILLEGAL, ACCEPTED)
    assert 0 <= first.append_offset < verdict.append_offset
    check(log, feed.answers)


def test_records_of_a_partition_revoked_after_the_poll_are_dropped(
    make_fresh_log: MakeLog, tmp_path: Path
) -> None:
    log = make_fresh_log(partitions=2)
    feed = Feed(log, seed=6)
    with in_process(log, tmp_path / "here") as worker:
        _turn_until(worker, lambda: len(_running(worker)) == 2)
        feed.tell(40)
        feed.flush()
        records = [worker.consumer.poll(10)]
        other = start_worker(log, name="other")
        try:
            while len(_running(worker)) == 2:  # until the group wants one of them back
                records += worker.consumer.consume(500, 0.1)
            kept, dropped = worker.intake.owned(records)
            assert dropped
            assert {message.partition() for message in records} == {0, 1}
            # The client was seen to skip a record here: then nothing is kept of it yet.
            assert set(kept) <= _running(worker)
            worker.assignment.forget_all("the test took its records")
            _turn_until(worker, lambda: _settled(feed))
        finally:
            other.terminate()
    check(log, feed.answers)


def test_a_restore_under_way_goes_on_when_a_producer_is_lost(
    make_fresh_log: MakeLog, tmp_path: Path
) -> None:
    """It was part of no batch: begun again, it would never end while producers come."""
    log = make_fresh_log(partitions=2)
    with in_process(log, tmp_path / "here") as worker:
        _turn_until(worker, lambda: len(worker.assignment.owned) == 2)
        before = {i: one.progress for i, one in worker.assignment.owned.items()}
        restoring = [i for i, one in worker.assignment.owned.items() if not one.partition]
        worker.assignment.forget_all("its producer was lost")
        for index in restoring:
            assert worker.assignment.owned[index].progress is before[index]
        _turn_until(worker, lambda: len(_running(worker)) == 2)


def test_a_worker_whose_partitions_are_lost_is_not_ready(
    make_fresh_log: MakeLog, tmp_path: Path
) -> None:
    log = make_fresh_log(partitions=1)
    with in_process(log, tmp_path / "here") as worker:
        _turn_until(worker, lambda: not worker.health.waits_for)
        worker.assignment.lost(worker.consumer, [TopicPartition(log.names.appends, 0)])
        worker.turn()
        assert worker.health.waits_for == (NOT_YET,)


def test_a_spare_is_ready_once_the_group_says_that_it_is_in_it(
    make_fresh_log: MakeLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_membership, "LOOK_EVERY_MS", 500)
    log = make_fresh_log(partitions=1)
    with in_process(log, tmp_path / "a") as first:
        _turn_until(first, lambda: not first.health.waits_for)
        with in_process(log, tmp_path / "b") as spare:
            _turn_until((first, spare), lambda: not spare.health.waits_for)
            owned = [len(one.assignment.owned) for one in (first, spare)]
            assert sorted(owned) == [0, 1]


def test_a_worker_that_may_not_join_says_why_and_is_no_spare(
    make_fresh_log: MakeLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers refuse such a session time-out for ever, as they do who has no right."""
    monkeypatch.setattr(worker_membership, "LOOK_EVERY_MS", 200)
    refused = {"session.timeout.ms": "1000", "heartbeat.interval.ms": "500"}
    log = make_fresh_log(partitions=1)
    classic = GroupProtocol("classic", "the test wants it", 20_000)
    with in_process(log, tmp_path / "a", protocol=classic, extra=refused) as worker:
        _turn_until(worker, lambda: "SESSION" in str(worker.health.waits_for))
        end_s = time.monotonic() + 2
        while time.monotonic() < end_s:  # it is looked for, and not found
            worker.turn()
            assert "SESSION" in str(worker.health.waits_for)


@contextmanager
def in_process(
    log: FreshLog,
    state_dir: Path,
    *,
    protocol: GroupProtocol | None = None,
    extra: dict[str, str] | None = None,
) -> Generator[Inside]:
    """A worker in this process whose loop the test turns."""
    settings = log.settings.model_copy(update={"state_dir": state_dir})
    kafka_settings = KafkaSettings(extra=extra or {})
    settings = settings.model_copy(
        update={"worker_slot": state_dir.name, "kafka": kafka_settings}
    )
    setup = Setup.prepare(settings, health=Health(), on_ready=lambda _: None)
    setup.protocol = protocol or setup.protocol
    worker = Inside(setup, Health())
    worker.subscribe()
    try:
        yield worker
    finally:
        worker.leave()
        setup.close()


def _running(worker: Inside) -> set[int]:
    owned = worker.assignment.owned
    return {index for index, one in owned.items() if one.phase == RUNNING}


def _turn_until(workers: Inside | tuple[Inside, ...], done: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not done():
        assert time.monotonic() < end
        for worker in workers if isinstance(workers, tuple) else (workers,):
            worker.turn()


def _name_in(log: FreshLog, index: int) -> str:
    """A session of one partition."""
    names = (f"s{number}" for number in range(1_000))
    return next(n for n in names if partition_for(n, log.partitions) == index)


def _settled(feed: Feed) -> bool:
    feed.take(0)
    return len(feed.answers) == len(feed.sent)


def _twin(log: FreshLog, folder: str) -> Worker:
    """A worker in the same slot as the other, with a folder of its own."""
    state_dir = log.folder / folder
    return start_worker(
        log,
        name=folder,
        environment={"FOLDLINE_WORKER_SLOT": "twin", "FOLDLINE_STATE_DIR": str(state_dir)},
    )


def _is_frozen(worker: Worker) -> bool:
    stat = Path(f"/proc/{worker.process.pid}/stat").read_text(encoding="utf-8")
    return stat.rpartition(")")[2].split()[0] == "T"


def _forget_group(log: FreshLog) -> None:
    """Delete the workers' group with its offsets, once its last member is gone."""
    client: Any = kafka.admin(log.cluster, log.settings)
    time.sleep(0.5)
    client.delete_consumer_groups([log.names.group])[log.names.group].result(10)
