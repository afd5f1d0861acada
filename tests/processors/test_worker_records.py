"""What a worker does with records that come again, or that are not where they belong."""

import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from foldline import kafka
from foldline.processors.event_intake import EventRecord, Ways
from foldline.processors.event_store import open_store
from foldline.processors.kafka_records import encode_append
from foldline.schemas.codec import Codec, frame, unframe
from foldline.schemas.events import type_of
from foldline.schemas.record_codec import RecordCodec
from foldline.schemas.snapshots import state_hash
from foldline.schemas.topic_records import CONTROL_KEY, DeadLetter
from foldline.schemas.verdicts import ACCEPTED, MISROUTED, UNDECODABLE
from foldline.testing.log_story import make_append
from foldline.testing.samples import created, said
from foldline.topics import partition_for
from tests.cluster.fixtures import MakeLog
from tests.cluster.logs import FreshLog, running_worker
from tests.cluster.operators import add_partitions
from tests.cluster.processes import ask, free_ports, wait_until
from tests.kafka_checker import Checked, check, read
from tests.kafka_feed import Feed

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

LAST = 100
"""How many of the last records of a partition come again."""


@pytest.fixture
def port() -> int:
    """Where a worker's health is."""
    return free_ports(1)[0]


def health_at(port: int) -> dict[str, str]:
    """The environment of a worker whose health listens there."""
    return {"FOLDLINE_HEALTH_PORT": str(port)}


# --- delivered twice -----------------------------------------------------------------


def test_appends_that_come_again_change_no_state_and_are_counted(
    make_fresh_log: MakeLog, port: int
) -> None:
    """Row 11: the last of them once more, then each of those twice."""
    log = make_fresh_log(partitions=2, worker_batch_max=40)
    feed = Feed(log, seed=11)
    with running_worker(log, environment=health_at(port)) as worker:
        feed.tell(150)
        feed.settle()
        before = check(log, feed.answers)
        counted = duplicates_at(port)
        again = [message for index in (0, 1) for message in last_appends(log, index)]
        send_again(log, again)
        send_again(log, [message for message in again for _ in range(2)])
        recorded = _accepted(before, again)
        wait_until(
            lambda: duplicates_at(port) >= counted + 3 * recorded,
            timeout_s=30,
            what=worker.said,
        )
        feed.append("after", created())
        feed.settle()
        assert worker.terminate() == 0
    after = check(log, feed.answers, tables=[worker.state_dir])
    assert recorded > LAST / 2
    assert after.events == before.events + 1
    for session_id, state in before.states.items():
        assert state_hash(after.states[session_id]) == state_hash(state), session_id


def test_events_that_an_uncommitted_reader_sees_again_change_no_state_and_are_counted(
    make_fresh_log: MakeLog, tmp_path: Path
) -> None:
    """Row 11: aborted batches and what replaced them, and each of it twice."""
    log = make_fresh_log(partitions=1, worker_batch_max=10)
    feed = Feed(log, seed=12)
    faults = {"FOLDLINE_FAIL_AT": "CP_WORKER_BEFORE_OFFSETS:2"}
    with running_worker(log, environment=faults):
        feed.tell(100)
        feed.settle()
    checked = check(log, feed.answers)
    assert checked.aborted > 0
    seen = read(log, log.names.events, 0, isolation="read_uncommitted")
    ways = Ways("topic", Codec(log.registry), 100, 100)
    store = open_store(tmp_path / "store", log_id="log", partition=0, ways=ways)
    store.apply([_event_record(message) for message in seen for _ in range(2)])
    assert store.duplicates == 2 * len(seen) - checked.events
    for session_id, state in checked.states.items():
        held = store.state(session_id)
        assert held is not None, session_id
        assert state_hash(held) == state_hash(state), session_id
    store.close()


def duplicates_at(port: int) -> int:
    """How many appends a worker has found to be recorded already."""
    lines = ask(port, "/metrics")[1].splitlines()
    name = 'foldline_worker_verdicts_total{kind="DUPLICATE"} '
    return sum(int(float(line.removeprefix(name))) for line in lines if name in line)


def last_appends(log: FreshLog, index: int) -> list[Any]:
    """The last appends of a partition, as the broker has them."""
    appends = read(log, log.names.appends, index)
    return [message for message in appends if message.key() != CONTROL_KEY][-LAST:]


def send_again(log: FreshLog, messages: Sequence[Any]) -> None:
    """The same records once more, in their order, where they were."""
    producer: Any = kafka.plain_producer(log.cluster, log.settings)
    for message in messages:
        producer.produce(
            log.names.appends,
            message.value(),
            message.key(),
            message.partition(),
            headers=message.headers(),
        )
    assert producer.flush(30) == 0


def _accepted(checked: Checked, messages: Sequence[Any]) -> int:
    """How many of these appends are recorded."""
    verdicts = [checked.verdicts[m.partition()][m.offset()] for m in messages]
    return sum(verdict.recorded for verdict in verdicts)


def _event_record(message: Any) -> EventRecord:
    schema_id, body = unframe(message.value())
    return EventRecord(message.offset(), message.key(), schema_id, body)


# --- of another registry -------------------------------------------------------------


def test_an_id_of_another_registry_is_a_dead_letter_and_never_a_guess(
    make_fresh_log: MakeLog, port: int
) -> None:
    """Row 14: what is in force is in the log; no registry is asked, no clock waits.

    One of the ids belongs to a record that is no event, one to nothing at all. The
    bytes behind them are those of a good append.
    """
    log = make_fresh_log(partitions=1)
    feed = Feed(log)
    foreign = (log.registry.id_of("Verdict"), 4_000_000_000)
    with running_worker(log, environment=health_at(port)):
        feed.append("s", created())
        feed.settle()
        lost = [_send_under(feed, schema_id) for schema_id in foreign]
        good = feed.append("s", said("after them"))
        answers = feed.settle()
        wait_until(
            lambda: all(feed.verdicts[event_id] for event_id in lost),
            timeout_s=20,
            what=lambda: feed.take(0.1) or "their verdicts",
        )
        metrics = ask(port, "/metrics")[1]
    assert answers[good.envelope.event_id].kind == ACCEPTED
    assert [feed.verdicts[event_id][0].kind for event_id in lost] == [UNDECODABLE] * 2
    assert 'foldline_worker_dead_letters_total{reason="unknown_schema"} 2.0' in metrics
    letters = dead_letters(log, 0)
    assert [letter.reason for letter in letters] == ["unknown_schema"] * 2
    assert [unframe(letter.value or b"")[0] for letter in letters] == list(foreign)
    assert check(log, answers).events == 2


def _send_under(feed: Feed, schema_id: int) -> str:
    """A good append, framed with another id; gives its event_id."""
    append = make_append("s", said("lost"), known_seq=1, epoch=0)
    own = feed.log.registry.id_of(type_of(append.event))
    value, headers = encode_append(append, schema_id=own, reply_to=feed.reply_to)
    feed.put("s", frame(schema_id, unframe(value)[1]), headers)
    return append.envelope.event_id


def dead_letters(log: FreshLog, index: int) -> list[DeadLetter]:
    """What a partition has set aside with its bytes."""
    codec = RecordCodec(log.registry)
    wanted = log.registry.id_of("DeadLetter")
    values = [message.value() for message in read(log, log.names.rejected, index)]
    return [
        codec.unframe_record(DeadLetter, value)
        for value in values
        if unframe(value, max_bytes=2_000_000)[0] == wanted
    ]


# --- in a foreign partition ----------------------------------------------------------


def test_partitions_that_are_added_change_no_place_and_stop_no_worker(
    make_fresh_log: MakeLog, port: int
) -> None:
    """Row 25: how many the log was made with keeps the mapping; the rest is ignored.

    Whoever takes the broker's number for the log's writes where nobody answers: that is
    said. The worker stays ready, and one that starts afterwards becomes so.
    """
    log = make_fresh_log(partitions=2)
    feed = Feed(log, seed=25)
    names = [f"grown-{number}" for number in range(16)]
    with running_worker(log, environment=health_at(port)) as worker:
        for name in names:
            feed.append(name, created())
        feed.settle()
        add_partitions(log, log.names.appends, 4)
        worker.process.wait_for("partition 3 of", timeout_s=60)
        send_elsewhere(feed, names, lambda name: partition_for(name, 4))
        for name in names:
            feed.append(name, said())
        feed.settle()
        assert ask(port, "/readyz") == (200, '{"ready": true, "waits_for": []}\n')
        assert worker.terminate() == 0
    add_partitions(log, log.names.events, 4)
    with running_worker(log, environment=health_at(port)) as worker:
        for name in names:
            feed.append(name, said())
        feed.settle()
        assert ask(port, "/readyz")[0] == 200
        assert "is none of the log's 2" in worker.said()
        assert worker.terminate() == 0
    checked = check(log, feed.answers, tables=[worker.state_dir])
    assert set(checked.sessions) == set(names)


def test_a_writer_with_another_partitioner_is_misrouted(
    make_fresh_log: MakeLog, port: int
) -> None:
    """Row 25: the C client's own puts half of the keys elsewhere; none is recorded there.

    Sessions that are known in their own partition are no more known in another.
    """
    log = make_fresh_log(partitions=2)
    feed = Feed(log, seed=26)
    names = [f"crc-{number}" for number in range(16)]
    foreign = [name for name in names if _crc(name) != partition_for(name, 2)]
    assert 0 < len(foreign) < len(names)
    with running_worker(log, environment=health_at(port)) as worker:
        for name in names:
            feed.append(name, created())
        feed.settle()
        sent = send_elsewhere(feed, names, _crc)
        wait_until(
            lambda: feed.take(0.1) or all(feed.verdicts[one] for one in sent.values()),
            timeout_s=30,
            what=worker.said,
        )
        assert worker.terminate() == 0
    kinds = {name: feed.verdicts[event_id][0].kind for name, event_id in sent.items()}
    assert {name for name, kind in kinds.items() if kind == MISROUTED} == set(foreign)
    assert set(kinds.values()) == {ACCEPTED, MISROUTED}
    letters = [letter for index in (0, 1) for letter in dead_letters(log, index)]
    assert [letter.reason for letter in letters] == ["foreign_partition"] * len(foreign)
    checked = check(log, feed.answers, tables=[worker.state_dir])
    assert checked.events == 2 * len(names) - len(foreign)


def _crc(session_id: str) -> int:
    """Where librdkafka puts a key, if nobody tells it."""
    return zlib.crc32(session_id.encode()) % 2


def send_elsewhere(
    feed: Feed, session_ids: Sequence[str], place: Callable[[str], int]
) -> dict[str, str]:
    """An append to each session, to where another partitioner puts it; their ids."""
    log = feed.log
    producer: Any = kafka.plain_producer(log.cluster, log.settings)
    sent: dict[str, str] = {}
    for session_id in session_ids:
        append = make_append(session_id, said(), known_seq=1, epoch=0)
        schema_id = log.registry.id_of(type_of(append.event))
        value, headers = encode_append(append, schema_id=schema_id, reply_to=feed.reply_to)
        where = place(session_id)
        producer.produce(
            log.names.appends, value, session_id.encode(), where, headers=headers
        )
        sent[session_id] = append.envelope.event_id
    assert producer.flush(30) == 0
    return sent
