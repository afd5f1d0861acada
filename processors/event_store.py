"""The events of one partition in RocksDB, and what reads of them need.

`apply` takes in a batch of records of `events`: rows, heads, indexes, snapshots and the
store's own next offset go into one write, so whatever is lost with the power is lost
together and read again from the topic. Records that come twice are dropped; a hole, or
an event that does not continue the one before it, stops the reader.

One thread applies, any thread reads. A state in `_heads` is never changed again.
"""

import heapq
import sys
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeVar

from foldline.errors import DecodeError, LogFormatError, TableCorruptError
from foldline.processors import event_rows as rows
from foldline.processors.batch import PAUSES, Change, record
from foldline.processors.event_rows import Head, Listing, Meta, seq_key, text_key
from foldline.processors.fold import copy_of, initial
from foldline.processors.log import SessionSummary
from foldline.processors.restore import Source, broken, carry_on, misplaced, restore
from foldline.processors.rocks import (
    META,
    Batch,
    Rocks,
    open_or_set_aside,
    read_meta,
)
from foldline.processors.state_cache import StateCache
from foldline.processors.state_codec import LAYOUT, decode_state, encode_state
from foldline.processors.stored import (
    Problem,
    StoredEvent,
    StoredSession,
    StoredSnapshot,
)
from foldline.schemas.codec import Codec
from foldline.schemas.events import SessionCreated
from foldline.schemas.recorded import Recorded
from foldline.schemas.state import STATUSES, SessionState

STORE_FORMAT = 1
"""The version of the rows, beside the layout of states."""

KEPT_STATE_EVENTS = 32
"""After how many events of a session its state is written again: what a read of a
session that is not in memory has to fold."""

_Row = TypeVar("_Row")


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
    """

    url: str
    codec: Codec
    snapshot_every: int
    cached_sessions: int
    belongs: Callable[[str], bool] = lambda _: True
    """Whether a session is one of this partition."""


@dataclass(slots=True)
class _Entry:
    """The head of a session in memory; `kept_seq` is that of its state's row.

    `places` are the keys of its rows in the indexes.
    """

    state: SessionState
    head: Head
    kept_seq: int
    places: frozenset[bytes]


@dataclass(slots=True)
class _Touched:
    """What a batch does to one session."""

    change: Change
    before: _Entry | None
    kept_seq: int = 0
    rests: bool = False
    labels: tuple[tuple[str, str], ...] = ()
    first_seq: int = 0


@dataclass(slots=True)
class _Batch:
    rows: Batch = field(default_factory=Batch)
    touched: dict[str, _Touched] = field(default_factory=dict[str, _Touched])
    duplicates: int = 0


class EventStore:
    """One open store.

    Raises (each): TableCorruptError for damage, LogUnavailableError for no space or a
    store that was closed meanwhile.
    """

    def __init__(self, rocks: Rocks, meta: Meta, ways: Ways) -> None:
        self._rocks = rocks
        self._meta = meta
        self._ways = ways
        self._heads: OrderedDict[str, _Entry] = OrderedDict()
        self._read = StateCache()
        self.next_offset = meta.next_offset
        self.duplicates = 0

    @classmethod
    def open(cls, folder: Path, *, log_id: str, partition: int, ways: Ways) -> "EventStore":
        """Open or make it.

        Raises:
            TableCorruptError: damaged, or of another partition, log or version.
            LogUnavailableError: another process holds its lock, no space.
        """
        identity = f"{STORE_FORMAT}/{LAYOUT}/{log_id}/{partition}"
        rocks = Rocks(folder)
        try:
            return cls(rocks, read_meta(rocks, Meta, identity), ways)
        except BaseException:
            rocks.close()
            raise

    @property
    def folder(self) -> Path:
        """Where it lies."""
        return self._rocks.folder

    @property
    def session_count(self) -> int:
        """How many sessions it holds."""
        return self._meta.sessions

    @property
    def event_count(self) -> int:
        """How many events it holds."""
        return self._meta.events

    # --- taking in -------------------------------------------------------------------

    def apply(self, records: Sequence[EventRecord]) -> set[str]:
        """Take in records, in the order of their offsets; the sessions that changed.

        Raises:
            LogFormatError: a hole, or an event that is not the one recorded there; it
                names session and seq. Nothing of the batch is kept.
        """
        batch = _Batch()
        for one in records:
            if one.offset >= self.next_offset:
                self._take(batch, one)
        if not records or records[-1].offset < self.next_offset:
            return set()
        self._write(batch, records[-1].offset + 1)
        return set(batch.touched)

    def advance(self, offset: int) -> None:
        """Say that nothing is below an offset that is not taken in (markers only)."""
        self.next_offset = max(self.next_offset, offset)

    def _take(self, batch: _Batch, one: EventRecord) -> None:
        url = self._ways.url
        try:
            session_id = one.key.decode()
            recorded = self._ways.codec.decode_structure(one.schema_id, one.body)
        except (UnicodeDecodeError, DecodeError) as error:
            raise LogFormatError(url, f"offset {one.offset}: {error}") from error
        touched = batch.touched.get(session_id) or self._begin(session_id)
        state, seq = touched.change.state, recorded.seq
        if state.seq and seq <= state.seq:
            self._same(touched, session_id, recorded)
            batch.duplicates += 1
            return
        reason = _why_not(state, session_id, recorded)
        if reason:
            raise broken(url, session_id, seq, f"{reason} (offset {one.offset})")
        record(touched.change, recorded, snapshot_every=self._ways.snapshot_every)
        touched.rests = isinstance(recorded.event, PAUSES)
        touched.first_seq = touched.first_seq or seq
        labels = rows.labels_in(recorded)
        touched.labels = touched.labels if labels is None else labels
        batch.touched[session_id] = touched

    def _begin(self, session_id: str) -> _Touched:
        entry = self._heads.get(session_id) or self._restored(session_id)
        if entry is None:
            if not self._ways.belongs(session_id):
                reason = "the session belongs to another partition"
                raise broken(self._ways.url, session_id, 0, reason)
            return _Touched(Change(initial(session_id)), None)
        head = entry.head
        touched = _Touched(Change(copy_of(entry.state)), entry, entry.kept_seq)
        touched.labels, touched.first_seq = head.labels, head.first_seq
        return touched

    def _same(self, touched: _Touched, session_id: str, recorded: Recorded) -> None:
        """A repeated record is dropped, if it is one."""
        mine = (recorded.schema_id, recorded.body)
        known = next(
            ((e.schema_id, e.body) for e in touched.change.events if e.seq == recorded.seq),
            None,
        )
        if known is None:
            key = rows.EVENT + text_key(session_id) + seq_key(recorded.seq)
            data = self._rocks.get(key)
            known = None if data is None else rows.unpack_event(data)
        if known != mine:
            reason = "another event is recorded under this seq"
            raise broken(self._ways.url, session_id, recorded.seq, reason)

    def _write(self, batch: _Batch, next_offset: int) -> None:
        heads = {sid: self._finish(batch.rows, t) for sid, t in batch.touched.items()}
        leaving = self._leaving(heads)
        for session_id in leaving:
            self._keep(batch.rows, self._heads[session_id])
        meta = Meta(
            self._meta.identity,
            next_offset,
            self._meta.sessions + sum(t.before is None for t in batch.touched.values()),
            self._meta.events + sum(len(t.change.events) for t in batch.touched.values()),
        )
        batch.rows.put(META, rows.encode_row(meta))
        self._rocks.write(batch.rows)
        self._meta = meta
        self.duplicates += batch.duplicates
        for session_id in leaving:
            del self._heads[session_id]
        for session_id, entry in heads.items():
            self._heads[session_id] = entry
            self._heads.move_to_end(session_id)
        self.next_offset = next_offset

    def _finish(self, batch: Batch, touched: _Touched) -> _Entry:
        """The rows of one session."""
        change, state = touched.change, touched.change.state
        session = text_key(state.session_id)
        for event in change.events:
            value = rows.pack_event(event.schema_id, event.body)
            batch.put(rows.EVENT + session + seq_key(event.seq), value)
        for kept in change.snapshots:
            key = rows.SNAPSHOT + session + seq_key(kept.seq)
            batch.put(key, kept.digest + kept.body)
        labels, first_seq = touched.labels, touched.first_seq
        head = rows.head_of(state, first_seq=first_seq, labels=labels)
        batch.put(rows.HEAD + session, rows.encode_row(head))
        places = head.places(session)
        old = touched.before.places if touched.before else frozenset[bytes]()
        for key in old - places:
            batch.delete(key)
        for key in places - old:
            batch.put(key, b"")
        entry = _Entry(state, head, touched.kept_seq, places)
        if touched.rests or state.seq - entry.kept_seq >= KEPT_STATE_EVENTS:
            self._keep(batch, entry)
        return entry

    @staticmethod
    def _keep(batch: Batch, entry: _Entry) -> None:
        state = entry.state
        if entry.kept_seq == state.seq:
            return
        batch.put(rows.STATE + text_key(state.session_id), encode_state(state))
        entry.kept_seq = state.seq

    def _leaving(self, coming: Container[str]) -> list[str]:
        """Heads that leave memory: the longest unused, none that a batch has touched."""
        count = len(self._heads) - self._ways.cached_sessions
        unused = (one for one in self._heads if one not in coming)
        return list(islice(unused, max(count, 0)))

    # --- reading ---------------------------------------------------------------------

    def head(self, session_id: str) -> Head | None:
        """The head of a session; None for no session."""
        entry = self._heads.get(session_id)
        if entry is not None:
            return entry.head
        try:
            data = self._rocks.get(rows.HEAD + text_key(session_id))
        except UnicodeEncodeError:
            return None
        return None if data is None else self._decoded(rows.decode_head, data)

    def state(self, session_id: str, *, at_seq: int | None = None) -> SessionState | None:
        """The state at the head, or as it was at a seq; the caller may keep it."""
        entry = self._heads.get(session_id)
        head = entry.head if entry else self.head(session_id)
        if head is None:
            return None
        if at_seq is None or at_seq == head.seq:
            if entry is not None:
                return copy_of(entry.state)
            cached = self._read.get(session_id)
            if cached is not None and cached[1].chain_head == head.head_hash:
                return copy_of(cached[1])
            entry = self._restored(session_id, head)
            if entry is None:
                return None
            self._read.put(0, entry.state)
            return copy_of(entry.state)
        if not head.first_seq <= at_seq < head.seq:
            return None
        return restore(self._source(session_id, at_seq))

    def _restored(self, session_id: str, head: Head | None = None) -> _Entry | None:
        """The head from the rows: a state that was kept and the events after it."""
        head = head or self.head(session_id)
        if head is None:
            return None
        source = self._source(session_id, head.seq)
        data = self._rocks.get(rows.STATE + text_key(session_id))
        kept = None if data is None else self._decoded(decode_state, data)
        state: SessionState | None = None
        if kept is not None and kept.seq <= head.seq:
            state = carry_on(source, kept)
        if state is None:
            state = restore(source)
        if state is None or state.chain_head != head.head_hash:
            raise broken(self._ways.url, session_id, head.seq, "it is not in the store")
        places = head.places(text_key(session_id))
        return _Entry(state, head, kept.seq if kept else 0, places)

    def _source(self, session_id: str, upto_seq: int) -> Source:
        return Source(
            self._ways.url,
            session_id,
            self._ways.codec,
            self._snapshots(session_id, upto_seq=upto_seq, reverse=True),
            lambda after: self.stored_events(
                session_id, after_seq=after, upto_seq=upto_seq
            ),
        )

    def stored_events(
        self, session_id: str, *, after_seq: int = 0, upto_seq: int | None = None
    ) -> Iterator[StoredEvent]:
        """Events with after_seq < seq <= upto_seq, undecoded, in order."""
        last = rows.MAX_SEQ - 1 if upto_seq is None else upto_seq
        for key, value in self._of_session(
            rows.EVENT, session_id, max(after_seq, -1) + 1, last
        ):
            yield StoredEvent(rows.seq_of(key), *rows.unpack_event(value))

    def stored_snapshots(self, session_id: str) -> Iterator[StoredSnapshot]:
        """The snapshots of a session, the oldest first."""
        return self._snapshots(session_id, upto_seq=rows.MAX_SEQ - 1)

    def _snapshots(
        self, session_id: str, *, upto_seq: int, reverse: bool = False
    ) -> Iterator[StoredSnapshot]:
        for key, value in self._of_session(
            rows.SNAPSHOT, session_id, 0, upto_seq, reverse=reverse
        ):
            digest, body = value[: rows.DIGEST_BYTES], value[rows.DIGEST_BYTES :]
            yield StoredSnapshot(rows.seq_of(key), body, digest)

    def _of_session(
        self,
        kind: bytes,
        session_id: str,
        first_seq: int,
        last_seq: int,
        *,
        reverse: bool = False,
    ) -> Iterator[tuple[bytes, bytes]]:
        try:
            prefix = kind + text_key(session_id)
        except UnicodeEncodeError:
            return iter(())
        start, end = prefix + seq_key(first_seq), prefix + seq_key(last_seq + 1)
        return self._rocks.scan(start, end, reverse=reverse)

    def stored_sessions(self) -> Iterator[StoredSession]:
        """The index, in the order of the session ids."""
        for _, value in self._rocks.scan(rows.HEAD, rows.after(rows.HEAD)):
            yield self._decoded(rows.decode_head, value).stored()

    def sessions(self, listing: Listing) -> list[SessionSummary]:
        """Sessions that are asked for, the most recently active first."""
        if listing.pending or listing.parent_session_id is not None:
            found = self._members(listing)
        else:
            found = self._recent(listing)
        fitting = (head.summary() for head in found if listing.fits(head))
        return list(islice(fitting, min(listing.limit, sys.maxsize)))

    def _members(self, listing: Listing) -> Iterable[Head]:
        if listing.parent_session_id is not None:
            prefix = rows.members(rows.PARENT, listing.parent_session_id)
        else:
            prefix = rows.members(rows.PENDING, "")
        ids = (
            rows.text_of(key[len(prefix) :])[0]
            for key, _ in self._rocks.scan(prefix, rows.after(prefix))
        )
        heads = [head for session_id in ids if (head := self.head(session_id))]
        return sorted(heads, key=rows.order_of, reverse=True)

    def _recent(self, listing: Listing) -> Iterator[Head]:
        statuses = STATUSES if listing.status is None else (listing.status,)
        ways = [self._recent_of(listing, status) for status in statuses]
        for _, session_id in heapq.merge(*ways, reverse=True):
            head = self.head(session_id)
            if head is not None:
                yield head

    def _recent_of(self, listing: Listing, status: str) -> Iterator[tuple[int, str]]:
        prefix = rows.recent(status, listing.tenant)
        end = rows.after(prefix)
        if listing.before is not None:
            end = prefix + rows.when_key(*listing.before)
        for key, _ in self._rocks.scan(prefix, end, reverse=True):
            yield rows.when_of(key, prefix)

    def inspect(self) -> Iterator[Problem]:
        """Rows that are missing, by the numbers that were written along with them."""
        meta = self._meta
        for what, kind, wanted in (
            ("sessions", rows.HEAD, meta.sessions),
            ("events", rows.EVENT, meta.events),
        ):
            found = sum(1 for _ in self._rocks.scan(kind, rows.after(kind)))
            if found < wanted:
                yield Problem("", 0, f"{found} {what} in {self.folder}, {wanted} written")

    def checkpoint(self, folder: Path) -> None:
        """Write a whole copy of it to a folder that is not there yet."""
        self._rocks.checkpoint(folder)

    def close(self) -> None:
        """Let go of the folder."""
        self._rocks.close()

    def _decoded(self, decode: Callable[[bytes], _Row], data: bytes) -> _Row:
        try:
            return decode(data)
        except DecodeError as error:
            raise TableCorruptError(str(self.folder), error.reason) from error


def _why_not(state: SessionState, session_id: str, recorded: Recorded) -> str:
    """Why an event cannot be the next of a session; empty if it is."""
    seq = recorded.seq
    if not state.seq and not isinstance(recorded.event, SessionCreated):
        return "a hole: nothing before it is in the topic"
    if state.seq and seq != state.seq + 1:
        return f"a hole: the last event before it is seq {state.seq}"
    return misplaced(recorded, session_id, seq, state.chain_head)


def open_store(folder: Path, *, log_id: str, partition: int, ways: Ways) -> EventStore:
    """Open a store; one that cannot be used is set aside and begun again.

    Raises:
        LogUnavailableError: another process holds its lock, or no space.
    """
    return open_or_set_aside(
        folder,
        lambda: EventStore.open(folder, log_id=log_id, partition=partition, ways=ways),
    )
