"""Facts of a mirrored session, grouped by the record of the source that tells them.

Every mirrored fact says where it was read. The facts of one record belong together, in
the order in which they were recorded; records are in the order of their first facts.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar, cast

from foldline.schemas.events import (
    ForeignRecord,
    KnownEvent,
    PermissionDenied,
    RedactionApplied,
    SessionCreated,
    ToolBackgrounded,
    ToolExecutionCancelled,
    ToolExecutionCompleted,
    ToolExecutionFailed,
    ToolExecutionTimedOut,
)
from foldline.schemas.recorded import Recorded

Wanted = TypeVar("Wanted")

RESULTS = (
    PermissionDenied,
    ToolBackgrounded,
    ToolExecutionCancelled,
    ToolExecutionCompleted,
    ToolExecutionFailed,
    ToolExecutionTimedOut,
)
"""What the first fact of a tool's result is."""

_Key = tuple[str, str, bytes]
"""The stream, the position and the hash of a record."""


@dataclass(slots=True)
class Group:
    """The facts of one record; `created` is that of the session, where it is the first."""

    sha256: bytes
    facts: list[Recorded] = field(default_factory=list[Recorded])
    created: Recorded | None = None

    @property
    def all(self) -> list[Recorded]:
        """Every fact of it."""
        return self.facts if self.created is None else [self.created, *self.facts]

    @property
    def events(self) -> list[KnownEvent]:
        """What the facts say, but for the session's creation."""
        return [cast("KnownEvent", fact.event) for fact in self.facts]

    @property
    def first(self) -> Recorded:
        """Its first fact."""
        return self.all[-1] if not self.facts else self.facts[0]

    @property
    def label(self) -> str:
        """What kind of record it is, as far as its facts tell."""
        foreign = self.one(ForeignRecord)
        if foreign is not None:
            return foreign.record_type
        return " + ".join(dict.fromkeys(fact.type for fact in self.all))

    def one(self, kind: type[Wanted]) -> Wanted | None:
        """The first event of a type; None where there is none."""
        return next((event for event in self.events if isinstance(event, kind)), None)

    def every(self, kind: type[Wanted]) -> list[Wanted]:
        """The events of a type."""
        return [event for event in self.events if isinstance(event, kind)]

    def holds(self, event_id: str) -> bool:
        """Whether an id is that of one of its facts: the source named nothing itself."""
        return any(fact.envelope.event_id == event_id for fact in self.facts)

    def are(self, *kinds: type) -> bool:
        """Whether its events are exactly of these types, in this order."""
        return [type(event) for event in self.events] == list(kinds)


@dataclass(frozen=True, slots=True)
class Grouped:
    """A session by the records of its source.

    `added` are facts that were not read there; `redacted` are the ids of those in which
    something was redacted.
    """

    session_id: str
    system: str
    groups: list[Group]
    added: list[Recorded]
    redacted: frozenset[str]

    @property
    def created(self) -> SessionCreated | None:
        """How the session began."""
        created = next((g.created for g in self.groups if g.created), None)
        return None if created is None else cast("SessionCreated", created.event)


def border_at(events: Iterable[Recorded], seq: int) -> tuple[int, int]:
    """The last seq up to this one that is in the middle of no record, and where that ends.

    The second is `seq` where no record goes on after it. The first is 0 where the first
    record does. An exporter makes whole records: of half a one it can make none.
    """
    reach: dict[str | _Key, tuple[int, int]] = {}
    where: dict[str, str | _Key] = {}
    for recorded in events:
        key = _record_of(recorded, where)
        first, _ = reach.get(key, (recorded.seq, 0))
        reach[key] = first, recorded.seq
    border = end = seq
    for first, last in sorted(reach.values(), reverse=True):
        if first <= border < last:
            border, end = first - 1, max(end, last)
    return border, end


def _record_of(recorded: Recorded, where: dict[str, str | _Key]) -> str | _Key:
    """The record that tells a fact; what is told of none is one of its own."""
    event_id, source = recorded.envelope.event_id, recorded.envelope.source
    if isinstance(recorded.event, RedactionApplied):
        return where.get(recorded.event.target_event_id, event_id)
    if source is None:
        return event_id
    where[event_id] = source.stream, source.position, source.sha256
    return where[event_id]


def grouped(events: Iterable[Recorded], *, session_id: str, system: str) -> Grouped:
    """The facts of a session by record; those that another system told are added ones."""
    groups: dict[_Key, Group] = {}
    added: list[Recorded] = []
    redacted: set[str] = set()
    for recorded in events:
        source = recorded.envelope.source
        if isinstance(recorded.event, RedactionApplied):
            redacted.add(recorded.event.target_event_id)
        elif source is None or source.system != system:
            added.append(recorded)
        else:
            key = (source.stream, source.position, source.sha256)
            group = groups.setdefault(key, Group(source.sha256))
            if isinstance(recorded.event, SessionCreated):
                group.created = recorded
            else:
                group.facts.append(recorded)
    return Grouped(session_id, system, list(groups.values()), added, frozenset(redacted))
