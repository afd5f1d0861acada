"""What a worker needs before it can begin, in the order in which it can be had."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from foldline.kafka import Cluster, OnError, cluster_of, worker_consumer
from foldline.kafka_admin import (
    GroupProtocol,
    broker_warnings,
    group_protocol,
    require_no_drift,
)
from foldline.kafka_meta import read_meta
from foldline.processors.partition import RecordIds
from foldline.processors.restore_ways import RestoreWays
from foldline.processors.worker_health import Health
from foldline.processors.worker_publisher import Publisher
from foldline.processors.worker_schemas import FetchedSchemas
from foldline.processors.worker_slot import Slot
from foldline.processors.worker_watch import Watch
from foldline.schemas.codec import Codec
from foldline.schemas.registry_client import RegistryClient, registry_of
from foldline.schemas.state import FOLD_VERSION
from foldline.settings import Settings

if TYPE_CHECKING:
    from confluent_kafka import Consumer

OnReady = Callable[[list[int]], None]
"""Is told the partitions, once."""

_logger = logging.getLogger("foldline.worker")


class Setup:
    """A log that was looked at, a slot that is held, and how to make clients for it."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        settings: Settings,
        protocol: GroupProtocol,
        slot: Slot,
        ways: RestoreWays,
        on_ready: OnReady,
    ) -> None:
        self.cluster = cluster
        self.settings = settings
        self.protocol = protocol
        self.slot = slot
        self.ways = ways
        self.on_ready = on_ready
        self.transactional_id = f"{cluster.prefix}{slot.name}"

    @classmethod
    def prepare(cls, settings: Settings, *, health: Health, on_ready: OnReady) -> Self:
        """Look at the log, and take a slot.

        1. The registry must answer: ids of what is written are looked up. One that is
           down is waited for (`registry_wait_ms`), and that is said.
        2. The topics must be as the log needs them.
        3. The slot is taken: its folder is this process's alone.

        Raises:
            RegistryUnavailableError, NoLogMetaError, TopicDriftError, SlotTakenError,
            SettingsError, LogUnavailableError.
        """
        cluster = cluster_of(settings)
        registry = registry_of(settings)

        def say(text: str) -> None:
            health.turned(text)
            _logger.warning("%s", text)

        registry.wait_ready(settings.registry_wait_ms, say=say)
        meta = read_meta(cluster, settings, schemas=registry)
        require_no_drift(cluster, settings, partitions=meta.partitions)
        protocol = group_protocol(cluster, settings)
        for warning in broker_warnings(cluster, settings):
            _logger.warning("%s", warning)
        slot = Slot.take(settings, log_id=meta.log_id)
        ways = _ways(
            cluster,
            settings,
            registry,
            slot,
            log_id=meta.log_id,
            partitions=meta.partitions,
        )
        _logger.info(
            "slot %s of %s: %s protocol, because %s; a dead worker is taken over within "
            "%.0f s",
            slot.name,
            cluster.url,
            protocol.name,
            protocol.why,
            protocol.takeover_ms / 1000,
        )
        return cls(
            cluster=cluster,
            settings=settings,
            protocol=protocol,
            slot=slot,
            ways=ways,
            on_ready=on_ready,
        )

    @property
    def snapshots(self) -> str:
        """The topic of this fold version's snapshots."""
        return self.cluster.names.snapshots(FOLD_VERSION)

    def consumer(self, on_error: OnError) -> "Consumer":
        """The member of the group."""
        return worker_consumer(
            self.cluster,
            self.settings,
            protocol=self.protocol.name,
            fold_version=FOLD_VERSION,
            on_error=on_error,
        )

    def publisher(self, on_error: OnError, watch: Watch) -> Publisher:
        """What publishes under this slot's transactional.id."""
        return Publisher(
            self.cluster,
            self.settings,
            transactional_id=self.transactional_id,
            on_error=on_error,
            watch=watch,
        )

    def close(self) -> None:
        """Give the slot back."""
        self.ways.schemas.close()
        self.ways.registry.close()
        self.slot.release()


def _ways(
    cluster: Cluster,
    settings: Settings,
    registry: RegistryClient,
    slot: Slot,
    *,
    log_id: str,
    partitions: int,
) -> RestoreWays:
    schemas = FetchedSchemas(registry)
    codec = Codec(schemas)
    event_ids = registry.event_ids()
    schemas.fetch([registry.id_of("RulesInForce"), *event_ids])
    codec.warm_up(event_ids)  # half a second that no partition waits for
    return RestoreWays(
        cluster=cluster,
        settings=settings,
        log_id=log_id,
        partitions=partitions,
        folder=slot.folder,
        registry=registry,
        schemas=schemas,
        codec=codec,
        ids=RecordIds.of(registry.id_of),
    )
