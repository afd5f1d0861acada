"""Appends, events and verdicts as records: what is said comes back, junk has a word."""

import pytest
from hypothesis import given, settings

from foldline.errors import DecodeError, EncodeError, NoAppendError
from foldline.processors.kafka_records import (
    CE_ID,
    CE_SOURCE,
    CE_TIME,
    CE_TYPE,
    EXPECTED_SEQ,
    KNOWN_SEQ,
    MAX_REQUIRES,
    REPLY_TO,
    REQUIRES,
    TRACEPARENT,
    WRITER,
    Headers,
    Incoming,
    append_offset_of,
    ce_time,
    decode_append,
    decode_verdict,
    encode_append,
    encode_verdict,
    header_map,
)
from foldline.schemas.codec import frame
from foldline.schemas.record_codec import RecordCodec
from foldline.schemas.recorded import Append
from foldline.schemas.verdicts import CONFLICT, Verdict
from foldline.testing import make_append
from foldline.testing.samples import said
from tests.partitions import Broker
from tests.strategies import appends

BROKER = Broker()
MESSAGE_ID = BROKER.registry.id_of("UserMessage")


def read(value: bytes | None, headers: Headers | None) -> Append:
    return decode_append(Incoming(0, 1, b"session", value, headers), BROKER.codec)


@settings(max_examples=100, deadline=None)
@given(appends())
def test_an_append_comes_back_as_it_was_sent(append: Append) -> None:
    schema_id = BROKER.registry.id_of(type(append.event).__name__)
    value, headers = encode_append(append, schema_id=schema_id, reply_to="me")
    again = read(value, headers)
    assert again.envelope == append.envelope
    assert again.content == append.content
    assert type(again.event) is type(append.event)
    for name in ("known_seq", "expected_seq", "requires"):
        assert getattr(again, name) == getattr(append, name)


def test_the_headers_say_what_routes_and_answers_an_append_undecoded() -> None:
    append = make_append(
        "s/ä", said(), known_seq=7, expected_seq=8, requires=("a", "b"), writer="w"
    )
    fields = {"occurred_at": 1_700_000_000_000_001, "traceparent": "00-1"}
    append = Append(
        append.envelope.model_copy(update=fields),
        append.event,
        append.content,
        7,
        8,
        ("a", "b"),
    )
    _, headers = encode_append(append, schema_id=1, reply_to="me")
    assert header_map(headers) == {
        CE_ID: append.envelope.event_id.encode(),
        CE_TYPE: b"UserMessage",
        CE_SOURCE: b"/sessions/s%2F%C3%A4",
        CE_TIME: b"2023-11-14T22:13:20.000001Z",
        TRACEPARENT: b"00-1",
        WRITER: b"w",
        KNOWN_SEQ: b"7",
        EXPECTED_SEQ: b"8",
        REQUIRES: b"a,b",
        REPLY_TO: b"me",
    }


def test_what_is_not_there_has_no_header() -> None:
    append = make_append("s", said(), known_seq=0)
    _, headers = encode_append(append, schema_id=1, reply_to="")
    assert set(header_map(headers)) == {CE_ID, CE_TYPE, CE_SOURCE, WRITER, KNOWN_SEQ}


@pytest.mark.parametrize("micros", [2**62, -(2**62)])
def test_a_time_that_no_calendar_has_is_left_empty(micros: int) -> None:
    assert ce_time(micros) == b""


@pytest.mark.parametrize(
    "requires", [("a,b",), ("",), tuple(str(n) for n in range(MAX_REQUIRES + 1))]
)
def test_ids_that_a_header_cannot_hold_are_refused(requires: tuple[str, ...]) -> None:
    append = make_append("s", said(), known_seq=0, requires=requires)
    with pytest.raises(EncodeError):
        encode_append(append, schema_id=1, reply_to="me")


GOOD, HEADERS = encode_append(
    make_append("session", said(), known_seq=1), schema_id=MESSAGE_ID, reply_to="me"
)


def with_header(name: str, value: bytes) -> Headers:
    return [*(h for h in HEADERS if h[0] != name), (name, value)]


@pytest.mark.parametrize(
    ("value", "headers", "word"),
    [
        (None, HEADERS, "null_value"),
        (b"", HEADERS, "empty_value"),
        (b"\x00\x00", HEADERS, "bad_frame"),
        (b"\x01" + GOOD[1:], HEADERS, "bad_frame"),
        (GOOD[:5], HEADERS, "bad_frame"),
        (GOOD[:-1], HEADERS, "bad_avro"),
        (GOOD + b"\x00", HEADERS, "bad_avro"),
        (frame(9_999, GOOD[5:]), HEADERS, "bad_avro"),
        (GOOD, with_header(KNOWN_SEQ, b"-1"), "bad_header"),
        (GOOD, with_header(KNOWN_SEQ, b"1_0"), "bad_header"),
        (GOOD, with_header(KNOWN_SEQ, b"9" * 5000), "bad_header"),
        (GOOD, with_header(KNOWN_SEQ, "٣".encode()), "bad_header"),
        (GOOD, with_header(EXPECTED_SEQ, b""), "bad_header"),
        (GOOD, with_header(REQUIRES, b"\xff"), "bad_header"),
        (GOOD, with_header(REQUIRES, b"," * MAX_REQUIRES), "too_many_requires"),
    ],
)
def test_what_is_no_append_is_told_by_a_word(
    value: bytes | None, headers: Headers, word: str
) -> None:
    with pytest.raises(NoAppendError) as raised:
        read(value, headers)
    assert raised.value.word == word


def test_an_append_without_headers_has_no_known_seq() -> None:
    assert read(GOOD, None).known_seq == -1


def test_a_verdict_comes_back_with_the_offset_of_its_append() -> None:
    verdict = Verdict(kind=CONFLICT, session_id="s", event_id="e", anomalies=("late",))
    codec = RecordCodec(BROKER.registry)
    value = encode_verdict(verdict, schema_id=BROKER.ids.verdict, append_offset=55)
    assert decode_verdict(value, codec) == verdict.model_copy(update={"append_offset": 55})
    with pytest.raises(DecodeError):
        decode_verdict(None, codec)


@pytest.mark.parametrize("headers", [None, [], [("ao", b"x")], [("ao", b"")]])
def test_an_event_without_its_appends_offset_is_refused(headers: Headers | None) -> None:
    with pytest.raises(DecodeError):
        append_offset_of(headers)
    assert append_offset_of([("ao", b"3")]) == 3
