"""What a restore gets, says while it goes on, and gives."""

from dataclasses import dataclass
from pathlib import Path

from foldline.kafka import Cluster
from foldline.processors.partition import Limits, Partition, RecordIds
from foldline.processors.table import Table
from foldline.processors.worker_schemas import FetchedSchemas
from foldline.schemas.codec import Codec
from foldline.schemas.registry_client import RegistryClient
from foldline.settings import Settings


@dataclass(frozen=True, slots=True)
class RestoreWays:
    """What every restore of a worker shares."""

    cluster: Cluster
    settings: Settings
    log_id: str
    partitions: int
    folder: Path
    registry: RegistryClient
    schemas: FetchedSchemas
    codec: Codec
    ids: RecordIds

    @property
    def limits(self) -> Limits:
        """What bounds each partition."""
        return Limits.of(self.settings, partitions=self.partitions)


@dataclass(slots=True)
class Progress:
    """How far a restore is; written by its thread, read by others."""

    step: str = "waiting"
    done: int = 0
    total: int = 0


@dataclass(frozen=True, slots=True)
class Restored:
    """A partition as good as if it had never been elsewhere, and its open table."""

    partition: Partition
    table: Table
    refolded: int
    took_ms: int
    skipped: int = 0
    """Records of `events` that no worker wrote."""
