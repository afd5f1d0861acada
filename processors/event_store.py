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
from itertools import islice
from pathlib import Path
from typing import TypeVar

from foldline.errors import DecodeError, TableCorruptError
from foldline.processors import event_cut
from foldline.processors import event_rows as rows
from foldline.processors.event_intake import Entry, EventRecord, Intake, Ways, keep
from foldline.processors.event_rows import Meta, text_key
from foldline.processors.fold import copy_of
from foldline.processors.log import SessionSummary, order_of
from foldline.processors.lost_sessions import decode_lost
from foldline.processors.restore import Source, broken, carry_on, restore
from foldline.processors.rocks import (
    META,
    PAGE_ROWS,
    Batch,
    Rocks,
    open_or_set_aside,
    read_meta,
)
from foldline.processors.state_cache import StateCache
from foldline.processors.state_codec import LAYOUT, decode_state
from foldline.processors.stored import (
    Problem,
    StoredEvent,
    StoredSession,
    StoredSnapshot,
)
from foldline.schemas.state import STATUSES, SessionState
from foldline.schemas.topic_records import LostSession

_Row = TypeVar("_Row")
_Known = TypeVar("_Known", SessionState, LostSession)

TAKEN_OVER = 500
"""How many sessions are written at once that go on from what the workers know."""

STORE_FORMAT = 1
"""The version of the rows, beside the layout of states."""


class EventStore:
    """One open store.

    Raises (each): TableCorruptError for damage, LogUnavailableError for no space or a
    store that was closed meanwhile.
    """

    def __init__(self, rocks: Rocks, meta: Meta, ways: Ways) -> None:
        self._rocks = rocks
        self._meta = meta
        self._ways = ways
        self._heads: OrderedDict[str, Entry] = OrderedDict()
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

    @property
    def cached_sessions(self) -> int:
        """How many heads are in memory."""
        return len(self._heads)

    # --- taking in -------------------------------------------------------------------

    def apply(self, records: Sequence[EventRecord]) -> set[str]:
        """Take in records, in the order of their offsets; the sessions that changed.

        Raises:
            LogFormatError: a hole, or an event that is not the one recorded there; it
                names session and seq. Nothing of the batch is kept.
        """
        intake = Intake(self._ways, self._entry, self._event_at, self._gap_of)
        for one in records:
            if one.offset >= self.next_offset:
                intake.take(one)
        if not records or records[-1].offset < self.next_offset:
            return set()
        return self._write(intake, records[-1].offset + 1)

    def _entry(self, session_id: str) -> Entry | None:
        return self._heads.get(session_id) or self._restored(session_id)

    def _event_at(self, session_id: str, seq: int) -> tuple[int, bytes] | None:
        data = self._rocks.get(rows.EVENT + text_key(session_id) + rows.seq_key(seq))
        return None if data is None else rows.unpack_event(data)

    def _write(self, intake: Intake, next_offset: int) -> set[str]:
        batch = Batch()
        heads = intake.finish(batch)
        leaving = self._leaving(heads)
        for session_id in leaving:
            entry = self._heads[session_id]
            if entry.kept_seq != entry.state.seq:
                keep(batch, entry.state)
        meta = Meta(
            self._meta.identity,
            next_offset,
            self._meta.sessions + intake.new_sessions,
            self._meta.events + intake.new_events,
            self._meta.gaps,
        )
        batch.put(META, rows.encode_row(meta))
        self._rocks.write(batch)
        self._meta = meta
        self.duplicates += intake.duplicates
        for session_id in leaving:
            del self._heads[session_id]
        for session_id, entry in heads.items():
            self._heads[session_id] = entry
            self._heads.move_to_end(session_id)
        self.next_offset = next_offset
        return intake.changed

    def _leaving(self, coming: Container[str]) -> list[str]:
        """Heads that leave memory: the longest unused, none that a batch has touched."""
        count = len(self._heads) - self._ways.cached_sessions
        unused = (one for one in self._heads if one not in coming)
        return list(islice(unused, max(count, 0)))

    def advance(self, offset: int) -> None:
        """Say that nothing is below an offset that is not taken in (markers only)."""
        self.next_offset = max(self.next_offset, offset)

    # --- what was deleted before it was read -----------------------------------------

    def go_on_behind(
        self,
        first_offset: int,
        states: Iterable[SessionState],
        lost: Callable[[], Iterable[LostSession]],
    ) -> None:
        """Go on at the first record that is left, from what the workers know.

        Args:
            first_offset: its offset.
            states: the published states: of every session with an event below it that is
                not lost.
            lost: gives the sessions that are lost, once the states are taken in.
        """
        cut = (self.next_offset, first_offset)
        self._heads.clear()
        for some in batched(states):
            self._take_over(some, cut, event_cut.put_whole)
        for some in batched(lost()):
            self._take_over(some, cut, event_cut.put_lost)
        meta = self._meta
        batch = Batch()
        self._write_meta(batch, first_offset, meta.sessions, meta.gaps)
        self.next_offset = first_offset

    def _take_over(
        self,
        some: Sequence[_Known],
        cut: tuple[int, int],
        put: Callable[[Batch, _Known, rows.Head | None], None],
    ) -> None:
        """Write some sessions that have events which are not here."""
        batch = Batch()
        sessions, gaps = self._meta.sessions, self._meta.gaps
        newest = {one.session_id: one for one in some}
        for one in newest.values():
            before = self.head(one.session_id)
            if isinstance(one, SessionState) and before and before.seq >= one.seq:
                continue
            put(batch, one, before)
            known = self._gap_of(one.session_id)
            gap = event_cut.gap_between(one.session_id, one.tenant, before, cut=cut)
            event_cut.put_gap(batch, known[1] if known else gap)
            sessions += before is None
            gaps += known is None
        self._write_meta(batch, self._meta.next_offset, sessions, gaps)

    def _write_meta(self, batch: Batch, next_offset: int, sessions: int, gaps: int) -> None:
        meta = Meta(self._meta.identity, next_offset, sessions, self._meta.events, gaps)
        batch.put(META, rows.encode_row(meta))
        self._rocks.write(batch)
        self._meta = meta

    def _gap_of(self, session_id: str) -> tuple[rows.Head, LostSession] | None:
        """The head of a session that has had events deleted, and which; else None."""
        if not self._meta.gaps:
            return None
        head = self.head(session_id)
        if head is None:
            return None
        data = self._rocks.get(rows.GAP + text_key(session_id))
        return None if data is None else (head, self._decoded(decode_lost, data))

    def _refuse_lost(self, session_id: str, at_seq: int | None) -> None:
        """Refuse a state that rests on what was deleted.

        Raises:
            SessionTruncatedError: it does.
        """
        found = self._gap_of(session_id)
        if found is None:
            return
        head, gap = found
        is_known = not head.is_lost or (at_seq is not None and at_seq <= gap.known_seq)
        if is_known and not (gap.known_seq < (at_seq or head.seq) < head.base_seq):
            return
        raise event_cut.truncated(gap, self._ways.url, unrecoverable=head.is_lost)

    # --- reading ---------------------------------------------------------------------

    def head(self, session_id: str) -> rows.Head | None:
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
        if entry is None or head.base_seq:
            self._refuse_lost(session_id, at_seq)
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
        return restore(self._source(session_id, at_seq, base_seq=head.base_seq))

    def _restored(self, session_id: str, head: rows.Head | None = None) -> Entry | None:
        """The head from the rows: a state that was kept and the events after it."""
        head = head or self.head(session_id)
        if head is None:
            return None
        source = self._source(session_id, head.seq, base_seq=head.base_seq)
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
        return Entry(state, head, kept.seq if kept else 0, places)

    def _source(self, session_id: str, upto_seq: int, *, base_seq: int) -> Source:
        return Source(
            self._ways.url,
            session_id,
            self._ways.codec,
            self._snapshots(session_id, upto_seq=upto_seq, reverse=True),
            lambda after: self._events(session_id, after_seq=after, upto_seq=upto_seq),
            base_seq,
        )

    def stored_events(
        self, session_id: str, *, after_seq: int = 0, upto_seq: int | None = None
    ) -> Iterator[StoredEvent]:
        """Events with after_seq < seq <= upto_seq, undecoded, in order.

        Raises:
            SessionTruncatedError: some of them were deleted; those before were given.
        """
        events = self._events(session_id, after_seq=after_seq, upto_seq=upto_seq)
        found = self._gap_of(session_id) if self._meta.gaps else None
        if found is None:
            return events
        head, gap = found
        return event_cut.without_holes(
            events,
            gap,
            event_cut.truncated(gap, self._ways.url, unrecoverable=head.is_lost),
            after_seq=after_seq,
            upto_seq=upto_seq,
            base_seq=head.base_seq,
        )

    def _events(
        self, session_id: str, *, after_seq: int, upto_seq: int | None
    ) -> Iterator[StoredEvent]:
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
        start, end = prefix + rows.seq_key(first_seq), prefix + rows.seq_key(last_seq + 1)
        return self._rocks.scan(start, end, reverse=reverse)

    def stored_sessions(
        self, *, after: str = "", parent: str | None = None
    ) -> Iterator[StoredSession]:
        """The index behind a session id, in their order; with `parent`, its children."""
        try:
            behind = text_key(after) + b"\x00" if after else b""
            children = None if parent is None else rows.members(rows.PARENT, parent)
        except UnicodeEncodeError:
            return  # what no session is called
        if children is not None:
            for key, _ in self._rocks.scan(children + behind, rows.after(children)):
                head = self.head(rows.text_of(key[len(children) :])[0])
                if head is not None:
                    yield head.stored()
            return
        for _, value in self._rocks.scan(rows.HEAD + behind, rows.after(rows.HEAD)):
            yield self._decoded(rows.decode_head, value).stored()

    def sessions(self, listing: rows.Listing) -> list[SessionSummary]:
        """Sessions that are asked for, the most recently active first."""
        if listing.pending or listing.parent_session_id is not None:
            found = self._members(listing)
        else:
            found = self._recent(listing)
        fitting = (head.summary() for head in found if listing.fits(head))
        return list(islice(fitting, min(listing.limit, sys.maxsize)))

    def _members(self, listing: rows.Listing) -> Iterable[rows.Head]:
        if listing.parent_session_id is not None:
            prefix = rows.members(rows.PARENT, listing.parent_session_id)
        else:
            prefix = rows.members(rows.PENDING, "")
        ids = (
            rows.text_of(key[len(prefix) :])[0]
            for key, _ in self._rocks.scan(prefix, rows.after(prefix))
        )
        heads = [head for session_id in ids if (head := self.head(session_id))]
        return sorted(heads, key=order_of, reverse=True)

    def _recent(self, listing: rows.Listing) -> Iterator[rows.Head]:
        every = (*STATUSES, rows.LOST)
        statuses = every if listing.status is None else (listing.status,)
        ways = [self._recent_of(listing, status) for status in statuses]
        for _, session_id in heapq.merge(*ways, reverse=True):
            head = self.head(session_id)
            if head is not None:
                yield head

    def _recent_of(self, listing: rows.Listing, status: str) -> Iterator[tuple[int, str]]:
        prefix = rows.recent(status, listing.tenant)
        end = rows.after(prefix)
        if listing.before is not None:
            end = prefix + rows.when_key(*listing.before)
        page_rows = min(max(listing.limit, 1), PAGE_ROWS)
        found = self._rocks.scan(prefix, end, reverse=True, page_rows=page_rows)
        for key, _ in found:
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


def open_store(folder: Path, *, log_id: str, partition: int, ways: Ways) -> EventStore:
    """Open a store; one that cannot be used is set aside and begun again.

    Raises:
        LogUnavailableError: another process holds its lock, or no space.
    """
    return open_or_set_aside(
        folder,
        lambda: EventStore.open(folder, log_id=log_id, partition=partition, ways=ways),
    )


def batched(found: Iterable[_Row]) -> Iterator[list[_Row]]:
    """So many as are written at once."""
    rest = iter(found)
    while some := list(islice(rest, TAKEN_OVER)):
        yield some
