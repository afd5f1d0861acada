"""Snapshots: a state as registered Avro bytes, and the hash that tells two states apart.

The schema is made from the dataclasses of `foldline.schemas.state`. Dictionaries become
arrays sorted by their key; counters become arrays of {name, count}. The hash leaves out
the chain head and the log times, so that the same appends give the same hash on every log.
"""

import dataclasses
import types
import typing
from collections.abc import Callable
from typing import Any, cast

from foldline.errors import DecodeError, EncodeError
from foldline.schemas.avro_bytes import data_bytes, long_bytes
from foldline.schemas.avro_io import parsed, read
from foldline.schemas.avsc import NAMESPACE
from foldline.schemas.record import Record
from foldline.schemas.state import FOLD_VERSION, SessionState
from foldline.schemas.state_bytes import compile_state_bytes

_PRIMITIVES: dict[Any, str] = {
    str: "string",
    int: "long",
    bool: "boolean",
    bytes: "bytes",
}

_Decode = Callable[[Any], Any]


def snapshot_schema(*, version: int = 1) -> dict[str, Any]:
    """The published Avro schema of a snapshot."""
    named: set[str] = set()
    return {
        "type": "record",
        "name": "Snapshot",
        "namespace": NAMESPACE,
        "doc": "A session's state as of its seq, made by one version of the fold.",
        "foldline_type": "Snapshot",
        "foldline_schema_version": version,
        "fields": [
            {"name": "fold_version", "type": "long"},
            {"name": "state_hash", "type": "bytes"},
            {"name": "state", "type": _schema(SessionState, named)},
        ],
    }


def _schema(hint: Any, named: set[str]) -> Any:
    origin = typing.get_origin(hint)
    arguments = typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        inner = next(a for a in arguments if a is not types.NoneType)
        return ["null", _schema(inner, named)]
    if origin is dict:
        if arguments[1] is int:
            return {"type": "array", "items": _count_schema(named)}
        return {"type": "array", "items": _schema(arguments[1], named)}
    if hint in _PRIMITIVES:
        return _PRIMITIVES[hint]
    return _record(hint, named)


def _count_schema(named: set[str]) -> Any:
    if "Count" in named:
        return f"{NAMESPACE}.Count"
    named.add("Count")
    return {
        "type": "record",
        "name": "Count",
        "namespace": NAMESPACE,
        "fields": [
            {"name": "name", "type": "string"},
            {"name": "count", "type": "long"},
        ],
    }


def _record(cls: Any, named: set[str]) -> Any:
    name = cls.__name__
    if name in named:
        return f"{NAMESPACE}.{name}"
    named.add(name)
    hints = _hints(cls)
    return {
        "type": "record",
        "name": name,
        "namespace": NAMESPACE,
        "fields": [_field(key, _schema(hint, named)) for key, hint in hints.items()],
    }


def _field(name: str, schema: Any) -> dict[str, Any]:
    """A field that a later fold may take away again: every one has a default."""
    defaults: dict[str, Any] = {"string": "", "long": 0, "boolean": False, "bytes": ""}
    field: dict[str, Any] = {"name": name, "type": schema}
    if isinstance(schema, list):
        field["default"] = None
    elif isinstance(schema, str) and schema in defaults:
        field["default"] = defaults[schema]
    elif isinstance(schema, dict) and cast("dict[str, Any]", schema)["type"] == "array":
        field["default"] = []
    return field


def _hints(cls: Any) -> dict[str, Any]:
    if issubclass(cls, Record):
        return {name: info.annotation for name, info in cls.model_fields.items()}
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def _decoder(hint: Any) -> _Decode | None:
    origin = typing.get_origin(hint)
    arguments = typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        inner = next(a for a in arguments if a is not types.NoneType)
        decode = _decoder(inner)
        return decode and (lambda value: None if value is None else decode(value))
    if origin is dict:
        if arguments[1] is int:
            return lambda counts: {count["name"]: count["count"] for count in counts}
        item = _decoder(arguments[1])
        key = next(iter(_hints(arguments[1])))
        if arguments[1].__name__ == "Ref":
            key = "key"
        assert item is not None  # noqa: S101 - every listed thing is a record
        return lambda things: {thing[key]: item(thing) for thing in things}
    if hint in _PRIMITIVES:
        return None
    return _record_decoder(hint)


def _record_decoder(cls: Any) -> _Decode:
    coded = [
        (name, decode)
        for name, hint in _hints(cls).items()
        if (decode := _decoder(hint)) is not None
    ]

    def decode_record(fields: dict[str, Any]) -> Any:
        for name, decode in coded:
            fields[name] = decode(fields[name])
        return cls(**fields)

    return decode_record


_SCHEMA = parsed(snapshot_schema())
_state_bytes = compile_state_bytes(SessionState)
_decode_state = _record_decoder(SessionState)
_FOLD_VERSION_BYTES = long_bytes(FOLD_VERSION)


def state_hash(state: SessionState) -> bytes:
    """SHA-256 of the state's Avro bytes, chain head and log times left out."""
    return _bytes_and_hash(state)[1]


def encode_snapshot(state: SessionState) -> bytes:
    """The state as the Avro body of a Snapshot record, with its hash.

    Raises:
        EncodeError: what Avro cannot hold (no fold makes such a state).
    """
    whole, digest = _bytes_and_hash(state)
    return _FOLD_VERSION_BYTES + data_bytes(digest) + whole


def _bytes_and_hash(state: SessionState) -> tuple[bytes, bytes]:
    try:
        return _state_bytes(state)
    except (UnicodeEncodeError, TypeError, AttributeError) as error:
        raise EncodeError("state", repr(error)) from error


def decode_snapshot(body: bytes) -> SessionState | None:
    """The state of a snapshot; None if another version of the fold made it.

    Raises:
        DecodeError: the bytes are no snapshot, or not the one that was hashed.
    """
    if not body:
        raise DecodeError("an empty snapshot")
    if body[0] != FOLD_VERSION << 1:  # the zigzag varint of a small version
        return None
    record = cast("dict[str, Any]", read(_SCHEMA, body))
    state = _decode_state(record["state"])
    if state_hash(state) != record["state_hash"]:
        raise DecodeError("a snapshot whose state does not match its hash")
    return state
