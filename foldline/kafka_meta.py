"""What a log says about itself: its identity, and the rules in force.

The topic `meta` (compacted, one partition) holds one `LogMeta`, and the newest
`RulesInForce` beside the control records in `appends`, so that nobody must search a
week of appends for it. Both are written in a transaction whose id is the same for
everybody who writes them: whoever begins fences whoever has begun, so the read before
the write is still true when it commits.
"""

import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from foldline.errors import (
    DecodeError,
    LogFormatError,
    LogUnavailableError,
    NewerFormatError,
    NoLogMetaError,
)
from foldline.kafka import (
    FETCH_WAIT_MS,
    Cluster,
    first_offset,
    reader_consumer,
    transactional_producer,
)
from foldline.schemas.codec import SchemaSource
from foldline.schemas.record_codec import RecordCodec, frame_record
from foldline.schemas.registry_client import RegistryClient, registry_of
from foldline.schemas.topic_records import (
    CONTROL_KEY,
    LOG_FORMAT_VERSION,
    META_KEY,
    LogMeta,
    RulesInForce,
)
from foldline.settings import Settings

READ_TIMEOUT_MS = 30_000
"""How long a read of the whole topic may take, with a change of its leader."""

WRITE_TIMEOUT_MS = 30_000
"""How long a transaction may take, with everybody who fences it."""

WRITE_TRIES = 10
"""How often a write that another one fenced begins again."""

Records = list[tuple[str, bytes, bytes | None]]
"""What a transaction writes: topic, key and value; for appends, to every partition."""


class Said(NamedTuple):
    """What the topic `meta` says; None where it does not yet."""

    meta: LogMeta | None
    rules: RulesInForce | None


def read_meta(
    cluster: Cluster, settings: Settings, *, schemas: SchemaSource | None = None
) -> LogMeta:
    """What a log is.

    Args:
        cluster: the log.
        settings: how it is reached.
        schemas: the registry, where there is a client already.

    Raises:
        NoLogMetaError: there is none; it says what to do.
        NewerFormatError: a newer foldline made it.
        LogUnavailableError: no broker answers.
        RegistryUnavailableError: the registry does not.
    """
    meta = read_said(cluster, settings, schemas=schemas).meta
    if meta is None:
        raise NoLogMetaError(cluster.url, cluster.names.meta)
    if meta.format_version > LOG_FORMAT_VERSION:
        raise NewerFormatError(cluster.url, meta.format_version, LOG_FORMAT_VERSION)
    return meta


def read_said(
    cluster: Cluster,
    settings: Settings,
    *,
    schemas: SchemaSource | None = None,
    must_exist: bool = False,
) -> Said:
    """Everything that the topic says: the first LogMeta, the last RulesInForce.

    Args:
        cluster: the log.
        settings: how it is reached.
        schemas: the registry, where there is a client already.
        must_exist: an error where there is no such topic: who is about to write may not
            take a broker that has not heard of it yet for a log that is new.
    """
    found = _committed(cluster, settings)
    if found is None:
        if must_exist:
            raise NoLogMetaError(cluster.url, cluster.names.meta)
        return Said(None, None)
    metas = [value for key, value in found if key == META_KEY]
    rules = [value for key, value in found if key == CONTROL_KEY]
    if not metas and not rules:
        return Said(None, None)
    with ExitStack() as stack:
        if schemas is None:
            schemas = stack.enter_context(closing(registry_of(settings)))
        codec = RecordCodec(schemas)
        try:
            return Said(
                codec.unframe_record(LogMeta, metas[0]) if metas else None,
                codec.unframe_record(RulesInForce, rules[-1]) if rules else None,
            )
        except DecodeError as error:
            raise LogFormatError(cluster.url, f"{cluster.names.meta}: {error}") from error


def found_log(
    cluster: Cluster, settings: Settings, *, registry: RegistryClient, partitions: int
) -> tuple[LogMeta, bool]:
    """Give a log its identity, once; says whether this call did.

    Raises:
        LogUnavailableError: no broker answers.
        SchemaError: LogMeta is not registered.
    """
    said = read_said(cluster, settings, schemas=registry)
    if said.meta is not None:
        return said.meta, False
    meta = LogMeta(log_id=str(uuid.uuid4()), partitions=partitions)
    value = frame_record(registry.id_of("LogMeta"), meta)

    def decide() -> Records:
        nonlocal said
        said = read_said(cluster, settings, schemas=registry, must_exist=True)
        return [] if said.meta else [(cluster.names.meta, META_KEY, value)]

    _write_once(cluster, settings, "create", decide, partitions=partitions)
    return said.meta or meta, said.meta is None


def put_in_force(
    cluster: Cluster,
    settings: Settings,
    rules: RulesInForce,
    *,
    registry: RegistryClient,
    force: bool = False,
    before: Callable[[], RulesInForce | None] = lambda: None,
) -> tuple[RulesInForce, bool]:
    """Write a control record to every partition of appends, in one transaction.

    Ids in force stay in force: appends written with them may still be on their way.

    Args:
        cluster: the log.
        settings: how it is reached.
        rules: version and ids of this foldline.
        registry: the log's registry, where RulesInForce is registered.
        force: write them even if they are in force already.
        before: what was in force, for a topic `meta` that says nothing: it was lost.

    Returns: what is in force now, and whether anything was written.

    Raises:
        NewerFormatError: a newer version of the rules is in force.
        LogUnavailableError: no broker answers.
    """
    schema_id = registry.id_of("RulesInForce")
    answer = (rules, False)

    def decide() -> Records:
        nonlocal answer
        old = read_said(cluster, settings, schemas=registry, must_exist=True).rules
        new = _joined(cluster, old or before(), rules)
        same = (
            old is not None and new.model_copy(update={"written_by": old.written_by}) == old
        )
        answer = (new, force or not same)
        value = frame_record(schema_id, new)
        topics = (cluster.names.meta, cluster.names.appends)
        return [(topic, CONTROL_KEY, value) for topic in topics] if answer[1] else []

    _write_once(cluster, settings, "upgrade", decide, partitions=rules.partitions)
    return answer


def _joined(cluster: Cluster, old: RulesInForce | None, new: RulesInForce) -> RulesInForce:
    if old is None:
        return new
    if old.rules_version > new.rules_version:
        what = f"{cluster.url} (rules in force)"
        raise NewerFormatError(what, old.rules_version, new.rules_version)
    ids = tuple(sorted({*old.schema_ids, *new.schema_ids}))
    return new.model_copy(update={"schema_ids": ids})


def _committed(
    cluster: Cluster, settings: Settings
) -> list[tuple[bytes | None, bytes]] | None:
    """Every committed record, oldest first, without tombstones; None: no such topic."""
    topic = cluster.names.meta
    consumer = reader_consumer(cluster, settings, fetch_wait_ms=FETCH_WAIT_MS)
    found: list[tuple[bytes | None, bytes]] = []
    end = time.monotonic() + READ_TIMEOUT_MS / 1_000
    try:
        if not _is_there(consumer, topic):
            return None
        start = first_offset(consumer, topic, 0, timeout_ms=READ_TIMEOUT_MS)
        consumer.assign([TopicPartition(topic, 0, start)])
        while time.monotonic() < end:
            message = consumer.poll(0.5)
            error = message.error() if message else None
            if error and error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                return found
            if error and not error.retriable():
                raise LogUnavailableError(cluster.url, f"{topic}: {error.str()}")
            value = message.value() if message and not error else None
            if message and value is not None:
                found.append((message.key(), value))
    except KafkaException as error:
        reason = f"{topic}: {error.args[0].str()}"
        raise LogUnavailableError(cluster.url, reason) from error
    finally:
        consumer.close()
    raise LogUnavailableError(cluster.url, f"{topic}: no answer in {READ_TIMEOUT_MS} ms")


def _is_there(consumer: Consumer, topic: str) -> bool:
    """Whether the brokers have the topic.

    Raises:
        KafkaException: they do not answer.
    """
    metadata = consumer.list_topics(topic, timeout=READ_TIMEOUT_MS / 1_000)
    error = metadata.topics[topic].error
    if error is None:
        return True
    if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
        return False
    raise KafkaException(error)


def _write_once(
    cluster: Cluster,
    settings: Settings,
    role: str,
    decide: Callable[[], Records],
    *,
    partitions: int,
) -> None:
    """Read, decide and write as one step, however many do it at once.

    1. `init_transactions` under the role's id: a transaction of somebody else's is
       ended, and whoever began before is fenced from here on.
    2. Read what is committed, and decide.
    3. Write in a transaction. If it commits, nobody began since step 1. If it is
       fenced, somebody did: begin again.

    Raises:
        LogUnavailableError: no broker answers, or others kept fencing.
    """
    reason = "others kept writing"
    for _ in range(WRITE_TRIES):
        producer = transactional_producer(
            cluster, settings, transactional_id=f"{cluster.prefix}{role}"
        )
        try:
            producer.init_transactions(WRITE_TIMEOUT_MS / 1_000)  # step 1
            records = decide()  # step 2
            if not records:
                return
            producer.begin_transaction()  # step 3
            for topic, key, value in records:
                many = partitions if topic == cluster.names.appends else 1
                for partition in range(many):
                    producer.produce(topic, value, key, partition)
            producer.commit_transaction(WRITE_TIMEOUT_MS / 1_000)
        except KafkaException as error:
            first: KafkaError = error.args[0]
            reason = first.str()
            if first.code() not in _FENCED:
                raise LogUnavailableError(cluster.url, reason) from error
        else:
            return
        finally:
            producer.purge()
            producer.flush(1)
    raise LogUnavailableError(cluster.url, reason)


_FENCED = frozenset(
    {
        KafkaError._FENCED,  # noqa: SLF001
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.CONCURRENT_TRANSACTIONS,
    }
)
