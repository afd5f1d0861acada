"""A worker and much of something: long sessions, many of them, large partitions.

Rows 30, 43, 47, 51 and 52. Nothing here is timed: what is compared are counts, and what
came before what.
"""

import re
import shutil
import signal
import time
from pathlib import Path
from typing import Any, cast

import confluent_kafka.admin
import pytest
from confluent_kafka import TopicPartition

from foldline import kafka
from foldline.processors.kafka_leases import KafkaLeases
from foldline.processors.kafka_log import KafkaLog
from foldline.processors.kafka_records import encode_append
from foldline.processors.open_log import open_log
from foldline.schemas.events import type_of
from foldline.schemas.record_codec import frame_record
from foldline.schemas.recorded import Append
from foldline.schemas.topic_records import LeaseRenewal
from foldline.schemas.verdicts import ACCEPTED
from foldline.testing.log_story import make_append, new_id
from foldline.testing.samples import created, said
from foldline.topics import partition_for
from tests.cluster.fixtures import MakeLog
from tests.cluster.logs import FreshLog, Worker, running_worker, start_worker
from tests.cluster.processes import ask, free_ports, wait_until
from tests.kafka_checker import check, read
from tests.kafka_feed import Feed
from tests.storm_seed import by_name

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

_api = cast("Any", confluent_kafka.admin)

TOGETHER = 100
"""How many appends go out with one known_seq: fewer than the window remembers."""

HOUR_MS = 3_600_000


@pytest.fixture
def port() -> int:
    """Where a worker's health is."""
    return free_ports(1)[0]


def at(port: int, **more: object) -> dict[str, str]:
    """The environment of a worker whose health listens there, and other settings."""
    given = {f"FOLDLINE_{name.upper()}": str(value) for name, value in more.items()}
    return {"FOLDLINE_HEALTH_PORT": str(port)} | given


def name_in(log: FreshLog, index: int, *, number: int = 0) -> str:
    """A session of one partition."""
    names = (f"s{number}-{n}" for n in range(1_000))
    return next(n for n in names if partition_for(n, log.partitions) == index)


def tell_long(feed: Feed, name: str, events: int) -> None:
    """A session of so many messages, in windows that wait for their verdicts."""
    if name not in feed.heads:
        feed.append(name, created())
    for first in range(0, events, TOGETHER):
        for number in range(first, min(first + TOGETHER, events)):
            feed.append(name, said(str(number)))
        feed.settle()


def measured(port: int, name: str, label: str = "") -> float:
    """A metric of the worker whose health is there; 0 where there is none."""
    text = ask(port, "/metrics")[1]
    found = re.findall(rf"(?m)^foldline_worker_{name}{re.escape(label)} (\S+)$", text)
    return float(found[0]) if found else 0.0


# --- long sessions (row 30) ----------------------------------------------------------


def resumes(log: FreshLog, feed: Feed, port: int, *, events: int) -> float:
    """Tell a session, lose the worker and its table; gives how many events come back."""
    with running_worker(log, name="first") as first:
        tell_long(feed, "long", events)
        first.kill()
    shutil.rmtree(first.state_dir)
    with running_worker(log, name="second", environment=at(port)) as second:
        feed.append("long", said("it goes on"))
        feed.settle()
        folded = measured(port, "restored_events_total")
        assert second.terminate() == 0
    checked = check(log, feed.answers, tables=[second.state_dir])
    assert checked.tables == 1
    assert len(checked.sessions["long"]) == events + 2
    return folded


@pytest.mark.parametrize("events", [200, 800])
def test_what_a_restore_folds_of_a_session_does_not_follow_its_length(
    make_fresh_log: MakeLog, port: int, events: int
) -> None:
    """The state by refold and by snapshot and tail are the same: that is the checker's."""
    log = make_fresh_log(partitions=1, snapshot_lag_events=20, worker_batch_max=20)
    feed = Feed(log)
    assert resumes(log, feed, port, events=events) <= 20 + 2 * 20


@pytest.mark.storm
@by_name
def test_a_session_of_a_hundred_thousand_events(make_fresh_log: MakeLog, port: int) -> None:
    log = make_fresh_log(partitions=1, snapshot_lag_events=500, worker_batch_max=100)
    feed = Feed(log)
    assert resumes(log, feed, port, events=100_000) <= 500 + 2 * 100


# --- one worker dies (row 43) --------------------------------------------------------


def test_a_worker_killed_in_a_transaction_holds_up_no_client_of_another(
    make_fresh_log: MakeLog,
) -> None:
    """Their answers come while the dead one's transaction is open, and before its own."""
    log = make_fresh_log(partitions=2, transaction_timeout_ms=10_000)
    feed = Feed(log)
    with (
        running_worker(log, name="w1", crash_at="CP_WORKER_AFTER_OFFSETS:3") as first,
        running_worker(log, name="w2") as second,
    ):
        alone = re.compile(r"given partitions (\d)\n").search
        given = wait_until(lambda: alone(second.said()), timeout_s=60, what=second.said)
        theirs = int(given[1])
        ours, other = name_in(log, theirs), name_in(log, 1 - theirs)
        feed.append(ours, created())
        feed.append(other, created())
        while first.process.running:
            feed.append(other, said("each batch has an event"))
            feed.flush()
            feed.take(0.1)
        assert first.wait_dead() == -signal.SIGKILL
        waits = feed.append(other, said("and this waits"))
        in_turns(feed, ours, 5, of=second)
        assert is_open(log, 1 - theirs)
        assert not feed.verdicts[waits.envelope.event_id]
        feed.settle()
        assert second.terminate() == 0
    check(log, feed.answers)


def in_turns(feed: Feed, name: str, count: int, *, of: Worker) -> None:
    """So many appends of a session, each only once the one before it is answered."""
    for number in range(count):
        sent = feed.append(name, said(str(number)))
        feed.flush()
        wait_until(lambda a=sent: feed_has(feed, a), timeout_s=30, what=of.said)


def feed_has(feed: Feed, append: Append) -> bool:
    """Whether its verdict has come."""
    feed.take(0.02)
    return bool(feed.verdicts[append.envelope.event_id])


def is_open(log: FreshLog, index: int) -> bool:
    """Whether a transaction is open in a partition of `events`: readers stop before it."""
    partition = TopicPartition(log.names.events, index)
    ends: list[int] = []
    for isolation in ("read_committed", "read_uncommitted"):
        reader: Any = kafka.reader_consumer(
            log.cluster, log.settings, isolation=cast("Any", isolation)
        )
        ends.append(reader.get_watermark_offsets(partition, timeout=10)[1])
        reader.close()
    return ends[0] < ends[1]


# --- the clock (row 47) --------------------------------------------------------------


def test_log_time_of_a_session_never_goes_back_when_the_brokers_does(
    make_fresh_log: MakeLog,
) -> None:
    """The stamps of `appends` come from the test here, as from leaders with two clocks."""
    log = make_fresh_log(partitions=1, worker_batch_max=7)
    feed = Feed(log)
    now_ms = round(time.time() * 1000)
    with running_worker(log) as worker:
        feed.append("s", created())
        feed.settle()
        stamped_by_writers(log, log.names.appends)
        for number in range(40):
            back_ms = HOUR_MS if number % 20 >= 10 else 0
            put_at(feed, make_append("s", said(), known_seq=1, epoch=0), now_ms - back_ms)
        feed.settle()
        assert worker.terminate() == 0
    session = check(log, feed.answers).sessions["s"]
    times = [event.envelope.recorded_at for event in session]
    assert len(times) == 41
    assert times == sorted(times)
    assert min(times) > (now_ms - HOUR_MS // 2) * 1000


def stamped_by_writers(log: FreshLog, topic: str) -> None:
    """From now on the broker keeps the times that records come with."""
    client: Any = kafka.admin(log.cluster, log.settings)
    resource = _api.ConfigResource(_api.ResourceType["TOPIC"], topic)
    operation = _api.AlterConfigOpType["SET"]
    for name, value in (("message.timestamp.type", "CreateTime"),):
        entry = _api.ConfigEntry(name, value, incremental_operation=operation)
        resource.add_incremental_config(entry)
    for future in client.incremental_alter_configs([resource]).values():
        future.result(10)


def put_at(feed: Feed, append: Append, time_ms: int) -> None:
    """Send an append that carries a time of its own."""
    log, envelope = feed.log, append.envelope
    schema_id = log.registry.id_of(type_of(append.event))
    value, headers = encode_append(append, schema_id=schema_id, reply_to=feed.reply_to)
    feed.sent[envelope.event_id] = append
    producer: Any = kafka.plain_producer(log.cluster, log.settings)
    place = partition_for(envelope.session_id, log.partitions)
    key = envelope.session_id.encode()
    producer.produce(
        log.names.appends, value, key, place, timestamp=time_ms, headers=headers
    )
    assert producer.flush(10) == 0


def test_a_lease_that_a_leader_with_a_fast_clock_stamped_runs_out(
    make_fresh_log: MakeLog,
) -> None:
    """The partition has no other traffic: whoever asks asks the broker for its time."""
    log = make_fresh_log(partitions=1)
    stamped_by_writers(log, log.names.leases)
    name, ttl_ms = new_id(), 500
    renewal = LeaseRenewal(session_id=name, epoch=1, writer="a", ttl_ms=ttl_ms)
    value = frame_record(log.registry.id_of("LeaseRenewal"), renewal)
    ahead_ms = round(time.time() * 1000) + HOUR_MS
    producer: Any = kafka.plain_producer(log.cluster, log.settings)
    producer.produce(log.names.leases, value, name.encode(), 0, timestamp=ahead_ms)
    assert producer.flush(10) == 0
    opened = open_log(log.cluster.url, settings=log.settings)
    assert isinstance(opened, KafkaLog)
    leases = opened.leases
    assert isinstance(leases, KafkaLeases)
    first = leases.get(name)
    assert first is not None
    assert first.expires_in_ms <= ttl_ms  # not an hour

    def dead() -> bool:
        lease = leases.get(name)
        return lease is None or not lease.alive

    wait_until(dead, timeout_s=30, what=lambda: "the lease to run out")
    opened.close()


# --- a restore beside running partitions (row 51) ------------------------------------


def test_a_long_restore_holds_up_no_partition_that_runs(
    make_fresh_log: MakeLog, port: int
) -> None:
    """The restore cannot end: a transaction is open in its events. The other answers."""
    log = make_fresh_log(partitions=2, transaction_timeout_ms=40_000)
    feed = Feed(log)
    large, small = name_in(log, 0), name_in(log, 1)
    with running_worker(log) as first:
        tell_long(feed, large, 500)
        feed.append(small, created())
        feed.settle()
        assert first.terminate() == 0
    forget_table(first, 0)
    stranger: Any = kafka.transactional_producer(
        log.cluster, log.settings, transactional_id=f"{log.prefix}stranger"
    )
    stranger.init_transactions(30)
    stranger.begin_transaction()
    again = read(log, log.names.events, 0)[-1]
    stranger.produce(log.names.events, again.value(), again.key(), 0)
    assert stranger.flush(10) == 0
    worker = start_worker(log, environment=at(port))
    try:
        runs = '{phase="running"}'
        wait_until(
            lambda: running_at(port) == 1, timeout_s=60, what=lambda: f"{runs} at {port}"
        )
        waits = feed.append(large, said("behind the restore"))
        in_turns(feed, small, 50, of=worker)
        assert not feed.verdicts[waits.envelope.event_id]
        assert measured(port, "partitions", '{phase="restoring"}') == 1
        assert measured(port, "restore_total_records", '{partition="0"}') >= 500
        stranger.abort_transaction(10)
        feed.settle()
        assert measured(port, "restored_events_total") >= 500
        assert worker.terminate() == 0
    finally:
        worker.kill()
    check(log, feed.answers)


def running_at(port: int) -> float:
    """How many partitions run in the worker whose health is there; 0 without one."""
    try:
        return measured(port, "partitions", '{phase="running"}')
    except OSError:
        return 0


def forget_table(worker: Worker, index: int) -> None:
    """Remove the table of one partition from a worker's folder."""
    (folder,) = worker.state_dir.glob(f"workers/*/*/{index}")
    shutil.rmtree(folder)


# --- more sessions than the lag allows (row 52) --------------------------------------


def crowd(feed: Feed, sessions: int, *, rounds: range) -> None:
    """All of these sessions in turns, a little of each: a snapshot is soon out of date."""
    for turn in rounds:
        for number in range(sessions):
            feed.append(f"crowd-{number}", said("more") if turn else created())
            if number % 200 == 199:
                feed.settle()
        feed.settle()


def resident_mb(worker: Worker) -> float:
    """The memory of a worker's process."""
    status = Path(f"/proc/{worker.process.pid}/status").read_text(encoding="utf-8")
    (kilobytes,) = re.findall(r"VmRSS:\s+(\d+) kB", status)
    return int(kilobytes) / 1024


def sustained(
    log: FreshLog, feed: Feed, port: int, *, sessions: int, grows_mb: int
) -> None:
    """Tell the crowd; memory, bytes of snapshots and the lag that the metrics say."""
    limits = at(port, cached_sessions=100 * log.partitions, table_flush_ms=200)
    with running_worker(log, environment=limits) as worker:
        crowd(feed, sessions, rounds=range(2))
        before_mb = resident_mb(worker)
        crowd(feed, sessions, rounds=range(2, 5))
        assert resident_mb(worker) - before_mb < grows_mb
        assert measured(port, "snapshot_bytes_total") > 0
        assert measured(port, "snapshots_starved_total") > 0
        lag = measured(port, "snapshot_lag_events", '{partition="0"}')
        beyond = measured(port, "snapshot_bytes_total") - measured(
            port, "event_bytes_total"
        )
        assert beyond < 10_000  # the last snapshot may begin within the share and end here
        assert lag > log.settings.snapshot_lag_events
        assert worker.terminate() == 0
    assert {verdict.kind for verdict in feed.answers.values()} <= {ACCEPTED, "DUPLICATE"}


def test_many_more_sessions_than_the_lag_grow_the_lag_and_neither_memory_nor_bytes(
    make_fresh_log: MakeLog, port: int
) -> None:
    log = make_fresh_log(partitions=1, snapshot_lag_events=50)
    feed = Feed(log)
    sustained(log, feed, port, sessions=400, grows_mb=24)
    check(log, feed.answers)


@pytest.mark.storm
@by_name
def test_tens_of_thousands_of_sessions(make_fresh_log: MakeLog, port: int) -> None:
    """Partitions share what may be in memory: more of them take no more of it."""
    log = make_fresh_log(partitions=4, snapshot_lag_events=1_000)
    sustained(log, Feed(log), port, sessions=30_000, grows_mb=48)
