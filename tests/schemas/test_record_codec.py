"""Records of the topics: as fastavro writes them, and read with their writers' schemas."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldline.errors import DecodeError, EncodeError
from foldline.schemas.avro_bytes import long_bytes, time_bytes
from foldline.schemas.avro_io import parsed, write
from foldline.schemas.avsc import record_schema
from foldline.schemas.codec import frame
from foldline.schemas.frozen import FOLDER, load, path_of
from foldline.schemas.readers import plain
from foldline.schemas.record import Record
from foldline.schemas.record_codec import RecordCodec, encode_record, frame_record
from foldline.schemas.topic_records import (
    TOPIC_RECORDS,
    DeadLetter,
    Header,
    LogMeta,
    LowWater,
)
from foldline.schemas.verdicts import ACCEPTED, Verdict
from tests.strategies import INT64, records

CLASSES = (Verdict, *TOPIC_RECORDS)
OFTEN = settings(max_examples=200, deadline=None)


class Schemas:
    """Schemas under the ids of their places."""

    def __init__(self, *schemas: dict[str, Any]) -> None:
        self.texts = [json.dumps(schema) for schema in schemas]

    def schema_of(self, schema_id: int) -> str:
        """The text; KeyError where there is none."""
        if schema_id >= len(self.texts):
            raise KeyError(schema_id)
        return self.texts[schema_id]


PUBLISHED = Schemas(*(record_schema(cls) for cls in CLASSES))


def any_record() -> st.SearchStrategy[Record]:
    return st.sampled_from(CLASSES).flatmap(records)


@OFTEN
@given(any_record())
def test_every_record_comes_back_as_it_was(record: Record) -> None:
    codec = RecordCodec(PUBLISHED)
    value = frame_record(CLASSES.index(type(record)), record)
    assert codec.unframe_record(type(record), value) == record


@OFTEN
@given(records(Verdict))
def test_a_verdict_is_written_as_fastavro_writes_it(verdict: Verdict) -> None:
    schema = parsed(plain(record_schema(Verdict)))
    fields = verdict.__dict__ | {"anomalies": list(verdict.anomalies)}
    assert encode_record(verdict) == write(schema, fields, what="Verdict")


@given(INT64 | st.integers(min_value=-(2**21), max_value=2**57))
def test_a_number_is_written_as_fastavro_writes_it(number: int) -> None:
    expected = write(parsed("long"), number, what="long")
    assert long_bytes(number) == time_bytes(number) == expected


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1])
def test_a_number_that_no_avro_long_can_hold_is_refused(number: int) -> None:
    with pytest.raises(EncodeError):
        long_bytes(number)


def test_a_lone_surrogate_becomes_a_replacement_character() -> None:
    verdict = Verdict(kind=ACCEPTED, session_id="s\ud800", event_id="e")
    value = frame_record(0, verdict)
    read = RecordCodec(PUBLISHED).unframe_record(Verdict, value)
    assert read.session_id == "s\ufffd"


def newer_letter() -> dict[str, Any]:
    """The schema of a later version: one field more, also in what is nested."""
    schema = record_schema(DeadLetter, version=2)
    schema["fields"].append({"name": "later", "type": ["null", "string"], "default": None})
    header = next(field for field in schema["fields"] if field["name"] == "headers")
    nested = header["type"]["items"]["fields"]
    nested.append({"name": "later", "type": "long", "default": 0})
    return schema


def test_what_a_newer_writer_added_is_dropped() -> None:
    schema = newer_letter()
    letter = {
        "session_id": "s",
        "partition": 1,
        "offset": 2,
        "recorded_at": 3,
        "kind": "UNDECODABLE",
        "reason": "bad_frame",
        "detail": "",
        "headers": [{"name": "n", "value": b"v", "later": 5}],
        "key": b"s",
        "value": None,
        "later": "x",
    }
    body = write(parsed(plain(schema)), letter, what="test")
    read = RecordCodec(Schemas(schema)).unframe_record(DeadLetter, frame(0, body))
    assert read.headers == (Header(name="n", value=b"v"),)
    assert (read.offset, read.value) == (2, None)


def test_what_an_older_writer_did_not_know_has_its_default() -> None:
    schema = record_schema(LogMeta)
    schema["fields"] = schema["fields"][:2]
    body = write(parsed(plain(schema)), {"log_id": "l", "partitions": 4}, what="test")
    read = RecordCodec(Schemas(schema)).unframe_record(LogMeta, frame(0, body))
    assert read == LogMeta(log_id="l", partitions=4)


def test_a_mark_of_before_says_nothing_of_appends() -> None:
    schema = load(path_of(FOLDER, "LowWater", 1))
    fields = {
        name: value for name, value in LOW.__dict__.items() if name != "low_input_offset"
    }
    body = write(parsed(plain(schema)), fields | {"schema_ids": [1, 2]}, what="test")
    assert RecordCodec(Schemas(schema)).unframe_record(LowWater, frame(0, body)) == LOW


LOW = LowWater(
    partition=1, fold_version=1, low=5, input_offset=6, rules_version=1, schema_ids=(1, 2)
)
GOOD = frame_record(CLASSES.index(LowWater), LOW)


@pytest.mark.parametrize(
    "value",
    [None, b"", b"\x00", b"\x01" + GOOD[1:], GOOD[:-1], GOOD + b"x", GOOD[:5]],
    ids=["none", "empty", "short", "magic", "truncated", "longer", "no body"],
)
def test_junk_is_no_record(value: bytes | None) -> None:
    with pytest.raises(DecodeError):
        RecordCodec(PUBLISHED).unframe_record(LowWater, value)


def test_another_record_or_an_unknown_schema_is_refused() -> None:
    codec = RecordCodec(PUBLISHED)
    with pytest.raises(DecodeError, match="a LowWater where a LogMeta should be"):
        codec.unframe_record(LogMeta, GOOD)
    with pytest.raises(DecodeError, match="unknown schema id 77"):
        codec.unframe_record(LogMeta, frame(77, b"x"))


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "record", "name": "LogMeta", "fields": []},
        {"type": "enum", "name": "LogMeta", "symbols": []},
        ["LogMeta"],
        {"name": "LogMeta"},
    ],
)
def test_a_schema_that_is_none_or_could_hang_its_reader_is_refused(schema: Any) -> None:
    with pytest.raises(DecodeError):
        RecordCodec(Schemas(schema)).unframe_record(LogMeta, frame(0, b"x"))


@given(st.binary(max_size=60))
def test_random_bytes_never_do_more_than_raise_a_decode_error(junk: bytes) -> None:
    for number, cls in enumerate(CLASSES):
        try:
            RecordCodec(PUBLISHED).unframe_record(cls, frame(number, junk))
        except DecodeError:
            continue
