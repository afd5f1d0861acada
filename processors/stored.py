"""What a log keeps, as raw as it keeps it: what `verify` reads and restores rest on."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Protocol

from foldline.processors.log import Log, SessionSummary
from foldline.schemas.codec import Codec
from foldline.schemas.registry import StoredSchema
from foldline.schemas.state import SessionState


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


_IN_STATE = {"head_hash": "chain_head"}
_index_fields = attrgetter(*(_IN_STATE.get(name, name) for name in StoredSession.__slots__))
_summary_fields = attrgetter(*SessionSummary.__slots__)


def index_fields(state: SessionState) -> tuple[Any, ...]:
    """What an index says of a state, in the order of a StoredSession's fields."""
    return _index_fields(state)


def summary_of(state: SessionState) -> SessionSummary:
    """What a listing shows of a state."""
    return SessionSummary(*_summary_fields(state))


def summary_of_row(row: StoredSession) -> SessionSummary:
    """What a listing shows of a session that an index knows."""
    return SessionSummary(*_summary_fields(row))


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as it was written. seq 0: the session as a whole."""

    session_id: str
    seq: int
    reason: str


def changed_schemas(rows: Iterable[StoredSchema]) -> Iterator[Problem]:
    """Schemas that are not what they were when they were stored, or not what they say."""
    for row in rows:
        if not row.intact or not row.fits:
            yield Problem("", 0, f"schema {row.schema_id} ({row.name}) was changed")


class AuditableLog(Log, Protocol):
    """A log that shows its stored bytes, so that `verify` can check them."""

    @property
    def codec(self) -> Codec:
        """What decodes this log's events."""
        ...

    def stored_sessions(
        self, *, after: str = "", parent: str | None = None
    ) -> Iterator[StoredSession]:
        """The index, in the order of the session ids: those behind one.

        With `parent`, the sessions that name that one as their parent.
        """
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
