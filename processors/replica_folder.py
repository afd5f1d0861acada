"""The folder of a replica: a store per partition, set aside, shipped and adopted."""

import logging
import shutil
from pathlib import Path

from foldline.errors import ReadUnavailableError, TableCorruptError
from foldline.kafka import Cluster
from foldline.processors import rocks
from foldline.processors.event_intake import Ways
from foldline.processors.event_store import EventStore, open_store
from foldline.processors.partition_shapes import Limits
from foldline.schemas.codec import Codec
from foldline.schemas.topic_records import LogMeta
from foldline.settings import Settings
from foldline.topics import partition_for

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
        """Make a checkpoint the store of a partition that has none; whether it was.

        Raises:
            ReadUnavailableError: it cannot be copied; nothing of it is left behind.
            LogUnavailableError: no space to open it.
        """
        folder = self._path(partition)
        draft = folder.with_name(f"{folder.name}.adopting")
        rocks.destroy(draft)  # of one that was killed half way
        if folder.exists():
            return False
        try:
            shutil.copytree(checkpoint, draft)
            self._look_at(draft, partition, topic_id)
            draft.rename(folder)
        except TableCorruptError as error:
            _logger.warning("a checkpoint is not used: %s", error)
            return False
        except OSError as error:
            reason = f"the copy {checkpoint} is not taken over: {_why(error)}"
            raise ReadUnavailableError(self.name(partition), reason) from error
        finally:
            rocks.destroy(draft)
        return True

    def _look_at(self, draft: Path, partition: int, topic_id: str) -> None:
        """Open a copy once, as what it is to be."""
        EventStore.open(
            draft,
            log_id=self._log_id(topic_id),
            partition=partition,
            ways=self._ways(partition),
        ).close()

    def _path(self, partition: int) -> Path:
        return self._folder / str(partition)

    def _log_id(self, topic_id: str) -> str:
        return f"{self._meta.log_id}/{topic_id}"

    def _ways(self, partition: int) -> Ways:
        partitions = self._meta.partitions
        limits = Limits.of(self._settings, partitions=partitions)
        return Ways(
            url=self.name(partition),
            codec=self._codec,
            snapshot_every=self._settings.snapshot_every_events,
            cached_sessions=limits.cached_sessions,
            belongs=lambda session: partition_for(session, partitions) == partition,
        )


def _why(error: OSError) -> str:
    """What is wrong, in words; of many files that were not copied, the first."""
    if isinstance(error, shutil.Error):
        source, _, reason = error.args[0][0]
        return f"{source}: {reason}"
    return error.strerror or str(error)
