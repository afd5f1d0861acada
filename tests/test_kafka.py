"""Clients, topics and identity of a log on Kafka, on a real broker."""

import ast
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, cast

import confluent_kafka.admin
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from foldline import kafka
from foldline.errors import (
    LogUnavailableError,
    NewerFormatError,
    NoLogMetaError,
    SettingsError,
    TopicDriftError,
)
from foldline.kafka_admin import (
    broker_warnings,
    create_topics,
    find_drift,
    group_protocol,
    is_grave,
    protocol_of,
    require_no_drift,
)
from foldline.kafka_meta import found_log, put_in_force, read_meta, read_said
from foldline.processors.rules_lookup import rules_of_marks
from foldline.schemas.record_codec import RecordCodec, frame_record
from foldline.schemas.state import FOLD_VERSION
from foldline.schemas.topic_records import (
    CONTROL_KEY,
    LOW_WATER_KEY,
    META_KEY,
    LogMeta,
    LowWater,
    RulesInForce,
)
from foldline.settings import Settings
from foldline.topics import Drift, TopicNames, specs
from tests.cluster.fixtures import MakeLog, OwnCluster
from tests.cluster.logs import FreshLog
from tests.cluster.processes import free_ports
from tests.cluster.shared import Broker

_api = cast("Any", confluent_kafka.admin)


# --- URLs ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "bootstrap", "prefix"),
    [
        ("kafka://host:9092", "host:9092", "foldline."),
        ("kafka://h1:9092,h2:9093", "h1:9092,h2:9093", "foldline."),
        ("kafka://host:9092/acme.", "host:9092", "acme."),
        ("kafka://host:9092/", "host:9092", "foldline."),
        ("kafka://host", "host", "foldline."),
        ("kafka://[::1]:9092/a-b_c.", "[::1]:9092", "a-b_c."),
    ],
)
def test_a_url_names_brokers_and_may_name_a_prefix(
    url: str, bootstrap: str, prefix: str
) -> None:
    assert kafka.parse_url(url) == kafka.Cluster(bootstrap, prefix)


@pytest.mark.parametrize(
    "url",
    [
        "kafka:",
        "kafka://",
        "kafka:///prefix",
        "kafka://host:0",
        "kafka://host:65536",
        "kafka://host:port",
        "kafka://h1:9092,",
        "kafka://h1:9092, h2:9092",
        "kafka://host:9092/two/parts",
        "kafka://host:9092/a b",
        "kafka://host:9092?x=1",
        "kafka://host:9092/" + "p" * 65,
        "http://host:9092",
        "sqlite:///x.db",
    ],
)
def test_a_url_that_means_nothing_is_refused(url: str) -> None:
    with pytest.raises(SettingsError, match="kafka://host:port"):
        kafka.parse_url(url)


def test_a_password_has_no_place_in_a_url() -> None:
    """It would stand in every message; the error does not repeat it."""
    with pytest.raises(SettingsError, match="SASL_USERNAME") as caught:
        kafka.parse_url("kafka://user:hunter2@host:9092")
    assert "hunter2" not in str(caught.value)


def test_the_settings_prefix_counts_where_the_url_says_none() -> None:
    settings = Settings(url="kafka://host:1", topic_prefix="acme.")
    assert kafka.cluster_of(settings).names.appends == "acme.appends"
    settings = Settings(url="kafka://host:1/other.", topic_prefix="acme.")
    assert kafka.cluster_of(settings).names.appends == "other.appends"


def test_clients_are_built_in_one_place() -> None:
    """Else one of them lacks what a promise rests on, sooner or later."""
    root = Path(__file__).resolve().parents[1]
    rooms = ("foldline", "schemas", "processors", "projections", "producers")
    found = {
        f"{path.relative_to(root)}: {built}"
        for room in rooms
        for path in (root / room).rglob("*.py")
        for built in built_in(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert found == set()


CLIENT_NAMES = {"AdminClient", "Consumer", "Producer", "DeserializingConsumer"}


def built_in(tree: ast.Module) -> list[str]:
    """The clients that a module builds by their names."""
    called = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    names = [
        f.attr if isinstance(f, ast.Attribute) else getattr(f, "id", "") for f in called
    ]
    return [name for name in names if name in CLIENT_NAMES]


# --- what an operator may set --------------------------------------------------------

NOBODY = kafka.Cluster("127.0.0.1:1", "t.")


def extra(**keys: str) -> Settings:
    """Settings with librdkafka keys; underscores are dots."""
    return Settings.model_validate({"kafka": {"extra": keys}})


CLIENTS: dict[str, Callable[[Settings], object]] = {
    "admin": lambda s: kafka.admin(NOBODY, s),
    "worker": lambda s: kafka.worker_consumer(NOBODY, s, protocol="consumer"),
    "classic": lambda s: kafka.worker_consumer(NOBODY, s, protocol="classic"),
    "reader": lambda s: kafka.reader_consumer(NOBODY, s),
    "transactional": lambda s: kafka.transactional_producer(
        NOBODY, s, transactional_id="t"
    ),
    "client": lambda s: kafka.client_producer(NOBODY, s),
    "plain": lambda s: kafka.plain_producer(NOBODY, s),
}


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
@pytest.mark.parametrize("key", sorted(kafka.PINNED))
def test_what_a_promise_rests_on_cannot_be_set(
    client: Callable[[Settings], object], key: str
) -> None:
    with pytest.raises(SettingsError, match="cannot be set") as caught:
        client(extra(**{key: "1"}))
    assert kafka.PINNED[key] in str(caught.value)
    assert caught.value.name == "FOLDLINE_KAFKA__EXTRA__" + key.upper().replace(".", "_")


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
def test_any_other_key_goes_to_librdkafka_as_it_is(
    client: Callable[[Settings], object],
) -> None:
    made: Any = client(extra(client_rack="eu-1", security_protocol="ssl"))
    if hasattr(made, "close"):
        made.close()


@pytest.mark.parametrize("key", ["no.such.key", "socket.timeout.ms"])
def test_a_key_that_librdkafka_does_not_know_is_a_setting_that_means_nothing(
    key: str,
) -> None:
    """The value is not shown: it may be a password in the wrong place."""
    with pytest.raises(SettingsError, match=key) as caught:
        kafka.admin(NOBODY, extra(**{key: "hunter2"}))
    assert caught.value.name == "FOLDLINE_KAFKA__EXTRA"


def test_a_broker_that_is_not_there_is_told_to_the_log_and_to_who_asked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No line on stderr of a command; the caller's own function is told instead."""
    (port,) = free_ports(1)
    nobody = kafka.Cluster(f"127.0.0.1:{port}", "t.")
    told: list[KafkaError] = []
    with caplog.at_level(logging.DEBUG, logger="foldline.kafka"):
        consumer = kafka.reader_consumer(nobody, Settings(), on_error=told.append)
        end = time.monotonic() + 30
        while not told and time.monotonic() < end:
            consumer.poll(0.1)
        consumer.close()
    assert told
    assert caplog.records


def test_no_broker_is_an_error_that_may_pass() -> None:
    (port,) = free_ports(1)
    settings = extra(socket_connection_setup_timeout_ms="1000")
    client = kafka.admin(kafka.Cluster(f"127.0.0.1:{port}"), settings)
    with pytest.raises(KafkaException):
        client.list_topics(timeout=0.5)
    assert LogUnavailableError.retryable


# --- what a broker says --------------------------------------------------------------


@pytest.mark.kafka
def test_topics_are_made_once_and_as_they_must_be(fresh_log: FreshLog) -> None:
    cluster, settings = fresh_log.cluster, fresh_log.settings
    assert create_topics(cluster, settings, partitions=2) == []
    assert find_drift(cluster, settings, partitions=2) == []
    require_no_drift(cluster, settings, partitions=2)


def alter(log: FreshLog, topic: str, name: str, value: str) -> None:
    """Change one config of a topic, as an operator might."""
    client: Any = kafka.admin(log.cluster, log.settings)
    resource = _api.ConfigResource(_api.ResourceType["TOPIC"], topic)
    operation = _api.AlterConfigOpType["SET"]
    resource.add_incremental_config(
        _api.ConfigEntry(name, value, incremental_operation=operation)
    )
    for future in client.incremental_alter_configs([resource]).values():
        future.result(10)


DRIFTS = [
    ("appends", "cleanup.policy", "compact", True),
    ("appends", "message.timestamp.type", "CreateTime", True),
    ("events", "retention.ms", "604800000", True),
    ("events", "retention.bytes", "1000000000", True),
    ("events", "cleanup.policy", "compact", True),
    ("events", "max.message.bytes", "1000", True),
    ("events", "unclean.leader.election.enable", "true", True),
    ("verdicts", "retention.ms", "60000", False),
    ("rejected", "max.message.bytes", "2000000", False),
]


@pytest.mark.kafka
def test_a_topic_that_was_changed_is_found_and_nothing_starts_on_it(
    fresh_log: FreshLog,
) -> None:
    """What loses, doubles or misplaces a record; the rest is only said."""
    cluster, settings, names = fresh_log.cluster, fresh_log.settings, fresh_log.names
    for topic, name, value, grave in DRIFTS:
        full = f"{fresh_log.prefix}{topic}"
        before = spec_of(fresh_log, full)[name]
        alter(fresh_log, full, name, value)
        (drift,) = find_drift(cluster, settings, partitions=2)
        assert drift == Drift(full, name, before, value)
        assert is_grave(drift, names) is grave
        if grave:
            with pytest.raises(TopicDriftError, match=name):
                require_no_drift(cluster, settings, partitions=2)
        else:
            require_no_drift(cluster, settings, partitions=2)
        alter(fresh_log, full, name, before)
    assert find_drift(cluster, settings, partitions=2) == []


def spec_of(log: FreshLog, topic: str) -> dict[str, str]:
    """The configs that a topic must have."""
    made = specs(log.names, partitions=2, replication=1, fold_version=1)
    return next(dict(spec.config) for spec in made if spec.name == topic)


@pytest.mark.kafka
def test_a_log_with_fewer_partitions_than_it_says_is_refused_with_more_it_goes_on(
    fresh_log: FreshLog, caplog: pytest.LogCaptureFixture
) -> None:
    """Keys stay where they are: partitions beyond the log's own are not used."""
    cluster, settings = fresh_log.cluster, fresh_log.settings
    with pytest.raises(TopicDriftError, match="partitions is 2, must be 3"):
        require_no_drift(cluster, settings, partitions=3)
    client: Any = kafka.admin(cluster, settings)
    more = _api.NewPartitions(fresh_log.names.events, 5)
    for future in client.create_partitions([more]).values():
        future.result(10)
    drifts: list[Drift] = []
    end = time.monotonic() + 30
    while not drifts and time.monotonic() < end:
        drifts = find_drift(cluster, settings, partitions=2)
    assert drifts == [Drift(fresh_log.names.events, "partitions", "2", "5")]
    with caplog.at_level(logging.WARNING, logger="foldline.kafka"):
        require_no_drift(cluster, settings, partitions=2)
    assert "partitions is 5, must be 2" in caplog.text


@pytest.mark.kafka
def test_too_few_copies_or_in_sync_copies_are_refused(fresh_log: FreshLog) -> None:
    """An operator who wants three brokers does not get one by mistake."""
    three = fresh_log.settings.model_copy(update={"topic_replication": 3})
    drifts = find_drift(fresh_log.cluster, three, partitions=2)
    assert {drift.what for drift in drifts} == {"replication", "min.insync.replicas"}
    with pytest.raises(TopicDriftError, match=r"min.insync.replicas is 1, must be 2"):
        require_no_drift(fresh_log.cluster, three, partitions=2)


@pytest.mark.kafka
def test_a_topic_that_is_missing_is_refused(fresh_log: FreshLog) -> None:
    client: Any = kafka.admin(fresh_log.cluster, fresh_log.settings)
    for future in client.delete_topics([fresh_log.names.verdicts]).values():
        future.result(10)
    end = time.monotonic() + 30
    drifts: list[Drift] = []
    while not drifts and time.monotonic() < end:
        drifts = find_drift(fresh_log.cluster, fresh_log.settings, partitions=2)
    assert drifts == [Drift(fresh_log.names.verdicts, "topic", "there", "missing")]
    with pytest.raises(TopicDriftError, match="missing"):
        require_no_drift(fresh_log.cluster, fresh_log.settings, partitions=2)


STOCK_BROKER = {
    "group.coordinator.rebalance.protocols": "classic,consumer,streams",
    "group.consumer.session.timeout.ms": "45000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "10000",
}


@pytest.mark.parametrize("brokers", [[STOCK_BROKER] * 3, [{}], []])
def test_stock_brokers_promise_a_take_over_in_twenty_seconds(
    brokers: list[dict[str, str]],
) -> None:
    found = protocol_of(brokers, transaction_timeout_ms=Settings().transaction_timeout_ms)
    assert (found.name, found.takeover_ms) == ("classic", 20_000)


@pytest.mark.kafka
def test_a_broker_that_is_set_up_promises_a_take_over_in_eleven_seconds(
    fresh_log: FreshLog,
) -> None:
    found = group_protocol(fresh_log.cluster, fresh_log.settings)
    assert (found.name, found.takeover_ms) == ("consumer", 11_000)
    assert broker_warnings(fresh_log.cluster, fresh_log.settings) == []


# --- what a log is -------------------------------------------------------------------


def in_force(
    log: FreshLog, *, version: int = 1, ids: tuple[int, ...] = (1,)
) -> RulesInForce:
    return RulesInForce(rules_version=version, schema_ids=ids, partitions=log.partitions)


@pytest.mark.kafka
def test_a_prefix_without_a_log_says_what_to_do(broker: Broker) -> None:
    settings = Settings(url=f"kafka://{broker.bootstrap}/nobody-made-this.")
    with pytest.raises(NoLogMetaError, match="foldline topics create"):
        read_meta(kafka.cluster_of(settings), settings)


@pytest.mark.kafka
def test_a_log_gets_one_identity_however_many_make_it_at_once(
    make_fresh_log: MakeLog,
) -> None:
    """Each reads, decides and writes as one step, in a transaction of one shared id."""
    log = make_fresh_log(partitions=1)
    prefix = log.prefix + "again."
    cluster = kafka.Cluster(log.cluster.bootstrap, prefix)
    create_topics(cluster, log.settings, partitions=1)
    ready = threading.Barrier(3)

    def make(_: int) -> tuple[LogMeta, bool]:
        ready.wait()
        return found_log(cluster, log.settings, registry=log.registry, partitions=1)

    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(make, range(3)))
    assert len({meta.log_id for meta, _ in answers}) == 1
    assert [new for _, new in answers].count(True) == 1
    assert len(values_in(log, TopicNames(prefix).meta, 0, META_KEY)) == 1


@pytest.mark.kafka
def test_a_log_of_a_newer_foldline_is_not_opened(make_fresh_log: MakeLog) -> None:
    log = make_fresh_log(partitions=1)
    cluster = kafka.Cluster(log.cluster.bootstrap, log.prefix + "newer.")
    create_topics(cluster, log.settings, partitions=1)
    meta = LogMeta(log_id="x", partitions=1, format_version=2)
    producer = kafka.plain_producer(cluster, log.settings)
    value = frame_record(log.registry.id_of("LogMeta"), meta)
    producer.produce(cluster.names.meta, value, META_KEY, 0)
    assert producer.flush(10) == 0
    with pytest.raises(NewerFormatError, match="version 2"):
        read_meta(cluster, log.settings, schemas=log.registry)


@pytest.mark.kafka
def test_rules_come_into_force_in_every_partition_and_once(fresh_log: FreshLog) -> None:
    """The newest stands in `meta` too, so that nobody searches a week of appends."""
    cluster, settings = fresh_log.cluster, fresh_log.settings
    said = read_said(cluster, settings, schemas=fresh_log.registry).rules
    assert said is not None

    def put(**more: Any) -> tuple[RulesInForce, bool]:
        again = said.model_copy(update={"written_by": "another"})
        registry = fresh_log.registry
        return put_in_force(cluster, settings, again, registry=registry, **more)

    assert put() == (said.model_copy(update={"written_by": "another"}), False)
    assert put(force=True)[1] is True
    codec = RecordCodec(fresh_log.registry)
    for partition in range(fresh_log.partitions):
        found = values_in(fresh_log, fresh_log.names.appends, partition, CONTROL_KEY)
        records = [codec.unframe_record(RulesInForce, value) for value in found]
        assert [record.written_by for record in records] == ["", "another"]
        assert {record.schema_ids for record in records} == {said.schema_ids}


@pytest.mark.kafka
def test_schemas_in_force_stay_in_force(fresh_log: FreshLog) -> None:
    """Appends that were written with them may still be on their way."""
    cluster, settings = fresh_log.cluster, fresh_log.settings
    before = read_said(cluster, settings, schemas=fresh_log.registry).rules
    assert before is not None
    rules = in_force(fresh_log, version=2, ids=(10_000_001,))
    now, written = put_in_force(cluster, settings, rules, registry=fresh_log.registry)
    assert written
    assert now.schema_ids == (*before.schema_ids, 10_000_001)
    assert read_said(cluster, settings, schemas=fresh_log.registry).rules == now


@pytest.mark.kafka
def test_ids_of_another_version_outlive_a_lost_meta(make_fresh_log: MakeLog) -> None:
    """A worker has noted them in its low-water record, when it took the control record."""
    log = make_fresh_log(partitions=1)
    cluster = kafka.Cluster(log.cluster.bootstrap, log.prefix + "lost.")
    settings, registry = log.settings, log.registry
    create_topics(cluster, settings, partitions=2)
    found_log(cluster, settings, registry=registry, partitions=2)
    producer = kafka.plain_producer(cluster, settings)
    for index, foreign in enumerate((10_000_001, 10_000_002)):
        mark = LowWater(
            partition=index,
            fold_version=FOLD_VERSION,
            low=0,
            input_offset=1,
            rules_version=3,
            schema_ids=(foreign,),
        )
        value = frame_record(registry.id_of("LowWater"), mark)
        topic = cluster.names.snapshots(FOLD_VERSION)
        producer.produce(topic, value, LOW_WATER_KEY, index)
    assert producer.flush(10) == 0
    before = partial(rules_of_marks, cluster, settings, registry=registry, partitions=2)
    older = in_force(log, version=2).model_copy(update={"partitions": 2})
    with pytest.raises(NewerFormatError, match="rules in force"):
        put_in_force(cluster, settings, older, registry=registry, before=before)
    rules = older.model_copy(update={"rules_version": 3})
    now, written = put_in_force(cluster, settings, rules, registry=registry, before=before)
    assert (now.schema_ids, written) == ((1, 10_000_001, 10_000_002), True)


@pytest.mark.kafka
def test_older_rules_do_not_replace_newer_ones(fresh_log: FreshLog) -> None:
    cluster, settings = fresh_log.cluster, fresh_log.settings
    registry = fresh_log.registry
    put_in_force(cluster, settings, in_force(fresh_log, version=7), registry=registry)
    with pytest.raises(NewerFormatError, match="rules in force"):
        put_in_force(
            cluster, settings, in_force(fresh_log, version=6), registry=registry, force=True
        )


@pytest.mark.kafka
def test_rules_need_a_log(broker: Broker, fresh_log: FreshLog) -> None:
    """A broker that has not heard of a topic is not taken for one without a log."""
    settings = Settings(url=f"kafka://{broker.bootstrap}/nobody-made-this.")
    with pytest.raises(NoLogMetaError):
        put_in_force(
            kafka.cluster_of(settings),
            settings,
            in_force(fresh_log),
            registry=fresh_log.registry,
        )


def values_in(log: FreshLog, topic: str, partition: int, key: bytes) -> list[bytes]:
    """Every committed value of a key, oldest first."""
    consumer = kafka.reader_consumer(log.cluster, log.settings, fetch_wait_ms=10)
    found: list[bytes] = []
    try:
        start = kafka.first_offset(consumer, topic, partition, timeout_ms=10_000)
        consumer.assign([TopicPartition(topic, partition, start)])
        while True:
            message = consumer.poll(10)
            assert message is not None
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF
                return found
            value = message.value()
            if message.key() == key and value is not None:
                found.append(value)
    finally:
        consumer.close()


# --- brokers of the test's own -------------------------------------------------------


@pytest.mark.kafka
@pytest.mark.slow
def test_a_log_on_three_brokers_outlives_one(
    own_cluster: OwnCluster, broker: Broker, make_fresh_log: MakeLog
) -> None:
    """Topics keep three copies, two of them in sync; what it is can still be read."""
    cluster = own_cluster(brokers=3)
    three = Broker(cluster.bootstrap, broker.registry_url, "own")
    log = make_fresh_log(on=three, partitions=2, replication=3)
    assert find_drift(log.cluster, log.settings, partitions=2) == []
    before = read_meta(log.cluster, log.settings)
    cluster.kill(0)
    assert read_meta(log.cluster, log.settings) == before
    cluster.start(0)
    rules = in_force(log, version=2)
    _, written = put_in_force(log.cluster, log.settings, rules, registry=log.registry)
    assert written
