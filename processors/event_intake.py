"""What a batch of records of `events` does to a store, before any of it is written.

Each touched session is folded in a copy of its state, so a batch that is refused, or
that cannot be written, has changed nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from foldline.errors import DecodeError, LogFormatError
from foldline.processors import event_rows as rows
from foldline.processors.batch import PAUSES, Change, record
from foldline.processors.event_rows import Head, seq_key, text_key
from foldline.processors.fold import copy_of, initial
from foldline.processors.restore import broken, misplaced
from foldline.processors.rocks import Batch
from foldline.processors.state_codec import encode_state
from foldline.schemas.codec import Codec
from foldline.schemas.events import SessionCreated
from foldline.schemas.recorded import Recorded
from foldline.schemas.state import SessionState

KEPT_STATE_EVENTS = 32
"""After how many events of a session its state is written again: what a read of a
session that is not in memory has to fold."""


class EventRecord(NamedTuple):
    """A record of `events`, unframed."""

    offset: int
    key: bytes
    schema_id: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Ways:
    """What a store needs beside its folder.

    `url` names the partition in errors. `cached_sessions` heads stay in memory.
    `belongs` says whether a session is one of this partition.
    """

    url: str
    codec: Codec
    snapshot_every: int
    cached_sessions: int
    belongs: Callable[[str], bool] = lambda _: True


@dataclass(slots=True)
class Entry:
    """The head of a session in memory; `kept_seq` is that of its state's row.

    `places` are the keys of its rows in the indexes. The state is never changed again.
    """

    state: SessionState
    head: Head
    kept_seq: int
    places: frozenset[bytes]


@dataclass(slots=True)
class _Touched:
    """What a batch does to one session."""

    change: Change
    before: Entry | None
    rests: bool = False
    labels: tuple[tuple[str, str], ...] = ()
    first_seq: int = 0


@dataclass(slots=True)
class Intake:
    """A batch that is being taken in.

    `entry_of` gives a session's head as it was before, `event_at` an event's row.
    """

    ways: Ways
    entry_of: Callable[[str], Entry | None]
    event_at: Callable[[str, int], tuple[int, bytes] | None]
    duplicates: int = 0
    _touched: dict[str, _Touched] = field(default_factory=dict[str, _Touched])

    @property
    def new_sessions(self) -> int:
        """How many sessions begin in it."""
        return sum(touched.before is None for touched in self._touched.values())

    @property
    def new_events(self) -> int:
        """How many events it adds."""
        return sum(len(touched.change.events) for touched in self._touched.values())

    def take(self, one: EventRecord) -> None:
        """Take in the next record.

        Raises:
            LogFormatError: it cannot be the next of its session.
        """
        try:
            session_id = one.key.decode()
            recorded = self.ways.codec.decode_structure(one.schema_id, one.body)
        except (UnicodeDecodeError, DecodeError) as error:
            raise LogFormatError(self.ways.url, f"offset {one.offset}: {error}") from error
        touched = self._touched.get(session_id) or self._begin(session_id)
        state, seq = touched.change.state, recorded.seq
        if state.seq and seq <= state.seq:
            self._compare(touched, session_id, recorded)
            self.duplicates += 1
            return
        reason = _why_not(state, session_id, recorded)
        if reason:
            reason = f"{reason} (offset {one.offset})"
            raise broken(self.ways.url, session_id, seq, reason)
        record(touched.change, recorded, snapshot_every=self.ways.snapshot_every)
        touched.rests = isinstance(recorded.event, PAUSES)
        touched.first_seq = touched.first_seq or seq
        labels = rows.labels_in(recorded)
        if labels is not None:
            touched.labels = labels
        self._touched[session_id] = touched

    def _begin(self, session_id: str) -> _Touched:
        entry = self.entry_of(session_id)
        if entry is None:
            if not self.ways.belongs(session_id):
                reason = "the session belongs to another partition"
                raise broken(self.ways.url, session_id, 0, reason)
            return _Touched(Change(initial(session_id)), None)
        touched = _Touched(Change(copy_of(entry.state)), entry)
        touched.labels, touched.first_seq = entry.head.labels, entry.head.first_seq
        return touched

    def _compare(self, touched: _Touched, session_id: str, recorded: Recorded) -> None:
        """A repeated record is dropped, if it is one."""
        known = next(
            ((e.schema_id, e.body) for e in touched.change.events if e.seq == recorded.seq),
            None,
        ) or self.event_at(session_id, recorded.seq)
        if known != (recorded.schema_id, recorded.body):
            reason = "another event is recorded under this seq"
            raise broken(self.ways.url, session_id, recorded.seq, reason)

    def finish(self, batch: Batch) -> Mapping[str, Entry]:
        """Put every row into a batch; the new heads."""
        return {
            session_id: _finish(batch, touched)
            for session_id, touched in self._touched.items()
        }


def _why_not(state: SessionState, session_id: str, recorded: Recorded) -> str:
    """Why an event cannot be the next of a session; empty if it is."""
    seq = recorded.seq
    if not state.seq and not isinstance(recorded.event, SessionCreated):
        return "a hole: nothing before it is in the topic"
    if state.seq and seq != state.seq + 1:
        return f"a hole: the last event before it is seq {state.seq}"
    return misplaced(recorded, session_id, seq, state.chain_head)


def _finish(batch: Batch, touched: _Touched) -> Entry:
    """The rows of one session."""
    change, state, before = touched.change, touched.change.state, touched.before
    session = text_key(state.session_id)
    for event in change.events:
        value = rows.pack_event(event.schema_id, event.body)
        batch.put(rows.EVENT + session + seq_key(event.seq), value)
    for kept in change.snapshots:
        batch.put(rows.SNAPSHOT + session + seq_key(kept.seq), kept.digest + kept.body)
    head = rows.head_of(state, first_seq=touched.first_seq, labels=touched.labels)
    batch.put(rows.HEAD + session, rows.encode_row(head))
    places = head.places(session)
    old = before.places if before else frozenset[bytes]()
    for key in old - places:
        batch.delete(key)
    for key in places - old:
        batch.put(key, b"")
    kept_seq = before.kept_seq if before else 0
    if touched.rests or state.seq - kept_seq >= KEPT_STATE_EVENTS:
        keep(batch, state)
        kept_seq = state.seq
    return Entry(state, head, kept_seq, places)


def keep(batch: Batch, state: SessionState) -> None:
    """Put the row of a state into a batch."""
    batch.put(rows.STATE + text_key(state.session_id), encode_state(state))
