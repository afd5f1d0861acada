"""Round trips: every event, at both depths, and for other Avro tools too."""

import io
import json
from typing import Any, cast

import avro.io
import avro.schema
import fastavro
import pytest
from hypothesis import given, settings

from foldline.schemas.avsc import event_schema
from foldline.schemas.codec import Codec, encode_content, encode_envelope, frame, unframe
from foldline.schemas.envelope import Envelope
from foldline.schemas.events import EVENT_TYPES, KnownEvent, type_of
from foldline.schemas.readers import is_content
from foldline.schemas.record import Record
from foldline.schemas.registry import LocalRegistry, SchemaTable
from tests.samples import BARE_ENVELOPE, ENVELOPE, SAMPLES
from tests.strategies import envelopes, events, events_of

MODEST = settings(max_examples=200, deadline=None)
FEW = settings(max_examples=10, deadline=None)

registry = LocalRegistry(SchemaTable())
codec = Codec(registry)


def body_of(envelope: Envelope, event: KnownEvent) -> bytes:
    """What a log stores: the envelope, and the content behind it."""
    return encode_envelope(envelope) + encode_content(event)


def id_of(event: KnownEvent) -> int:
    """The id under which this log's registry knows the event's schema."""
    return registry.id_of(type_of(event))


@MODEST
@given(envelopes(), events())
def test_what_was_encoded_is_decoded(envelope: Envelope, event: KnownEvent) -> None:
    """Whole, validated, equal."""
    body = body_of(envelope, event)
    recorded = codec.decode(id_of(event), body)
    assert (recorded.envelope, recorded.event) == (envelope, event)
    assert (recorded.body, recorded.complete) == (body, True)
    assert unframe(frame(id_of(event), body)) == (id_of(event), body)


@pytest.mark.parametrize("name", sorted(EVENT_TYPES))
def test_every_type_is_read_back_at_both_depths(name: str) -> None:
    """Every field has a value of its own, and with the least an event may say."""

    @FEW
    @given(events_of(name), envelopes())
    def for_any(event: KnownEvent, envelope: Envelope) -> None:
        agree(envelope, event)

    agree(ENVELOPE, SAMPLES[name])
    agree(BARE_ENVELOPE, SAMPLES[name])
    for_any()


def agree(envelope: Envelope, event: KnownEvent) -> None:
    """The structure is what the whole says, up to the content, which is default."""
    body = body_of(envelope, event)
    whole = codec.decode(id_of(event), body)
    structure = codec.decode_structure(id_of(event), body)
    assert whole.event == event
    assert structure.envelope == whole.envelope == envelope
    content = contents_of(type(event))
    for name, info in type(event).model_fields.items():
        if name in content:
            expected = () if info.is_required() else info.default
        else:
            expected = getattr(event, name)
        assert getattr(structure.event, name) == expected, name
    assert structure.complete is False


def contents_of(cls: type[KnownEvent]) -> set[str]:
    """The fields of a type that hold what somebody said."""
    return {
        own["name"]
        for own in event_schema(cls)["fields"]
        if own["name"] in cls.model_fields and is_content(own["type"])
    }


@MODEST
@given(envelopes(), events())
def test_envelope_and_content_put_together_are_the_published_record(
    envelope: Envelope, event: KnownEvent
) -> None:
    """Byte for byte what another writer makes of the whole record."""
    out = io.BytesIO()
    fields = {**dumped(envelope), **dumped(event)}
    schema = fastavro.parse_schema(unlogical(event_schema(type(event))))
    cast("Any", fastavro).schemaless_writer(out, schema, fields)
    assert body_of(envelope, event) == out.getvalue()


def dumped(value: Any) -> Any:
    """A model as plain values, union branches named."""
    if isinstance(value, tuple):
        return [dumped(item) for item in cast("tuple[Any, ...]", value)]
    if not isinstance(value, Record):
        return value
    fields = {name: dumped(getattr(value, name)) for name in type(value).model_fields}
    if type(value).__name__ in {"Blob", "Sealed", "RequestRef"}:
        return (f"foldline.events.{type(value).__name__}", fields)
    return fields


def unlogical(schema: Any) -> Any:
    """The schema with numbers for times, as the models have them."""
    text = json.dumps(schema)
    for logical in ("uuid", "timestamp-micros"):
        text = text.replace(f', "logicalType": "{logical}"', "")
    return json.loads(text)


@pytest.mark.parametrize("name", sorted(EVENT_TYPES))
def test_other_avro_tools_read_what_a_log_stores(name: str) -> None:
    """Apache Avro's own reader, with the schema as published."""
    schema = avro.schema.parse(json.dumps(event_schema(EVENT_TYPES[name])))
    source = io.BytesIO(body_of(ENVELOPE, SAMPLES[name]))
    fields = cast(
        "dict[str, Any]",
        avro.io.DatumReader(schema).read(avro.io.BinaryDecoder(source)),
    )
    assert source.read() == b""
    assert str(fields["event_id"]) == ENVELOPE.event_id
    assert fields["source"]["stream"] == "a.jsonl"
    assert fields["recorded_at"].timestamp() == pytest.approx(1_700_000_000)
    assert fields.keys() == Envelope.model_fields.keys() | (
        EVENT_TYPES[name].model_fields.keys()
    )


def test_the_registry_stores_the_schema_without_its_docs() -> None:
    """Docs may change without a new id."""
    assert '"doc"' not in registry.schema_of(registry.id_of("UserMessage"))
