"""The edge to fastavro: typed, and with one kind of error for whatever it stumbles over."""

import io
from typing import Any, cast

import fastavro

from foldline.errors import DecodeError, EncodeError

_fastavro = cast("Any", fastavro)
Schema = Any
"""A schema as fastavro wants it: parsed once."""


def parsed(schema: Any) -> Schema:
    """Parse a schema; names in it are its own, not shared with other schemas."""
    return _fastavro.parse_schema(schema, {})


def write(schema: Schema, value: Any, *, what: str) -> bytes:
    """A value as Avro bytes.

    Args:
        schema: a parsed schema.
        value: dictionaries, lists and primitives; tuples name a union branch.
        what: the name for an error.

    Raises:
        EncodeError: the value does not fit the schema, or Avro.
        UnicodeEncodeError: a string with a lone surrogate.
    """
    out = io.BytesIO()
    try:
        _fastavro.schemaless_writer(out, schema, value)
    except UnicodeEncodeError:
        raise
    except Exception as error:  # fastavro raises what it stumbles over
        raise EncodeError(what, repr(error)) from error
    return out.getvalue()


def read(schema: Schema, data: bytes) -> Any:
    """The value of Avro bytes, all of them.

    Raises:
        DecodeError: junk, truncated, or bytes left over.
    """
    source = io.BytesIO(data)
    try:
        value = _fastavro.schemaless_reader(source, schema, None)
    except Exception as error:  # fastavro raises what it stumbles over
        raise DecodeError(repr(error)) from error
    if source.tell() != len(data):
        raise DecodeError(f"{len(data) - source.tell()} bytes after the record")
    return value
