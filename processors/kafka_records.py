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
