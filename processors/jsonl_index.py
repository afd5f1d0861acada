"""Where each event of a log of JSON lines is: kept in memory, read off the lines."""

import json
import threading
from array import array
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from foldline.errors import LogFormatError
from foldline.processors.jsonl_file import JsonlFile
from foldline.processors.jsonl_line import (
    BadLine,
    EventLine,
    Marker,
    SchemaLine,
    index_json,
    parse_line,
)
from foldline.processors.jsonl_tail import RawLine, read_lines
from foldline.processors.stored import StoredSession, StoredSnapshot, index_fields
from foldline.schemas.registry import StoredSchema
from foldline.schemas.state import SessionState

PAGE_EVENTS = 256
"""How many events are looked up at once."""

BAD_LINES_KEPT = 1_000
"""How many damaged lines are named; more are counted."""

SNAPSHOTS_KEPT = 64
"""How many states of a session are kept in memory, for looking back."""

_OUTSIDE = ("session_id", "seq", "head_hash")
"""What a session's line says without its index."""

_NAMES = tuple(name for name in StoredSession.__slots__ if name not in _OUTSIDE)
_UNKNOWN: dict[str, Any] = dict.fromkeys(_NAMES, "") | dict.fromkeys(
    ("epoch", "created_at", "recorded_at"), 0
)


class Place(NamedTuple):
    """Where an event's line is."""

    seq: int
    offset: int
    size: int


class Head(NamedTuple):
    """A session's last event: its number among the sessions, its seq and body's hash."""

    number: int
    seq: int
    head_hash: bytes


class Damage(NamedTuple):
    """A damaged line: its number from 1, where it is, and what is wrong."""

    number: int
    offset: int
    size: int
    reason: str

    def __str__(self) -> str:
        """The place as a person is told of it."""
        return (
            f"line {self.number} (offset {self.offset}, {self.size} bytes): {self.reason}"
        )


@dataclass(slots=True)
class _Session:
    number: int
    seqs: "array[int]" = field(default_factory=lambda: array("Q"))
    offsets: "array[int]" = field(default_factory=lambda: array("Q"))
    sizes: "array[int]" = field(default_factory=lambda: array("L"))
    head_hash: bytes = b""
    listing: bytes = b""
    damaged_seq: int = 0
    """The highest seq whose line is damaged: beyond the last, the head is not known."""
    snapshots: list[StoredSnapshot] = field(default_factory=list[StoredSnapshot])


def index_of(state: SessionState) -> bytes:
    """What a session's last line of a batch says for listings."""
    fields = dict(zip(StoredSession.__slots__, index_fields(state), strict=True))
    return index_json({name: fields[name] for name in _NAMES})


class JsonlIndex:
    """The sessions, schemas and damaged lines of a file, as far as it was read."""

    def __init__(self, file: JsonlFile, *, url: str) -> None:
        self._file = file
        self._url = url
        self._lock = threading.Lock()
        self._cuts = 0
        self._forget()

    def _forget(self) -> None:
        self._end = self._file.first
        self._lines = 1
        self._sessions: dict[str, _Session] = {}
        self.schemas: dict[int, StoredSchema] = {}
        self.damage: list[Damage] = []
        self.damage_count = 0

    def catch_up(self, marker: Marker) -> None:
        """Read what is new up to a marker; all anew where lines were lost since."""
        with self._lock:
            if marker.cuts != self._cuts or marker.durable < self._end:
                self._forget()
                self._cuts = marker.cuts
            if marker.durable > self._end:
                with self._file.usable() as descriptor:
                    for raw in read_lines(descriptor, self._end, marker.durable):
                        self._take(raw)
                self._end = marker.durable

    def _take(self, raw: RawLine) -> None:
        self._lines += 1
        match parse_line(raw.data):
            case SchemaLine(row=row):
                self.schemas.setdefault(row.schema_id, row)
            case EventLine() as line:
                self._event(raw, line)
            case BadLine() as bad:
                self._flag(raw, bad.reason)
                if bad.session_id:
                    session = self._session(bad.session_id)
                    session.damaged_seq = max(session.damaged_seq, bad.seq)

    def _event(self, raw: RawLine, line: EventLine) -> None:
        session = self._session(line.session_id)
        if session.seqs and line.seq <= session.seqs[-1]:
            return self._flag(
                raw,
                f"seq {line.seq} of {line.session_id!r} comes after {session.seqs[-1]}",
            )
        session.seqs.append(line.seq)
        session.offsets.append(raw.offset)
        session.sizes.append(raw.size)
        session.head_hash = line.sha256
        session.listing = line.listing or session.listing
        return None

    def _session(self, session_id: str) -> _Session:
        session = self._sessions.get(session_id)
        if session is None:
            number = len(self._sessions) + 1
            session = self._sessions[session_id] = _Session(number)
        return session

    def _flag(self, raw: RawLine, reason: str) -> None:
        self.damage_count += 1
        if len(self.damage) < BAD_LINES_KEPT:
            reason = reason if raw.data else "it is empty, or too long for a line"
            self.damage.append(Damage(self._lines, raw.offset, raw.size, reason))

    # --- what it knows --------------------------------------------------------------------

    def head(self, session_id: str) -> Head | None:
        """The last event of a session; None for no session.

        Raises:
            LogFormatError: the line of a later event is damaged: nothing may be said of
                the session's head, or its seq would be given out a second time.
        """
        with self._lock:
            session = self._sessions.get(session_id)
            if session is None:
                return None
            last = session.seqs[-1] if session.seqs else 0
            if session.damaged_seq > last:
                raise self._missing(session_id, session.damaged_seq)
            return Head(session.number, last, session.head_hash)

    def _missing(self, session_id: str, seq: int) -> LogFormatError:
        return LogFormatError(
            self._url,
            f"session {session_id!r}, seq {seq}: its line is damaged or gone; "
            "`foldline verify` names the lines",
        )

    def first_seq(self, session_id: str) -> int:
        """The seq of a session's first line; 0 for none."""
        with self._lock:
            session = self._sessions.get(session_id)
            return session.seqs[0] if session and session.seqs else 0

    def places(
        self, session_id: str, *, after_seq: int, upto_seq: int | None
    ) -> list[Place]:
        """Where the next events with after_seq < seq <= upto_seq are, a page of them."""
        with self._lock:
            session = self._sessions.get(session_id)
            if session is None:
                return []
            seqs = session.seqs
            start = bisect_right(seqs, after_seq)
            end = min(start + PAGE_EVENTS, len(seqs))
            if upto_seq is not None:
                end = min(end, bisect_right(seqs, upto_seq))
            rows = range(start, max(end, start))
            return [Place(seqs[i], session.offsets[i], session.sizes[i]) for i in rows]

    def rows(self) -> list[StoredSession]:
        """What the index says of every session, in the order of their ids."""
        with self._lock:
            known = [(k, s) for k, s in sorted(self._sessions.items()) if s.seqs]
            return [
                StoredSession(
                    session_id=name,
                    seq=session.seqs[-1],
                    head_hash=session.head_hash,
                    **_fields(session.listing),
                )
                for name, session in known
            ]

    def keep(self, session_id: str, snapshots: list[StoredSnapshot]) -> None:
        """Keep states of a session in memory."""
        with self._lock:
            kept = self._session(session_id).snapshots
            known = {snapshot.seq for snapshot in kept}
            kept.extend(s for s in snapshots if s.seq not in known)
            del kept[:-SNAPSHOTS_KEPT]

    def snapshots(self, session_id: str) -> list[StoredSnapshot]:
        """The states of a session that are kept in memory, the oldest first."""
        with self._lock:
            session = self._sessions.get(session_id)
            return list(session.snapshots) if session else []


def _fields(listing: bytes) -> dict[str, Any]:
    try:
        said = cast("dict[str, Any]", json.loads(listing))
        return {name: said[name] for name in _NAMES}
    except (ValueError, LookupError, TypeError):
        return _UNKNOWN  # every line that said it is damaged
