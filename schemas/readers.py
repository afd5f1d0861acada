"""What is worked out once for each writer's schema, so that decoding is quick.

A schema as published is one flat record. Here it is taken apart: the envelope, the
event's structure (the front), and its content, which begins at the first field that
holds blocks or bodies.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast, get_args, get_origin

from pydantic_core import PydanticUndefined

from foldline.errors import DecodeError
from foldline.schemas.avro_io import parsed
from foldline.schemas.avsc import NAMESPACE
from foldline.schemas.envelope import Envelope
from foldline.schemas.events import EVENT_TYPES, KnownEvent
from foldline.schemas.front import ReadFront, compile_front
from foldline.schemas.lint import check_decodable
from foldline.schemas.record import Record
from foldline.schemas.upcasters import Upcaster

_CONTENT_TYPES = {f"{NAMESPACE}.{name}" for name in ("Block", "Blob", "Sealed")}


def plain(schema: Any) -> Any:
    """The schema without logical types: numbers and strings stay what they are."""
    if isinstance(schema, list):
        return [plain(item) for item in cast("list[Any]", schema)]
    if isinstance(schema, dict):
        fields = cast("dict[str, Any]", schema)
        if "logicalType" in fields:
            return fields["type"]
        return {
            key: plain(value) if key in ("type", "items", "fields") else value
            for key, value in fields.items()
            if key != "doc"
        }
    return schema


def split(schema: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """The envelope's fields and the event's own, of a published schema."""
    fields = cast("list[dict[str, Any]]", schema["fields"])
    names = [field["name"] for field in fields]
    if "prev_hash" not in names:
        raise DecodeError(f"schema {schema.get('name')} has no envelope")
    end = names.index("prev_hash") + 1
    return fields[:end], fields[end:]


def as_record(name: str, fields: list[Any]) -> dict[str, Any]:
    """Fields as a record schema of our namespace."""
    return {"type": "record", "name": f"{NAMESPACE}.{name}", "fields": fields}


@dataclass(frozen=True, slots=True)
class Reader:
    """What is known of one writer's schema, worked out once."""

    name: str
    event_type: str
    version: int
    model: type[KnownEvent] | None
    upcaster: Upcaster | None
    whole: Any
    front: ReadFront
    missing: Mapping[str, Any]
    extra: tuple[str, ...]
    nested: tuple[tuple[str, type[Record], bool], ...]
    envelope_missing: Mapping[str, Any]
    envelope_extra: tuple[str, ...]
    uneven: bool


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
        many = get_origin(annotation) is tuple
        found.extend(
            (name, part, many)
            for part in get_args(annotation) or (annotation,)
            if isinstance(part, type) and issubclass(part, Record)
        )
    return tuple(found)


def make_reader(text: str, upcasters: Mapping[str, Upcaster]) -> Reader:
    """Work out how to read what was written with a schema.

    Raises:
        SchemaError: the schema could hang its reader, or is no event's.
    """
    schema = cast("dict[str, Any]", json.loads(text))
    check_decodable(schema)
    envelope, own = split(cast("dict[str, Any]", plain(schema)))
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
    missing = _defaults(model, front_names) if model else {}
    extra = tuple(front_names - known)
    nested = _nested_records(model, front_names) if model else ()
    envelope_missing = _defaults(Envelope, envelope_names)
    envelope_extra = tuple(envelope_names - set(Envelope.model_fields))
    return Reader(
        name=name,
        event_type=cast("str", schema.get("foldline_type", name)),
        version=cast("int", schema.get("foldline_schema_version", 1)),
        model=model,
        upcaster=upcasters.get(name),
        whole=_nested(name, envelope, own),
        front=compile_front(name, split(schema)[0], front),
        missing=missing,
        extra=extra,
        nested=nested,
        envelope_missing=envelope_missing,
        envelope_extra=envelope_extra,
        uneven=any((missing, extra, nested, envelope_missing, envelope_extra)),
    )


def _nested(name: str, envelope: list[Any], own: list[Any]) -> Any:
    """The same bytes, read as two records one after the other."""
    return parsed(
        as_record(
            f"{name}_read",
            [
                {"name": "envelope", "type": as_record("Envelope_", envelope)},
                {"name": "own", "type": as_record(f"{name}_", own)},
            ],
        )
    )


def fit(reader: Reader, envelope: dict[str, Any], own: dict[str, Any]) -> None:
    """Fit decoded fields to today's models: defaults, dropped fields, nested records."""
    own.update(reader.missing)
    for name in reader.extra:
        del own[name]
    for name, record, many in reader.nested:
        if many:
            own[name] = tuple(record.trusted(item) for item in own[name])
        elif own[name] is not None:
            own[name] = record.trusted(own[name])
    envelope.update(reader.envelope_missing)
    for name in reader.envelope_extra:
        del envelope[name]
