"""Whether a log on Kafka can answer an append at all; if not, what is missing.

For whoever starts something interactive: without this, the first append would wait for
a verdict that nobody gives.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import closing
from typing import Any, cast

from confluent_kafka import KafkaError, KafkaException

from foldline.errors import (
    LogUnavailableError,
    NoLogMetaError,
    NoRulesError,
    NoWorkerError,
)
from foldline.kafka import Cluster, admin
from foldline.kafka_meta import read_said
from foldline.schemas.registry_client import registry_of
from foldline.settings import Settings

WORKER_WAIT_MS = 10_000
"""How long a first worker is waited for: it may have been started just now."""

DESCRIBE_TIMEOUT_MS = 10_000
"""How long the brokers have to say who is in a group."""

LOOK_EVERY_MS = 250


def require_ready(
    cluster: Cluster,
    settings: Settings,
    *,
    say: Callable[[str], None] | None = None,
    worker_wait_ms: int = WORKER_WAIT_MS,
) -> None:
    """Check in the order in which a log is set up.

    Args:
        cluster: the log.
        settings: how it is reached.
        say: is told while the registry is waited for.
        worker_wait_ms: how long a first worker is waited for.

    Raises:
        SettingsError: the settings name no registry.
        RegistryUnavailableError: it does not answer.
        LogUnavailableError: no broker does.
        NoLogMetaError: there are no topics.
        SchemaError: an event is not registered.
        NoRulesError: no rules are in force.
        NoWorkerError: nobody answers appends.
    """
    with closing(registry_of(settings)) as registry:
        registry.wait_ready(settings.registry_wait_ms, say=say)
        said = read_said(cluster, settings, schemas=registry)
        if said.meta is None:
            raise NoLogMetaError(cluster.url, cluster.names.meta)
        registry.event_ids()
    if said.rules is None:
        raise NoRulesError(cluster.url)
    end = time.monotonic() + worker_wait_ms / 1_000
    while not group_members(cluster, settings):
        if time.monotonic() > end:
            raise NoWorkerError(cluster.url)
        time.sleep(LOOK_EVERY_MS / 1_000)


def group_members(cluster: Cluster, settings: Settings) -> list[str]:
    """The client.ids of the workers; none where the group was never joined.

    Raises:
        LogUnavailableError: the brokers do not say.
    """
    client: Any = admin(cluster, settings)
    group = cluster.names.group
    futures = client.describe_consumer_groups([group])
    future = cast("dict[str, Future[Any]]", futures)[group]
    try:
        members = future.result(DESCRIBE_TIMEOUT_MS / 1_000).members
    except TimeoutError as error:
        raise LogUnavailableError(cluster.url, "no answer in time") from error
    except KafkaException as error:
        first: KafkaError = error.args[0]
        if first.code() == KafkaError.GROUP_ID_NOT_FOUND:
            return []
        raise LogUnavailableError(cluster.url, first.str()) from error
    return [member.client_id for member in members]
