"""The generated reader: what it remembers of one envelope never shows in another."""

import json
import uuid
from collections.abc import Iterator

import pytest

from foldline.errors import DecodeError
from foldline.schemas.avsc import event_schema
from foldline.schemas.codec import Codec, encode_content, encode_envelope
from foldline.schemas.envelope import Actor, Envelope, Source
from foldline.schemas.events import (
    EVENT_TYPES,
    KnownEvent,
    ModelCallCompleted,
    TurnEnded,
    Usage,
    type_of,
)
from foldline.schemas.front import varint

NAMES = list(EVENT_TYPES)


class Published:
    """Every schema as published, its place in the list for an id."""

    def schema_of(self, schema_id: int) -> str:
        return json.dumps(event_schema(EVENT_TYPES[NAMES[schema_id]]))


def envelope(seq: int, **differing: object) -> Envelope:
    fields: dict[str, object] = {
        "event_id": str(uuid.UUID(int=seq)),
        "session_id": "s",
        "seq": seq,
        "occurred_at": 1_700_000_000_000_000 + seq,
        "recorded_at": 1_700_000_000_000_100 + seq,
        "writer": "w",
        "epoch": 1,
        "actor": Actor(kind="AGENT", id="w"),
        "turn_id": "turn",
        "prev_hash": bytes([seq]) * 32,
    }
    return Envelope.model_validate(fields | differing)


VARIED = [
    {},
    {"batch_id": "b"},
    {"session_id": "t"},
    {"session_id": "s" * 300},
    {"writer": "w2", "epoch": 2},
    {"actor": Actor(kind="PERSON", id="ada")},
    {"turn_id": None},
    {"source": Source(system="x", stream="f", position="1", sha256=b"h")},
    {"occurred_at": None, "recorded_at": 5, "prev_hash": None},
    {"occurred_at": -1, "recorded_at": 2**62},
]
"""In what an envelope may differ from the one before it."""


def story() -> Iterator[tuple[Envelope, KnownEvent]]:
    """Each difference, from and to the usual, and from and to each other."""
    order = [i for a in range(len(VARIED)) for b in range(len(VARIED)) for i in (a, b)]
    for number, which in enumerate(order):
        usage = Usage(input_tokens=number) if number % 2 else None
        event: KnownEvent = (
            ModelCallCompleted(model_call_id="m", usage=usage)
            if number % 3
            else TurnEnded(outcome="DONE")
        )
        yield envelope(number % 200 + 1, **VARIED[which]), event


def test_whatever_came_before_an_envelope_is_read_as_it_was_written() -> None:
    codec = Codec(Published())
    for written, event in story():
        body = encode_envelope(written) + encode_content(event)
        read = codec.decode_structure(NAMES.index(type_of(event)), body)
        assert (read.envelope, read.event) == (written, event)
        assert list(read.envelope.__dict__) == list(Envelope.model_fields)


def test_what_a_reader_gave_is_not_changed_by_what_it_reads_next() -> None:
    codec = Codec(Published())
    event = TurnEnded(outcome="DONE")
    bodies = [encode_envelope(envelope(n)) + encode_content(event) for n in (1, 2, 3)]
    read = [codec.decode_structure(NAMES.index("TurnEnded"), body) for body in bodies]
    assert [recorded.seq for recorded in read] == [1, 2, 3]


def test_a_body_cut_at_any_byte_is_undecodable_also_after_its_like() -> None:
    codec = Codec(Published())
    event = TurnEnded(outcome="DONE", reason="because")
    schema_id = NAMES.index("TurnEnded")
    body = encode_envelope(envelope(1)) + encode_content(event)
    for end in range(len(body)):
        codec.decode_structure(schema_id, body)
        with pytest.raises(DecodeError):
            codec.decode_structure(schema_id, body[:end])


@pytest.mark.parametrize("tenth", [2, 3, 0x7F])
def test_a_number_of_more_than_64_bits_is_refused(tenth: int) -> None:
    """Avro's long has 64; fastavro cuts such a number off."""
    with pytest.raises(DecodeError, match="64 bits"):
        varint(b"\xff" * 9 + bytes([tenth]), 0)
    assert varint(b"\xff" * 9 + b"\x01", 0) == (-(2**63), 10)
