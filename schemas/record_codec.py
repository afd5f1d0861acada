"""Avro of the records that topics hold beside events: verdicts, dead letters, leases.

A record is written with the schema of its class as it is today, and read with the
schema that it was written with, found by the id in its frame: fields that a newer
writer added are dropped, fields that an older one lacked have their defaults.
"""

import json
from functools import cache
from typing import Any, TypeVar, cast

from pydantic import ValidationError

from foldline.errors import DecodeError, SchemaError
from foldline.schemas.avro_io import Schema, parsed, read
from foldline.schemas.avsc import record_schema
from foldline.schemas.codec import SchemaSource, frame, unframe, write_record
from foldline.schemas.lint import check_decodable
from foldline.schemas.readers import MAX_SCHEMA_CHARS, plain
from foldline.schemas.record import Record
from foldline.schemas.verdicts import Verdict, encode_verdict
from foldline.topics import MAX_RECORD_BYTES

Known = TypeVar("Known", bound=Record)


@cache
def _schema_of(cls: type[Record]) -> Schema:
    return parsed(plain(record_schema(cls)))


def encode_record(record: Record) -> bytes:
    """The Avro body of a record, without a frame. Lone surrogates become U+FFFD.

    Raises:
        EncodeError: a value that Avro cannot hold.
    """
    if type(record) is Verdict:
        return encode_verdict(record)
    return write_record(_schema_of(type(record)), record)


def frame_record(schema_id: int, record: Record) -> bytes:
    """A record as the value of a topic: Confluent's prefix and the Avro body.

    Args:
        schema_id: what the registry calls the newest frozen schema of the record.
        record: of any class of `topic_records`, or a Verdict.

    Raises:
        EncodeError: a value that Avro cannot hold.
    """
    return frame(schema_id, encode_record(record))


class RecordCodec:
    """Decodes records of one log's topics, with the writers' schemas found by id."""

    def __init__(self, schemas: SchemaSource) -> None:
        self._schemas = schemas
        self._known: dict[int, tuple[str, Schema]] = {}

    def unframe_record(self, cls: type[Known], data: bytes | None) -> Known:
        """The record of a topic's value.

        Raises:
            DecodeError: junk, truncated, another record, an unknown schema id.
            RegistryUnavailableError: the schema's text cannot be had now.
        """
        if data is None:
            raise DecodeError(f"no value where a {cls.__name__} should be")
        schema_id, body = unframe(data, max_bytes=MAX_RECORD_BYTES)
        name, schema = self._schema(schema_id)
        if name != cls.__name__:
            raise DecodeError(f"a {name} where a {cls.__name__} should be")
        try:
            return cls.model_validate(read(schema, body), extra="ignore")
        except ValidationError as error:
            raise DecodeError(f"{name}: {error}") from error

    def _schema(self, schema_id: int) -> tuple[str, Schema]:
        known = self._known.get(schema_id)
        if known is None:
            try:
                text = self._schemas.schema_of(schema_id)
            except KeyError as error:
                raise DecodeError(f"unknown schema id {schema_id}") from error
            known = self._known[schema_id] = _loaded(text)
        return known


def _loaded(text: str) -> tuple[str, Schema]:
    """The name of a record and how to read it.

    Raises:
        DecodeError: a text that is no record's schema, or could hang its reader.
    """
    if len(text) > MAX_SCHEMA_CHARS:
        raise DecodeError(f"a schema of more than {MAX_SCHEMA_CHARS} characters")
    try:
        schema = cast("dict[str, Any]", json.loads(text))
        check_decodable(schema)
        return str(schema["name"]), parsed(plain(schema))
    except SchemaError as error:
        raise DecodeError(str(error)) from error
    except Exception as error:  # whatever a foreign schema makes us stumble over
        raise DecodeError(f"no schema: {error!r}") from error
