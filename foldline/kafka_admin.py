"""Topics as they must be: made, compared, and required before anything starts."""

import logging
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, cast

import confluent_kafka.admin
from confluent_kafka import KafkaError, KafkaException

from foldline.errors import LogUnavailableError, TopicDriftError
from foldline.kafka import Cluster, Protocol, admin
from foldline.schemas.state import FOLD_VERSION
from foldline.settings import Settings
from foldline.topics import Drift, TopicNames, TopicSpec, fleet_spec, specs

ANSWER_TIMEOUT_MS = 15_000
"""How long the brokers have for one answer."""

LEADERS_TIMEOUT_MS = 30_000
"""How long new topics have until every partition has a leader."""

LOOK_EVERY_MS = 50

TAKEOVER_TARGET_MS = 15_000
"""How soon another worker should have taken over from a dead one."""

CLASSIC_SESSION_MS = 6_000
"""The classic protocol's session timeout: the worker says it, not the broker."""

KIP_848_SESSION_MAX_MS = 10_000
"""Above this session timeout of the broker, the classic protocol takes over sooner."""

REBALANCE_MS = 1_000
"""What a rebalance itself is reckoned at."""

BROKER_SETTINGS: Mapping[str, str] = {
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "2000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}
"""What the brokers should be set to, for a take-over in TAKEOVER_TARGET_MS."""

_STOCK_CLEANUP_MS = 10_000

_api = cast("Any", confluent_kafka.admin)  # its types are partly unknown

_log = logging.getLogger("foldline.kafka")


@dataclass(frozen=True, slots=True)
class GroupProtocol:
    """How workers share partitions: which protocol, why, and what it promises."""

    name: Protocol
    why: str
    takeover_ms: int


def create_topics(cluster: Cluster, settings: Settings, *, partitions: int) -> list[str]:
    """Make the topics that are missing; gives their names.

    Raises:
        LogUnavailableError: a broker did not, and says why.
    """
    return _make(cluster, settings, _specs(cluster.names, settings, partitions))


def create_fleet_changelog(
    cluster: Cluster, settings: Settings, version: str, *, partitions: int
) -> None:
    """Make the changelog of a fleet's rows if it is missing, before a worker starts.

    One that Faust itself makes may be unknown to the broker that it asks next: then it
    gives nobody any partition, and says that it is ready.

    Raises:
        LogUnavailableError: a broker did not, and says why.
    """
    _make(cluster, settings, [_fleet_spec(cluster.names, settings, version, partitions)])


def _make(cluster: Cluster, settings: Settings, wanted: list[TopicSpec]) -> list[str]:
    """Make the topics that are missing, and wait until they can be used."""
    client: Any = admin(cluster, settings)
    there = _partitions(cluster, client)
    missing = [spec for spec in wanted if spec.name not in there]
    topics: list[Any] = [
        _api.NewTopic(
            spec.name,
            num_partitions=spec.partitions,
            replication_factor=settings.topic_replication,
            config=dict(spec.config),
        )
        for spec in missing
    ]
    futures: dict[str, Future[Any]] = client.create_topics(topics) if topics else {}
    made = [name for name, future in futures.items() if _done_now(cluster, future)]
    _wait_for_leaders(cluster, client, wanted)
    return made


def require_events(cluster: Cluster, settings: Settings) -> None:
    """Refuse to make the topics of a log that has lost what it recorded.

    An empty `events` would be taken for a log in which nothing happened: its sessions
    would not exist, and could begin a second time.

    Raises:
        TopicDriftError: the topic is missing.
        LogUnavailableError: no broker answers.
    """
    events = cluster.names.events
    if events not in _partitions(cluster, admin(cluster, settings)):
        reason = f"{events} is missing, with all that was ever recorded: bring it back"
        raise TopicDriftError(cluster.url, [f"{reason} from a copy"])


def find_drift(
    cluster: Cluster, settings: Settings, *, partitions: int, fleet: str = ""
) -> list[Drift]:
    """What about the topics is not as it must be.

    Args:
        cluster: the log.
        settings: how it is reached, and its replication.
        partitions: how many it has.
        fleet: the version of a fleet's rows, whose changelog is looked at if it is there.

    Raises:
        LogUnavailableError: no broker answers.
    """
    client: Any = admin(cluster, settings)
    found = _partitions(cluster, client)
    wanted = _specs(cluster.names, settings, partitions)
    if cluster.names.fleet_changelog(fleet) in found:
        wanted.append(_fleet_spec(cluster.names, settings, fleet, partitions))
    there = [spec.name for spec in wanted if spec.name in found]
    configs = _configs(cluster, client, "TOPIC", there)
    drifts: list[Drift] = []
    for spec in wanted:
        if (config := configs.get(spec.name)) is None:
            drifts.append(Drift(spec.name, "topic", "there", "missing"))
        else:
            drifts += _compare(spec, found[spec.name], settings, config)
    return drifts


def find_drift_of_new(
    cluster: Cluster, settings: Settings, *, partitions: int
) -> list[Drift]:
    """What is not as it must be of topics that were just made.

    Another broker than the one that made them may hear of them a little later: while one
    is missing, it is looked again.

    Raises:
        LogUnavailableError: no broker answers.
    """
    end = time.monotonic() + LEADERS_TIMEOUT_MS / 1_000
    while True:
        drifts = find_drift(cluster, settings, partitions=partitions)
        missing = any(drift.what == "topic" for drift in drifts)
        if not missing or time.monotonic() > end:
            return drifts
        time.sleep(LOOK_EVERY_MS / 1_000)


def require_no_drift(cluster: Cluster, settings: Settings, *, partitions: int) -> None:
    """Refuse to start on topics that would break a promise; log what else differs.

    Args:
        cluster: the log.
        settings: how it is reached, and its replication.
        partitions: what LogMeta says. More of them are there than that: ignored.

    Raises:
        TopicDriftError: what differs would lose, double or misplace records.
        LogUnavailableError: no broker answers.
    """
    drifts = find_drift(cluster, settings, partitions=partitions)
    for drift in drifts:
        _log.warning("%s", in_words(drift))
    grave = [in_words(drift) for drift in drifts if is_grave(drift, cluster.names)]
    if grave:
        raise TopicDriftError(cluster.url, grave)


def is_grave(drift: Drift, names: TopicNames) -> bool:
    """Whether nothing may run on it: records could be lost, doubled or misplaced."""
    match drift.what:
        case "partitions" | "min.insync.replicas" | "max.message.bytes":
            return int(drift.found) < int(drift.wanted)
        case "retention.ms" | "retention.bytes":
            return drift.topic == names.events
        case "replication" | "min.compaction.lag.ms" | "delete.retention.ms":
            return False
        case _:
            return True


def in_words(drift: Drift) -> str:
    """A drift as a line."""
    return f"{drift.topic}: {drift.what} is {drift.found}, must be {drift.wanted}"


# --- brokers -------------------------------------------------------------------------


def group_protocol(cluster: Cluster, settings: Settings) -> GroupProtocol:
    """The protocol that takes a dead worker's partitions over sooner, and how soon.

    A take-over needs the dead one's session to time out, and its open transaction to be
    aborted, whichever is later.

    Raises:
        LogUnavailableError: no broker answers.
    """
    brokers = broker_settings(cluster, settings)
    return protocol_of(brokers, transaction_timeout_ms=settings.transaction_timeout_ms)


def protocol_of(
    brokers: list[dict[str, str]], *, transaction_timeout_ms: int
) -> GroupProtocol:
    """The same, from the settings of each broker."""
    cleanup = _worst(brokers, "transaction.abort.timed.out.transaction.cleanup.interval.ms")
    aborted_ms = transaction_timeout_ms + (cleanup or _STOCK_CLEANUP_MS)
    session_ms = _worst(brokers, "group.consumer.session.timeout.ms")
    protocols = [b.get("group.coordinator.rebalance.protocols") or "" for b in brokers]

    def classic(why: str) -> GroupProtocol:
        bound = max(CLASSIC_SESSION_MS, aborted_ms) + REBALANCE_MS
        return GroupProtocol("classic", why, bound)

    if not all("consumer" in text.split(",") for text in protocols):
        return classic("the brokers do not say that they have KIP-848")
    if session_ms is None or session_ms > KIP_848_SESSION_MAX_MS:
        return classic(
            f"the brokers' group.consumer.session.timeout.ms is {session_ms}: "
            "with KIP-848 a dead worker would be missed only after that"
        )
    why = f"the brokers have KIP-848, with a session timeout of {session_ms} ms"
    return GroupProtocol("consumer", why, max(session_ms, aborted_ms) + REBALANCE_MS)


def broker_warnings(cluster: Cluster, settings: Settings) -> list[str]:
    """The broker settings that make a take-over slower than it could be.

    Raises:
        LogUnavailableError: no broker answers.
    """
    brokers = broker_settings(cluster, settings)
    bound = group_protocol(cluster, settings).takeover_ms
    return [
        f"broker setting {name} is {found}, should be {wanted}: "
        f"a dead worker's partitions are taken over after up to {bound} ms"
        for name, wanted in BROKER_SETTINGS.items()
        if (found := _worst(brokers, name)) is None or found > int(wanted)
    ]


def broker_settings(cluster: Cluster, settings: Settings) -> list[dict[str, str]]:
    """The settings of each broker; empty where this client may not see them.

    Raises:
        LogUnavailableError: no broker answers.
    """
    client: Any = admin(cluster, settings)
    brokers: Iterable[int] = _metadata(cluster, client).brokers
    names = [str(broker) for broker in brokers]
    try:  # a call may name one broker only
        return [_configs(cluster, client, "BROKER", [name])[name] for name in names]
    except _NotAllowedError:
        return [{} for _ in names]


class _NotAllowedError(Exception):
    """This client may not see a broker's settings."""


class _UnknownTopicError(Exception):
    """The broker that was asked does not know the topic."""


def _worst(brokers: list[dict[str, str]], name: str) -> int | None:
    values = [int(broker[name]) for broker in brokers if name in broker]
    return max(values) if len(values) == len(brokers) and values else None


# --- what the brokers say ------------------------------------------------------------


def _specs(names: TopicNames, settings: Settings, partitions: int) -> list[TopicSpec]:
    return specs(
        names,
        partitions=partitions,
        replication=settings.topic_replication,
        fold_version=FOLD_VERSION,
    )


def _fleet_spec(
    names: TopicNames, settings: Settings, version: str, partitions: int
) -> TopicSpec:
    replication = settings.topic_replication
    return fleet_spec(names, version, partitions=partitions, replication=replication)


def _compare(
    spec: TopicSpec, replicas: list[int], settings: Settings, config: dict[str, str]
) -> list[Drift]:
    drifts: list[Drift] = []

    def compare(what: str, wanted: str, found: str) -> None:
        if _words(wanted) != _words(found):
            drifts.append(Drift(spec.name, what, wanted, found))

    compare("partitions", str(spec.partitions), str(len(replicas)))
    if min(replicas) < settings.topic_replication:
        compare("replication", str(settings.topic_replication), str(min(replicas)))
    for name, wanted in spec.config.items():
        compare(name, wanted, config.get(name, "not there"))
    return drifts


def _words(text: str) -> list[str]:
    """A value as a broker may say it: `delete,compact` is `compact,delete`."""
    return sorted(word.strip() for word in text.split(","))


def _partitions(cluster: Cluster, client: Any) -> dict[str, list[int]]:
    """The number of replicas of each partition, by topic."""
    topics: Mapping[str, Any] = _metadata(cluster, client).topics
    return {
        name: [len(partition.replicas) for partition in topic.partitions.values()]
        for name, topic in topics.items()
        if topic.error is None
    }


def _metadata(cluster: Cluster, client: Any) -> Any:
    try:
        return client.list_topics(timeout=ANSWER_TIMEOUT_MS / 1_000)
    except KafkaException as error:
        raise LogUnavailableError(cluster.url, error.args[0].str()) from error


def _configs(
    cluster: Cluster, client: Any, kind: str, names: list[str]
) -> dict[str, dict[str, str]]:
    """The configs of topics or brokers, by their names.

    Left out are topics that the broker asked does not know: they are gone, or so new that
    it has not heard of them.
    """
    kinds = _api.ResourceType
    asked = [_api.ConfigResource(kinds[kind], name) for name in names]
    answers: dict[str, dict[str, str]] = {}
    for resource, future in client.describe_configs(asked).items():
        try:
            entries: Mapping[str, Any] = _answer(cluster, future)
        except _UnknownTopicError:
            continue
        answers[resource.name] = {
            name: entry.value for name, entry in entries.items() if entry.value is not None
        }
    return answers


def _answer(cluster: Cluster, future: "Future[Any]") -> Any:
    try:
        return future.result(ANSWER_TIMEOUT_MS / 1_000)
    except TimeoutError as error:
        raise LogUnavailableError(cluster.url, "no answer in time") from error
    except KafkaException as error:
        first: KafkaError = error.args[0]
        if first.code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED:
            raise _NotAllowedError from error
        if first.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise _UnknownTopicError from error
        raise LogUnavailableError(cluster.url, first.str()) from error


def _done_now(cluster: Cluster, future: "Future[Any]") -> bool:
    """Whether it was done now, rather than before by somebody else."""
    try:
        future.result(ANSWER_TIMEOUT_MS / 1_000)
    except KafkaException as error:
        first: KafkaError = error.args[0]
        if first.code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        raise LogUnavailableError(cluster.url, first.str()) from error
    return True


def _wait_for_leaders(cluster: Cluster, client: Any, wanted: list[TopicSpec]) -> None:
    """A topic that was just made is not known to every broker at once."""
    end = time.monotonic() + LEADERS_TIMEOUT_MS / 1_000
    while time.monotonic() < end:
        topics: Mapping[str, Any] = _metadata(cluster, client).topics
        found = [topics.get(spec.name) for spec in wanted]
        if all(topic and _has_leaders(topic) for topic in found):
            return
        time.sleep(LOOK_EVERY_MS / 1_000)
    raise LogUnavailableError(cluster.url, "new topics have no leaders yet")


def _has_leaders(topic: Any) -> bool:
    return topic.error is None and all(p.leader >= 0 for p in topic.partitions.values())
