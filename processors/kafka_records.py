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
from typing import NamedTuple

from foldline.schemas.codec import Codec
from foldline.schemas.record_codec import RecordCodec
from foldline.schemas.recorded import Append
from foldline.schemas.verdicts import Verdict

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


class Incoming(NamedTuple):
    """A record of `appends` as it was consumed; `timestamp_us` is LogAppendTime."""

    offset: int
    timestamp_us: int
    key: bytes | None
    value: bytes | None
    headers: Headers | None


class Outgoing(NamedTuple):
    """A record to be produced; `partition` is that of its topic."""

    partition: int
    key: bytes
    value: bytes
    headers: Headers | None = None


def header_map(headers: Headers | None) -> Mapping[str, bytes]:
    """Headers by name; the last of a name counts. Values that are null are left out."""
    return {name: value for name, value in headers or () if value is not None}  # pyright: ignore[reportUnnecessaryComparison]


def encode_append(append: Append, *, schema_id: int, reply_to: str) -> tuple[bytes, Headers]:
    """An append as value and headers of a record of `appends`; the key is its session id.

    Args:
        append: what is to be recorded.
        schema_id: the registry's id of the schema that its content follows.
        reply_to: the client that waits; empty where nobody does.

    Raises:
        EncodeError: what Avro cannot hold, or more than MAX_REQUIRES required ids.
    """
    raise NotImplementedError


def decode_append(incoming: Incoming, codec: Codec) -> Append:
    """The append of a record of `appends`, structure only (what a worker admits).

    Raises:
        DecodeError: what is no append; its reason begins with one word for metrics.
    """
    raise NotImplementedError


def encode_verdict(verdict: Verdict, *, schema_id: int) -> bytes:
    """A verdict as the value of a record of `verdicts`."""
    raise NotImplementedError


def decode_verdict(value: bytes | None, codec: RecordCodec) -> Verdict:
    """The verdict of such a record.

    Raises:
        DecodeError: what is no verdict.
    """
    raise NotImplementedError


def append_offset_of(headers: Headers | None) -> int:
    """The offset of the append that became an event (header `ao`).

    Raises:
        DecodeError: an event without it, which no worker wrote.
    """
    raise NotImplementedError
