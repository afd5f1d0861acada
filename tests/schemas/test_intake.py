"""Appends from outside: checked whole, and filled in place without being made anew."""

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from foldline.errors import DecodeError
from foldline.schemas.avro_io import parsed, write
from foldline.schemas.avsc import event_schema
from foldline.schemas.codec import Codec, encode_content, encode_envelope
from foldline.schemas.envelope import Envelope
from foldline.schemas.events import EVENT_TYPES, KnownEvent, type_of
from foldline.schemas.readers import plain
from tests.samples import ENVELOPE, SAMPLES
from tests.strategies import envelopes, events

NAMES = list(EVENT_TYPES)
OFTEN = settings(max_examples=200, deadline=None)
FILLED: dict[str, Any] = {
    "seq": 77,
    "recorded_at": 1_700_000_000_123_000,
    "rules_version": 1,
    "prev_hash": b"\x44" * 32,
}


class Schemas:
    """Every schema as published, its place in the list for an id; `more` behind them."""

    def __init__(self, *more: dict[str, Any]) -> None:
        published = [event_schema(EVENT_TYPES[name]) for name in NAMES]
        self.texts = [json.dumps(schema) for schema in (*published, *more)]

    def schema_of(self, schema_id: int) -> str:
        """The text; KeyError where there is none."""
        if schema_id >= len(self.texts):
            raise KeyError(schema_id)
        return self.texts[schema_id]


CODEC = Codec(Schemas())


def id_of(event: KnownEvent) -> int:
    return NAMES.index(type_of(event))


def filled(codec: Codec, schema_id: int, body: bytes, **fields: Any) -> bytes:
    """The body as admission fills it."""
    taken = codec.take(schema_id, body)
    values = FILLED | fields
    return taken.intake.splice(body, taken.spans, *values.values())


@OFTEN
@given(envelope=envelopes(), event=events(), first=st.booleans())
def test_splicing_gives_the_bytes_that_encoding_would(
    envelope: Envelope, event: KnownEvent, *, first: bool
) -> None:
    content = encode_content(event)
    body = encode_envelope(envelope) + content
    fields = FILLED | ({"prev_hash": None} if first else {})
    completed = encode_envelope(envelope.model_copy(update=fields))
    taken = CODEC.take(id_of(event), body)
    assert filled(CODEC, id_of(event), body, **fields) == completed + content
    assert body[taken.spans[-1] :] == content
    assert taken.envelope == envelope
    structure = CODEC.decode_structure(id_of(event), body)
    assert repr(taken.event) == repr(structure.event)


@OFTEN
@given(pair=st.tuples(envelopes(), envelopes()), event=events(), same=st.booleans())
def test_what_an_envelope_is_like_never_shows_in_another(
    pair: tuple[Envelope, Envelope], event: KnownEvent, *, same: bool
) -> None:
    first, second = pair
    if same:
        differing = ("event_id", "seq", "occurred_at", "batch_id", "prev_hash")
        fields = {name: getattr(second, name) for name in differing}
        second = first.model_copy(update=fields)
    content = encode_content(event)
    like = CODEC.take(id_of(event), encode_envelope(first) + content).like
    taken = CODEC.take(id_of(event), encode_envelope(second) + content, like)
    alone = CODEC.take(id_of(event), encode_envelope(second) + content)
    assert taken.envelope == alone.envelope == second
    assert taken.spans == alone.spans


BODIES = {
    name: encode_envelope(ENVELOPE) + encode_content(event)
    for name, event in SAMPLES.items()
}


@OFTEN
@given(
    name=st.sampled_from(NAMES),
    at=st.integers(min_value=0, max_value=10_000),
    byte=st.integers(min_value=0, max_value=255),
    cut=st.integers(min_value=0, max_value=3),
)
@example(name="UserMessage", at=0, byte=0xFF, cut=0)
def test_what_is_taken_in_can_be_read_whole(
    name: str, at: int, byte: int, cut: int
) -> None:
    """Whatever one byte is changed into, and wherever the end is cut off."""
    body = bytearray(BODIES[name])
    body[at % len(body)] = byte
    broken = bytes(body[: len(body) - cut])
    schema_id = NAMES.index(name)
    like = CODEC.take(schema_id, BODIES[name]).like
    for known in (None, like):
        try:
            taken = CODEC.take(schema_id, broken, known)
        except DecodeError:
            continue
        assert CODEC.decode(schema_id, broken).envelope == taken.envelope


@pytest.mark.parametrize("name", NAMES)
def test_a_body_cut_off_anywhere_or_longer_is_refused(name: str) -> None:
    schema_id, body = NAMES.index(name), BODIES[name]
    like = CODEC.take(schema_id, body).like
    for end in range(len(body)):
        for known in (None, like):
            with pytest.raises(DecodeError):
                CODEC.take(schema_id, body[:end], known)
    with pytest.raises(DecodeError, match="after the record"):
        CODEC.take(schema_id, body + b"\x00")


def test_an_array_that_claims_more_items_than_there_are_bytes_is_refused_at_once() -> None:
    bomb = encode_envelope(ENVELOPE) + b"\x02m" + b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"
    with pytest.raises(DecodeError):
        CODEC.take(NAMES.index("UserMessage"), bomb)


def newer(name: str) -> dict[str, Any]:
    """A later schema of a type: more in the envelope, in the structure, in the content."""
    schema = event_schema(EVENT_TYPES[name], version=1)
    end = next(i for i, f in enumerate(schema["fields"]) if f["name"] == "prev_hash")
    place = {"name": "region", "type": ["null", "string"], "default": None}
    more = {"name": "mood", "type": "string", "default": ""}
    return schema | {
        "fields": [*schema["fields"][:end], place, *schema["fields"][end:], more]
    }


def test_fields_of_a_newer_writer_survive_in_envelope_and_content() -> None:
    schema = newer("UserMessage")
    codec = Codec(Schemas(schema))
    schema_id = len(NAMES)
    event = SAMPLES["UserMessage"]
    fields = ENVELOPE.model_dump() | {"region": "eu", "mood": "calm"}
    fields |= {"message_id": "m", "blocks": [], "replaces": None}
    body = write(parsed(plain(schema)), fields, what="test")
    spliced = filled(codec, schema_id, body)
    assert spliced == write(parsed(plain(schema)), fields | FILLED, what="test")
    taken = codec.take(schema_id, body)
    assert taken.envelope == ENVELOPE
    assert type(taken.event) is type(event)


def test_an_event_of_an_unknown_type_is_filled_too() -> None:
    own = [{"name": "phase", "type": "string"}, {"name": "full", "type": "boolean"}]
    schema = event_schema(EVENT_TYPES["GoalSet"])
    schema |= {"name": "Moon", "foldline_type": "Moon", "fields": schema["fields"][:20]}
    schema["fields"] = schema["fields"] + own
    codec = Codec(Schemas(schema))
    fields = ENVELOPE.model_dump() | {"phase": "new", "full": False}
    body = write(parsed(plain(schema)), fields, what="test")
    spliced = filled(codec, len(NAMES), body)
    assert spliced == write(parsed(plain(schema)), fields | FILLED, what="test")
    with pytest.raises(DecodeError):
        codec.take(len(NAMES), body[:-1] + b"\x02")


@pytest.mark.parametrize(
    ("name", "type_"),
    [
        ("seq", "int"),
        ("seq", ["null", "long"]),
        ("recorded_at", "string"),
        ("prev_hash", ["bytes", "null"]),
        ("prev_hash", "bytes"),
    ],
)
def test_an_envelope_that_cannot_be_filled_is_refused(name: str, type_: Any) -> None:
    schema = event_schema(EVENT_TYPES["ContextCleared"])
    for field in schema["fields"]:
        if field["name"] == name:
            field["type"] = type_
    with pytest.raises(DecodeError):
        Codec(Schemas(schema)).take(len(NAMES), BODIES["ContextCleared"])
