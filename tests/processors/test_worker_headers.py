"""Records with headers that nobody can read end no process: row 12, on real brokers."""

import shutil
from pathlib import Path

import pytest

from foldline.errors import DecodeError
from foldline.processors.kafka_records import encode_append, headers_of
from foldline.processors.kafka_rejected import Rejected
from foldline.processors.replica_source import polled_of
from foldline.schemas.events import type_of
from foldline.schemas.recorded import Append
from foldline.schemas.topic_records import DeadLetter
from foldline.schemas.verdicts import ACCEPTED
from foldline.testing.log_story import make_append
from foldline.testing.samples import created, said
from tests.cluster.fixtures import MakeLog
from tests.cluster.logs import FreshLog, running_worker
from tests.kafka_checker import check, read
from tests.kafka_feed import Feed
from tests.strange_headers import put_strange

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def test_a_header_whose_name_is_no_text_ends_no_worker_and_no_reader(
    make_fresh_log: MakeLog,
) -> None:
    """In `appends` it is a dead letter, in `events` a record that no worker wrote."""
    log = make_fresh_log(partitions=1)
    feed = Feed(log)
    append = make_append("s", said("never"), known_seq=1)
    with running_worker(log) as worker:
        feed.append("s", created())
        feed.settle()
        put(log, log.names.appends, append_bytes(log, append))
        good = feed.append("s", said("after it"))
        assert feed.settle()[good.envelope.event_id].kind == ACCEPTED
        assert worker.terminate() == 0
    check(log, feed.answers, tables=[worker.state_dir])
    with_registry = Rejected(
        log.cluster, log.settings, registry=log.registry, partitions=log.partitions
    )
    (rejection,) = with_registry.newest(10)
    assert isinstance(rejection.record, DeadLetter)
    assert rejection.record.reason == "bad_header"
    again = with_registry.append_of(rejection)
    assert (again.key, again.value, again.headers) == (b"s", append_bytes(log, append), [])
    _in_events(log, feed, worker.state_dir)


def _in_events(log: FreshLog, feed: Feed, state_dir: Path) -> None:
    """A worker without its table reads `events` whole; so does a replica."""
    (event, *_) = read(log, log.names.events, 0)
    put(log, log.names.events, event.value())
    strange_at = read(log, log.names.events, 0)[-1].offset()
    shutil.rmtree(state_dir)
    with running_worker(log) as worker:
        assert "no worker wrote it" in worker.said()
        feed.append("s", said("and it goes on"))
        feed.settle()
        assert worker.terminate() == 0
    met = {message.offset(): message for message in read(log, log.names.events, 0)}
    strange, good = met.pop(strange_at), next(iter(met.values()))
    for _ in range(100):  # the interpreter makes short cuts of what is called often
        assert headers_of(good)
    with pytest.raises(DecodeError):
        headers_of(strange)
    messages = read(log, log.names.events, 0)
    polled = polled_of(log.names.events, messages)
    assert len(polled.skipped) == 1
    assert len(polled.records) == len(messages) - 1 == 3


def put(log: FreshLog, topic: str, value: bytes) -> None:
    """Write a record of the session, with such a header."""
    put_strange(log.cluster.bootstrap, topic, 0, key=b"s", value=value)


def append_bytes(log: FreshLog, append: Append) -> bytes:
    """What a client would write for it."""
    schema_id = log.registry.id_of(type_of(append.event))
    return encode_append(append, schema_id=schema_id, reply_to="")[0]
