"""Which sessions are lost when `events` was cut off above where a restore begins.

Between the states that a restore begins with and the first event that is still there,
nobody knows what happened. A session whose next event is there is whole. One whose next
event is a later one has lost those between. And one that has no event there at all may
have had some: its appends tell. They are judged on the state as it is known, in the
order in which they were answered: the first that is accepted is an event that is gone
(admission is deterministic). Where `appends` does not reach back far enough, whatever
is not proven to be whole is lost: a state that may be old is not given out as the newest.

A lost session keeps no state. That it is lost is published, and is never judged again.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from foldline.errors import DecodeError, NewerFormatError
from foldline.processors.admission import admit, log_time
from foldline.processors.kafka_records import (
    decode_append,
    incoming_of,
    schema_id_of,
)
from foldline.processors.lost_sessions import words_of
from foldline.processors.partition import Partition
from foldline.schemas.codec import Codec
from foldline.schemas.events import SessionCreated
from foldline.schemas.recorded import Append
from foldline.schemas.topic_records import LostSession

if TYPE_CHECKING:
    from confluent_kafka import Message

SAID_AT_MOST = 20
"""How many lost sessions one restore describes; of the others it says how many."""


class Losses:
    """What one restore finds out. `judge` comes first, then `look`, then `settle`."""

    def __init__(
        self,
        partition: Partition,
        codec: Codec,
        *,
        from_offset: int,
        to_offset: int,
        is_complete: bool,
        warn: Callable[[str], None],
    ) -> None:
        """Begin.

        Args:
            partition: as it is before the events that are left are folded.
            codec: decodes with the writers' schemas.
            from_offset: where the deleted events began, in `events`.
            to_offset: the first offset that is left.
            is_complete: whether every append is there that became one of them.
            warn: says which sessions are lost.
        """
        self._partition = partition
        self._codec = codec
        self._from_offset = from_offset
        self._to_offset = to_offset
        self._is_complete = is_complete
        self._warn = warn
        self._suspects: dict[str, LostSession] = {}
        self._past: set[str] = set()
        self._seen: set[str] = set()
        self.count = 0

    def judge(self, message: "Message", schema_ids: frozenset[int]) -> None:
        """Look whether an append became an event that is gone.

        Args:
            message: the next record of `appends`.
            schema_ids: those in force; an append of any other was refused.
        """
        incoming = incoming_of(message)
        try:
            if schema_id_of(incoming.value) not in schema_ids:
                return  # a control record, too
            append = decode_append(incoming, self._codec)
        except (DecodeError, NewerFormatError):
            return
        session_id = append.envelope.session_id
        if message.key() == session_id.encode(errors="replace") and (
            self._partition.lost(session_id) is None
        ):
            self._judge(session_id, append, incoming.timestamp_us)

    def _judge(self, session_id: str, append: Append, timestamp_us: int) -> None:
        state = self._partition.state(session_id)
        seq = state.seq_of(append.envelope.event_id) if state else None
        if state is not None and seq is not None:
            # What came before the first copy of its last event is in the state.
            if seq == state.seq and session_id not in self._past:
                self._past.add(session_id)
                self._suspects.pop(session_id, None)
            return
        if session_id in self._suspects:
            return
        now = log_time(state, timestamp_us)
        known_seq = state.seq if state else 0
        if admit(state, append, now=now).envelope is not None:
            detail = "an append to it was accepted, and its event is gone"
        elif not self._is_complete and append.known_seq > known_seq:
            detail = f"a writer knew an event at seq {append.known_seq}"
        else:
            return
        tenant = state.tenant if state else append.envelope.tenant
        self._suspects[session_id] = self._lost(session_id, tenant, known_seq, 0, detail)

    def look(self, schema_id: int, body: bytes) -> None:
        """Compare a session's first event that is left with its state.

        Raises:
            RegistryUnavailableError: the schema's text cannot be had now.
        """
        try:
            recorded = self._codec.decode_structure(schema_id, body)
        except DecodeError:
            return  # the refold says so
        envelope = recorded.envelope
        session_id, seq = envelope.session_id, envelope.seq
        if session_id in self._seen:
            return
        self._seen.add(session_id)
        if self._partition.lost(session_id) is not None:
            return
        state = self._partition.state(session_id)
        known_seq = state.seq if state else 0
        begins = state is None and isinstance(recorded.event, SessionCreated)
        if begins or (state is not None and seq <= known_seq + 1):
            self._suspects.pop(session_id, None)
            return
        detail = "an event is there that does not follow what is known"
        self._lose(self._lost(session_id, envelope.tenant, known_seq, seq, detail))

    def settle(self, session_ids: Iterable[str]) -> None:
        """Mark who is lost without an event that is left.

        Args:
            session_ids: of every session that has a state.
        """
        for lost in list(self._suspects.values()):
            self._lose(lost)
        if self._is_complete:
            return
        detail = "appends were deleted, too: whether it had events is not known"
        for session_id in session_ids:
            state = self._partition.state(session_id)
            if session_id not in self._seen and state is not None:
                self._lose(self._lost(session_id, state.tenant, state.seq, 0, detail))

    def lose_all(self, session_ids: Iterable[str], detail: str) -> None:
        """Mark these as lost if nothing could be folded of them."""
        for session_id in session_ids:
            known = self._partition.state(session_id) or self._partition.lost(session_id)
            if known is None:
                self._lose(self._lost(session_id, "", 0, 0, detail))

    def _lost(
        self, session_id: str, tenant: str, known_seq: int, next_seq: int, detail: str
    ) -> LostSession:
        return LostSession(
            session_id=session_id,
            tenant=tenant,
            partition=self._partition.index,
            known_seq=known_seq,
            next_seq=next_seq,
            from_offset=self._from_offset,
            to_offset=self._to_offset,
            detail=detail,
        )

    def _lose(self, lost: LostSession) -> None:
        self._suspects.pop(lost.session_id, None)
        self._partition.lose(lost)
        self.count += 1
        if self.count <= SAID_AT_MOST:
            self._warn(f"session {lost.session_id!r} is UNRECOVERABLE: {words_of(lost)}")
