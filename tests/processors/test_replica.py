"""A replica on a real broker: what is committed is read, what is wrong is said."""

import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from foldline import kafka, kafka_admin
from foldline.errors import (
    LogFormatError,
    LogTruncatedError,
    LogUnavailableError,
    ReadUnavailableError,
)
from foldline.processors.event_rows import Listing
from foldline.processors.replica import Replica
from foldline.processors.replica_reads import ReplicaReads
from foldline.processors.rocks import asides
from foldline.schemas.codec import Codec, frame
from foldline.schemas.events import SessionSuspended
from foldline.testing.samples import created, said, started
from foldline.topics import partition_for
from tests.cluster.logs import FreshLog
from tests.processors.republishing import Republished
from tests.processors.rocksdb_damage import files, fill, flip, small_disk

pytestmark = pytest.mark.kafka

WAIT_S = 30

Open = Callable[..., ReplicaReads]


@pytest.fixture
def told(fresh_log: FreshLog) -> Generator[Republished]:
    """A log of two partitions."""
    told = Republished(fresh_log)
    yield told
    told.memory.close()


@pytest.fixture
def opened(told: Republished, tmp_path: Path) -> Generator[Open]:
    """Opens replicas of it; they are closed at the end."""
    everything: list[ReplicaReads] = []

    def open_replica(folder: str = "replica", **more: Any) -> ReplicaReads:
        settings = told.kafka.settings.model_copy(update=more.pop("settings", {}))
        replica = Replica(
            told.kafka.cluster,
            settings,
            folder=more.pop("at", tmp_path) / folder,
            codec=Codec(told.kafka.registry),
            **more,
        )
        everything.append(ReplicaReads(replica, settings=settings))
        return everything[-1]

    yield open_replica
    for reads in everything:
        reads.close()


def session_in(partition: int, *, but: str = "") -> str:
    """A session's id in one of two partitions."""
    names = (f"session-{n}" for n in range(1000))
    return next(n for n in names if partition_for(n, 2) == partition and n != but)


def assert_same(reads: ReplicaReads, told: Republished) -> None:
    """Every read is the memory log's; schema ids are the registry's."""
    memory = told.memory
    assert list(reads.stored_sessions()) == list(memory.stored_sessions())
    assert reads.sessions(limit=1000) == memory.sessions(limit=1000)
    for session in memory.stored_sessions():
        name = session.session_id
        assert reads.state(name) == memory.state(name)
        theirs = [(e.seq, e.body) for e in memory.stored_events(name)]
        assert [(e.seq, e.body) for e in reads.stored_events(name)] == theirs
        snapshots = list(memory.stored_snapshots(name))
        assert list(reads.stored_snapshots(name)) == snapshots
    assert list(reads.inspect()) == []


def until(happened: Callable[[], bool]) -> None:
    """Wait for something that another thread does."""
    deadline = time.monotonic() + WAIT_S
    while not happened():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.02)


def test_what_is_committed_is_read(told: Republished, opened: Open) -> None:
    reads = opened()
    for n in range(6):
        told.given(f"s{n}", created(), started(), *(said(str(i)) for i in range(5)))
        assert reads.state(f"s{n}") == told.memory.state(f"s{n}")
    told.given("s3", SessionSuspended(reason="later"))
    assert_same(reads, told)
    assert reads.sessions(status="SUSPENDED") == told.memory.sessions(status="SUSPENDED")
    assert [s.session_id for s in reads.listing(Listing(limit=1))] == ["s3"]


def test_what_was_aborted_is_not_read(told: Republished, opened: Open) -> None:
    """A worker runs its batch again, with the same bytes."""
    reads = opened()
    told.given("s", created(), started())
    told.story("s").given(said())
    told.abort("s")
    state = reads.state("s")
    assert state is not None
    assert state.seq == 2
    told.publish("s")
    assert_same(reads, told)


def test_an_end_of_markers_only_is_an_end(told: Republished, opened: Open) -> None:
    told.given("s", created())
    told.story("s").given(said())
    for _ in range(3):
        told.abort("s")
    reads = opened()
    state = reads.state("s")
    assert state is not None
    assert state.seq == 1
    (progress,) = reads.progress()
    until(lambda: reads.progress()[0].complete)
    assert progress.events == 1


def test_an_open_transaction_does_not_stop_reads(told: Republished, opened: Open) -> None:
    reads = opened(settings={"read_wait_ms": 5_000})
    told.given("s", created())
    told.story("s").given(said())
    told.begin("s")
    state = reads.state("s")
    assert state is not None
    assert state.seq == 1
    with pytest.raises(ReadUnavailableError, match="has not come to seq 2"):
        reads.state("s", min_seq=2)
    told.commit()
    assert reads.state("s", min_seq=2) == told.memory.state("s")


def test_a_transaction_that_stays_open_shows_in_the_metric_that_an_alert_watches(
    told: Republished, opened: Open
) -> None:
    """Row 26: what is committed behind it cannot be read, and the distance grows."""
    reads = opened()
    told.given("s", created())
    assert reads.state("s") is not None
    log = told.kafka
    patient = log.settings.model_copy(update={"transaction_timeout_ms": 40_000})
    stranger: Any = kafka.transactional_producer(
        log.cluster, patient, transactional_id=f"{log.prefix}stranger"
    )
    stranger.init_transactions(30)
    stranger.begin_transaction()
    stranger.produce(log.names.events, b"x", b"s", partition_for("s", 2))
    assert stranger.flush(30) == 0
    for count in (20, 40):
        told.given("s", *(said() for _ in range(20)))
        until(lambda n=count: _behind(reads, "s") >= n)
    stranger.abort_transaction(30)
    until(lambda: _behind(reads, "s") == 0)


def _behind(reads: ReplicaReads, session_id: str) -> int:
    """How far a session's partition is behind: `foldline_service_replica_behind`."""
    place = partition_for(session_id, 2)
    (found,) = (one for one in reads.progress() if one.partition == place)
    return found.end - found.next_offset


def test_what_somebody_was_told_is_read_by_everybody(
    told: Republished, opened: Open
) -> None:
    """A commit is answered before its markers are written: a reader waits for them."""
    one, other = opened("one"), opened("other")
    told.given("s", created())
    for _ in range(30):
        told.given("s", said())
        for reads in (one, other):
            state = reads.state("s")
            assert state is not None
            assert state.seq == told.story("s").seq


def test_who_follows_is_woken(told: Republished, opened: Open) -> None:
    reads = opened()
    told.given("s", created())
    assert [e.seq for e in reads.follow("s", after_seq=0, timeout_ms=10_000)] == [1]
    assert reads.follow("s", after_seq=1, timeout_ms=50) == []
    found: list[int] = []

    def follow() -> None:
        found.extend(e.seq for e in reads.follow("s", after_seq=1, timeout_ms=30_000))

    thread = threading.Thread(target=follow)
    thread.start()
    told.given("s", said(), said())
    thread.join(WAIT_S)
    assert found == [2, 3]


def test_who_follows_what_is_not_there_yet_gets_its_beginning(
    told: Republished, opened: Open
) -> None:
    reads = opened()
    assert reads.follow("s", after_seq=0, timeout_ms=0) == []
    told.given("s", created())
    assert [e.seq for e in reads.follow("s", after_seq=0, timeout_ms=30_000)] == [1]


def test_a_look_at_what_was_never_read_first_reads_it(
    told: Republished, opened: Open
) -> None:
    """A time-out of 0 means "without waiting for what is new", not "without looking"."""
    told.given("s", created(), said())
    assert [e.seq for e in opened().follow("s", after_seq=0, timeout_ms=0)] == [1, 2]


def test_many_threads_never_read_less_than_they_know(
    told: Republished, opened: Open
) -> None:
    reads = opened()
    told.given("s", created())
    problems: list[str] = []
    committed = [1]
    ended = threading.Event()

    def read() -> None:
        seen = 0
        while not ended.is_set():
            known = max(seen, committed[-1])
            state = reads.state("s")
            seen = 0 if state is None else state.seq
            rows = len(list(reads.stored_events("s")))
            if seen < known or rows < seen:
                problems.append(f"{known} known, state at {seen}, {rows} events")

    threads = [threading.Thread(target=read) for _ in range(6)]
    for thread in threads:
        thread.start()
    for _ in range(40):
        told.given("s", said())
        committed.append(told.story("s").seq)
    ended.set()
    for thread in threads:
        thread.join(WAIT_S)
    assert problems == []
    assert_same(reads, told)


def test_only_what_is_read_is_begun(told: Republished, opened: Open) -> None:
    for partition in (0, 1):
        told.given(session_in(partition), created())
    reads = opened()
    assert reads.progress() == []
    reads.state(session_in(1))
    assert [p.partition for p in reads.progress()] == [1]
    opened("all", partitions=[0, 1])
    reads.sessions()
    assert [p.partition for p in reads.progress()] == [0, 1]


def test_it_goes_on_where_it_was(told: Republished, opened: Open) -> None:
    told.given("s", created(), *(said() for _ in range(50)))
    reads = opened()
    reads.state("s")
    reads.close()
    told.given("s", said())
    again = opened(partitions=[partition_for("s", 2)])
    assert again.progress()[0].events >= 51
    assert_same(again, told)


def test_ids_that_no_session_has_are_no_error(told: Republished, opened: Open) -> None:
    told.given("s", created())
    reads = opened()
    for name in ("", "\ud800", "nobody"):
        assert reads.state(name) is None
        assert list(reads.stored_events(name)) == []
        assert list(reads.stored_snapshots(name)) == []
        assert reads.follow(name, after_seq=0, timeout_ms=0) == []


def test_records_that_no_worker_wrote_are_skipped(told: Republished, opened: Open) -> None:
    told.given("s", created())
    junk = (b"", None, b"junk", b"\x00\x00\x00\x00\x01junk", b"\x00\xff\xff\xff\xff")
    told.transaction(*(("s", value) for value in junk), by_worker=False)
    told.given("s", said())
    reads = opened()
    assert_same(reads, told)
    assert sum(p.skipped for p in reads.replica.progress()) == len(junk)


def test_a_workers_record_that_is_no_event_stops_its_partition_alone(
    told: Republished, opened: Open
) -> None:
    bad, good = session_in(0), session_in(1)
    told.given(bad, created())
    told.given(good, created())
    reads = opened()
    reads.sessions()
    told.transaction((bad, b"junk"), by_worker=True)
    with pytest.raises(LogFormatError, match="offset"):
        reads.state(bad)
    told.given(good, said())
    assert reads.state(good) == told.memory.state(good)
    assert reads.state(bad, at_seq=1) == told.memory.state(bad)
    assert [bool(p.problem) for p in reads.progress()] == [True, False]
    assert "partition 0" in next(reads.inspect()).reason


def test_a_hole_stops_its_partition_and_is_named(told: Republished, opened: Open) -> None:
    told.given("s", created(), said())
    reads = opened()
    assert reads.state("s") == told.memory.state("s")
    told.story("s").given(said())
    told.lose("s")
    told.given("s", said())
    with pytest.raises(LogFormatError, match=r"session 's', seq 4: a hole"):
        reads.state("s")
    with pytest.raises(LogFormatError, match=r"session 's', seq 4: a hole"):
        reads.follow("s", after_seq=2, timeout_ms=10_000)
    (progress,) = (found for found in reads.progress() if found.problem)
    assert progress.stopped
    reads.close()
    with pytest.raises(LogFormatError, match=r"session 's', seq 4: a hole"):
        opened().state("s")


def test_events_that_a_reader_sees_twice_count_once(
    told: Republished, opened: Open
) -> None:
    told.given("s", created(), said(), said())
    events = list(told.memory.stored_events("s"))
    again = [("s", frame(told.schema_id(e), e.body)) for e in events]
    told.transaction(*again, by_worker=True)
    told.given("s", said())
    assert_same(opened(), told)


def test_deleted_records_stop_a_reader_that_needs_them(
    told: Republished, opened: Open
) -> None:
    """And no other one: what has read them goes on."""
    told.given("s", created(), *(said() for _ in range(9)))
    reads = opened()
    reads.state("s")
    client: Any = kafka.admin(told.kafka.cluster, told.kafka.settings)
    place = TopicPartition(told.kafka.names.events, partition_for("s", 2), 5)
    for future in client.delete_records([place]).values():
        future.result(WAIT_S)
    told.given("s", said())
    assert_same(reads, told)
    with pytest.raises(LogTruncatedError, match="begins at offset 5, offset 0 is needed"):
        opened("late").state("s")


def made_anew(told: Republished) -> Republished:
    """The topic of events is deleted, and another one made under its name."""
    log = told.kafka
    client: Any = kafka.admin(log.cluster, log.settings)
    client.delete_topics([log.names.events])[log.names.events].result(WAIT_S)
    until(lambda: log.names.events not in client.list_topics(timeout=10).topics)
    kafka_admin.create_topics(log.cluster, log.settings, partitions=log.partitions)
    return Republished(log)


def test_a_topic_that_was_made_anew_is_read_from_its_beginning(
    told: Republished, opened: Open
) -> None:
    told.given("s", created(), *(said() for _ in range(9)))
    reads = opened()
    reads.state("s")
    reads.close()
    anew = made_anew(told)
    anew.given("s", created(), *(said("other") for _ in range(20)))
    reads = opened()
    assert_same(reads, anew)
    anew.memory.close()


def test_a_topic_that_is_made_anew_under_a_reader_is_noticed(
    told: Republished, opened: Open, tmp_path: Path
) -> None:
    told.given("s", created(), *(said() for _ in range(9)))
    reads = opened()
    reads.state("s")
    anew = made_anew(told)
    anew.given("s", created())
    until(lambda: same_state(reads, anew))
    assert_same(reads, anew)
    assert asides(tmp_path / "replica" / str(partition_for("s", 2)))
    anew.memory.close()


def same_state(reads: ReplicaReads, told: Republished) -> bool:
    try:
        return reads.state("s") == told.memory.state("s")
    except LogUnavailableError:
        return False


def test_a_new_replica_starts_from_a_checkpoint(
    told: Republished, opened: Open, tmp_path: Path
) -> None:
    partition = partition_for("s", 2)
    told.given("s", created(), *(said() for _ in range(9)))
    reads = opened()
    reads.state("s")
    reads.replica.checkpoint(partition, tmp_path / "shipped")
    assert not reads.replica.adopt(partition, tmp_path / "shipped")
    told.given("s", said())
    late = opened("late")
    assert not late.replica.adopt(1 - partition, tmp_path / "shipped")
    assert late.replica.adopt(partition, tmp_path / "shipped")
    assert late.replica.store(partition).event_count >= 10
    assert_same(late, told)


def test_a_damaged_store_is_set_aside_and_answers_again(
    told: Republished, opened: Open, tmp_path: Path
) -> None:
    partition = partition_for("s", 2)
    told.given("s", created(), *(said("x" * 5000) for _ in range(100)))
    for _ in range(2):  # opened twice: what is in the write-ahead log goes to a file
        reads = opened()
        reads.state("s")
        reads.close()
    folder = tmp_path / "replica" / str(partition)
    flip(files(folder, "sst")[0], at=0.3)
    reads = opened()
    with pytest.raises(ReadUnavailableError, match="built anew"):
        list(reads.stored_events("s"))
    until(lambda: len(asides(folder)) == 1)
    until(lambda: same_state(reads, told))
    assert_same(reads, told)


def test_a_full_disk_stops_reads_of_heads_and_passes(
    told: Republished, opened: Open, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "disk", size_mb=32) as disk:
        told.given("s", created(), *(said("x" * 60_000) for _ in range(20)))
        reads = opened(at=disk)
        assert reads.state("s") == told.memory.state("s")
        filler = fill(disk)
        for _ in range(8):
            told.given("s", *(said("x" * 60_000) for _ in range(20)))
        with pytest.raises(LogUnavailableError, match="space"):
            reads.state("s")
        assert "space" in reads.progress()[0].problem
        assert reads.state("s", at_seq=21) == told.memory.state("s", at_seq=21)
        filler.unlink()
        until(lambda: same_state(reads, told))
        assert_same(reads, told)
        reads.close()


def test_what_is_closed_says_so(told: Republished, opened: Open) -> None:
    told.given("s", created())
    reads = opened()
    reads.state("s")
    reads.close()
    with pytest.raises(LogUnavailableError, match="closed"):
        reads.state("s")


def test_sessions_of_a_foreign_partition_stop_it(told: Republished, opened: Open) -> None:
    """A writer with another partitioner is noticed by the first reader."""
    told.story("s").given(created())
    (event,) = told.memory.stored_events("s")
    wrong = 1 - partition_for("s", 2)
    value = frame(told.schema_id(event), event.body)
    told.transaction(("s", value), by_worker=True, partition=wrong)
    with pytest.raises(LogFormatError, match="another partition"):
        opened().sessions()
