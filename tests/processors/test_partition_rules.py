"""Control records: which rules and schemas are in force, from which offset on."""

import json

import pytest

from foldline.errors import RegistryUnavailableError
from foldline.processors.admission import JUDGES
from foldline.processors.kafka_records import encode_append
from foldline.schemas.avsc import event_schema
from foldline.schemas.codec import frame, unframe
from foldline.schemas.events import EVENT_TYPES, UserMessage
from foldline.schemas.record_codec import frame_record
from foldline.schemas.topic_records import CONTROL_KEY, RulesInForce
from foldline.schemas.verdicts import ACCEPTED, ILLEGAL, UNDECODABLE
from foldline.testing import make_append
from foldline.testing.samples import created, said
from tests.partitions import CLIENT, Broker, Worker
from tests.processors.next_rules import FORBIDDEN, TOMORROW, judge

SESSION = "session"


def test_before_the_first_control_record_nothing_is_an_append() -> None:
    broker = Broker()
    broker.send(make_append(SESSION, created(), known_seq=0))
    broker.control()
    broker.send(make_append(SESSION, created(), known_seq=0))
    Worker(broker).run(batch=10)
    assert [v.kind for v in broker.answers()] == [UNDECODABLE, ACCEPTED]
    assert broker.answers()[0].detail == "no rules in force: foldline topics upgrade"


def test_a_control_record_cuts_no_batch_and_writes_a_low_water_record() -> None:
    broker = Broker()
    broker.control()
    broker.send(make_append(SESSION, created(), known_seq=0))
    worker = Worker(broker)
    worker.step(10)
    low = broker.low_water()
    assert low is not None
    assert (low.low, low.input_offset, low.rules_version) == (0, 2, 1)
    assert set(low.schema_ids) == worker.partition.position.rules.schema_ids
    broker.send(make_append(SESSION, said(), known_seq=1))
    before = dict(broker.snapshots)
    worker.step(10)
    assert broker.snapshots == before


def with_new_id(broker: Broker) -> tuple[int, bytes, list[tuple[str, bytes]]]:
    """A message under a schema id that is not in force yet."""
    schema = event_schema(EVENT_TYPES["UserMessage"])
    new_id = broker.registry.add(json.dumps(schema))
    append = make_append(SESSION, said(), known_seq=1)
    return new_id, *encode_append(append, schema_id=new_id, reply_to=CLIENT)


def test_schema_ids_count_from_the_control_record_on_that_names_them() -> None:
    broker = Broker()
    broker.control()
    broker.send(make_append(SESSION, created(), known_seq=0))
    new_id, value, headers = with_new_id(broker)
    broker.put(SESSION.encode(), value, headers)
    broker.control(more=[new_id])
    broker.put(SESSION.encode(), value, headers)
    Worker(broker).run(batch=10)
    assert [v.kind for v in broker.answers()] == [ACCEPTED, UNDECODABLE, ACCEPTED]
    assert broker.letters()[0].reason == "unknown_schema"


def test_an_unknown_rules_version_blocks_the_partition_where_it_begins() -> None:
    broker = Broker()
    broker.control()
    broker.send(make_append(SESSION, created(), known_seq=0))
    at = broker.control(rules_version=2)
    broker.send(make_append(SESSION, said(), known_seq=1))
    worker = Worker(broker).run(batch=10)
    assert worker.blocked.startswith(f"at offset {at}: rules version 2 comes into force")
    assert worker.partition.position.input_offset == at
    assert [v.kind for v in broker.answers()] == [ACCEPTED]
    worker.step(10)
    assert worker.partition.position.input_offset == at


def test_a_worker_that_knows_two_versions_judges_by_the_one_in_force(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It answers as the older workers beside it do, until the newer one counts."""
    monkeypatch.setitem(JUDGES, TOMORROW, judge)
    forbidden = said().model_copy(update={"message_id": FORBIDDEN})
    broker = Broker()
    broker.put(SESSION.encode(), b"")
    broker.control()
    broker.send(make_append(SESSION, created(), known_seq=0))
    broker.send(make_append(SESSION, forbidden, known_seq=1))
    broker.control(rules_version=TOMORROW)
    broker.send(make_append(SESSION, forbidden, known_seq=2))
    broker.send(make_append(SESSION, said(), known_seq=2))
    broker.put(SESSION.encode(), b"", [("reply_to", CLIENT.encode())])
    Worker(broker).run(batch=10)
    found = [(v.kind, v.rules_version) for v in broker.answers()]
    new = [(ILLEGAL, TOMORROW), (ACCEPTED, TOMORROW), (UNDECODABLE, TOMORROW)]
    assert found == [(ACCEPTED, 1), (ACCEPTED, 1), *new]
    events = [broker.codec.decode(*unframe(e.value)) for e in broker.events.values()]
    assert [event.envelope.rules_version for event in events] == [1, 1, TOMORROW]


def test_rules_that_another_worker_took_block_one_that_is_restored_behind_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It meets no control record: the one before it did."""
    broker = Broker()
    with monkeypatch.context() as newer:
        newer.setitem(JUDGES, TOMORROW, judge)
        broker.control()
        broker.send(make_append(SESSION, created(), known_seq=0))
        broker.control(rules_version=TOMORROW)
        worker = Worker(broker).run()
    worker.lose_everything()
    broker.send(make_append(SESSION, said(), known_seq=1))
    worker.run()
    assert worker.blocked.startswith("at offset 3: rules version 2 is in force, this")
    assert worker.partition.position.input_offset == 3
    assert len(broker.answers()) == 1


def test_a_control_record_of_another_log_blocks() -> None:
    broker = Broker()
    rules = RulesInForce(rules_version=1, schema_ids=(), partitions=7)
    broker.put(CONTROL_KEY, frame_record(broker.registry.id_of("RulesInForce"), rules))
    worker = Worker(broker).run()
    assert "of a log of 7 partitions" in worker.blocked


@pytest.mark.parametrize("value", [None, b"", b"junk", frame(9_999, b"x")])
def test_a_control_record_that_is_none_stops_nothing(value: bytes | None) -> None:
    broker = Broker()
    broker.control()
    broker.put(CONTROL_KEY, value)
    broker.send(make_append(SESSION, created(), known_seq=0))
    worker = Worker(broker).run()
    assert worker.blocked == ""
    assert broker.letters()[0].reason == "bad_control"
    assert [v.kind for v in broker.answers()] == [ACCEPTED]


def test_a_schema_in_force_that_the_registry_has_lost_blocks_instead_of_refusing() -> None:
    """What is unknown never depends on the registry's mood."""
    broker = Broker()
    new_id, value, headers = with_new_id(broker)
    broker.control(more=[new_id])
    broker.send(make_append(SESSION, created(), known_seq=0))
    broker.put(SESSION.encode(), value, headers)
    broker.registry.unknown.add(new_id)
    worker = Worker(broker).run()
    assert f"schema {new_id} is in force, and the registry" in worker.blocked
    assert [v.kind for v in broker.answers()] == [ACCEPTED]
    broker.registry.unknown.clear()
    worker.run()
    assert [v.kind for v in broker.answers()] == [ACCEPTED, ACCEPTED]


class Down:
    """A registry that does not answer."""

    def schema_of(self, schema_id: int) -> str:
        raise RegistryUnavailableError("http://registry", f"no schema {schema_id}: down")


def test_a_registry_that_is_down_blocks_what_was_not_read_yet() -> None:
    broker = Broker()
    broker.control()
    broker.send(make_append(SESSION, created(), known_seq=0))
    broker.send(make_append(SESSION, said(), known_seq=1))
    worker = Worker(broker)
    worker.step(2)
    known = broker.codec.schemas
    broker.codec.schemas = Down()
    worker.run()
    assert "down" in worker.blocked
    assert len(broker.answers()) == 1
    broker.codec.schemas = known
    worker.run()
    assert [v.kind for v in broker.answers()] == [ACCEPTED, ACCEPTED]


def test_a_newer_version_of_a_type_waits_for_a_newer_worker() -> None:
    broker = Broker()
    schema = event_schema(UserMessage, version=2) | {"name": "UserMessage2"}
    new_id = broker.registry.add(json.dumps(schema))
    broker.control(more=[new_id])
    broker.send(make_append(SESSION, created(), known_seq=0))
    append = make_append(SESSION, said(), known_seq=1)
    value, headers = encode_append(append, schema_id=new_id, reply_to=CLIENT)
    broker.put(SESSION.encode(), value, headers)
    worker = Worker(broker).run()
    assert "upgrade" in worker.blocked
    assert broker.letters() == []


def test_what_a_newer_writer_added_is_in_the_event_and_the_chain() -> None:
    """The worker fills the envelope in the writer's bytes, and never makes it anew."""
    broker = Broker()
    schema = event_schema(UserMessage)
    fields = schema["fields"]
    end = next(i for i, field in enumerate(fields) if field["name"] == "prev_hash")
    fields.insert(end, {"name": "region", "type": ["null", "string"], "default": None})
    fields.append({"name": "mood", "type": "string", "default": ""})
    new_id = broker.registry.add(json.dumps(schema))
    broker.control(more=[new_id])
    broker.send(make_append(SESSION, created(), known_seq=0))
    append = make_append(SESSION, said(), known_seq=1)
    value, headers = encode_append(append, schema_id=new_id, reply_to=CLIENT)
    # The new envelope field stands before prev_hash, which is null: one zero byte.
    before = len(value) - len(append.content) - 1
    value = value[:before] + b"\x02\x04eu" + value[before:] + b"\x08calm"
    broker.put(SESSION.encode(), value, headers)
    broker.send(make_append(SESSION, said(), known_seq=1))
    worker = Worker(broker).run()
    assert [v.kind for v in broker.answers()] == [ACCEPTED] * 3
    stored = list(broker.events.values())[1].value
    assert stored[:5] == value[:5]
    assert stored.endswith(append.content + b"\x08calm")
    assert b"\x02\x04eu\x02\x40" in stored
    state = worker.state(SESSION)
    worker.lose_everything()
    assert worker.state(SESSION) == state
