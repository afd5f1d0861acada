"""Bytes and values that nobody should send: one kind of error, and always an end."""

import contextlib
import json
import math
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from foldline.errors import DecodeError, EncodeError
from foldline.schemas.avsc import event_schema
from foldline.schemas.blocks import Block, clean_text
from foldline.schemas.codec import (
    MAX_EVENT_BYTES,
    Codec,
    encode_content,
    encode_envelope,
    frame,
    unframe,
)
from foldline.schemas.events import (
    EVENT_TYPES,
    GoalSet,
    TurnStarted,
    UserFeedback,
    UserMessage,
)
from foldline.schemas.lint import MAX_SCHEMA_DEPTH, MAX_SCHEMA_FIELDS
from foldline.schemas.readers import MAX_SCHEMA_CHARS
from foldline.schemas.registry import LocalRegistry, SchemaTable
from tests.samples import BARE_ENVELOPE, ENVELOPE, SAMPLES

MODEST = settings(max_examples=200, deadline=None)

registry = LocalRegistry(SchemaTable())
IDS = {name: registry.id_of(name) for name in sorted(EVENT_TYPES)}
codec = Codec(registry)
BODIES = {
    name: encode_envelope(ENVELOPE) + encode_content(event)
    for name, event in SAMPLES.items()
}
BARE = encode_envelope(BARE_ENVELOPE)


def survives(schema_id: int, body: bytes) -> None:
    """Both depths decode the bytes, or say that they cannot."""
    for decode in (codec.decode, codec.decode_structure):
        with contextlib.suppress(DecodeError):
            decode(schema_id, body)


@MODEST
@given(st.sampled_from(sorted(IDS)), st.binary(max_size=400))
def test_junk_is_a_decode_error_or_an_event(name: str, junk: bytes) -> None:
    """Never another error, for any type."""
    survives(IDS[name], junk)


@MODEST
@given(st.sampled_from(sorted(IDS)), st.data())
def test_flipped_bytes_are_a_decode_error_or_an_event(
    name: str, data: st.DataObject
) -> None:
    """Anywhere in a good body, up to eight of them."""
    body = bytearray(BODIES[name])
    for _ in range(data.draw(st.integers(1, 8))):
        place = data.draw(st.integers(0, len(body) - 1))
        body[place] = data.draw(st.integers(0, 255))
    survives(IDS[name], bytes(body))


@pytest.mark.parametrize("name", sorted(IDS))
def test_a_body_cut_at_any_byte_is_undecodable(name: str) -> None:
    """The whole always; the structure as soon as the cut is in it."""
    body = BODIES[name]
    for end in range(len(body)):
        with pytest.raises(DecodeError):
            codec.decode(IDS[name], body[:end])
        if end < len(encode_envelope(ENVELOPE)):
            with pytest.raises(DecodeError):
                codec.decode_structure(IDS[name], body[:end])
        else:
            survives(IDS[name], body[:end])


def test_bytes_behind_the_record_are_undecodable() -> None:
    """They belong to nothing."""
    for name, schema_id in IDS.items():
        with pytest.raises(DecodeError, match="after the record"):
            codec.decode(schema_id, BODIES[name] + b"\0")


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\0\0\0", b"\1\0\0\0\1x", b"{...}"])
def test_a_frame_that_is_none_is_undecodable(data: bytes) -> None:
    """Too short, or of another magic byte."""
    with pytest.raises(DecodeError):
        unframe(data)


def test_an_unknown_schema_id_is_undecodable() -> None:
    """The log never knew it."""
    for schema_id in (0, -1, 999_999, 2**31):
        for decode in (codec.decode, codec.decode_structure):
            with pytest.raises(DecodeError, match="unknown schema id"):
                decode(schema_id, b"")


def test_the_largest_event_is_decoded_and_one_byte_more_is_not() -> None:
    """B10: the limit is on the bytes, after serialisation."""
    body = BARE + encode_content(GoalSet(blocks=(Block(kind="text"),)))
    room = MAX_EVENT_BYTES - len(body) - 2  # a longer length takes two bytes more
    for extra, fits in ((0, True), (1, False)):
        block = Block(kind="text", body="x" * (room + extra))
        body = BARE + encode_content(GoalSet(blocks=(block,)))
        assert (len(body) <= MAX_EVENT_BYTES) == fits
        for decode in (codec.decode, codec.decode_structure):
            if fits:
                assert decode(IDS["GoalSet"], body).body == body
            else:
                with pytest.raises(DecodeError, match="MAX_EVENT_BYTES"):
                    decode(IDS["GoalSet"], body)
        if not fits:
            with pytest.raises(DecodeError, match="MAX_EVENT_BYTES"):
                unframe(frame(1, body))


def varint(number: int) -> bytes:
    """A zigzag varint."""
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


@pytest.mark.parametrize("count", [2**31, 2**40, 2**62, -(2**40), -(2**62), -(2**63)])
@pytest.mark.parametrize(
    "name", ["GoalSet", "ToolsDeclared", "LabelsSet", "SessionCreated", "ContextPruned"]
)
def test_an_array_that_claims_to_be_endless_ends_with_its_bytes(
    name: str, count: int
) -> None:
    """An array bomb costs no more than the bytes it has."""
    bomb = BARE + varint(count) * 4 + b"\0" * 100
    for prefix in range(4):
        survives(IDS[name], BARE + b"\2a" * prefix + varint(count) + b"\0" * 100)
    survives(IDS[name], bomb)


@pytest.mark.parametrize("length", [2**31, 2**62, -1, -(2**62)])
def test_a_string_that_claims_to_be_endless_or_negative_is_undecodable(
    length: int,
) -> None:
    """The first field already."""
    body = varint(length) + b"x" * 50
    for decode in (codec.decode, codec.decode_structure):
        with pytest.raises(DecodeError):
            decode(IDS["GoalSet"], body)


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf, -0.0, 5e-324])
def test_every_number_that_ieee_knows_survives(score: float) -> None:
    """NaN is a number for Avro."""
    event = UserFeedback(target="t", score=score)
    decoded = codec.decode(IDS["UserFeedback"], BARE + encode_content(event)).event
    assert isinstance(decoded, UserFeedback)
    assert struct.pack("d", decoded.score) == struct.pack("d", score)


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 2**200])
def test_a_number_beyond_64_bits_cannot_be_encoded(number: int) -> None:
    """In an event, or in an envelope."""
    event = SAMPLES["CheckpointCreated"].model_copy(update={"upto_seq": number})
    with pytest.raises(EncodeError, match="CheckpointCreated"):
        encode_content(event)
    with pytest.raises(EncodeError, match="Envelope"):
        encode_envelope(ENVELOPE.model_copy(update={"epoch": number}))


@pytest.mark.parametrize("number", [2**63 - 1, -(2**63)])
def test_the_outermost_64_bit_numbers_survive(number: int) -> None:
    """At both depths."""
    event = SAMPLES["CheckpointCreated"].model_copy(update={"upto_seq": number})
    body = BARE + encode_content(event)
    for decode in (codec.decode, codec.decode_structure):
        decoded: Any = decode(IDS["CheckpointCreated"], body).event
        assert decoded.upto_seq == number


def test_a_field_of_the_wrong_type_is_refused_where_it_enters() -> None:
    """Models validate at the edge; what went around them cannot be encoded."""
    with pytest.raises(ValidationError):
        TurnStarted(trigger=1)  # type: ignore[arg-type]
    with pytest.raises(ValidationError):
        TurnStarted(trigger="USER", surplus=1)  # type: ignore[call-arg]
    wrong = SAMPLES["TurnStarted"].model_copy(update={"trigger": 1})
    with pytest.raises(EncodeError, match="TurnStarted"):
        encode_content(wrong)


@pytest.mark.parametrize("text", ["\ud83d", "a\udfffb", "\udc00\ud83d", "x\ud83d\n"])
def test_a_lone_surrogate_is_stored_as_the_replacement_and_marks_its_block(
    text: str,
) -> None:
    """B38: no UnicodeEncodeError anywhere, in any text of any block."""
    event = UserMessage(
        message_id=text,
        blocks=(Block(kind="text", body=text), Block(kind="text", body="good")),
    )
    decoded = codec.decode(IDS["UserMessage"], BARE + encode_content(event)).event
    assert isinstance(decoded, UserMessage)
    assert decoded.message_id == clean_text(text)[0]
    assert [block.lossy for block in decoded.blocks] == [True, False]
    envelope = ENVELOPE.model_copy(update={"branch": text})
    assert encode_envelope(envelope)


class OneSchema:
    """A source of one schema, whatever its text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def schema_of(self, schema_id: int) -> str:
        """The text, for any id."""
        del schema_id
        return self.text


def record(*types: Any, name: str = "GoalSet", **also: Any) -> str:
    """A schema with an envelope and fields of these types."""
    schema = event_schema(GoalSet)
    schema["name"] = name
    schema["fields"] = schema["fields"][:20] + [
        {"name": f"f{number}", "type": type_} for number, type_ in enumerate(types)
    ]
    return json.dumps(schema | also)


def nest(depth: int) -> Any:
    """Arrays in arrays."""
    inner: Any = "long"
    for _ in range(depth):
        inner = {"type": "array", "items": inner}
    return inner


def chain(length: int, width: int) -> list[Any]:
    """Records that hold the one before several times: 2^length values of no bytes."""
    types: list[Any] = [{"type": "record", "name": "R0", "fields": []}]
    for number in range(1, length):
        fields = [
            {"name": f"x{i}", "type": f"foldline.events.R{number - 1}"}
            for i in range(width)
        ]
        types.append({"type": "record", "name": f"R{number}", "fields": fields})
    return types


EMPTY: dict[str, Any] = {"type": "record", "name": "Empty", "fields": []}
NODE = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "next", "type": ["null", "Node"]}],
}
FULL_NODE = {
    "type": "record",
    "name": "Node",
    "fields": [
        {"name": "next", "type": {"type": "array", "items": "foldline.events.Node"}}
    ],
}
HOSTILE: dict[str, str] = {
    "no json": "{",
    "no object": "[1]",
    "deep json": "[" * 100_000,
    "nothing": "{}",
    "a primitive": '"string"',
    "no fields": '{"type": "record", "name": "X"}',
    "no envelope": '{"type": "record", "name": "X", "fields": []}',
    "too long": " " * (MAX_SCHEMA_CHARS + 1),
    "array of null": record({"type": "array", "items": "null"}),
    "array of empty records": record({"type": "array", "items": EMPTY}),
    "map of null": record({"type": "map", "values": "null"}),
    "null": record("null"),
    "empty record": record(EMPTY),
    "fixed of no bytes": record({"type": "fixed", "name": "F", "size": 0}),
    "recursion by short name": record(NODE),
    "recursion by full name": record(FULL_NODE),
    "too deep": record(nest(MAX_SCHEMA_DEPTH + 1)),
    "exponential": record(*chain(40, 2)),
    "too many fields": record(*["long"] * (MAX_SCHEMA_FIELDS + 1)),
    "unknown type": record("moon"),
    "a type that is a number": record(7),
    "an empty union": record([]),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_schema_that_could_hang_its_reader_is_refused_before_any_byte_is_read(
    what: str,
) -> None:
    """By both depths, with a reason."""
    hostile = Codec(OneSchema(HOSTILE[what]))
    for decode in (hostile.decode, hostile.decode_structure):
        with pytest.raises(DecodeError):
            decode(1, BARE + b"\0" * 100)


def test_a_recursive_schema_of_another_name_is_refused_too() -> None:
    """An unknown type is decoded whole, so its schema is judged as well."""
    for hostile_type in (NODE, EMPTY, "null"):
        text = record(hostile_type, name="MoonPhaseChanged")
        hostile = Codec(OneSchema(text))
        with pytest.raises(DecodeError):
            hostile.decode_structure(1, BARE)
