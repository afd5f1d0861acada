"""A replica of partitions of `events` in this process: consumed, stored, waited for."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from foldline.kafka import Cluster
from foldline.processors.event_store import EventStore
from foldline.schemas.codec import Codec
from foldline.settings import Settings


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a partition is: `next_offset` of `end` (as last seen) is in the store."""

    partition: int
    next_offset: int
    end: int
    sessions: int
    problem: str = ""
    """Why it does not go on; empty while it does."""


class Replica:
    """Consumes `events` into one EventStore per partition.

    partitions None: each is begun when the first read needs it.
    `log_id` and the number of partitions come from foldline.kafka.read_meta.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: Settings,
        *,
        folder: Path,
        codec: Codec,
        partitions: Iterable[int] | None = None,
    ) -> None: ...

    partition_count: int
    log_id: str

    def partition_of(self, session_id: str) -> int: ...

    def store(self, partition: int) -> EventStore:
        """The store of a partition; begins it if it must."""
        raise NotImplementedError

    def sync(self, partition: int, *, timeout_ms: int) -> EventStore:
        """Wait until what was committed when it was asked for is in the store.

        Raises:
            LogUnavailableError: not in time (it says how far it is), no broker, no space.
            LogFormatError, LogTruncatedError: the partition has stopped.
        """
        raise NotImplementedError

    def sync_all(self, *, timeout_ms: int) -> None: ...

    def wait(self, session_id: str, *, seq: int, timeout_ms: int) -> bool:
        """Wait until a session has come to a seq; whether it has."""
        raise NotImplementedError

    def progress(self) -> list[Progress]: ...

    def checkpoint(self, partition: int, folder: Path) -> None:
        """Write a copy of a partition's store, from which another replica can start."""

    def adopt(self, partition: int, folder: Path) -> bool:
        """Start a partition that has no store yet from a checkpoint; False if it has one
        or the checkpoint is of another log, partition or version."""
        raise NotImplementedError

    def close(self) -> None: ...
