"""One partition of the log in a worker: admission and fold of a batch, in memory.

No client, clock or thread: records come in, records go out, and everything that a
batch changes lies in an overlay until the worker says that it is committed. So the
same appends give the same bytes, whoever runs them, however often.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from foldline.processors.kafka_records import Incoming, Outgoing
from foldline.schemas.codec import Codec
from foldline.schemas.state import SessionState
from foldline.settings import Settings


@dataclass(frozen=True, slots=True)
class Rules:
    """What is in force at a position of `appends`: version 0 where nothing is yet."""

    version: int = 0
    schema_ids: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Position:
    """Where a partition stands: next offsets of `appends` and `events`, and the rules."""

    input_offset: int
    event_offset: int
    rules: Rules


@dataclass(slots=True)
class Outcome:
    """What a batch gives. Nothing of it counts before it is committed.

    `verdicts` go out after the commit. `blocked` says why the batch ended before its
    last record (an unknown rules version, a schema whose text the registry does not
    give now): the partition is paused there. `input_offset` is the next one.
    `controlled` says that a control record came into force in it.
    """

    input_offset: int
    events: list[Outgoing] = field(default_factory=list[Outgoing])
    rejected: list[Outgoing] = field(default_factory=list[Outgoing])
    verdicts: list[Outgoing] = field(default_factory=list[Outgoing])
    blocked: str = ""
    controlled: bool = False


class StateTable(Protocol):
    """Where states that are not in memory lie: written behind, read when needed."""

    def get(self, session_id: str) -> SessionState | None:
        """The state of a session as the table has it; the caller may keep it."""
        ...


@dataclass(slots=True)
class Flush:
    """What the table has to write behind, in one WriteBatch."""

    position: Position
    states: Sequence[SessionState]
    dirty: dict[str, int]
    """Sessions that became dirty since the last flush, by their first uncovered offset."""
    clean: Sequence[str]
    """Sessions that are no longer dirty."""


@dataclass(frozen=True, slots=True)
class RecordIds:
    """The registry's ids of the records that a worker writes beside events."""

    verdict: int
    dead_letter: int
    refused_append: int
    snapshot: int
    low_water: int

    @classmethod
    def of(cls, id_of: Callable[[str], int]) -> "RecordIds":
        """Ask a registry for them: `RecordIds.of(registry.id_of)`."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds a partition in a worker (see the settings of the same names)."""

    cached_sessions: int
    snapshot_lag_events: int

    @classmethod
    def of(cls, settings: Settings) -> "Limits":
        """Those that the settings give."""
        return cls(settings.cached_sessions, settings.snapshot_lag_events)


@dataclass(slots=True)
class Counters:
    """What a partition has done since it was made, for metrics. Bytes are of values.

    They count what was committed, except `starved`: how often a snapshot that was due
    had to wait because there was no credit for it (then the lag grows beyond L).
    """

    verdicts: dict[str, int] = field(default_factory=dict[str, int])
    reasons: dict[str, int] = field(default_factory=dict[str, int])
    """Dead letters by the word that says why."""
    events: int = 0
    event_bytes: int = 0
    snapshots: int = 0
    snapshot_bytes: int = 0
    starved: int = 0


class Partition:
    """Admission and fold of one partition: pure, but for the table that it reads.

    The worker's loop: `admit` (once or more), `due_snapshots`, produce everything,
    `delivered` with the offsets of the events, and after the transaction's commit
    `commit`; after an abort `drop`. Between batches `flush`, write it, `flushed`.
    """

    def __init__(
        self,
        index: int,
        *,
        partitions: int,
        position: Position,
        table: StateTable,
        codec: Codec,
        ids: RecordIds,
        limits: Limits,
        dirty: Mapping[str, int] | None = None,
    ) -> None:
        """Begin where a table or a low-water record stands.

        Args:
            index: the number of the partition.
            partitions: how many the log has.
            position: next offsets and rules (of the table, or of the low-water record
                with `low` as the next offset of `events`).
            table: states that are not in memory.
            codec: decodes with the writers' schemas.
            ids: schema ids of what it writes.
            limits: how much it keeps, and how far snapshots may lag.
            dirty: the table's index of sessions with events that no snapshot covers,
                by the offset of the first such event, in the order of these offsets.
        """
        raise NotImplementedError

    @property
    def position(self) -> Position:
        """Where it stands after the last commit (or refold)."""
        raise NotImplementedError

    @property
    def low_water(self) -> int:
        """The offset in `events` from where a restore over snapshots must refold."""
        raise NotImplementedError

    @property
    def lag(self) -> int:
        """How many offsets of `events` lie above the low-water mark."""
        raise NotImplementedError

    @property
    def events_since_flush(self) -> int:
        """How many events were folded since the table was last written."""
        raise NotImplementedError

    @property
    def flush_wanted(self) -> bool:
        """Whether so many states wait for the table that it should be written now."""
        raise NotImplementedError

    def refold(self, schema_id: int, body: bytes, offset: int, append_offset: int) -> None:
        """Fold one committed event during a restore.

        What a snapshot or the table already covers is skipped. A Flush must be written
        and confirmed before the next refold: states are folded in place here.

        Raises:
            LogFormatError: a hole, or bytes that are no event; it names session and seq.
        """
        raise NotImplementedError

    def resume(self, input_offset: int, *, rules: Rules | None = None) -> None:
        """End a restore: `appends` goes on here, unless the last event's append is later.

        Args:
            input_offset: the group's stable committed offset.
            rules: those in force there, where the restore knows newer ones than the
                table did (of a low-water record further on).
        """
        raise NotImplementedError

    def admit(self, records: Sequence[Incoming]) -> Outcome:
        """Answer records in order, on the state that those before them made.

        Several calls may come before one commit. Nothing a record holds raises.
        """
        raise NotImplementedError

    def due_snapshots(self) -> list[Outgoing]:
        """Snapshots that the lag makes due after the batch's fold, for the same
        transaction, and a low-water record behind them or behind a control record.

        To be asked once, after the last `admit` of the batch.
        """
        raise NotImplementedError

    def delivered(self, offsets: Sequence[int]) -> None:
        """Take the offsets in `events` of the batch's events, in their order."""
        raise NotImplementedError

    def commit(self) -> None:
        """Merge the batch: its transaction is committed."""
        raise NotImplementedError

    def drop(self) -> None:
        """Forget the batch: its transaction is aborted; the position is the one before."""
        raise NotImplementedError

    def flush(self) -> Flush | None:
        """What the table has to write behind now; None if nothing happened since."""
        raise NotImplementedError

    def flushed(self) -> None:
        """The last `flush` is in the table: its states may leave the memory."""
        raise NotImplementedError
