"""What foldline's records look like on Kafka: headers, keys, values.

An append's value is framed Avro of the whole event, its envelope as far as the writer
knew it. Its headers say what is needed to route, refuse and answer it undecoded:

| header | on | value |
| --- | --- | --- |
| `ce_id`, `ce_type`, `ce_source`, `ce_time` | appends, events | CloudEvents, binary mode |
| `traceparent` | appends, events | where there is one |
| `writer` | appends | who appends (the envelope's) |
| `reply_to` | appends | the client that waits for the verdict: key of its `verdicts` |
| `known_seq` | appends | decimal; without it the append is UNDECODABLE |
| `expected_seq` | appends | decimal, where one is expected |
| `requires` | appends | event ids, separated by commas |
| `ao` | events | decimal: the offset of its append |
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from operator import methodcaller
from typing import TYPE_CHECKING, NamedTuple, cast
from urllib.parse import quote

from foldline.errors import DecodeError, EncodeError, NoAppendError
from foldline.schemas.blocks import clean_text
from foldline.schemas.codec import (
    FRAME_BYTES,
    MAGIC,
    Codec,
    Taken,
    encode_envelope,
    frame,
)
from foldline.schemas.events import type_of
from foldline.schemas.intake import Like
from foldline.schemas.record_codec import RecordCodec
from foldline.schemas.recorded import Append
from foldline.schemas.verdicts import Verdict
from foldline.schemas.verdicts import encode_verdict as verdict_body

if TYPE_CHECKING:
    from confluent_kafka import Message

Headers = list[tuple[str, bytes]]

CE_ID = "ce_id"
CE_TYPE = "ce_type"
CE_SOURCE = "ce_source"
CE_TIME = "ce_time"
TRACEPARENT = "traceparent"
WRITER = "writer"
REPLY_TO = "reply_to"
KNOWN_SEQ = "known_seq"
EXPECTED_SEQ = "expected_seq"
REQUIRES = "requires"
APPEND_OFFSET = "ao"

MAX_REQUIRES = 32
"""How many event ids an append may require."""

NO_KEY = b"\x00none"
"""The key in `rejected` of a record that had none, or one too long to be said twice."""

BAD_NAME = "the name of a header is not UTF-8"

MAX_DIGITS = 18
"""How long a number in a header may be."""


class Incoming(NamedTuple):
    """A record of `appends` as it was consumed; `timestamp_us` is LogAppendTime."""

    offset: int
    timestamp_us: int
    key: bytes | None
    value: bytes | None
    headers: Headers | None
    has_bad_headers: bool = False
    """Whether it has headers that cannot be read: then it is given without any."""


class Outgoing(NamedTuple):
    """A record to be produced; `partition` is that of its topic."""

    partition: int
    key: bytes
    value: bytes
    headers: Headers | None = None


_HEADERS = methodcaller("headers")


def headers_of(message: "Message") -> Headers | None:
    """The headers of a record that was consumed. To be asked once of each.

    The client makes a text of each name. At one that is no UTF-8 it gives a list with a
    hole in it, and an exception beside it: the interpreter notices the two only where it
    has not made a short cut of the call, which is why `_HEADERS` makes it. Whoever looks
    into the hole, or asks a second time, ends the process.

    Raises:
        DecodeError: a header's name is no UTF-8.
    """
    try:
        return cast("Headers | None", _HEADERS(message))
    except (SystemError, UnicodeDecodeError) as error:
        raise DecodeError(BAD_NAME) from error


def incoming_of(message: "Message") -> Incoming:
    """A record of `appends` as a consumer gives it."""
    try:
        headers, bad = headers_of(message), False
    except DecodeError:
        headers, bad = None, True
    return Incoming(
        cast("int", message.offset()),
        message.timestamp()[1] * 1000,
        message.key(),
        message.value(),
        headers,
        bad,
    )


def header_map(headers: Headers | None) -> Mapping[str, bytes]:
    """Headers by name; the last of a name counts. Values that are null are left out."""
    return {name: value for name, value in headers or () if value is not None}  # pyright: ignore[reportUnnecessaryComparison]


def encode_append(
    append: Append, *, schema_id: int, reply_to: str
) -> tuple[bytes, Headers]:
    """An append as value and headers of a record of `appends`; the key is its session id.

    Args:
        append: what is to be recorded.
        schema_id: the registry's id of the schema that its content follows.
        reply_to: the client that waits; empty where nobody does.

    Raises:
        EncodeError: what Avro or a header cannot hold.
    """
    envelope = append.envelope
    name = append.schema_name or type_of(append.event)
    headers = [
        (CE_ID, utf8(envelope.event_id)),
        (CE_TYPE, utf8(name)),
        (CE_SOURCE, ce_source(envelope.session_id)),
        (WRITER, utf8(envelope.writer)),
    ]
    if append.known_seq >= 0:
        headers.append((KNOWN_SEQ, b"%d" % append.known_seq))
    if envelope.occurred_at is not None:
        headers.append((CE_TIME, ce_time(envelope.occurred_at)))
    if envelope.traceparent is not None:
        headers.append((TRACEPARENT, utf8(envelope.traceparent)))
    if append.expected_seq is not None:
        headers.append((EXPECTED_SEQ, b"%d" % append.expected_seq))
    if append.requires:
        headers.append((REQUIRES, _joined(name, append.requires)))
    if reply_to:
        headers.append((REPLY_TO, utf8(reply_to)))
    return frame(schema_id, encode_envelope(envelope) + append.content), headers


def _joined(name: str, requires: tuple[str, ...]) -> bytes:
    if len(requires) > MAX_REQUIRES:
        raise EncodeError(name, f"requires more than {MAX_REQUIRES} events")
    if any("," in event_id or not event_id for event_id in requires):
        raise EncodeError(name, "requires what is no event id")
    return utf8(",".join(requires))


def utf8(text: str) -> bytes:
    """A text as a header holds it; lone surrogates become U+FFFD."""
    return clean_text(text)[0].encode()


@lru_cache(maxsize=4096)
def ce_source(session_id: str) -> bytes:
    """CloudEvents' source: an URI reference of the session."""
    return b"/sessions/" + quote(clean_text(session_id)[0], safe="").encode()


@lru_cache(maxsize=1024)
def ce_time(micros: int) -> bytes:
    """A time as CloudEvents writes it (RFC 3339); empty beyond the year 9999."""
    second, rest = divmod(micros, 1_000_000)
    known = _second(second)
    return b"%b.%06dZ" % (known, rest) if known else b""


@lru_cache(maxsize=64)
def _second(second: int) -> bytes:
    try:
        moment = datetime.fromtimestamp(second, tz=UTC)
    except (ValueError, OverflowError, OSError):
        return b""
    return moment.strftime("%Y-%m-%dT%H:%M:%S").encode()


class TakenAppend(NamedTuple):
    """A record of `appends` that is an append; `body` is its value without the frame."""

    append: Append
    schema_id: int
    body: bytes
    taken: Taken


def decode_append(incoming: Incoming, codec: Codec) -> Append:
    """The append of a record of `appends`, structure only (what a worker admits).

    Raises:
        NoAppendError: what is no append; its word says why.
    """
    schema_id = schema_id_of(incoming.value)
    return take_append(incoming, dict(incoming.headers or ()), schema_id, codec).append


def schema_id_of(value: bytes | None) -> int:
    """The schema id of a framed value.

    Raises:
        NoAppendError: no value, an empty one, or one without a frame.
    """
    if not value:
        raise NoAppendError(*_NOTHING[value])
    if len(value) <= FRAME_BYTES or value[0] != MAGIC:
        raise NoAppendError("bad_frame", "no frame of a magic byte 0 and a schema id")
    return int.from_bytes(value[1:FRAME_BYTES], "big")


_NOTHING = {
    None: ("null_value", "the record has no value"),
    b"": ("empty_value", "the record's value is empty"),
}


def take_append(
    incoming: Incoming,
    headers: Mapping[str, bytes | None],
    schema_id: int,
    codec: Codec,
    like: Like | None = None,
) -> TakenAppend:
    """Read an append whole, in its writer's schema, and what its headers say.

    Args:
        incoming: the record.
        headers: its headers by name.
        schema_id: that of its value's frame.
        codec: decodes with the writers' schemas.
        like: of an append that this one may be like: its session's last.

    Raises:
        NoAppendError: what is no append; its word says why.
        NewerFormatError: a newer version of a type, which only a newer worker reads.
        RegistryUnavailableError: the schema's text cannot be had now.
    """
    if incoming.has_bad_headers:
        raise NoAppendError("bad_header", BAD_NAME)
    body = cast("bytes", incoming.value)[FRAME_BYTES:]
    try:
        taken = codec.take(schema_id, body, like)
    except DecodeError as error:
        raise NoAppendError("bad_avro", error.reason) from error
    expected = headers.get(EXPECTED_SEQ)
    requires = headers.get(REQUIRES)
    append = Append(
        taken.envelope,
        taken.event,
        body[taken.spans[-1] :],
        _number(KNOWN_SEQ, headers.get(KNOWN_SEQ), -1),
        None if expected is None else _number(EXPECTED_SEQ, expected, -1),
        () if requires is None else _ids(requires),
    )
    return TakenAppend(append, schema_id, body, taken)


def _number(name: str, text: bytes | None, missing: int) -> int:
    if text is None:
        return missing
    if not text.isdigit() or len(text) > MAX_DIGITS:
        raise NoAppendError("bad_header", f"{name} is no number of at most 18 digits")
    return int(text)


def _ids(text: bytes) -> tuple[str, ...]:
    if text.count(b",") >= MAX_REQUIRES:
        raise NoAppendError("too_many_requires", f"requires more than {MAX_REQUIRES} ids")
    try:
        return tuple(text.decode().split(","))
    except UnicodeDecodeError as error:
        raise NoAppendError("bad_header", f"{REQUIRES} is not UTF-8") from error


def encode_verdict(
    verdict: Verdict, *, schema_id: int, append_offset: int | None = None
) -> bytes:
    """A verdict as the value of a record of `verdicts`.

    Args:
        verdict: the answer.
        schema_id: the registry's id of the schema of verdicts.
        append_offset: said instead of the verdict's own.
    """
    return frame(schema_id, verdict_body(verdict, append_offset=append_offset))


def decode_verdict(value: bytes | None, codec: RecordCodec) -> Verdict:
    """The verdict of such a record.

    Raises:
        DecodeError: what is no verdict.
    """
    return codec.unframe_record(Verdict, value)


def append_offset_of(headers: Headers | None) -> int:
    """The offset of the append that became an event (header `ao`).

    Raises:
        DecodeError: an event without it, which no worker wrote.
    """
    text = header_map(headers).get(APPEND_OFFSET)
    if text is None or not text.isdigit() or len(text) > MAX_DIGITS:
        raise DecodeError(f"an event without the header {APPEND_OFFSET}")
    return int(text)
