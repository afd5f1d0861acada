"""What a batch of records of `events` does to a store, before any of it is written.

Each touched session is folded in a copy of its state, so a batch that is refused, or
that cannot be written, has changed nothing.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from foldline.errors import DecodeError, LogFormatError
from foldline.processors import event_rows as rows
from foldline.processors.batch import PAUSES, Change, record
from foldline.processors.event_cut import (
    LostTouched,
    put_event,
    put_gap,
    put_head,
    with_next,
)
from foldline.processors.event_rows import Head, seq_key, text_key
from foldline.processors.fold import copy_of, initial
from foldline.processors.restore import broken, misplaced
from foldline.processors.rocks import Batch
from foldline.processors.state_codec import encode_state
from foldline.processors.stored import StoredEvent
from foldline.schemas.codec import Codec
from foldline.schemas.events import SessionCreated
from foldline.schemas.recorded import Recorded
from foldline.schemas.state import SessionState
from foldline.schemas.topic_records import LostSession

KEPT_STATE_EVENTS = 32
"""How many events of a session come before its state is written again: what a read of
a session that is not in memory has to fold."""


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
    gap: LostSession | None = None
    older: list[StoredEvent] = field(default_factory=list[StoredEvent])
    """Events that the published state covers from which the session goes on."""

    @property
    def base_seq(self) -> int:
        """The seq of that state; 0 for none."""
        return self.before.head.base_seq if self.before else 0


@dataclass(slots=True)
class Intake:
    """A batch that is being taken in.

    `entry_of` gives a session's head as it was before, `event_at` an event's row,
    `gap_of` the head of a session that has had events deleted, and which.
    """

    ways: Ways
    entry_of: Callable[[str], Entry | None]
    event_at: Callable[[str, int], tuple[int, bytes] | None]
    gap_of: Callable[[str], tuple[Head, LostSession] | None]
    duplicates: int = 0
    _touched: dict[str, _Touched] = field(default_factory=dict[str, _Touched])
    _lost: dict[str, tuple[LostTouched, Head]] = field(
        default_factory=dict[str, tuple[LostTouched, Head]]
    )

    @property
    def new_sessions(self) -> int:
        """How many sessions begin in it."""
        return sum(touched.before is None for touched in self._touched.values())

    @property
    def new_events(self) -> int:
        """How many events it adds."""
        whole = sum(
            len(touched.change.events) + len(touched.older)
            for touched in self._touched.values()
        )
        return whole + sum(len(touched.events) for touched, _ in self._lost.values())

    @property
    def changed(self) -> set[str]:
        """The sessions of which it has something new."""
        return set(self._touched) | set(self._lost)

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
        touched = self._touched.get(session_id)
        if touched is None:
            if self._is_of_lost(session_id, recorded):
                return
            touched = self._begin(session_id)
        state, seq = touched.change.state, recorded.seq
        if state.seq and seq <= state.seq:
            self._compare(touched, session_id, recorded)
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
        if entry.head.base_seq and (found := self.gap_of(session_id)) is not None:
            touched.gap = found[1]
        return touched

    def _is_of_lost(self, session_id: str, recorded: Recorded) -> bool:
        """Whether the session is lost; then its event is only kept."""
        touched = self._lost.get(session_id)
        if touched is None:
            found = self.gap_of(session_id)
            if found is None or not found[0].is_lost:
                return False
            touched = self._lost[session_id] = LostTouched(*found), found[0]
        touched[0].take(recorded)
        return True

    def _compare(self, touched: _Touched, session_id: str, recorded: Recorded) -> None:
        """A repeated record is dropped, if it is one, or is one that was not here yet."""
        known = next(
            ((e.schema_id, e.body) for e in touched.change.events if e.seq == recorded.seq),
            None,
        ) or self.event_at(session_id, recorded.seq)
        if known is None and touched.gap is not None and recorded.seq <= touched.base_seq:
            state = touched.change.state
            digest = hashlib.sha256(recorded.body).digest()
            if recorded.seq == state.seq and digest != state.chain_head:
                reason = "it is not the event that its published state saw"
                raise broken(self.ways.url, session_id, recorded.seq, reason)
            event = StoredEvent(recorded.seq, recorded.schema_id, recorded.body)
            touched.older.append(event)
            self._touched[session_id] = touched
            return
        self.duplicates += 1
        if known != (recorded.schema_id, recorded.body):
            reason = "another event is recorded under this seq"
            raise broken(self.ways.url, session_id, recorded.seq, reason)

    def finish(self, batch: Batch) -> Mapping[str, Entry]:
        """Put every row into a batch; the new heads."""
        for lost, before in self._lost.values():
            lost.finish(batch, before)
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
    for event in (*touched.older, *change.events):
        put_event(batch, state.session_id, event)
    if touched.gap is not None and not touched.gap.next_seq:
        seq = next(event.seq for event in (*touched.older, *change.events))
        put_gap(batch, with_next(touched.gap, seq))
    for kept in change.snapshots:
        batch.put(rows.SNAPSHOT + session + seq_key(kept.seq), kept.digest + kept.body)
    head = rows.head_of(
        state,
        first_seq=touched.first_seq,
        labels=touched.labels,
        base_seq=touched.base_seq,
    )
    places = put_head(batch, head, before.places if before else frozenset[bytes]())
    kept_seq = before.kept_seq if before else 0
    if touched.rests or state.seq - kept_seq >= KEPT_STATE_EVENTS:
        keep(batch, state)
        kept_seq = state.seq
    return Entry(state, head, kept_seq, places)


def keep(batch: Batch, state: SessionState) -> None:
    """Put the row of a state into a batch."""
    batch.put(rows.STATE + text_key(state.session_id), encode_state(state))
