"""The one place that builds Kafka clients, with durable defaults.

What the settings' `kafka.extra` says goes last, so SASL, TLS or a client.rack need
nothing of us. Only what foldline's promises rest on cannot be set there (`PINNED`).

| client | for | what matters |
| --- | --- | --- |
| `worker_consumer` | appends, in the workers' group | commits only in a transaction |
| `transactional_producer` | what a worker publishes | one transaction per batch |
| `client_producer` | appends | order, no idempotence: admission deduplicates |
| `plain_producer` | verdicts, leases | the same, many in flight |
| `reader_consumer` | everything else | assigned by hand, never commits |
| `admin` | topics and configs | |

librdkafka's own log lines go to the Python logger `foldline.kafka`. Its queues are
bounded: a full one shows as `BufferError` on produce, or as fetches that wait.
"""

import logging
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from foldline.errors import SettingsError
from foldline.settings import Settings
from foldline.topics import (
    DEFAULT_PREFIX,
    KAFKA,
    MAX_RECORD_BYTES,
    TopicNames,
    prefix_in,
)

REQUEST_TIMEOUT_MS = 10_000
"""How long a client waits for one answer of a broker."""

RECONNECT_MAX_MS = 1_000
"""The longest pause between two tries to reach a broker (librdkafka's own is 10 s)."""

RETRY_MS = 100
"""The pause before a question that got no answer is asked again."""

FETCH_WAIT_MS = 10
"""How long a worker's fetch lies at a broker: a resumed partition waits for it."""

READER_FETCH_WAIT_MS = 100
"""The same of a reader, of which there are many."""

QUEUED_RECORDS = 20_000
"""How many records a consumer fetches ahead of its reader, per partition."""

QUEUED_KBYTES = 32 * 1024
"""How many KiB a consumer fetches ahead, per partition."""

UNSENT_RECORDS = 100_000
"""How many records a producer holds; then it says BufferError."""

UNSENT_KBYTES = 128 * 1024
"""How many KiB a producer holds."""

COMPRESSION = "lz4"
"""How batches of records are packed, outside of the interpreter's lock; topics keep them
so. A record on its own, as clients send most, stays as it is where that is no smaller."""

OnError = Callable[[KafkaError], None]
Protocol = Literal["consumer", "classic"]
_Client = TypeVar("_Client", AdminClient, Consumer, Producer)

PINNED: Mapping[str, str] = {
    "bootstrap.servers": "the log's URL names the brokers",
    "metadata.broker.list": "the log's URL names the brokers",
    "acks": "an ACCEPTED append is on every in-sync replica",
    "request.required.acks": "an ACCEPTED append is on every in-sync replica",
    "enable.idempotence": "each client has what its resend rule needs",
    "enable.gapless.guarantee": "a failed record aborts its transaction",
    "max.in.flight": "appends of one client keep their order",
    "max.in.flight.requests.per.connection": "appends of one client keep their order",
    "transactional.id": "a worker's slot names it (FOLDLINE_WORKER_SLOT)",
    "transaction.timeout.ms": "set FOLDLINE_TRANSACTION_TIMEOUT_MS",
    "isolation.level": "each reader says whether it may see open transactions",
    "enable.auto.commit": "offsets are committed with what was published, or not at all",
    "enable.auto.offset.store": "offsets are committed with what was published",
    "auto.offset.reset": "a position that is gone is an error, not another position",
    "enable.partition.eof": "restore ends at an end that it has seen",
    "group.id": "the prefix of the topics names the group (FOLDLINE_TOPIC_PREFIX)",
    "group.protocol": "foldline asks the brokers which they have",
    "group.instance.id": "with it a restarted worker is locked out for a minute",
    "partitioner": "a session's partition is computed as Java computes it",
    "message.max.bytes": "what was taken in must always fit out",
    "message.copy.max.bytes": "what was taken in must always fit out",
    "check.crcs": "a record is checked before it is folded",
    "allow.auto.create.topics": "`foldline topics create` makes them, configured",
    "test.mock.num.brokers": "the mock cluster enforces no transaction",
}
"""The librdkafka keys that `kafka.extra` may not set, and why."""

_PREFIX = re.compile(r"[a-zA-Z0-9._-]{1,64}")
_HOST = re.compile(r"(?:\[[0-9a-fA-F:.]+\]|[a-zA-Z0-9._-]+)(?::([0-9]{1,5}))?")

_log = logging.getLogger(__name__)
_log.addHandler(logging.NullHandler())  # a library speaks where somebody listens


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where a log is: the brokers to begin with, and its topics' prefix."""

    bootstrap: str
    prefix: str = DEFAULT_PREFIX

    @property
    def names(self) -> TopicNames:
        """The names of its topics."""
        return TopicNames(self.prefix)

    @property
    def url(self) -> str:
        """The URL that names this log whatever the settings say."""
        return f"{KAFKA}{self.bootstrap}/{self.prefix}"


def parse_url(url: str, *, prefix: str = DEFAULT_PREFIX) -> Cluster:
    """The cluster of `kafka://host:port,host:port[/prefix]`.

    Args:
        url: the log's URL.
        prefix: what topics begin with where the URL does not say.

    Raises:
        SettingsError: no such URL.
    """
    wanted = "kafka://host:port[,host:port...][/topic-prefix]"
    if not url.startswith(KAFKA):
        raise SettingsError("FOLDLINE_URL", url, wanted)
    if "@" in url:
        hint = "; credentials go into FOLDLINE_KAFKA__EXTRA__SASL_USERNAME and _PASSWORD"
        raise SettingsError("FOLDLINE_URL", "kafka://...@...", wanted + hint)
    brokers, path = url[len(KAFKA) :].partition("/")[0], prefix_in(url)
    if not all(_is_broker(broker) for broker in brokers.split(",")):
        raise SettingsError("FOLDLINE_URL", url, wanted)
    if path and not _PREFIX.fullmatch(path):
        raise SettingsError("FOLDLINE_URL", url, wanted + " of letters, digits, . _ -")
    return Cluster(brokers, path or prefix)


def cluster_of(settings: Settings) -> Cluster:
    """The cluster that the settings name: their URL, and their prefix."""
    return parse_url(settings.url, prefix=settings.topic_prefix)


def _is_broker(text: str) -> bool:
    match = _HOST.fullmatch(text)
    return bool(match) and 0 < int(match[1] or 9092) <= 65_535  # noqa: PLR2004 - ports


# --- clients -------------------------------------------------------------------------


def admin(cluster: Cluster, settings: Settings) -> AdminClient:
    """A client for topics, configs and groups."""
    config = _config(cluster, settings, "admin", {}, on_error=None)
    return _built(AdminClient, config)


def worker_consumer(
    cluster: Cluster,
    settings: Settings,
    *,
    protocol: Protocol,
    fold_version: int = 0,
    on_error: OnError | None = None,
) -> Consumer:
    """A member of the workers' group.

    Args:
        cluster: the log.
        settings: how it is reached.
        protocol: what `foldline.kafka_admin.group_protocol` says.
        fold_version: is added to the client.id, so that the group shows it (0: is not).
        on_error: is told what librdkafka could not mend; a fatal one ends the worker.
    """
    own = _consuming("read_committed", FETCH_WAIT_MS) | {
        "group.id": cluster.names.group,
        "group.protocol": protocol,
        "enable.partition.eof": False,
    }
    if protocol == "classic":  # with KIP-848 the broker says these
        own |= {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 2_000}
    config = _config(cluster, settings, "worker", own, on_error=on_error)
    if fold_version:
        config["client.id"] += fold_mark(fold_version)
    return _built(Consumer, config)


def fold_mark(fold_version: int) -> str:
    """How the client.id of a worker of this fold version ends."""
    return f"-fold-{fold_version}"


def reader_consumer(
    cluster: Cluster,
    settings: Settings,
    *,
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed",
    group: str | None = None,
    fetch_wait_ms: int = READER_FETCH_WAIT_MS,
    on_error: OnError | None = None,
) -> Consumer:
    """A consumer whose partitions are assigned by hand; it says where a partition ends.

    Args:
        cluster: the log.
        settings: how it is reached.
        isolation: whether it sees what transactions have not committed.
        group: the group whose offsets it may ask for; it joins none.
        fetch_wait_ms: how long a fetch waits at the broker for a record.
        on_error: is told what librdkafka could not mend.
    """
    own = _consuming(isolation, fetch_wait_ms) | {
        "group.id": group or f"{cluster.prefix}readers",
        "enable.partition.eof": True,
    }
    return _built(Consumer, _config(cluster, settings, "reader", own, on_error=on_error))


def transactional_producer(
    cluster: Cluster,
    settings: Settings,
    *,
    transactional_id: str,
    on_error: OnError | None = None,
) -> Producer:
    """What a worker publishes with. `init_transactions` is the caller's.

    The short back-off is for transactions back to back: the broker answers
    CONCURRENT_TRANSACTIONS until the markers of the one before are written.
    """
    own = _producing() | {
        "transactional.id": transactional_id,
        "transaction.timeout.ms": settings.transaction_timeout_ms,
        "socket.timeout.ms": min(REQUEST_TIMEOUT_MS, settings.transaction_timeout_ms),
        "enable.idempotence": True,
        "linger.ms": 0,
        "retry.backoff.ms": 2,
        "retry.backoff.max.ms": 10,
    }
    config = _config(cluster, settings, "worker", own, on_error=on_error)
    return _built(Producer, config)


def client_producer(
    cluster: Cluster, settings: Settings, *, on_error: OnError | None = None
) -> Producer:
    """What a client appends with: in order, and ready at once.

    Not idempotent: admission drops second copies, and a cold idempotent producer costs
    80 to 500 ms before its first record.
    """
    own = _producing() | {
        "enable.idempotence": False,
        "max.in.flight.requests.per.connection": 1,
        "linger.ms": 0,
        "message.timeout.ms": settings.verdict_timeout_ms,
    }
    config = _config(cluster, settings, "client", own, on_error=on_error)
    return _built(Producer, config)


def plain_producer(
    cluster: Cluster, settings: Settings, *, on_error: OnError | None = None
) -> Producer:
    """A producer of records that may be lost or come twice: verdicts, renewed leases."""
    own = _producing() | {
        "enable.idempotence": False,
        "linger.ms": 0,
        "message.timeout.ms": settings.verdict_timeout_ms,
    }
    config = _config(cluster, settings, "client", own, on_error=on_error)
    return _built(Producer, config)


def first_offset(consumer: Consumer, topic: str, partition: int, *, timeout_ms: int) -> int:
    """Where a partition begins, to assign it there.

    Assigning OFFSET_BEGINNING to a client that does not know the partition's leader yet
    costs half a second, which is librdkafka's pause before it asks for the offset.

    While its leader changes, brokers even say that there is no such partition: it is
    asked again until there is an answer.

    Raises:
        KafkaException: no answer in time.
    """
    at = TopicPartition(topic, partition)
    end = time.monotonic() + timeout_ms / 1_000
    while True:
        try:
            low, _ = consumer.get_watermark_offsets(at, timeout=timeout_ms / 1_000)
        except KafkaException:
            if time.monotonic() >= end:
                raise
            time.sleep(RETRY_MS / 1_000)
        else:
            return low


def _consuming(isolation: str, fetch_wait_ms: int) -> dict[str, Any]:
    return {
        "isolation.level": isolation,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "fetch.wait.max.ms": fetch_wait_ms,
        # With a bound on the queue, a full one stops fetching for this long: the
        # default is a second, in which a fast reader runs dry.
        "fetch.queue.backoff.ms": 10,
        "fetch.error.backoff.ms": 100,
        "queued.min.messages": QUEUED_RECORDS,
        "queued.max.messages.kbytes": QUEUED_KBYTES,
        "check.crcs": True,
    }


def _producing() -> dict[str, Any]:
    return {
        "acks": "all",
        "partitioner": "murmur2_random",  # a partition is given anyway
        "message.max.bytes": MAX_RECORD_BYTES,
        "compression.type": COMPRESSION,
        "queue.buffering.max.messages": UNSENT_RECORDS,
        "queue.buffering.max.kbytes": UNSENT_KBYTES,
    }


def _config(
    cluster: Cluster,
    settings: Settings,
    role: str,
    own: dict[str, Any],
    *,
    on_error: OnError | None,
) -> dict[str, Any]:
    """What every client has, what this kind has, and last what the operator says."""
    extra = settings.kafka.extra
    for name in extra:
        if name in PINNED:
            variable = "FOLDLINE_KAFKA__EXTRA__" + name.upper().replace(".", "_")
            raise SettingsError(variable, "...", f"cannot be set: {PINNED[name]}")
    common: dict[str, Any] = {
        "bootstrap.servers": cluster.bootstrap,
        "client.id": f"foldline-{role}",
        "socket.keepalive.enable": True,
        "socket.timeout.ms": REQUEST_TIMEOUT_MS,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": RECONNECT_MAX_MS,
        "log.connection.close": False,
        "logger": _log,
        "error_cb": on_error or _say,
    }
    return common | own | dict(extra)


def _say(error: KafkaError) -> None:
    """What librdkafka mends by itself is for the log only."""
    _log.warning("%s: %s", error.name(), error.str())


def _built(kind: Callable[[dict[str, Any]], _Client], config: dict[str, Any]) -> _Client:
    """A client; what librdkafka does not understand is a setting that means nothing.

    The message names the key, never a value: one may be a password.
    """
    try:
        return kind(config)
    except (KafkaException, ValueError, TypeError) as error:
        found = error.args[0] if error.args else error
        reason = found.str() if isinstance(found, KafkaError) else str(found)
        raise SettingsError("FOLDLINE_KAFKA__EXTRA", "...", reason) from error
