"""The folder of a replica: a store per partition, set aside, shipped and adopted."""

import logging
import shutil
from pathlib import Path

from foldline.errors import TableCorruptError
from foldline.kafka import Cluster
from foldline.processors import rocks
from foldline.processors.event_intake import Ways
from foldline.processors.event_store import EventStore, open_store
from foldline.schemas.codec import Codec
from foldline.schemas.topic_records import LogMeta
from foldline.settings import Settings
from foldline.topics import partition_for

MIN_CACHED_SESSIONS = 100
"""How many heads a partition keeps in memory at the least."""

_logger = logging.getLogger("foldline.replica")


class ReplicaFolder:
    """Where the stores of one log's partitions lie."""

    def __init__(
        self,
        folder: Path,
        *,
        cluster: Cluster,
        meta: LogMeta,
        codec: Codec,
        settings: Settings,
    ) -> None:
        self._folder = folder
        self._cluster = cluster
        self._meta = meta
        self._codec = codec
        self._settings = settings

    def name(self, partition: int) -> str:
        """What errors call a partition."""
        return f"{self._cluster.url}: {self._cluster.names.events} [{partition}]"

    def open(self, partition: int, *, topic_id: str) -> EventStore:
        """The store of a partition; one of another log, topic or version is set aside.

        Raises:
            LogUnavailableError: another process has it, or no space.
        """
        return open_store(
            self._path(partition),
            log_id=self._log_id(topic_id),
            partition=partition,
            ways=self._ways(partition),
        )

    def set_aside(self, store: EventStore, partition: int, *, reason: str) -> None:
        """Close a store and move it out of the way."""
        store.close()
        folder = self._path(partition)
        if folder.exists():
            aside = rocks.set_aside(folder, reason=reason)
            _logger.warning("%s: %s; set aside as %s", folder, reason, aside)

    def adopt(self, partition: int, checkpoint: Path, *, topic_id: str) -> bool:
        """Make a checkpoint the store of a partition that has none; whether it was."""
        folder = self._path(partition)
        if folder.exists():
            return False
        draft = folder.with_name(f"{folder.name}.adopting")
        rocks.destroy(draft)
        shutil.copytree(checkpoint, draft)
        try:
            EventStore.open(
                draft,
                log_id=self._log_id(topic_id),
                partition=partition,
                ways=self._ways(partition),
            ).close()
        except TableCorruptError as error:
            _logger.warning("a checkpoint is not used: %s", error)
            rocks.destroy(draft)
            return False
        draft.rename(folder)
        return True

    def _path(self, partition: int) -> Path:
        return self._folder / str(partition)

    def _log_id(self, topic_id: str) -> str:
        return f"{self._meta.log_id}/{topic_id}"

    def _ways(self, partition: int) -> Ways:
        partitions = self._meta.partitions
        share = self._settings.cached_sessions // partitions
        return Ways(
            url=self.name(partition),
            codec=self._codec,
            snapshot_every=self._settings.snapshot_every_events,
            cached_sessions=max(share, MIN_CACHED_SESSIONS),
            belongs=lambda session: partition_for(session, partitions) == partition,
        )
