"""The codec: events to Avro bytes and back, at one choke point.

On write, an event's own fields are encoded once, by its author; admission encodes the
envelope and puts it in front: Avro concatenates fields, so the two runs are the record.
On read there are two depths: `decode` gives whole validated models, `decode_structure`
stops before the content and validates nothing, which is what a fold needs.

Frames are Confluent's: byte 0, four bytes of schema id (big-endian), the Avro body.
"""

import io
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast, get_args, get_origin

import fastavro
from pydantic import ValidationError
from pydantic_core import PydanticUndefined

from foldline.errors import DecodeError, EncodeError, NewerFormatError
from foldline.schemas.avsc import NAMESPACE, event_schema
from foldline.schemas.blocks import Blob, Block, Sealed, clean_text
from foldline.schemas.envelope import Actor, Envelope, Source
from foldline.schemas.events import (
    EVENT_TYPES,
    AnyEvent,
    KnownEvent,
    RequestRef,
    UnknownEvent,
)
from foldline.schemas.lint import check_decodable
from foldline.schemas.record import Record
from foldline.schemas.recorded import Recorded
from foldline.schemas.upcasters import MAX_CHAIN, UPCASTERS, Upcaster

MAX_EVENT_BYTES = 1_000_000
"""The largest event: below Kafka's default of 1 MiB by a margin for headers."""

MAGIC = 0
_FRAME = struct.Struct(">bI")
_CONTENT_TYPES = {f"{NAMESPACE}.{name}" for name in ("Block", "Blob", "Sealed")}
_TAGGED = (Sealed, Blob, RequestRef)


class SchemaSource(Protocol):
    """Where a codec finds the writer's schema of an id (a registry, or a log)."""

    def schema_of(self, schema_id: int) -> str:
        """The schema as JSON text; KeyError where the id is unknown."""
        ...


def frame(schema_id: int, body: bytes) -> bytes:
    """Put Confluent's prefix before an Avro body."""
    return _FRAME.pack(MAGIC, schema_id) + body


def unframe(data: bytes) -> tuple[int, bytes]:
    """Split a frame into schema id and body.

    Raises:
        DecodeError: too short, too large, or of another magic byte.
    """
    if len(data) < _FRAME.size:
        raise DecodeError(f"{len(data)} bytes are shorter than a frame")
    if len(data) > MAX_EVENT_BYTES + _FRAME.size:
        raise DecodeError(f"{len(data)} bytes, more than MAX_EVENT_BYTES")
    magic, schema_id = _FRAME.unpack_from(data)
    if magic != MAGIC:
        raise DecodeError(f"magic byte {magic}, expected {MAGIC}")
    return schema_id, data[_FRAME.size :]


# --- writing -------------------------------------------------------------------------


def _plain(schema: Any) -> Any:
    """The schema without logical types: numbers and strings stay what they are."""
    if isinstance(schema, list):
        return [_plain(item) for item in cast("list[Any]", schema)]
    if isinstance(schema, dict):
        fields = cast("dict[str, Any]", schema)
        if "logicalType" in fields:
            return fields["type"]
        return {
            key: _plain(value) if key in ("type", "items", "fields") else value
            for key, value in fields.items()
            if key != "doc"
        }
    return schema


def _dump(value: Any) -> Any:
    """A model as what fastavro writes; union branches are named, never guessed."""
    if isinstance(value, Record):
        fields = {name: _dump(item) for name, item in value.__dict__.items()}
        if isinstance(value, _TAGGED):
            return (f"{NAMESPACE}.{type(value).__name__}", fields)
        return fields
    if isinstance(value, tuple):
        return [_dump(item) for item in cast("tuple[Any, ...]", value)]
    return value


def _clean(record: Record) -> Record:
    """The record with U+FFFD for lone surrogates, blocks marked lossy."""
    cleaned = {name: _clean_value(item) for name, item in record.__dict__.items()}
    if isinstance(record, Block) and cleaned != record.__dict__:
        cleaned["lossy"] = True
    return type(record).trusted(cleaned)


def _clean_value(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value)[0]
    if isinstance(value, tuple):
        return tuple(_clean_value(item) for item in cast("tuple[Any, ...]", value))
    return _clean(value) if isinstance(value, Record) else value


def _split(schema: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """The envelope's fields and the event's own, of a published schema."""
    fields = cast("list[dict[str, Any]]", schema["fields"])
    names = [field["name"] for field in fields]
    if "prev_hash" not in names:
        raise DecodeError(f"schema {schema.get('name')} has no envelope")
    end = names.index("prev_hash") + 1
    return fields[:end], fields[end:]


def _as_record(name: str, fields: list[Any]) -> dict[str, Any]:
    return {"type": "record", "name": f"{NAMESPACE}.{name}", "fields": fields}


_ENVELOPE_SCHEMA = fastavro.parse_schema(
    _as_record(
        "Envelope_", _split(_plain(event_schema(EVENT_TYPES["ContextCleared"])))[0]
    )
)
_writers: dict[type, Any] = {}


def _writer_schema(event_class: type[KnownEvent]) -> Any:
    if event_class not in _writers:
        named: dict[str, Any] = {}
        own = _split(_plain(event_schema(event_class)))[1]
        _writers[event_class] = fastavro.parse_schema(
            _as_record(f"{event_class.__name__}_", own), named
        )
    return _writers[event_class]


def encode_content(event: KnownEvent) -> bytes:
    """The Avro of an event's own fields: what follows the envelope.

    Lone surrogates become U+FFFD and mark their block lossy.

    Raises:
        EncodeError: a value that Avro cannot hold.
    """
    return _write(_writer_schema(type(event)), event)


def encode_envelope(envelope: Envelope) -> bytes:
    """The Avro of an envelope."""
    return _write(_ENVELOPE_SCHEMA, envelope)


def _write(schema: Any, record: Record) -> bytes:
    out = io.BytesIO()
    try:
        try:
            fastavro.schemaless_writer(out, schema, _dump(record))
        except UnicodeEncodeError:
            out = io.BytesIO()
            fastavro.schemaless_writer(out, schema, _dump(_clean(record)))
    except Exception as error:  # fastavro raises what it stumbles over
        raise EncodeError(type(record).__name__, repr(error)) from error
    return out.getvalue()


# --- reading -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Reader:
    """What is known of one writer's schema, worked out once."""

    name: str
    type: str
    version: int
    model: type[KnownEvent] | None
    upcaster: Upcaster | None
    whole: Any
    front: Any
    missing: Mapping[str, Any]
    extra: tuple[str, ...]
    nested: tuple[tuple[str, type[Record], bool], ...]
    envelope_missing: Mapping[str, Any]
    envelope_extra: tuple[str, ...]


def _is_content(schema: Any) -> bool:
    """Whether a field's type holds blocks or bodies somewhere."""
    if isinstance(schema, str):
        return schema in _CONTENT_TYPES
    if isinstance(schema, list):
        return any(_is_content(branch) for branch in cast("list[Any]", schema))
    fields = cast("dict[str, Any]", schema)
    if fields["type"] == "array":
        return _is_content(fields["items"])
    name = f"{fields.get('namespace', NAMESPACE)}.{fields.get('name', '')}"
    return name in _CONTENT_TYPES or any(
        _is_content(field["type"]) for field in fields.get("fields", ())
    )


def _defaults(model: type[Record], present: set[str]) -> dict[str, Any]:
    """The values of fields that the writer's schema does not have, or that are skipped."""
    defaults: dict[str, Any] = {}
    for name, info in model.model_fields.items():
        if name in present:
            continue
        required = info.default is PydanticUndefined
        defaults[name] = () if required else info.default
    return defaults


def _nested_records(
    model: type[Record], front: set[str]
) -> tuple[tuple[str, type[Record], bool], ...]:
    """The fields in front that hold records: name, model, whether it is an array."""
    found: list[tuple[str, type[Record], bool]] = []
    for name in model.model_fields.keys() & front:
        annotation: Any = model.model_fields[name].annotation
        for part in get_args(annotation) or (annotation,):
            if isinstance(part, type) and issubclass(part, Record):
                found.append((name, part, get_origin(annotation) is tuple))
    return tuple(found)


def _make_reader(text: str, upcasters: Mapping[str, Upcaster]) -> _Reader:
    schema = cast("dict[str, Any]", json.loads(text))
    check_decodable(schema)
    plain = cast("dict[str, Any]", _plain(schema))
    envelope, own = _split(plain)
    front: list[Any] = []
    for field in own:
        if _is_content(field["type"]):
            break
        front.append(field)
    name = cast("str", schema["name"])
    model = EVENT_TYPES.get(name)
    front_names = {field["name"] for field in front}
    envelope_names = {field["name"] for field in envelope}
    known = set(model.model_fields) if model else set[str]()
    return _Reader(
        name=name,
        type=cast("str", schema.get("foldline_type", name)),
        version=cast("int", schema.get("foldline_schema_version", 1)),
        model=model,
        upcaster=upcasters.get(name),
        whole=_nested(name, envelope, own),
        front=_nested(name, envelope, front),
        missing=_defaults(model, front_names) if model else {},
        extra=tuple(front_names - known),
        nested=_nested_records(model, front_names) if model else (),
        envelope_missing=_defaults(Envelope, envelope_names),
        envelope_extra=tuple(envelope_names - set(Envelope.model_fields)),
    )


def _nested(name: str, envelope: list[Any], own: list[Any]) -> Any:
    """The same bytes, read as two records one after the other."""
    return fastavro.parse_schema(
        _as_record(
            f"{name}_read",
            [
                {"name": "envelope", "type": _as_record("Envelope_", envelope)},
                {"name": "own", "type": _as_record(f"{name}_", own)},
            ],
        ),
        {},
    )


class Codec:
    """Decodes the events of one log, with the writers' schemas found by id."""

    def __init__(
        self,
        schemas: SchemaSource,
        *,
        upcasters: Mapping[str, Upcaster] = UPCASTERS,
    ) -> None:
        self._schemas = schemas
        self._upcasters = upcasters
        self._readers: dict[int, _Reader] = {}

    def decode(self, schema_id: int, body: bytes) -> Recorded:
        """A whole event, validated; a type not known here becomes UnknownEvent.

        Raises:
            DecodeError: junk, truncated, trailing bytes, unknown schema id.
        """
        reader = self._reader(schema_id)
        fields = self._read(reader.whole, body, whole=True)
        own = cast("dict[str, Any]", fields["own"])
        try:
            envelope = Envelope.model_validate(
                {
                    k: v
                    for k, v in fields["envelope"].items()
                    if k in Envelope.model_fields
                }
            )
            event = self._event(reader, own)
        except ValidationError as error:
            raise DecodeError(f"{reader.name}: {error}") from error
        return Recorded(envelope, event, body, schema_id)

    def decode_structure(self, schema_id: int, body: bytes) -> Recorded:
        """An event without its content, for folding; nothing is validated again.

        Raises:
            DecodeError: junk, truncated, unknown schema id.
            NewerFormatError: a newer version of a known type, without an upcaster.
        """
        reader = self._reader(schema_id)
        if reader.model is None:
            return self._unmodelled(reader, schema_id, body)
        fields = self._read(reader.front, body, whole=False)
        own = cast("dict[str, Any]", fields["own"])
        own.update(reader.missing)
        for name in reader.extra:
            del own[name]
        for name, record, many in reader.nested:
            if many:
                own[name] = tuple(record.trusted(item) for item in own[name])
            elif own[name] is not None:
                own[name] = record.trusted(own[name])
        event = reader.model.trusted(own)
        envelope = self._envelope(reader, cast("dict[str, Any]", fields["envelope"]))
        return Recorded(envelope, event, body, schema_id, complete=False)

    def type_name(self, schema_id: int) -> str:
        """The logical type that a schema id stands for."""
        return self._reader(schema_id).type

    def _unmodelled(self, reader: _Reader, schema_id: int, body: bytes) -> Recorded:
        if reader.type in EVENT_TYPES and reader.upcaster is None:
            raise NewerFormatError(f"event type {reader.type}", reader.version, 1)
        return self.decode(schema_id, body)

    def _envelope(self, reader: _Reader, fields: dict[str, Any]) -> Envelope:
        fields["actor"] = Actor.trusted(fields["actor"])
        if fields["source"] is not None:
            fields["source"] = Source.trusted(fields["source"])
        if reader.envelope_missing or reader.envelope_extra:
            fields.update(reader.envelope_missing)
            for name in reader.envelope_extra:
                del fields[name]
        return Envelope.trusted(fields)

    def _event(self, reader: _Reader, own: dict[str, Any]) -> AnyEvent:
        name, upcaster = reader.name, reader.upcaster
        for _ in range(MAX_CHAIN):
            if (model := EVENT_TYPES.get(name)) is not None:
                known = model.model_fields
                return model.model_validate(
                    {k: v for k, v in own.items() if k in known}
                )
            if upcaster is None:
                return UnknownEvent(reader.type, own)
            name, own = upcaster(own)
            upcaster = self._upcasters.get(name)
        raise DecodeError(f"the upcasters of {reader.name} go in a circle")

    def _reader(self, schema_id: int) -> _Reader:
        reader = self._readers.get(schema_id)
        if reader is None:
            try:
                text = self._schemas.schema_of(schema_id)
            except KeyError as error:
                raise DecodeError(f"unknown schema id {schema_id}") from error
            reader = self._readers[schema_id] = _make_reader(text, self._upcasters)
        return reader

    def _read(self, schema: Any, body: bytes, *, whole: bool) -> dict[str, Any]:
        if len(body) > MAX_EVENT_BYTES:
            raise DecodeError(f"{len(body)} bytes, more than MAX_EVENT_BYTES")
        source = io.BytesIO(body)
        try:
            fields = cast(
                "dict[str, Any]", fastavro.schemaless_reader(source, schema, None)
            )
        except Exception as error:  # fastavro raises what it stumbles over
            raise DecodeError(repr(error)) from error
        if whole and source.tell() != len(body):
            raise DecodeError(f"{len(body) - source.tell()} bytes after the record")
        return fields
