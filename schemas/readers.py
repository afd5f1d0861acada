"""What is worked out once for each writer's schema, so that decoding is quick.

A schema as published is one flat record. Here it is taken apart: the envelope, the
event's structure (the front), and its content, which begins at the first field that
holds blocks or bodies.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast, get_args, get_origin

from pydantic_core import PydanticUndefined

from foldline.errors import DecodeError, SchemaError
from foldline.schemas.avro_io import parsed
from foldline.schemas.avsc import NAMESPACE, event_schema, without_docs
from foldline.schemas.envelope import Actor, Envelope, Source
from foldline.schemas.events import EVENT_TYPES, KnownEvent
from foldline.schemas.front import Finish, FinishEnvelope, ReadFront, compile_front
from foldline.schemas.intake import Intake, compile_intake
from foldline.schemas.lint import check_decodable
from foldline.schemas.record import Record
from foldline.schemas.upcasters import Upcaster

_CONTENT_TYPES = {f"{NAMESPACE}.{name}" for name in ("Block", "Blob", "Sealed")}

MAX_SCHEMA_CHARS = 1_000_000
"""The longest schema that is taken in."""


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


_PRIMITIVE = frozenset(
    {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
)


def fully_named(schema: Any, namespace: str) -> Any:
    """The schema with a namespace at every record, and full names where one is named.

    Avro lets what is inside a record leave its namespace out, and registries make use
    of that: the text that one gives back need not be the text that was registered.
    """
    if isinstance(schema, str):
        bare = schema in _PRIMITIVE or "." in schema or not namespace
        return schema if bare else f"{namespace}.{schema}"
    if isinstance(schema, list):
        return [fully_named(item, namespace) for item in cast("list[Any]", schema)]
    fields = dict(cast("dict[str, Any]", schema))
    if "name" in fields and "fields" in fields:
        before, dot, name = str(fields["name"]).rpartition(".")
        namespace = before if dot else fields.get("namespace", namespace)
        fields |= {"name": name, "namespace": namespace}
        fields["fields"] = [
            {**field, "type": fully_named(field["type"], namespace)}
            for field in cast("list[dict[str, Any]]", fields["fields"])
        ]
    elif "items" in fields:
        fields["items"] = fully_named(fields["items"], namespace)
    elif not isinstance(fields["type"], str):
        fields["type"] = fully_named(fields["type"], namespace)
    return fields


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
    extra: tuple[str, ...]
    parts: "Parts"


@dataclass(frozen=True, slots=True)
class Parts:
    """A writer's schema taken apart: what an intake is made of, where one is needed."""

    envelope: list[Any]
    front: list[Any]
    content: list[Any]
    finish: Finish


def is_content(schema: Any) -> bool:
    """Whether a field's type holds blocks or bodies somewhere."""
    if isinstance(schema, str):
        return schema in _CONTENT_TYPES
    if isinstance(schema, list):
        return any(is_content(branch) for branch in cast("list[Any]", schema))
    fields = cast("dict[str, Any]", schema)
    if fields["type"] == "array":
        return is_content(fields["items"])
    name = f"{fields.get('namespace', NAMESPACE)}.{fields.get('name', '')}"
    return name in _CONTENT_TYPES or any(
        is_content(field["type"]) for field in fields.get("fields", ())
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


def _models(model: type[Record], front: set[str]) -> dict[str, Callable[[Any], Any]]:
    """What makes the records in front: of one, of one that may be null, of several."""
    found: dict[str, Callable[[Any], Any]] = {}
    for name in model.model_fields.keys() & front:
        annotation: Any = model.model_fields[name].annotation
        many = get_origin(annotation) is tuple
        for part in get_args(annotation) or (annotation,):
            if isinstance(part, type) and issubclass(part, Record):
                found[name] = _maker(part, many=many)
    return found


def _maker(record: type[Record], *, many: bool) -> Callable[[Any], Any]:
    names = record.model_fields.keys()

    def one(fields: dict[str, Any] | None) -> Record | None:
        if fields is None:
            return None
        if fields.keys() != names:
            fields = _of_today(record, fields)
        return record.trusted(fields)

    return (lambda items: tuple(map(one, items))) if many else one


def make_reader(text: str, upcasters: Mapping[str, Upcaster]) -> Reader:
    """Work out how to read what was written with a schema.

    Raises:
        SchemaError: the schema could hang its reader, or is no event's.
    """
    try:
        return _make_reader(_loaded(text), upcasters)
    except (SchemaError, DecodeError):
        raise
    except Exception as error:  # whatever a foreign schema makes us stumble over
        raise SchemaError("?", [f"no schema: {error!r}"]) from error


def _loaded(text: str) -> dict[str, Any]:
    if len(text) > MAX_SCHEMA_CHARS:
        raise SchemaError("?", [f"more than {MAX_SCHEMA_CHARS} characters"])
    schema = json.loads(text)
    if not isinstance(schema, dict):
        raise SchemaError("?", ["no record"])
    check_decodable(cast("dict[str, Any]", schema))
    return cast("dict[str, Any]", fully_named(schema, ""))


def _make_reader(schema: dict[str, Any], upcasters: Mapping[str, Upcaster]) -> Reader:
    envelope, own = split(cast("dict[str, Any]", plain(schema)))
    front: list[Any] = []
    for field in own:
        if is_content(field["type"]):
            break
        front.append(field)
    name = cast("str", schema["name"])
    model = EVENT_TYPES.get(name)
    front_names = {field["name"] for field in front}
    known = set(model.model_fields) if model else set[str]()
    finish = Finish(
        _models(model, front_names) if model else {},
        _defaults(model, front_names) if model else {},
    )
    return Reader(
        name=name,
        event_type=cast("str", schema.get("foldline_type", name)),
        version=cast("int", schema.get("foldline_schema_version", 1)),
        model=model,
        upcaster=upcasters.get(name),
        whole=_nested(name, envelope, own),
        front=compile_front(
            name,
            split(schema)[0],
            front,
            finish_envelope=finish_envelope,
            finish=finish,
        ),
        extra=tuple(front_names - known),
        parts=Parts(split(schema)[0], front, own[len(front) :], finish),
    )


def make_intake(reader: Reader) -> Intake:
    """Work out how to admit what was written with a schema.

    Raises:
        SchemaError: an envelope that admission cannot fill.
    """
    parts = reader.parts
    # An event without model is decoded by the whole reader: here it is only checked.
    front = parts.front if reader.model else []
    content = parts.content if reader.model else parts.front + parts.content
    return compile_intake(
        reader.name,
        parts.envelope,
        front,
        content,
        finish_envelope=_quickest_finish(parts.envelope),
        finish=parts.finish,
    )


def _quickest_finish(envelope: list[Any]) -> FinishEnvelope:
    """The quickest way to finish an envelope: one of today needs no comparing."""
    today = split(plain(event_schema(EVENT_TYPES["ContextCleared"])))[0]
    return _finish_todays if plain(without_docs(envelope)) == today else finish_envelope


def _finish_todays(fields: dict[str, Any]) -> dict[str, Any]:
    fields["actor"] = Actor.trusted(fields["actor"])
    if fields["source"] is not None:
        fields["source"] = Source.trusted(fields["source"])
    return fields


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


def finish_envelope(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of an envelope of whatever version, actor and source as models."""
    fields = _of_today(Envelope, fields)
    actor, source = fields["actor"], fields["source"]
    fields["actor"] = Actor.trusted(_of_today(Actor, actor))
    fields["source"] = source and Source.trusted(_of_today(Source, source))
    return fields


def _of_today(record: type[Record], fields: dict[str, Any]) -> dict[str, Any]:
    """Fields of whatever version: defaults for new ones, without dropped ones."""
    known = record.model_fields
    if fields.keys() == known.keys():
        return fields
    return {name: fields.get(name, info.default) for name, info in known.items()}
