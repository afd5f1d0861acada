"""Leases on Kafka: judged by the broker's clock, whatever traffic there is."""

import time
from collections.abc import Callable, Generator
from functools import partial

import pytest
from confluent_kafka import Consumer, KafkaError, Message

from foldline import kafka
from foldline.errors import LogUnavailableError
from foldline.processors import kafka_leases
from foldline.processors.kafka_channel import Channel
from foldline.processors.kafka_leases import (
    LEASE_MAX_MS,
    KafkaLeases,
    PartitionLeases,
)
from foldline.processors.kafka_records import Outgoing
from foldline.processors.log import Lease
from foldline.schemas.record_codec import RecordCodec, frame_record
from foldline.schemas.topic_records import LeaseRenewal
from foldline.testing.log_story import new_id
from foldline.topics import partition_for
from tests.cluster.logs import FreshLog, drop_log, make_log
from tests.cluster.shared import Broker

pytestmark = pytest.mark.kafka

OpenLeases = Callable[[], KafkaLeases]
LONG_MS = 60_000


@pytest.fixture(scope="module")
def quiet_log(
    broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Generator[FreshLog]:
    """A log without a worker: leases need none."""
    log = make_log(broker, tmp_path_factory.mktemp("kafka-leases"), partitions=2)
    yield log
    drop_log(log)


@pytest.fixture
def channel(quiet_log: FreshLog) -> Generator[Channel]:
    """A way to the broker."""
    channel = Channel(
        lambda hear: kafka.client_producer(
            quiet_log.cluster, quiet_log.settings, on_error=hear
        )
    )
    yield channel
    channel.close()


@pytest.fixture
def open_leases(quiet_log: FreshLog, channel: Channel) -> Generator[OpenLeases]:
    """Makes leases as a client of its own has them."""
    made: list[KafkaLeases] = []

    def open_one() -> KafkaLeases:
        leases = KafkaLeases(
            url=quiet_log.cluster.url,
            topic=quiet_log.names.leases,
            partitions=quiet_log.partitions,
            client_id=new_id(),
            schema_id=partial(quiet_log.registry.id_of, "LeaseRenewal"),
            codec=RecordCodec(quiet_log.registry),
            channel=lambda: channel,
            open_consumer=partial(
                kafka.reader_consumer, quiet_log.cluster, quiet_log.settings
            ),
        )
        made.append(leases)
        return leases

    yield open_one
    for leases in made:
        leases.close()


@pytest.fixture
def leases(open_leases: OpenLeases) -> KafkaLeases:
    """Those of one client."""
    return open_leases()


def lease_of(leases: KafkaLeases, session_id: str) -> Lease:
    lease = leases.get(session_id)
    assert lease is not None
    return lease


def test_another_client_sees_a_renewal_and_its_end(open_leases: OpenLeases) -> None:
    one, other, name = open_leases(), open_leases(), new_id()
    assert other.get(name) is None
    one.renew(name, epoch=1, writer="a", ttl_ms=LONG_MS)
    assert (lease_of(other, name).writer, lease_of(other, name).alive) == ("a", True)
    one.release(name, epoch=1, writer="a")
    assert other.get(name) is None
    assert open_leases().get(name) is None


def test_a_lease_dies_in_a_partition_that_is_otherwise_quiet(leases: KafkaLeases) -> None:
    """Row 47: whoever asks writes a tick, so the broker's clock is always known."""
    name, ttl_ms = new_id(), 50
    leases.renew(name, epoch=1, writer="a", ttl_ms=ttl_ms)
    time.sleep(2 * ttl_ms / 1000)
    lease = lease_of(leases, name)
    assert (lease.alive, lease.expires_in_ms) == (False, 0)


def test_many_sessions_are_renewed_without_waiting_for_each(
    leases: KafkaLeases, open_leases: OpenLeases
) -> None:
    """The first renewal waits, so that it is there; the others go out together."""
    names = [new_id() for _ in range(60)]
    for _ in range(3):
        for name in names:
            leases.renew(name, epoch=1, writer="a", ttl_ms=LONG_MS)
    other = open_leases()
    assert all(lease_of(other, name).alive for name in names)


def test_a_release_by_another_writer_or_of_another_epoch_changes_nothing(
    leases: KafkaLeases,
) -> None:
    name = new_id()
    leases.renew(name, epoch=2, writer="b", ttl_ms=LONG_MS)
    leases.release(name, epoch=2, writer="a")
    leases.release(name, epoch=1, writer="b")
    assert lease_of(leases, name).epoch == 2


def test_no_lease_lives_longer_than_what_is_read(leases: KafkaLeases) -> None:
    name = new_id()
    leases.renew(name, epoch=1, writer="a", ttl_ms=10 * LEASE_MAX_MS)
    assert lease_of(leases, name).expires_in_ms <= LEASE_MAX_MS


def test_only_the_last_while_is_read(
    leases: KafkaLeases, open_leases: OpenLeases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ran out before that is no lease, and costs a reader nothing."""
    old, new = new_id(), new_id()
    leases.renew(old, epoch=1, writer="a", ttl_ms=10)
    time.sleep(0.3)
    leases.renew(new, epoch=1, writer="a", ttl_ms=LONG_MS)
    assert not lease_of(open_leases(), old).alive
    monkeypatch.setattr(kafka_leases, "LEASE_MAX_MS", 200)
    late = open_leases()
    assert late.get(old) is None
    assert leases.get(old) is None
    assert lease_of(late, new).alive


def test_a_broker_clock_that_was_set_back_lets_no_lease_live_for_ever() -> None:
    """Row 47: the renewal seems to come from the future; seen for its time, it is dead."""
    hour_ms = 3_600_000
    known = PartitionLeases(0)
    renewal = LeaseRenewal(session_id="s", epoch=1, writer="a", ttl_ms=200)
    known.take(renewal, renewed_ms=hour_ms, seen_s=10.0)
    assert known.lease("s", now_ms=0, now_s=10.1) == Lease(
        "s", 1, "a", alive=True, expires_in_ms=100
    )
    assert known.lease("s", now_ms=0, now_s=10.2) == Lease(
        "s", 1, "a", alive=False, expires_in_ms=0
    )
    assert known.lease("s", now_ms=hour_ms + 150, now_s=10.1) == Lease(
        "s", 1, "a", alive=True, expires_in_ms=50
    )


def ignore(error: KafkaError | None, record: Message) -> None:
    """What became of a record does not matter."""


def test_what_is_no_renewal_is_passed_over(
    leases: KafkaLeases, channel: Channel, quiet_log: FreshLog
) -> None:
    """Junk, and a record of another kind: neither a lease nor the end of reading."""
    name = new_id()
    place = partition_for(name, quiet_log.partitions)
    tick = LeaseRenewal(session_id=name, epoch=9, writer="x", ttl_ms=LONG_MS)
    wrong_id = quiet_log.registry.id_of("LogMeta")
    for value in (b"", b"junk", frame_record(wrong_id, tick)):
        record = Outgoing(place, name.encode(), value)
        channel.send(quiet_log.names.leases, record, ignore)
    leases.renew(name, epoch=1, writer="a", ttl_ms=LONG_MS)
    assert lease_of(leases, name).epoch == 1


def test_a_lease_that_is_read_after_the_end_opens_no_consumer(
    quiet_log: FreshLog, channel: Channel
) -> None:
    opened: list[object] = []

    def open_consumer() -> Consumer:
        opened.append(None)
        return kafka.reader_consumer(quiet_log.cluster, quiet_log.settings)

    leases = KafkaLeases(
        url=quiet_log.cluster.url,
        topic=quiet_log.names.leases,
        partitions=quiet_log.partitions,
        client_id=new_id(),
        schema_id=partial(quiet_log.registry.id_of, "LeaseRenewal"),
        codec=RecordCodec(quiet_log.registry),
        channel=lambda: channel,
        open_consumer=open_consumer,
    )
    leases.close()
    with pytest.raises(LogUnavailableError, match="the log is closed"):
        leases.get(new_id())
    assert opened == []


def test_brokers_that_do_not_answer_are_an_error_and_not_a_dead_lease(
    quiet_log: FreshLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_leases, "ANSWER_TIMEOUT_S", 0.5)
    nobody = kafka.Cluster("127.0.0.1:1", quiet_log.prefix)
    settings = quiet_log.settings.model_copy(update={"verdict_timeout_ms": 500})
    channel = Channel(lambda hear: kafka.client_producer(nobody, settings, on_error=hear))
    leases = KafkaLeases(
        url=nobody.url,
        topic=quiet_log.names.leases,
        partitions=quiet_log.partitions,
        client_id=new_id(),
        schema_id=lambda: 1,
        codec=RecordCodec(quiet_log.registry),
        channel=lambda: channel,
        open_consumer=partial(kafka.reader_consumer, nobody, settings),
    )
    with pytest.raises(LogUnavailableError):
        leases.renew("s", epoch=1, writer="a", ttl_ms=LONG_MS)
    with pytest.raises(LogUnavailableError):
        leases.get("s")
    channel.close()
