"""Snapshots by lag, the low-water mark, the table behind: what a restore rests on."""

import dataclasses

import pytest

from foldline.errors import LogFormatError
from foldline.processors.partition import Limits
from foldline.processors.snapshot_lag import MAX_CREDIT_BYTES, DirtyIndex
from foldline.schemas.blocks import text_block
from foldline.schemas.codec import unframe
from foldline.schemas.events import UserMessage
from foldline.schemas.state import Ref
from foldline.schemas.topic_records import LOW_WATER_KEY
from foldline.testing import make_append
from foldline.testing.samples import created
from tests.partitions import Broker, Table, Worker

LAG = 6
LIMITS = Limits(cached_sessions=1000, snapshot_lag_events=LAG)


def wide(text: str = "x" * 3000) -> UserMessage:
    """A message large enough to pay for a snapshot."""
    return UserMessage(message_id="m", blocks=(text_block(text),))


def created_sessions(count: int) -> Broker:
    """Sessions with one event each, in their order."""
    broker = Broker()
    broker.control()
    for number in range(count):
        broker.send(make_append(f"s{number}", created(), known_seq=0))
    return broker


def says(
    broker: Broker, session: int, *, known_seq: int = 1, text: str = "x" * 3000
) -> None:
    broker.send(make_append(f"s{session}", wide(text), known_seq=known_seq))


def published(broker: Broker) -> list[str]:
    """Sessions with a snapshot, in the order of publishing."""
    return [key.decode() for key in broker.snapshots if key != LOW_WATER_KEY]


def test_the_longest_dirty_are_published_until_the_mark_is_near_enough() -> None:
    broker = created_sessions(4)
    worker = Worker(broker, limits=LIMITS)
    worker.run(batch=1)
    assert published(broker) == []
    for number in (3, 3, 3):
        says(broker, number)
        worker.run(batch=1)
    assert worker.partition.lag <= LAG + 1  # the marker behind the last event
    assert published(broker)[0] == "s0"
    low = broker.low_water()
    assert low is not None
    assert low.low == worker.partition.low_water
    assert worker.partition.counters.snapshots == len(published(broker))


def test_a_session_that_goes_on_after_its_snapshot_is_dirty_from_there() -> None:
    broker = created_sessions(1)
    worker = Worker(broker, limits=LIMITS).run()
    for number in range(1, 20):
        says(broker, 0, known_seq=number)
        worker.run()
        assert worker.partition.lag <= LAG + 2
        worker.flush()
        end = worker.table.position.event_offset
        marks = list(worker.table.dirty.values()) or [end]
        assert marks == [worker.partition.low_water]
    assert worker.partition.counters.snapshots > 1


def test_a_mark_is_never_beyond_the_position_before_its_batch() -> None:
    """The batch's own offsets are not known before it is delivered."""
    broker = created_sessions(2)
    worker = Worker(broker, limits=dataclasses.replace(LIMITS, snapshot_lag_events=1))
    worker.run(batch=3)
    before = worker.partition.position.event_offset
    for _ in range(5):
        says(broker, 0)
    worker.step(5)
    low = broker.low_water()
    assert low is not None
    assert low.low == before


def test_snapshots_cost_no_more_bytes_than_events_and_what_waits_is_counted() -> None:
    """Fault 52: far more sessions than the lag, with events smaller than their states."""
    broker = created_sessions(200)
    worker = Worker(broker, limits=LIMITS).run(batch=20)
    for round_ in range(1, 4):
        for number in range(200):
            says(broker, number, known_seq=round_, text="")
        worker.run(batch=20)
    counters = worker.partition.counters
    largest = max(len(value) for value in broker.snapshots.values())
    assert counters.snapshot_bytes <= counters.event_bytes + largest
    assert counters.snapshot_bytes > counters.event_bytes / 2
    assert counters.starved > 0
    assert worker.partition.lag > LAG
    state = worker.state("s7")
    worker.lose_everything()
    assert worker.state("s7") == state


def test_the_credit_for_snapshots_is_bounded() -> None:
    index = DirtyIndex({"a": 1})
    index.touch("a", 0, 100 * MAX_CREDIT_BYTES)
    index.commit([5])
    index.published("a", MAX_CREDIT_BYTES)
    assert not index.may_spend
    index.drop()
    assert index.may_spend


def test_a_state_larger_than_a_record_holds_the_mark_and_stops_nothing() -> None:
    broker = created_sessions(12)
    worker = Worker(broker, limits=LIMITS)
    worker.step(2)
    monster = worker.partition._states.get("s0")  # pyright: ignore[reportPrivateUsage]
    assert monster is not None
    for number in range(3_000):
        name = f"{number:0>512}"
        monster.constraints[name] = Ref(event_id="e", seq=1, key=name)
    for number in range(1, 12):
        says(broker, number)
    worker.run(batch=3)
    assert "s0" not in published(broker)
    assert len(published(broker)) > 3
    low = broker.low_water()
    assert low is not None
    assert low.low == worker.partition.low_water == 0
    assert worker.partition.counters.starved == 1
    monster.constraints.clear()
    says(broker, 0)
    worker.run(batch=1)
    assert "s0" in published(broker)
    assert worker.partition.low_water > 0


def test_an_aborted_batch_leaves_the_index_as_it_was() -> None:
    broker = created_sessions(3)
    worker = Worker(broker, limits=LIMITS).run(batch=1)
    low, lag = worker.partition.low_water, worker.partition.lag
    for _ in range(10):
        says(broker, 2)
    assert len(worker.abort(10)) > 10
    assert (worker.partition.low_water, worker.partition.lag) == (low, lag)
    assert worker.partition.counters.events == 3
    worker.run(batch=10)
    assert worker.partition.low_water > low


def test_two_calls_of_admit_are_one_batch() -> None:
    apart, together = created_sessions(3), created_sessions(3)
    for broker in (apart, together):
        for number in (0, 1, 0, 2):
            says(broker, number)
    one, other = Worker(together, limits=LIMITS), Worker(apart, limits=LIMITS)
    other.broker.appends[:] = together.appends
    one.step(8)
    other.step(8, cut=5)
    assert list(apart.events.values()) == list(together.events.values())
    assert apart.snapshots == together.snapshots
    assert other.partition.position == one.partition.position


def test_events_of_which_nobody_knows_where_they_are_cannot_be_committed() -> None:
    broker = created_sessions(1)
    worker = Worker(broker)
    worker.partition.admit(broker.appends)
    worker.partition.delivered([])
    with pytest.raises(ValueError, match="0 offsets of 1 events"):
        worker.partition.commit()


# --- the table -------------------------------------------------------------------------


def test_a_flush_has_what_changed_since_the_last() -> None:
    broker = created_sessions(3)
    worker = Worker(broker).run()
    flush = worker.partition.flush()
    assert flush is not None
    assert [state.session_id for state in flush.states] == ["s0", "s1", "s2"]
    assert list(flush.dirty) == ["s0", "s1", "s2"]
    assert flush.position == worker.partition.position
    assert worker.partition.events_since_flush == 3
    worker.partition.flushed()
    assert worker.partition.flush() is None
    assert worker.partition.events_since_flush == 0
    says(broker, 1)
    worker.run()
    flush = worker.partition.flush()
    assert flush is not None
    assert [state.session_id for state in flush.states] == ["s1"]
    assert flush.dirty == {}


def test_a_flush_that_was_not_confirmed_comes_again_whole() -> None:
    broker = created_sessions(2)
    worker = Worker(broker).run()
    assert worker.partition.flush() is not None
    says(broker, 1)
    worker.run()
    again = worker.partition.flush()
    assert again is not None
    assert {state.session_id: state.seq for state in again.states} == {"s0": 1, "s1": 2}
    assert set(again.dirty) == {"s0", "s1"}


def test_what_happens_while_a_flush_is_written_belongs_to_the_next() -> None:
    broker = created_sessions(2)
    worker = Worker(broker).run()
    flush = worker.partition.flush()
    assert flush is not None
    says(broker, 1)
    worker.run()
    worker.table.write(flush)
    worker.partition.flushed()
    assert worker.table.states["s1"].seq == 1
    assert worker.partition.events_since_flush == 1
    worker.flush()
    assert worker.table.states["s1"].seq == 2


def test_a_flush_during_a_batch_has_nothing_of_it() -> None:
    broker = created_sessions(1)
    worker = Worker(broker).run()
    worker.flush()
    says(broker, 0)
    worker.partition.admit(worker.pending())
    assert worker.partition.flush() is None
    worker.partition.drop()


def test_states_leave_the_memory_only_once_the_table_has_them() -> None:
    broker = created_sessions(300)
    limits = dataclasses.replace(LIMITS, cached_sessions=100, snapshot_lag_events=10**6)
    worker = Worker(broker, limits=limits)
    worker.step(150)
    assert worker.partition.flush_wanted
    worker.table.reads = 0
    for number in range(149):
        says(broker, number)
    worker.broker.appends[:] = broker.appends[:150] + broker.appends[301:]
    assert worker.table.reads == 0
    worker.flush()
    assert not worker.partition.flush_wanted
    assert len(worker.table.states) == 149


def test_a_state_that_was_evicted_is_read_again() -> None:
    broker = created_sessions(300)
    limits = dataclasses.replace(LIMITS, cached_sessions=100, snapshot_lag_events=10**6)
    worker = Worker(broker, limits=limits)
    while worker.pending():
        worker.step(50)
        worker.flush()
    worker.table.reads = 0
    says(broker, 0)
    says(broker, 299)
    worker.run()
    assert worker.table.reads == 1
    assert [v.seq for v in broker.answers()][-2:] == [2, 2]


# --- restoring -------------------------------------------------------------------------


def refolded(broker: Broker, offsets: list[int]) -> Worker:
    worker = Worker(broker, table=Table())
    for offset in offsets:
        schema_id, body = unframe(broker.events[offset].value)
        worker.partition.refold(schema_id, body, offset, offset + 1)
    return worker


def test_a_hole_in_the_events_stops_the_restore_and_is_named() -> None:
    broker = created_sessions(1)
    for number in (1, 2, 3):
        says(broker, 0, known_seq=number)
    Worker(broker).run()
    with pytest.raises(LogFormatError, match="'s0', seq 3: it follows seq 1"):
        refolded(broker, [0, 2])
    with pytest.raises(LogFormatError, match="seq 2"):
        refolded(broker, [1])


def test_an_event_of_another_partition_stops_the_restore() -> None:
    broker = created_sessions(1)
    Worker(broker).run()
    broker.partitions, broker.index = 8, 0
    with pytest.raises(LogFormatError, match="it is in partition 0"):
        refolded(broker, [0])


def test_bytes_that_are_no_event_stop_the_restore() -> None:
    worker = Worker(created_sessions(1))
    schema_id = worker.broker.registry.id_of("UserMessage")
    with pytest.raises(LogFormatError):
        worker.partition.refold(schema_id, b"junk", 0, 0)


def test_what_is_covered_already_is_passed_over() -> None:
    broker = created_sessions(2)
    says(broker, 0)
    Worker(broker).run()
    worker = refolded(broker, [0, 1, 2])
    position = worker.partition.position
    for offset in (0, 2):
        schema_id, body = unframe(broker.events[offset].value)
        worker.partition.refold(schema_id, body, offset, offset)
    assert worker.partition.position.input_offset == position.input_offset == 4


def test_the_next_append_is_never_below_the_one_of_the_last_event() -> None:
    """Fault 45: refused once, refused for ever, whatever the group has forgotten."""
    broker = created_sessions(1)
    broker.send(make_append("s0", wide(), known_seq=5))
    for number in (1, 2, 3, 4, 5):
        says(broker, 0, known_seq=number)
    worker = Worker(broker, limits=LIMITS).run()
    refused = len(broker.rejected)
    broker.committed = 0
    worker.lose_everything()
    assert worker.partition.position.input_offset == len(broker.appends)
    outcome = worker.partition.admit(broker.appends)
    assert outcome.rejected == outcome.verdicts == outcome.events == []
    assert len(broker.rejected) == refused == 1
