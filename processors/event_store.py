"""The events of one partition in RocksDB, and what reads of them need."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from foldline.processors.log import SessionSummary
from foldline.processors.stored import (
    Problem,
    StoredEvent,
    StoredSession,
    StoredSnapshot,
)
from foldline.schemas.codec import Codec
from foldline.schemas.state import SessionState
from foldline.settings import Settings


class EventRecord(NamedTuple):
    """A record of `events` as it was consumed."""

    offset: int
    key: bytes
    schema_id: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Listing:
    """What a listing asks for; empty: any."""

    tenant: str | None = None
    status: str | None = None
    agent: str | None = None
    parent_session_id: str | None = None
    label: tuple[str, str] | None = None
    pending: bool = False
    """Only sessions with a request (permission, input) that waits for an answer."""
    before: tuple[int, str] | None = None
    """Go on behind this (recorded_at, session_id): the last one of the page before."""
    limit: int = 100


class EventStore:
    """One RocksDB database: a folder of one partition of one log."""

    @classmethod
    def open(
        cls, folder: Path, *, log_id: str, partition: int, codec: Codec, settings: Settings
    ) -> "EventStore":
        """Open or make it (TableCorruptError, LogUnavailableError)."""
        raise NotImplementedError

    next_offset: int
    """The next offset of `events` that it has to take in."""

    def apply(self, records: Iterable[EventRecord]) -> set[str]:
        """Take in records in one WriteBatch; the sessions that changed.

        Raises:
            LogFormatError: a hole, or an event that is not the one recorded; it names
                session and seq. Nothing of the batch is kept.
            LogUnavailableError: no space.
        """
        raise NotImplementedError

    def head(self, session_id: str) -> StoredSession | None: ...

    def state(
        self, session_id: str, *, at_seq: int | None = None
    ) -> SessionState | None: ...

    def stored_events(
        self, session_id: str, *, after_seq: int = 0, upto_seq: int | None = None
    ) -> Iterator[StoredEvent]: ...

    def stored_snapshots(self, session_id: str) -> Iterator[StoredSnapshot]: ...

    def stored_sessions(self) -> Iterator[StoredSession]: ...

    def sessions(self, listing: Listing) -> list[SessionSummary]: ...

    def inspect(self) -> Iterator[Problem]: ...

    def checkpoint(self, folder: Path) -> None: ...

    def close(self) -> None: ...
