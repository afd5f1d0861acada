"""What is no append never stops a partition: a dead letter, an answer, and on it goes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldline.processors.admission import MAX_CONTENT_BYTES
from foldline.processors.kafka_records import (
    CE_ID,
    KNOWN_SEQ,
    REPLY_TO,
    REQUIRES,
    Headers,
    encode_append,
)
from foldline.schemas.blocks import Block
from foldline.schemas.codec import encode_envelope, frame, unframe
from foldline.schemas.events import UserFeedback, UserMessage
from foldline.schemas.recorded import Append
from foldline.schemas.topic_records import CONTROL_KEY
from foldline.schemas.verdicts import ACCEPTED, MISROUTED, TOO_LARGE, UNDECODABLE
from foldline.testing import make_append
from foldline.testing.samples import created, said
from foldline.topics import MAX_APPEND_RECORD_BYTES, MAX_RECORD_BYTES, partition_for
from tests.partitions import CLIENT, Broker, Worker

SESSION = "session"
EVENT_ID = "00000000-0000-7000-8000-000000000001"


def broker() -> Broker:
    """A partition with one session in it."""
    made = Broker()
    made.control()
    made.send(make_append(SESSION, created(), known_seq=0))
    return made


def message(**envelope: object) -> Append:
    append = make_append(SESSION, said(), known_seq=1)
    fields = {"event_id": EVENT_ID} | envelope
    made = append.envelope.model_copy(update=fields)
    return Append(made, append.event, append.content, known_seq=1)


REGISTRY = Broker().registry
GOOD, HEADERS = encode_append(
    message(), schema_id=REGISTRY.id_of("UserMessage"), reply_to=CLIENT
)
BODY = GOOD[5:]
CONTENT = len(encode_envelope(message().envelope))


def body(changed: bytes) -> bytes:
    return frame(REGISTRY.id_of("UserMessage"), changed)


BOMB = body(BODY[:CONTENT] + b"\x02m" + b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f")

POISON: dict[str, tuple[bytes | None, str]] = {
    "null value": (None, "null_value"),
    "empty value": (b"", "empty_value"),
    "random bytes": (b"\x8f\x12\xa0random", "bad_frame"),
    "wrong magic": (b"\x05" + GOOD[1:], "bad_frame"),
    "a frame alone": (GOOD[:5], "bad_frame"),
    "an id that is not in force": (frame(9_999, BODY), "unknown_schema"),
    "the id of no event": (frame(REGISTRY.id_of("Verdict"), BODY), "unknown_schema"),
    "another type's id": (frame(REGISTRY.id_of("TurnEnded"), BODY), "bad_avro"),
    "truncated in the envelope": (GOOD[:40], "bad_avro"),
    "truncated in the content": (GOOD[:-2], "bad_avro"),
    "bytes left over": (GOOD + b"\x00", "bad_avro"),
    "invalid UTF-8 in the envelope": (body(b"\x48" + b"\xff" * 36 + BODY[37:]), "bad_avro"),
    "invalid UTF-8 in the content": (
        GOOD.replace(b"hello", b"hel\xff\xfe"),
        "bad_avro",
    ),
    "an array bomb": (BOMB, "bad_avro"),
    "a number of more than 64 bits": (
        body(BODY.replace(b"\x00\x02", b"\xff" * 9 + b"\x7f" + b"\x02", 1)),
        "bad_avro",
    ),
}


@pytest.mark.parametrize("kind", POISON)
def test_poison_becomes_a_dead_letter_and_an_answer_and_the_partition_goes_on(
    kind: str,
) -> None:
    value, word = POISON[kind]
    made = broker()
    offset = made.put(SESSION.encode(), value, HEADERS)
    made.send(make_append(SESSION, said(), known_seq=1))
    worker = Worker(made).run()
    answers = made.answers()
    assert [answer.kind for answer in answers] == [ACCEPTED, UNDECODABLE, ACCEPTED]
    assert (answers[1].session_id, answers[1].event_id) == (SESSION, EVENT_ID)
    assert answers[1].append_offset == offset
    (letter,) = made.letters()
    assert (letter.kind, letter.reason, letter.offset) == (UNDECODABLE, word, offset)
    assert (letter.key, letter.value) == (SESSION.encode(), value)
    assert [(h.name, h.value) for h in letter.headers] == HEADERS
    assert letter.detail
    assert worker.partition.counters.reasons == {word: 1}
    assert len(made.bodies(SESSION)) == 2


@pytest.mark.parametrize("key", [None, b"", b"\x00tick:me", b"\xff\xfe", b"k" * 600_000])
def test_a_key_that_is_no_session_is_answered_through_the_headers(
    key: bytes | None,
) -> None:
    made = broker()
    made.put(key, GOOD, HEADERS)
    made.send(make_append(SESSION, said(), known_seq=1))
    Worker(made).run()
    assert [v.kind for v in made.answers()] == [
        ACCEPTED,
        MISROUTED if key == b"k" * 600_000 else UNDECODABLE,
        ACCEPTED,
    ]
    (letter,) = made.letters()
    assert letter.key == key
    assert all(len(record.key) <= 10_000 for record in made.rejected)


@pytest.mark.parametrize(
    ("headers", "word"),
    [
        ([(KNOWN_SEQ, b"x")], "bad_header"),
        ([(KNOWN_SEQ, b"1"), (REQUIRES, b"," * 40)], "too_many_requires"),
        ([], "bad_envelope"),
        ([(KNOWN_SEQ, None)], "bad_envelope"),
    ],
)
def test_headers_that_mean_nothing_are_undecodable(headers: Headers, word: str) -> None:
    made = broker()
    made.put(SESSION.encode(), GOOD, [*headers, (REPLY_TO, CLIENT.encode())])
    Worker(made).run()
    assert made.answers()[-1].kind == UNDECODABLE
    assert made.letters()[-1].reason == word


def test_headers_that_cannot_be_read_are_undecodable_and_stop_nothing() -> None:
    """Nobody can be answered: who waits is named in a header, too."""
    made = broker()
    offset = made.put(SESSION.encode(), GOOD)
    made.appends[offset] = made.appends[offset]._replace(has_bad_headers=True)
    made.send(make_append(SESSION, said(), known_seq=1))
    Worker(made).run()
    assert [answer.kind for answer in made.answers()] == [ACCEPTED, ACCEPTED]
    (letter,) = made.letters()
    assert (letter.reason, letter.offset, letter.headers) == ("bad_header", offset, ())
    assert letter.value == GOOD


@pytest.mark.parametrize("reply_to", [b"", b"\xff", b"x" * 513, None])
def test_who_cannot_be_answered_is_not(reply_to: bytes | None) -> None:
    made = broker()
    headers = [(name, value) for name, value in HEADERS if name != REPLY_TO]
    made.put(SESSION.encode(), None, [*headers, (REPLY_TO, reply_to)])  # pyright: ignore[reportArgumentType]
    Worker(made).run()
    assert len(made.answers()) == 1
    assert len(made.letters()) == 1


def test_an_append_under_another_sessions_key_is_misrouted() -> None:
    made = broker()
    made.put(b"another", GOOD, HEADERS)
    Worker(made).run()
    assert made.answers()[-1].kind == MISROUTED
    assert made.letters()[-1].reason == "foreign_key"


def test_a_key_of_another_partition_is_misrouted() -> None:
    made = Broker(partitions=8, index=partition_for(SESSION, 8))
    made.control()
    made.send(make_append(SESSION, created(), known_seq=0))
    stray = next(name for n in range(50) if partition_for(name := f"s{n}", 8) != made.index)
    made.send(make_append(stray, created(), known_seq=0))
    Worker(made).run()
    assert [v.kind for v in made.answers()] == [ACCEPTED, MISROUTED]
    assert made.letters()[-1].reason == "foreign_partition"
    assert made.answers()[-1].detail.startswith("the key belongs to partition")


def test_a_foreign_tenant_is_misrouted_with_its_bytes() -> None:
    made = broker()
    made.send(message(tenant="other"))
    Worker(made).run()
    assert made.answers()[-1].kind == MISROUTED
    assert made.letters()[-1].reason == "foreign_session"


def test_a_refused_append_is_pointed_to() -> None:
    made = broker()
    made.send(make_append(SESSION, said(), known_seq=9))
    Worker(made).run()
    (pointer,) = made.pointers()
    assert (pointer.kind, pointer.rule) == ("ILLEGAL", "known_seq")
    assert (pointer.offset, pointer.known_seq, pointer.event_type) == (2, 9, "UserMessage")
    assert made.letters() == []


def test_a_resend_is_no_rejection() -> None:
    made = broker()
    again = message()
    made.send(again, again)
    Worker(made).run()
    assert [v.kind for v in made.answers()] == [ACCEPTED, ACCEPTED, "DUPLICATE"]
    assert made.rejected == []


def test_a_score_that_is_no_number_is_a_fact_like_another() -> None:
    made = broker()
    score = UserFeedback(target="t", score=float("nan"))
    made.send(make_append(SESSION, score, known_seq=1))
    Worker(made).run()
    assert made.answers()[-1].kind == ACCEPTED


def large(size: int) -> Append:
    """An append whose content has about so many bytes."""
    block = Block(kind="text", body="x" * size)
    event = UserMessage(message_id="m", blocks=(block,))
    return make_append(SESSION, event, known_seq=1)


@pytest.mark.parametrize("beyond", [-64, -1, 0, 1, 64])
def test_appends_about_the_limit_are_answered_and_what_is_kept_fits(beyond: int) -> None:
    made = broker()
    slack = len(large(0).content) + 4  # a longer length takes more bytes
    append = large(MAX_CONTENT_BYTES - slack + beyond)
    made.send(append)
    made.send(make_append(SESSION, said(), known_seq=1))
    Worker(made).run()
    fits = len(append.content) <= MAX_CONTENT_BYTES
    kinds = [ACCEPTED, ACCEPTED if fits else TOO_LARGE, ACCEPTED]
    assert [v.kind for v in made.answers()] == kinds
    sizes = [len(r.key) + len(r.value) for r in (*made.rejected, *made.events.values())]
    assert max(sizes) < MAX_RECORD_BYTES


def test_the_largest_record_that_the_topic_takes_fits_out_as_a_dead_letter() -> None:
    made = broker()
    headers = [(CE_ID, b"\xff" * 1000), *[("", b"") for _ in range(1000)]]
    room = MAX_APPEND_RECORD_BYTES - 1000 - 5 - 4 * 1001 - len(SESSION)
    made.put(SESSION.encode(), b"\x00" * room, headers)
    made.put(SESSION.encode(), b"\x00" * (room + 100), headers)
    Worker(made).run()
    whole, pointer = made.letters()
    assert whole.value is not None
    assert len(whole.headers) == 1001
    assert (pointer.value, pointer.headers) == (None, ())
    assert all(len(r.value) < MAX_RECORD_BYTES for r in made.rejected)


@settings(max_examples=200, deadline=None)
@given(
    key=st.none()
    | st.binary(max_size=8)
    | st.just(SESSION.encode())
    | st.just(CONTROL_KEY),
    value=st.none()
    | st.binary(max_size=40)
    | st.binary(max_size=40).map(body)
    | st.integers(min_value=0, max_value=len(BODY)).map(lambda n: body(BODY[:n])),
    headers=st.none()
    | st.lists(
        st.tuples(
            st.sampled_from((CE_ID, KNOWN_SEQ, REPLY_TO, REQUIRES, "")),
            st.none() | st.binary(max_size=12),
        ),
        max_size=6,
    ),
)
def test_nothing_that_a_record_holds_raises(
    key: bytes | None, value: bytes | None, headers: Headers | None
) -> None:
    made = broker()
    made.put(key, value, headers)
    made.send(make_append(SESSION, said(), known_seq=1))
    worker = Worker(made).run()
    assert not worker.blocked
    assert made.answers()[-1].kind == ACCEPTED
    for record in made.rejected:
        unframe(record.value)
