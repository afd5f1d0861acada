"""What becomes of an append that was decided: its event, its verdict, its dead letter."""

from collections.abc import Mapping
from functools import lru_cache

from foldline.errors import NoAppendError
from foldline.processors.kafka_records import (
    APPEND_OFFSET,
    CE_ID,
    CE_SOURCE,
    CE_TIME,
    CE_TYPE,
    NO_KEY,
    REPLY_TO,
    TRACEPARENT,
    Headers,
    Incoming,
    Outgoing,
    ce_source,
    ce_time,
    encode_verdict,
    utf8,
)
from foldline.processors.kept import short
from foldline.processors.partition_shapes import Counters, Outcome, RecordIds
from foldline.schemas.envelope import Envelope
from foldline.schemas.events import type_of
from foldline.schemas.record_codec import frame_record
from foldline.schemas.recorded import Append
from foldline.schemas.topic_records import (
    LOST_KEY,
    DeadLetter,
    Header,
    LostSession,
    RefusedAppend,
)
from foldline.schemas.verdicts import (
    DUPLICATE,
    MISROUTED,
    TOO_LARGE,
    UNDECODABLE,
    Verdict,
)
from foldline.topics import MAX_APPEND_RECORD_BYTES, partition_for

MAX_REPLY_TO_BYTES = 512
"""How long the id of a client that waits may be; a longer one gets no answer."""

BYTES_PER_HEADER = 4
"""What a header takes beside its name and value, at the least."""

_WORDS = {
    UNDECODABLE: "bad_envelope",
    MISROUTED: "foreign_session",
    TOO_LARGE: "too_large",
}
"""Refusals of admission whose bytes are kept as dead letters."""

HeaderMap = Mapping[str, bytes | None]


class Answers:
    """Writes the records that answer the appends of one partition."""

    def __init__(self, index: int, *, partitions: int, ids: RecordIds) -> None:
        self._index = index
        self._ids = ids
        self._partitions = partitions
        self.counters = Counters()

    def event(
        self,
        outcome: Outcome,
        record: Incoming,
        envelope: Envelope,
        event_type: str,
        value: bytes,
    ) -> None:
        """An admitted event; its headers are said anew from what was admitted."""
        headers: Headers = [
            (CE_ID, envelope.event_id.encode()),
            (CE_TYPE, event_type.encode()),
            (CE_SOURCE, ce_source(envelope.session_id)),
            (CE_TIME, ce_time(envelope.recorded_at)),
            (APPEND_OFFSET, b"%d" % record.offset),
        ]
        if envelope.traceparent is not None:
            headers.append((TRACEPARENT, envelope.traceparent.encode()))
        outcome.events.append(Outgoing(self._index, record.key or b"", value, headers))
        self.counters.events += 1
        self.counters.event_bytes += len(value)

    def verdict(
        self, outcome: Outcome, record: Incoming, headers: HeaderMap, verdict: Verdict
    ) -> None:
        """The answer to whoever waits for it."""
        counts = self.counters.verdicts
        counts[verdict.kind] = counts.get(verdict.kind, 0) + 1
        reply_to = headers.get(REPLY_TO)
        if not reply_to:
            return
        place = _place(reply_to, self._partitions)
        if place >= 0:
            value = encode_verdict(
                verdict, schema_id=self._ids.verdict, append_offset=record.offset
            )
            outcome.verdicts.append(Outgoing(place, reply_to, value))

    def refused(
        self,
        outcome: Outcome,
        record: Incoming,
        headers: HeaderMap,
        append: Append,
        verdict: Verdict,
    ) -> None:
        """What admission refused: a pointer to it, or its bytes where it is no append."""
        self.verdict(outcome, record, headers, verdict)
        if verdict.kind == DUPLICATE:
            return
        word = _WORDS.get(verdict.kind)
        if word is not None:
            self._dead_letter(outcome, record, verdict, word)
            return
        envelope = append.envelope
        pointer = RefusedAppend(
            session_id=envelope.session_id,
            event_id=envelope.event_id,
            event_type=type_of(append.event),
            writer=envelope.writer,
            partition=self._index,
            offset=record.offset,
            recorded_at=record.timestamp_us,
            kind=verdict.kind,
            rule=verdict.rule,
            detail=verdict.detail,
            known_seq=append.known_seq,
            expected_seq=append.expected_seq,
        )
        self._reject(outcome, record, frame_record(self._ids.refused_append, pointer))

    def no_append(
        self,
        outcome: Outcome,
        record: Incoming,
        headers: HeaderMap,
        error: NoAppendError,
        *,
        rules_version: int,
    ) -> None:
        """What could not be asked: a dead letter, answered through its headers."""
        verdict = Verdict(
            kind=error.kind,
            session_id=_text(record.key),
            event_id=_text(headers.get("ce_id")),
            recorded_at=record.timestamp_us,
            detail=short(error.reason),
            rules_version=rules_version,
        )
        self.verdict(outcome, record, headers, verdict)
        self._dead_letter(outcome, record, verdict, error.word)

    def _dead_letter(
        self, outcome: Outcome, record: Incoming, verdict: Verdict, word: str
    ) -> None:
        reasons = self.counters.reasons
        reasons[word] = reasons.get(word, 0) + 1
        kept = _size(record) <= MAX_APPEND_RECORD_BYTES
        note = "" if kept else f" ({_size(record)} bytes, left where they are)"
        letter = DeadLetter(
            session_id=_text(record.key),
            partition=self._index,
            offset=record.offset,
            recorded_at=record.timestamp_us,
            kind=verdict.kind,
            reason=word,
            detail=short(verdict.detail) + note,
            headers=_headers(record) if kept else (),
            key=record.key if kept else None,
            value=record.value if kept else None,
        )
        self._reject(outcome, record, frame_record(self._ids.dead_letter, letter))

    def _reject(self, outcome: Outcome, record: Incoming, value: bytes) -> None:
        key = record.key if record.key and len(record.key) <= MAX_KEY_BYTES else NO_KEY
        outcome.rejected.append(Outgoing(self._index, key, value))


def lost_record(lost: LostSession, schema_id: int) -> Outgoing:
    """What says in `snapshots` that a session is lost."""
    key = LOST_KEY + lost.session_id.encode()
    return Outgoing(lost.partition, key, frame_record(schema_id, lost))


MAX_KEY_BYTES = 8_192
"""How long a key in `rejected` may be: the record holds it a second time."""


@lru_cache(maxsize=4096)
def _place(reply_to: bytes, partitions: int) -> int:
    """The partition of `verdicts` that a client reads; -1 where there is none."""
    if len(reply_to) > MAX_REPLY_TO_BYTES:
        return -1
    try:
        return partition_for(reply_to.decode(), partitions)
    except UnicodeDecodeError:
        return -1


def _text(data: bytes | None) -> str:
    """Bytes from outside as a short text."""
    return short((data or b"").decode(errors="replace"))


def _headers(record: Incoming) -> tuple[Header, ...]:
    return tuple(
        Header.trusted({"name": utf8(name).decode(), "value": value or b""})
        for name, value in record.headers or ()
    )


def _size(record: Incoming) -> int:
    """About how many bytes a record has."""
    headers = sum(
        len(name) + len(value or b"") + BYTES_PER_HEADER
        for name, value in record.headers or ()
    )
    return len(record.key or b"") + len(record.value or b"") + headers
