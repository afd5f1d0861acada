"""The rows of an event store: keys that sort as sessions and seqs do, heads, indexes.

| key | value |
| --- | --- |
| `m` | what it is, the next offset, how many sessions and events |
| `e` session seq | schema id (4 bytes), Avro body |
| `n` session seq | SHA-256 of a snapshot, its body |
| `c` session | a recent state, not always the newest |
| `g` session | which of its events were deleted before they were read |
| `h` session | the head: what listings and the index say |
| `r` status recorded_at session | nothing: by last activity |
| `t` tenant status recorded_at session | nothing: the same of one tenant |
| `x` kind value session | nothing: children of a parent, sessions that wait |

A text within a key ends with 00 01, and a zero byte in it is written 00 FF: so no id is
the beginning of another one's key, and keys sort as the texts do.
"""

import struct
from dataclasses import dataclass

import msgspec

from foldline.errors import DecodeError
from foldline.processors.log import ListPlace, SessionSummary, order_of
from foldline.processors.rocks import MetaRow
from foldline.processors.stored import StoredSession, index_fields
from foldline.schemas.events import LabelsSet, SessionCreated
from foldline.schemas.recorded import Recorded
from foldline.schemas.state import SessionState

EVENT = b"e"
SNAPSHOT = b"n"
STATE = b"c"
HEAD = b"h"
GAP = b"g"
RECENT = b"r"
RECENT_OF_TENANT = b"t"
MEMBER = b"x"

LOST = "UNRECOVERABLE"
"""The status of a session whose state nobody knows."""

PENDING = "pending"
PARENT = "parent"

MAX_SEQ = 2**64 - 1
_SEQ = struct.Struct(">Q")
_SCHEMA_ID = struct.Struct(">I")
_TIME_BIAS = 2**63

DIGEST_BYTES = 32


def text_key(text: str) -> bytes:
    """A text within a key. UnicodeEncodeError for a lone surrogate: in no row."""
    return text.encode().replace(b"\x00", b"\x00\xff") + b"\x00\x01"


def text_of(data: bytes) -> tuple[str, bytes]:
    """The text at the beginning of a key, and what follows it."""
    end = data.index(b"\x00\x01")
    return data[:end].replace(b"\x00\xff", b"\x00").decode(), data[end + 2 :]


def seq_key(seq: int) -> bytes:
    """A seq within a key."""
    return _SEQ.pack(min(max(seq, 0), MAX_SEQ))


def seq_of(key: bytes) -> int:
    """The seq at the end of a key."""
    return _SEQ.unpack(key[-8:])[0]


def pack_event(schema_id: int, body: bytes) -> bytes:
    """The value of an event's row."""
    return _SCHEMA_ID.pack(schema_id) + body


def unpack_event(value: bytes) -> tuple[int, bytes]:
    """Schema id and body of an event's row."""
    return _SCHEMA_ID.unpack_from(value)[0], value[4:]


class Meta(MetaRow, array_like=True):
    """The meta row."""

    next_offset: int = 0
    sessions: int = 0
    events: int = 0
    gaps: int = 0
    """How many sessions have had events deleted."""


class Head(msgspec.Struct, array_like=True):
    """The head of a session: a StoredSession's fields first, in their order.

    `first_seq` is that of its first event.
    """

    session_id: str
    seq: int
    status: str
    epoch: int
    owner: str
    head_hash: bytes
    tenant: str
    agent: str
    mode: str
    parent_session_id: str
    created_at: int
    recorded_at: int
    first_seq: int
    pending: int
    """How many requests (permission, input) wait for an answer."""
    labels: tuple[tuple[str, str], ...]
    base_seq: int = 0
    """The seq of a published snapshot that it goes on from; 0: its events are all here."""

    @property
    def is_lost(self) -> bool:
        """Whether nobody knows its state."""
        return self.status == LOST

    def stored(self) -> StoredSession:
        """The session as verify sees it."""
        return StoredSession(*(getattr(self, name) for name in _STORED))

    def summary(self) -> SessionSummary:
        """The session as a listing shows it."""
        return SessionSummary(*(getattr(self, name) for name in _SUMMARY))

    def places(self, session: bytes) -> frozenset[bytes]:
        """The keys of its rows in every index; `session` is `text_key` of its id."""
        status, tenant = text_key(self.status), text_key(self.tenant)
        when = _SEQ.pack(self.recorded_at + _TIME_BIAS) + session
        keys = {RECENT + status + when, RECENT_OF_TENANT + tenant + status + when}
        if self.parent_session_id:
            keys.add(member_key(PARENT, self.parent_session_id, self.session_id))
        if self.pending:
            keys.add(member_key(PENDING, "", self.session_id))
        return frozenset(keys)


_STORED = StoredSession.__slots__
_SUMMARY = SessionSummary.__slots__

_head_decoder = msgspec.msgpack.Decoder(Head)
encode_row = msgspec.msgpack.Encoder().encode


def decode_head(data: bytes) -> Head:
    """The head of a row (DecodeError)."""
    try:
        return _head_decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise DecodeError(f"no head: {error}") from error


def head_of(
    state: SessionState,
    *,
    first_seq: int,
    labels: tuple[tuple[str, str], ...],
    base_seq: int = 0,
) -> Head:
    """The head that a state gives."""
    return Head(
        *index_fields(state),
        first_seq=first_seq,
        pending=len(state.requests),
        labels=labels,
        base_seq=base_seq,
    )


def labels_in(recorded: Recorded) -> tuple[tuple[str, str], ...] | None:
    """The labels that an event sets; None where it sets none."""
    event = recorded.event
    if isinstance(event, LabelsSet | SessionCreated):
        return tuple((label.key, label.value) for label in event.labels)
    return None


def member_key(kind: str, value: str, session_id: str) -> bytes:
    """A row that says: this session is one of those."""
    return members(kind, value) + text_key(session_id)


def members(kind: str, value: str) -> bytes:
    """What the keys of all of those begin with."""
    return MEMBER + text_key(kind) + text_key(value)


def recent(status: str, tenant: str | None) -> bytes:
    """What the keys of all sessions of a status (and tenant) begin with."""
    if tenant is None:
        return RECENT + text_key(status)
    return RECENT_OF_TENANT + text_key(tenant) + text_key(status)


def when_of(key: bytes, prefix: bytes) -> tuple[int, str]:
    """The time and the session of a key of `recent`."""
    place = key[len(prefix) :]
    return _SEQ.unpack_from(place)[0] - _TIME_BIAS, text_of(place[8:])[0]


def when_key(recorded_at: int, session_id: str) -> bytes:
    """A place within `recent`."""
    return _SEQ.pack(recorded_at + _TIME_BIAS) + text_key(session_id)


def after(prefix: bytes) -> bytes:
    """The first key behind all that begin with a prefix (its last byte is below FF)."""
    return prefix[:-1] + bytes((prefix[-1] + 1,))


@dataclass(frozen=True, slots=True)
class Listing:
    """What a listing asks for; None: any. The most recently active come first.

    `pending` asks for sessions in which a request waits for an answer. `before` goes on
    behind the last session of the page before: its recorded_at and session_id.
    """

    tenant: str | None = None
    status: str | None = None
    agent: str | None = None
    parent_session_id: str | None = None
    label: tuple[str, str] | None = None
    pending: bool = False
    before: ListPlace | None = None
    limit: int = 100

    def fits(self, head: Head) -> bool:
        """Whether a session is one of those that are asked for."""
        return (
            self.tenant in (None, head.tenant)
            and self.status in (None, head.status)
            and self.agent in (None, head.agent)
            and self.parent_session_id in (None, head.parent_session_id)
            and self.label in (None, *head.labels)
            and (not self.pending or head.pending > 0)
            and (self.before is None or order_of(head) < self.before)
        )
