"""What goes into a partition of a worker, and comes out of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from foldline.processors.kafka_records import Outgoing
from foldline.schemas.state import SessionState
from foldline.schemas.topic_records import LostSession
from foldline.settings import Settings

MIN_CACHED_SESSIONS = 100
"""How many sessions a partition keeps in memory at the least."""


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


@dataclass(slots=True)
class Flush:
    """What the table has to write behind, in one WriteBatch."""

    position: Position
    states: Sequence[SessionState]
    dirty: dict[str, int]
    """Sessions that became dirty since the last flush, by their first uncovered offset."""
    clean: Sequence[str]
    """Sessions that are no longer dirty."""
    lost: Sequence[LostSession] = ()
    """Sessions that are lost since: their states go."""


@dataclass(frozen=True, slots=True)
class RecordIds:
    """The registry's ids of the records that a worker writes beside events."""

    verdict: int
    dead_letter: int
    refused_append: int
    snapshot: int
    low_water: int
    lost_session: int

    @classmethod
    def of(cls, id_of: Callable[[str], int]) -> "RecordIds":
        """Ask a registry for them: `RecordIds.of(registry.id_of)`."""
        return cls(
            verdict=id_of("Verdict"),
            dead_letter=id_of("DeadLetter"),
            refused_append=id_of("RefusedAppend"),
            snapshot=id_of("Snapshot"),
            low_water=id_of("LowWater"),
            lost_session=id_of("LostSession"),
        )


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds a partition in a worker (see the settings of the same names)."""

    cached_sessions: int
    snapshot_lag_events: int

    @classmethod
    def of(cls, settings: Settings, *, partitions: int) -> "Limits":
        """The share that one of so many partitions has in what the settings give."""
        share = settings.cached_sessions // partitions
        return cls(max(share, MIN_CACHED_SESSIONS), settings.snapshot_lag_events)


@dataclass(slots=True)
class Counters:
    """What a partition has done since it was made, for metrics. Bytes are of values.

    They count what was committed. `starved` is how often a snapshot that was due had to
    wait because there was no credit for it, or was larger than a record may be: then the
    lag grows beyond its limit.
    """

    verdicts: dict[str, int] = field(default_factory=dict[str, int])
    reasons: dict[str, int] = field(default_factory=dict[str, int])
    """Dead letters by the word that says why."""
    events: int = 0
    event_bytes: int = 0
    snapshots: int = 0
    snapshot_bytes: int = 0
    starved: int = 0

    def add(self, more: "Counters") -> None:
        """Count a batch in."""
        for name, count in more.verdicts.items():
            self.verdicts[name] = self.verdicts.get(name, 0) + count
        for word, count in more.reasons.items():
            self.reasons[word] = self.reasons.get(word, 0) + count
        self.events += more.events
        self.event_bytes += more.event_bytes
        self.snapshots += more.snapshots
        self.snapshot_bytes += more.snapshot_bytes
        self.starved += more.starved
