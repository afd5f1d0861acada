"""What a store does with sessions whose events were deleted before they were read.

The workers know more: they publish the states of sessions, and which ones are lost. From
there a session that is whole goes on; of one that is lost the events are kept, no state.
Either way a row says which events are missing, so that nobody reads over the hole.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from foldline.errors import SessionTruncatedError
from foldline.processors import event_rows as rows
from foldline.processors.batch import snapshot_of
from foldline.processors.event_rows import Head, text_key
from foldline.processors.lost_sessions import encode_lost
from foldline.processors.rocks import Batch
from foldline.processors.state_codec import encode_state
from foldline.processors.stored import StoredEvent
from foldline.schemas.recorded import Recorded
from foldline.schemas.state import SessionState
from foldline.schemas.topic_records import LostSession


@dataclass(slots=True)
class LostTouched:
    """What a batch does to a lost session."""

    head: Head
    gap: LostSession
    events: list[StoredEvent] = field(default_factory=list[StoredEvent])

    def take(self, recorded: Recorded) -> None:
        """One more event that is there; it is folded into nothing."""
        envelope, seq = recorded.envelope, recorded.seq
        if seq <= (self.head.seq if self.gap.next_seq else self.gap.known_seq):
            return  # repeated
        if not self.gap.next_seq:
            self.gap = with_next(self.gap, seq)
        self.events.append(StoredEvent(seq, recorded.schema_id, recorded.body))
        self.head = msgspec.structs.replace(
            self.head,
            seq=max(seq, self.head.seq),
            recorded_at=envelope.recorded_at,
            tenant=self.head.tenant or envelope.tenant,
        )

    def finish(self, batch: Batch, before: Head) -> None:
        """Put its rows into a batch."""
        for event in self.events:
            put_event(batch, self.head.session_id, event)
        put_head(batch, self.head, places_of(before))
        put_gap(batch, self.gap)


def with_next(gap: LostSession, seq: int) -> LostSession:
    """The gap, with the first event that is there after it."""
    return gap.model_copy(update={"next_seq": seq})


def put_event(batch: Batch, session_id: str, event: StoredEvent) -> None:
    """Put the row of an event into a batch."""
    key = rows.EVENT + text_key(session_id) + rows.seq_key(event.seq)
    batch.put(key, rows.pack_event(event.schema_id, event.body))


def put_gap(batch: Batch, gap: LostSession) -> None:
    """Put what is missing of a session into a batch."""
    batch.put(rows.GAP + text_key(gap.session_id), encode_lost(gap))


def put_head(batch: Batch, head: Head, old: frozenset[bytes]) -> frozenset[bytes]:
    """Put a head and its rows in the indexes into a batch.

    Args:
        batch: what is written.
        head: the new head.
        old: the keys of the rows that it had.

    Returns:
        Those that it has now.
    """
    session = text_key(head.session_id)
    batch.put(rows.HEAD + session, rows.encode_row(head))
    places = head.places(session)
    for key in old - places:
        batch.delete(key)
    for key in places - old:
        batch.put(key, b"")
    return places


def places_of(head: Head | None) -> frozenset[bytes]:
    """The keys of a head's rows in the indexes; none for no head."""
    return head.places(text_key(head.session_id)) if head else frozenset()


def put_whole(batch: Batch, state: SessionState, before: Head | None) -> None:
    """Put a session into a batch that goes on from its published state."""
    head = rows.head_of(
        state,
        first_seq=before.first_seq if before else state.seq,
        labels=before.labels if before else (),
        base_seq=state.seq,
    )
    session, kept = text_key(state.session_id), snapshot_of(state)
    batch.put(rows.STATE + session, encode_state(state))
    key = rows.SNAPSHOT + session + rows.seq_key(kept.seq)
    batch.put(key, kept.digest + kept.body)
    put_head(batch, head, places_of(before))


def put_lost(batch: Batch, gap: LostSession, before: Head | None) -> None:
    """Put a session into a batch whose state nobody knows."""
    blank = Head(
        session_id=gap.session_id,
        seq=gap.known_seq,
        status=rows.LOST,
        epoch=0,
        owner="",
        head_hash=b"",
        tenant=gap.tenant,
        agent="",
        mode="",
        parent_session_id="",
        created_at=0,
        recorded_at=0,
        first_seq=0,
        pending=0,
        labels=(),
    )
    lost = msgspec.structs.replace(
        before or blank, status=rows.LOST, pending=0, owner="", base_seq=0
    )
    put_head(batch, lost, places_of(before))


def gap_between(
    session_id: str, tenant: str, before: Head | None, *, cut: tuple[int, int]
) -> LostSession:
    """What is missing here of a session that others know to be whole.

    Args:
        session_id: the session.
        tenant: its tenant.
        before: its head here; None where it has none.
        cut: the first offset of `events` that is missing here, and the first that is not.
    """
    known_seq = before.seq if before else 0
    return LostSession(
        session_id=session_id,
        tenant=tenant,
        partition=-1,
        known_seq=known_seq,
        next_seq=0,
        from_offset=cut[0],
        to_offset=cut[1],
        detail="deleted before they were read here",
    )


def truncated(gap: LostSession, topic: str, *, unrecoverable: bool) -> Exception:
    """The error of whoever asks for what is missing."""
    return SessionTruncatedError(
        gap.session_id,
        topic=topic,
        tenant=gap.tenant,
        known_seq=gap.known_seq,
        next_seq=gap.next_seq,
        needed=gap.from_offset,
        low=gap.to_offset,
        unrecoverable=unrecoverable,
    )


def without_holes(
    events: Iterator[StoredEvent],
    gap: LostSession,
    error: Exception,
    *,
    after_seq: int,
    upto_seq: int | None,
    base_seq: int,
) -> Iterator[StoredEvent]:
    """Events up to a hole, or from behind it on; never over it.

    Args:
        events: what is there of the range.
        gap: which ones are missing.
        error: for who asks for these.
        after_seq: where the range begins.
        upto_seq: where it ends.
        base_seq: that of the state from which the session goes on; 0 for none.

    Raises:
        SessionTruncatedError: the range goes into the hole; those before it were given.
    """
    first_behind = gap.next_seq or (base_seq + 1 if base_seq else 0)
    if first_behind and after_seq >= first_behind - 1:
        yield from events
        return
    for event in events:
        if event.seq > gap.known_seq:
            break
        yield event
    if upto_seq is None or upto_seq > gap.known_seq:
        raise error
