"""What a log keeps, as raw as it keeps it: what `verify` reads and restores rest on."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from foldline.processors.log import Log
from foldline.schemas.codec import Codec


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """One event: its place in the session, its schema's id and its Avro body."""

    seq: int
    schema_id: int
    body: bytes


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """A state as it was at a seq: the body of a Snapshot, and the SHA-256 of it."""

    seq: int
    body: bytes
    digest: bytes


@dataclass(frozen=True, slots=True)
class StoredSession:
    """What a log's index says of a session; `head_hash` is of its last event's body.

    Each field is one of the state's, too.
    """

    session_id: str
    seq: int
    status: str
    epoch: int
    owner: str
    head_hash: bytes
    tenant: str
    agent: str
    mode: str
    parent_session_id: str
    created_at: int
    recorded_at: int


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as it was written. seq 0: the session as a whole."""

    session_id: str
    seq: int
    reason: str


class AuditableLog(Log, Protocol):
    """A log that shows its stored bytes, so that `verify` can check them."""

    @property
    def codec(self) -> Codec:
        """What decodes this log's events."""
        ...

    def stored_sessions(self) -> Iterator[StoredSession]:
        """The index, in the order of the session ids."""
        ...

    def stored_events(
        self, session_id: str, *, after_seq: int = -1, upto_seq: int | None = None
    ) -> Iterator[StoredEvent]:
        """The rows of a session in the order of their seqs, undecoded."""
        ...

    def stored_snapshots(self, session_id: str) -> Iterator[StoredSnapshot]:
        """The snapshots of a session, the oldest first."""
        ...

    def inspect(self) -> Iterator[Problem]:
        """What is wrong with the store beneath the sessions: pages, rows of nobody."""
        ...
