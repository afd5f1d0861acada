"""One partition of the log in a worker: admission and fold of a batch, in memory.

No client, clock or thread: records come in, records go out, and everything that a
batch changes lies in an overlay until the worker says that it is committed. So the
same appends give the same bytes, whoever runs them, however often.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from foldline.processors.kafka_records import Outgoing
from foldline.schemas.state import SessionState


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
