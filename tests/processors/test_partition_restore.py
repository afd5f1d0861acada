"""A partition is restored from what is left, and never from what cannot be trusted."""

import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from foldline import kafka, kafka_admin
from foldline.errors import LogFormatError
from foldline.processors.worker_metrics import WorkerMetrics
from foldline.schemas.codec import (
    Codec,
    encode_content,
    encode_envelope,
    frame,
    unframe,
)
from foldline.schemas.events import UserMessage
from foldline.schemas.snapshots import decode_snapshot, encode_snapshot
from foldline.schemas.state import FOLD_VERSION
from foldline.schemas.topic_records import LOW_WATER_KEY
from tests.cluster.fixtures import MakeLog
from tests.cluster.logs import (
    FreshLog,
    drop_log,
    make_log,
    running_worker,
    start_worker,
)
from tests.cluster.processes import ask, free_ports, wait_until
from tests.cluster.shared import Broker
from tests.kafka_checker import Checked, check, read, read_snapshots
from tests.kafka_feed import Feed
from tests.processors.restoring import assert_same, delete_records, put, restored

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SETTINGS = {"snapshot_lag_events": 30, "worker_batch_max": 20}


Told = tuple[FreshLog, Checked]


def tell(log: FreshLog) -> Told:
    """Fill a log of one partition; gives what the checker says of it, too."""
    feed = Feed(log, seed=7, sessions=4)
    feed.tell(200)
    with running_worker(log) as worker:
        feed.settle()
        worker.terminate()
    return log, check(log, feed.answers)


@pytest.fixture(scope="module")
def told(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Generator[Told]:
    """A log with snapshots, which several tests restore."""
    folder = tmp_path_factory.mktemp("told")
    log = make_log(broker, folder, partitions=1, **SETTINGS)
    yield tell(log)
    drop_log(log)


@pytest.fixture
def own(make_fresh_log: MakeLog) -> Told:
    """The same, for a test that spoils it."""
    return tell(make_fresh_log(partitions=1, **SETTINGS))


def test_snapshots_and_a_tail_are_enough(told: Told, tmp_path: Path) -> None:
    log, checked = told
    with restored(log, tmp_path / "a") as result:
        assert 0 < result.refolded < checked.events
        assert_same(result, checked)


def test_events_deleted_below_the_low_water_mark_are_not_missed(
    own: Told, tmp_path: Path
) -> None:
    log, checked = own
    mark, _ = read_snapshots(log, 0)
    assert mark is not None
    low = mark.low
    delete_records(log, log.names.events, before=low)
    with restored(log, tmp_path / "b") as result:
        assert_same(result, checked)


def test_a_snapshot_topic_that_was_made_again_costs_only_time(
    own: Told, tmp_path: Path
) -> None:
    log, checked = own
    make_again(log, log.names.snapshots(FOLD_VERSION))
    with restored(log, tmp_path / "a") as result:
        assert result.refolded == checked.events
        assert_same(result, checked)
        assert result.partition.position.rules.version == 1


def test_a_bad_snapshot_is_ignored_and_its_session_folded_from_the_beginning(
    told: Told, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log, checked = told
    latest = read(log, log.names.events, 0)[-1].key().decode()
    other = next(name for name in checked.sessions if name != latest)
    for damage in DAMAGES:
        caplog.clear()
        # One beyond the log shows at the latest event of its session.
        session_id = latest if damage == "beyond the log" else other
        value = damaged(log, session_id, damage)
        put(log, log.names.snapshots(FOLD_VERSION), session_id, value)
        with restored(log, tmp_path / damage) as result:
            assert_same(result, checked)
        reason = "begun again with less" if session_id == latest else "is ignored"
        assert reason in caplog.text, damage


def test_a_hole_in_events_stops_the_partition(own: Told, tmp_path: Path) -> None:
    log, checked = own
    last = read(log, log.names.events, 0)[-1]
    session_id = last.key().decode()
    put(log, log.names.events, session_id, last.value(), last.headers())
    with restored(log, tmp_path / "a") as result:
        assert_same(result, checked)  # a repeat is dropped by its seq
    put_hole(log)
    with (
        pytest.raises(LogFormatError, match="events are missing"),
        restored(log, tmp_path / "b"),
    ):
        pass


def test_a_partition_that_failed_is_tried_again_by_and_by(own: Told) -> None:
    """Somebody may have brought back what was gone: nobody need start the worker anew."""
    log, _ = own
    put_hole(log)
    (port,) = free_ports(1)
    environment = {
        "FOLDLINE_FAILED_RETRY_MS": "1000",
        "FOLDLINE_HEALTH_PORT": str(port),
    }
    worker = start_worker(log, name="w2", environment=environment)
    try:
        worker.process.wait_for("partition 0 is stopped", timeout_s=60)

        def waits() -> bool:
            status, text = ask(port, "/readyz")
            return status == 503 and "it is tried again every 1 s" in text

        wait_until(waits, timeout_s=60, what=worker.said)

        def again() -> bool:
            return worker.said().count("partition 0 is stopped") > 1

        wait_until(again, timeout_s=60, what=worker.said)
    finally:
        worker.kill()


def put_hole(log: FreshLog) -> None:
    """Write an event whose predecessor is missing."""
    last = read(log, log.names.events, 0)[-1]
    schema_id, body = unframe(last.value())
    event = Codec(log.registry).decode(schema_id, body)
    later = event.envelope.model_copy(update={"seq": event.seq + 2})
    assert isinstance(event.event, UserMessage)
    hole = frame(schema_id, encode_envelope(later) + encode_content(event.event))
    put(log, log.names.events, last.key().decode(), hole, last.headers())


def test_records_that_no_worker_wrote_are_skipped(own: Told, tmp_path: Path) -> None:
    """As readers skip them: else anybody who may write there could stop a partition."""
    log, checked = own
    last = read(log, log.names.events, 0)[-1]
    session_id = last.key().decode()
    for headers in ([], [("ao", b"soon")]):
        for value in (last.value(), b"junk"):
            put(log, log.names.events, session_id, value, headers)
    with restored(log, tmp_path / "a") as result:
        assert_same(result, checked)
        assert result.skipped == 4
        metrics = WorkerMetrics(list)
        metrics.restore(result)
    assert b"foldline_worker_skipped_events_total 4.0" in metrics.text()


def test_a_restore_waits_until_an_open_transaction_has_ended(
    told: Told, tmp_path: Path
) -> None:
    log, checked = told
    producer = open_transaction(log)
    held: list[str] = []

    def restore() -> None:
        with restored(log, tmp_path / "a") as result:
            assert_same(result, checked)
            held.append("restored")

    thread = threading.Thread(target=restore)
    thread.start()
    time.sleep(2)
    assert not held
    producer.abort_transaction(10)
    thread.join(30)
    assert held == ["restored"]


def test_an_unstable_offset_is_asked_for_until_it_is_stable(
    told: Told, tmp_path: Path
) -> None:
    log, checked = told
    producer = open_transaction(log, offsets=True)
    wake = threading.Timer(2, lambda: producer.abort_transaction(10))
    wake.start()
    began = time.monotonic()
    with restored(log, tmp_path / "a") as result:
        assert time.monotonic() - began > 1
        assert result.partition.position.input_offset < OFFSET_TAKEN
        assert_same(result, checked)
    wake.join()


OFFSET_TAKEN = 9_999


def open_transaction(log: FreshLog, *, offsets: bool = False) -> Any:
    """A transaction that has written to `events` (or the group's offsets), and stays."""
    producer: Any = kafka.transactional_producer(
        log.cluster, log.settings, transactional_id=f"{log.prefix}stray"
    )
    producer.init_transactions(10)
    producer.begin_transaction()
    if offsets:
        member: Any = kafka.reader_consumer(
            log.cluster, log.settings, group=log.names.group
        )
        taken = TopicPartition(log.names.appends, 0, OFFSET_TAKEN)
        producer.send_offsets_to_transaction([taken], member.consumer_group_metadata(), 10)
        member.close()
    else:
        producer.produce(log.names.events, b"never committed", b"x", 0)
        producer.flush(10)
    return producer


DAMAGES = ("junk", "bit flipped", "of tomorrow", "another's", "beyond the log")


def damaged(log: FreshLog, session_id: str, damage: str) -> bytes:
    """A snapshot of a session that must not be used."""
    good = next(
        message
        for message in read(log, log.names.snapshots(FOLD_VERSION), 0)
        if message.key() not in {LOW_WATER_KEY, session_id.encode()}
    )
    schema_id, body = unframe(good.value())
    state = decode_snapshot(body)
    assert state is not None
    match damage:
        case "junk":
            return b"junk"
        case "bit flipped":
            at = len(body) // 2
            return frame(schema_id, body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :])
        case "of tomorrow":
            return frame(schema_id, bytes([(FOLD_VERSION + 1) << 1]) + body[1:])
        case "another's":
            return good.value()
        case _:  # beyond the log: its hash is right
            state.session_id = session_id
            state.seq += 1_000
            return frame(schema_id, encode_snapshot(state))


def make_again(log: FreshLog, topic: str) -> None:
    """Delete a topic, and make it anew as it was configured."""
    client: Any = kafka.admin(log.cluster, log.settings)
    client.delete_topics([topic])[topic].result(10)

    def gone() -> bool:
        return topic not in client.list_topics(timeout=5).topics

    wait_until(gone, timeout_s=20, what=lambda: f"{topic} to be gone")
    kafka_admin.create_topics(log.cluster, log.settings, partitions=log.partitions)
