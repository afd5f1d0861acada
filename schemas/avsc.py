"""Avro schemas made from the models: one record per event type, envelope first.

`event_schema(UserMessage)` is the schema as published. Field order is declaration
order; nullable is `["null", T]` with default null; a default of the model is a default
of the schema; types named twice are defined once.
"""

import types
from typing import Annotated, Any, Union, cast, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from foldline.schemas.envelope import Envelope
from foldline.schemas.events import KnownEvent
from foldline.schemas.record import Logical, Record

NAMESPACE = "foldline.events"

Json = dict[str, Any] | list[Any] | str | int | float | bool | None

_PRIMITIVES: dict[type, str] = {
    str: "string",
    int: "long",
    bool: "boolean",
    float: "double",
    bytes: "bytes",
}


def event_schema(event_class: type[KnownEvent], *, version: int = 1) -> dict[str, Any]:
    """The published schema of an event type: envelope fields, then its own.

    Args:
        event_class: the model.
        version: the schema_version that events of this record carry.
    """
    named: set[str] = set()
    return {
        "type": "record",
        "name": event_class.__name__,
        "namespace": NAMESPACE,
        "doc": " ".join((event_class.__doc__ or "").split()),
        "foldline_type": event_class.__name__,
        "foldline_schema_version": version,
        "fields": [
            *_fields(Envelope, named),
            *_fields(event_class, named),
        ],
    }


def record_schema(record_class: type[Record], *, version: int = 1) -> dict[str, Any]:
    """The published schema of a record that is no event (a verdict, a snapshot)."""
    named: set[str] = {record_class.__name__}
    return {
        "type": "record",
        "name": record_class.__name__,
        "namespace": NAMESPACE,
        "doc": " ".join((record_class.__doc__ or "").split()),
        "foldline_type": record_class.__name__,
        "foldline_schema_version": version,
        "fields": _fields(record_class, named),
    }


def _fields(record_class: type[Record], named: set[str]) -> list[dict[str, Any]]:
    fields: list[dict[str, Any]] = []
    for name, info in record_class.model_fields.items():
        field: dict[str, Any] = {"name": name, "type": _field_type(info, named)}
        if info.default is not PydanticUndefined:
            field["default"] = _default(info.default)
        fields.append(field)
    return fields


def _default(value: Any) -> Json:
    """A model's default as Avro writes it; only empty and scalar defaults exist."""
    if isinstance(value, tuple):
        return list(cast("tuple[Json, ...]", value))
    return value


def _field_type(info: FieldInfo, named: set[str]) -> Json:
    logical = next((m for m in info.metadata if isinstance(m, Logical)), None)
    return _type(info.annotation, named, logical=logical)


def _type(annotation: Any, named: set[str], *, logical: Logical | None = None) -> Json:
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *metadata = get_args(annotation)
        found = next((m for m in metadata if isinstance(m, Logical)), logical)
        return _type(inner, named, logical=found)
    if origin in (Union, types.UnionType):
        branches = list(get_args(annotation))
        # null comes first, so that null can be the default.
        branches.sort(key=lambda branch: branch is not types.NoneType)
        return [_type(branch, named, logical=logical) for branch in branches]
    if origin is tuple:
        return {"type": "array", "items": _type(get_args(annotation)[0], named)}
    if annotation is types.NoneType:
        return "null"
    if annotation in _PRIMITIVES:
        primitive = _PRIMITIVES[annotation]
        return {"type": primitive, "logicalType": logical.name} if logical else primitive
    return _named(annotation, named)


def _named(record_class: type[Record], named: set[str]) -> Json:
    name = record_class.__name__
    if name in named:
        return f"{NAMESPACE}.{name}"
    named.add(name)
    return {
        "type": "record",
        "name": name,
        "namespace": NAMESPACE,
        "doc": " ".join((record_class.__doc__ or "").split()),
        "fields": _fields(record_class, named),
    }


def without_docs(schema: Any) -> Any:
    """A schema without its docs: what says how bytes are read."""
    if isinstance(schema, list):
        return [without_docs(item) for item in cast("list[Any]", schema)]
    if isinstance(schema, dict):
        fields = cast("dict[str, Any]", schema)
        return {k: without_docs(v) for k, v in fields.items() if k != "doc"}
    return schema
