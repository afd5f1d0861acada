"""Whether an export tells what the session tells: it is imported again and compared.

1. The file is imported into a log in memory, by the importer of its format.
2. Its facts are laid beside the session's, record by record: a fact says at which byte of
   the file its record stands.
3. Ids that importers derive (events, turns, branches) are taken for the same where they
   stand in the same place, always; seqs where as many facts are before them.
4. All else must be equal: the type of each fact, its body, who acted, when, and what it
   follows.
"""

import json
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from foldline.processors.anomalies import MISSING_PARENT_ID
from foldline.processors.blobs import BlobStore
from foldline.processors.clock import wall_clock
from foldline.processors.log import Log
from foldline.processors.memory_log import MemoryLog
from foldline.producers.importers import IMPORTERS
from foldline.producers.source_bodies import Bodies
from foldline.producers.source_groups import Group, Grouped, grouped
from foldline.projections.context import is_text
from foldline.schemas.blocks import Blob, Block
from foldline.schemas.events import AnyEvent, KnownEvent, SessionCreated
from foldline.schemas.record import Record
from foldline.schemas.recorded import Recorded
from foldline.settings import Settings

EXAMPLES_MAX = 5
EXAMPLE_CHARS = 160

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_ID_MAX = 500
_NAMES = frozenset({"session_id", "turn_id", "branch"})
"""What is called anew, the same wherever it was the same."""

_SEQS = frozenset({"from_seq", "to_seq", "base_seq"})


class NotRedacting:
    """Takes nothing out: what is imported again was redacted when it was recorded."""

    def redact_event(self, event: KnownEvent) -> tuple[KnownEvent, Mapping[str, int]]:
        """The event as it is."""
        return event, {}


@dataclass(slots=True)
class Compared:
    """How an export differs from its session.

    `lost` counts records by kind; `examples` say what differs. `outside` counts references
    to other sessions, which the file does not hold.
    """

    records: int = 0
    lost: Counter[str] = field(default_factory=Counter[str])
    examples: list[str] = field(default_factory=list[str])
    outside: int = 0

    def lose(self, label: str, why: str) -> None:
        """Count a record that does not come back."""
        self.lost[label] += 1
        if len(self.examples) < EXAMPLES_MAX:
            self.examples.append(f"{label}: {why}"[:EXAMPLE_CHARS])


def compare(
    before: Grouped,
    blobs: BlobStore,
    path: Path,
    *,
    places: Mapping[int, int | None],
    record_max_bytes: int,
) -> Compared:
    """Import an export again, and compare.

    Args:
        before: the session.
        blobs: those of its log.
        path: the export.
        places: the index of the group that each record of the file stands for, by where
            its facts say that it stands.
        record_max_bytes: of the longest record.

    Raises:
        BlobError: a blob is missing.
    """
    settings = Settings(import_record_max_bytes=max(record_max_bytes, 1))
    log = MemoryLog(settings=settings, clock=wall_clock)
    importer = IMPORTERS[before.system]
    importer(log, path, settings=settings, redactor=NotRedacting(), check=False)
    after = _again(log, before.system)
    sides = (_Side(before, blobs), _Side(after, log.blobs))
    return _Comparison(*sides, places).compared()


def _again(log: Log, system: str) -> Grouped:
    """All that was imported, whatever its session is called."""
    names = [row.session_id for row in log.sessions(limit=1_000)]
    every = (recorded for name in names for recorded in log.events(name))
    return grouped(every, session_id=names[0] if names else "", system=system)


class _Side:
    """One of the two: its facts by group, and how many are before each seq."""

    def __init__(self, told: Grouped, blobs: BlobStore) -> None:
        self.told = told
        self.bodies = Bodies(blobs)
        self._seqs = sorted(fact.seq for group in told.groups for fact in group.all)
        self.ids = {f.envelope.event_id for group in told.groups for f in group.all}

    def place(self, seq: int) -> int:
        """How many facts of the source are at or before a seq."""
        return bisect_right(self._seqs, seq)


class _Comparison:
    def __init__(
        self, before: _Side, after: _Side, places: Mapping[int, int | None]
    ) -> None:
        self._before = before
        self._after = after
        self._again: dict[int, Group] = {}
        self._made_up: list[Group] = []
        for group in after.told.groups:
            index = places.get(_position(group))
            if index is None or index in self._again:
                self._made_up.append(group)
            else:
                self._again[index] = group
        self._ids = {MISSING_PARENT_ID: MISSING_PARENT_ID}
        self._learned: dict[tuple[str, str], str] = {}
        self._taught: dict[tuple[str, str], str] = {}
        self._compared = Compared()

    def compared(self) -> Compared:
        """Every record of the session beside that of the file."""
        for index, group in enumerate(self._before.told.groups):
            again = self._again.get(index)
            for one, other in zip(group.all, again.all if again else (), strict=False):
                self._ids[one.envelope.event_id] = other.envelope.event_id
        for index, group in enumerate(self._before.told.groups):
            self._compared.records += 1
            why = self._difference(group, self._again.get(index))
            if why:
                self._compared.lose(group.label, why)
        for group in self._made_up:
            self._compared.lose(group.label, "the file tells it, the session does not")
        return self._compared

    def _difference(self, group: Group, again: Group | None) -> str:
        """Why the facts of a record are not those of the file's; empty where they are."""
        if again is None:
            return "no record tells it"
        types = [fact.type for fact in group.all]
        others = [fact.type for fact in again.all]
        if types != others:
            return f"{' + '.join(types)} came back as {' + '.join(others)}"
        pairs = zip(group.all, again.all, strict=True)
        return next((why for one, other in pairs if (why := self._differ(one, other))), "")

    def _differ(self, one: Recorded, other: Recorded) -> str:
        mine = _envelope(one) | _plain(one.event, self._before)
        yours = _envelope(other) | _plain(other.event, self._after)
        self._forgive(one, mine, yours)
        for name, value in mine.items():
            if not self._same(name, value, yours.get(name)):
                return (
                    f"{one.type}.{name}: {_short(value)} came back as {_short(yours[name])}"
                )
        return ""

    def _forgive(self, one: Recorded, mine: dict[str, Any], yours: dict[str, Any]) -> None:
        """What refers to another session is not in the file, and cannot be compared."""
        parent = mine["parent_event_id"]
        if parent and parent != MISSING_PARENT_ID and parent not in self._before.ids:
            yours["parent_event_id"] = mine["parent_event_id"] = None
            self._compared.outside += 1
        if one.envelope.event_id in self._before.told.redacted and "reason" in mine:
            yours["reason"] = mine["reason"]  # where it does not decode has moved
        if isinstance(one.event, SessionCreated) and not yours["parent_call_id"]:
            self._compared.outside += bool(mine["parent_call_id"])
            mine["parent_call_id"] = yours["parent_call_id"]

    def _same(self, name: str, mine: Any, yours: Any) -> bool:
        if mine is None or yours is None:
            return mine is yours
        if name in _NAMES:
            known = self._learned.setdefault((name, mine), yours)
            return known == yours and self._taught.setdefault((name, yours), mine) == mine
        return self._mapped(mine) == yours

    def _mapped(self, value: Any) -> Any:
        """A value with the ids of events as they are in the file."""
        if isinstance(value, str):
            return _UUID.sub(self._id_of, value) if len(value) <= _ID_MAX else value
        if isinstance(value, list):
            return [self._mapped(item) for item in cast("list[Any]", value)]
        if isinstance(value, dict):
            named = cast("dict[str, Any]", value)
            return {name: self._mapped(item) for name, item in named.items()}
        return value

    def _id_of(self, found: re.Match[str]) -> str:
        return self._ids.get(found[0], found[0])


def _position(group: Group) -> int:
    source = group.all[0].envelope.source
    return int(source.position) if source else -1


def _envelope(recorded: Recorded) -> dict[str, Any]:
    """What an envelope says that is not of the log it stands in."""
    envelope = recorded.envelope
    return {
        "session_id": envelope.session_id,
        "occurred_at": envelope.occurred_at,
        "actor": f"{envelope.actor.kind} {envelope.actor.id}",
        "turn_id": envelope.turn_id,
        "branch": envelope.branch,
        "parent_event_id": envelope.parent_event_id,
        "certainty": envelope.certainty,
    }


def _plain(event: AnyEvent, side: _Side) -> dict[str, Any]:
    """An event's fields with whole bodies, and JSON as what it says."""
    return {
        name: side.place(value) if name in _SEQS else _value(value, side)
        for name, value in event.__dict__.items()
    }


def _value(value: Any, side: _Side) -> Any:
    if isinstance(value, Block):
        return _block(value, side)
    if isinstance(value, Blob):
        return value.sha256.hex()
    if isinstance(value, Record):
        return _plain(cast("AnyEvent", value), side)
    if isinstance(value, tuple):
        return [_value(item, side) for item in cast("tuple[Any, ...]", value)]
    return value


def _block(block: Block, side: _Side) -> dict[str, Any]:
    fields = dict(block.__dict__)
    body = block.body
    if not (isinstance(body, Blob) and not is_text(body)):
        text = side.bodies.text(body)
        fields["body"] = _json(text) if block.kind == "json" else text
    else:
        fields["body"] = body.sha256.hex()
    if block.opaque is not None:
        fields["opaque"] = _json(side.bodies.text(block.opaque))
    return fields


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _short(value: Any) -> str:
    return repr(value)[:40]


def losses(compared: Compared, added: Iterable[Recorded]) -> None:
    """Facts that were added here are of no record of the source."""
    for recorded in added:
        compared.lose(f"{recorded.type}, added here", "no record of the source tells it")
