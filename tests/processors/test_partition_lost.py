"""A lost session refuses everything, and is published before anything rests on it."""

from pathlib import Path

import pytest

from foldline.errors import TableCorruptError
from foldline.processors.fold import initial
from foldline.processors.partition import OWED_AT_ONCE, Flush, Position, Rules
from foldline.processors.rocks import Batch, Rocks
from foldline.processors.snapshot_lag import MARK_STEP_OFFSETS, InputMarks
from foldline.processors.table import Table, open_table
from foldline.schemas.topic_records import LOST_KEY, LOW_WATER_KEY, LostSession
from foldline.schemas.verdicts import (
    ACCEPTED,
    MISROUTED,
    UNDECODABLE,
    UNRECOVERABLE,
)
from foldline.testing import make_append
from foldline.testing.samples import created, said
from tests.partitions import Broker, Worker


def lost(session_id: str, *, known_seq: int = 3, tenant: str = "default") -> LostSession:
    """What is known of a lost session."""
    return LostSession(
        session_id=session_id,
        tenant=tenant,
        partition=0,
        known_seq=known_seq,
        next_seq=known_seq + 3,
        from_offset=10,
        to_offset=20,
    )


def begun() -> tuple[Broker, Worker]:
    """A worker of one session, `whole`."""
    broker = Broker()
    broker.control()
    broker.send(make_append("whole", created(), known_seq=0))
    return broker, Worker(broker).run()


def test_every_append_to_a_lost_session_is_unrecoverable_also_its_creation() -> None:
    broker, worker = begun()
    worker.partition.lose(lost("gone"))
    broker.send(
        make_append("gone", said(), known_seq=3),
        make_append("gone", created(), known_seq=0),
        make_append("gone", said(), known_seq=-1),
        make_append("whole", said(), known_seq=1),
        make_append("new", created(), known_seq=0),
    )
    first = worker.abort(10)
    assert worker.abort(10) == first  # the same batch, the same bytes
    worker.run()
    answers = broker.answers()[1:]
    kinds = [answer.kind for answer in answers]
    assert kinds == [UNRECOVERABLE, UNRECOVERABLE, UNDECODABLE, ACCEPTED, ACCEPTED]
    assert answers[0].current_seq == 3
    assert "seqs 4 to 5 are missing: offsets 10 to 19 of events" in answers[0].detail
    assert [p.kind for p in broker.pointers()] == [UNRECOVERABLE, UNRECOVERABLE]
    assert worker.state("gone") is None
    worker.lose_memory()
    assert worker.partition.lost("gone") == lost("gone")


def test_another_tenant_is_not_told_what_is_missing() -> None:
    broker, worker = begun()
    worker.partition.lose(lost("gone", tenant="other"))
    broker.send(make_append("gone", said(), known_seq=3))
    worker.run()
    assert broker.answers()[-1].kind == MISROUTED
    assert "missing" not in broker.answers()[-1].detail


def test_a_mark_stays_below_lost_sessions_that_are_not_published_yet() -> None:
    broker, worker = begun()
    for n in range(OWED_AT_ONCE + 1):
        worker.partition.lose(lost(f"gone-{n}"))
    broker.end = 1_000
    worker.partition.begins_at(1_000)
    assert worker.partition.owes
    worker.step(0)
    published = [key for key in broker.snapshots if key.startswith(LOST_KEY)]
    assert len(published) == OWED_AT_ONCE
    mark = broker.low_water()
    assert mark is not None
    assert mark.low == 10
    worker.step(0)
    assert not worker.partition.owes
    mark = broker.low_water()
    assert mark is not None
    assert mark.low == 1_000
    assert set(broker.snapshots) > {LOW_WATER_KEY, LOST_KEY + b"gone-0"}


def test_an_aborted_batch_owes_what_it_had_told() -> None:
    _, worker = begun()
    worker.partition.lose(lost("gone"))
    assert worker.abort(0)
    assert worker.partition.owed == (lost("gone"),)
    worker.step(0)
    assert worker.partition.owed == ()


def test_a_state_whose_events_are_gone_is_published_at_once() -> None:
    broker, worker = begun()
    assert not worker.partition.owes
    worker.partition.begins_at(100)
    assert worker.partition.owes
    worker.step(0)
    assert not worker.partition.owes
    assert set(broker.snapshot_states()) == {"whole"}


def opened(folder: Path) -> Table:
    return open_table(folder, log_id="log", partition=0)


def test_a_table_keeps_who_is_lost_in_the_place_of_a_state(tmp_path: Path) -> None:
    table = opened(tmp_path / "t")
    state = initial("gone")
    state.seq = 1
    position = Position(1, 1, Rules(1, frozenset({1})))
    table.write(Flush(position, [state], {"gone": 0}, ()))
    table.write(Flush(position, (), {}, (), [lost("gone"), lost("other")]))
    table.write(Flush(position, (), {}, (), [lost("gone")]))
    table.close()
    table = opened(tmp_path / "t")
    assert (table.sessions, table.lost_sessions, table.dirty()) == (0, 2, {})
    assert (table.get("gone"), table.lost("gone")) == (None, lost("gone"))
    assert [one.session_id for one in table.all_lost()] == ["gone", "other"]
    assert table.lost("whole") is None
    table.check()
    table.close()
    rocks = Rocks(tmp_path / "t")
    rocks.write(_junk(b"lgone"))
    rocks.close()
    table = opened(tmp_path / "t")
    with pytest.raises(TableCorruptError, match="no lost session"):
        table.lost("gone")
    table.close()


def _junk(key: bytes) -> Batch:
    batch = Batch()
    batch.put(key, b"\xc1")
    return batch


def test_a_mark_says_from_where_on_the_appends_above_it_are() -> None:
    marks = InputMarks()
    assert marks.under(1_000) == 0
    for n in range(10):
        marks.note(n * MARK_STEP_OFFSETS, n * 7)
        marks.note(n * MARK_STEP_OFFSETS + 1, n * 7 + 3)  # too near
    assert marks.under(3 * MARK_STEP_OFFSETS) == 21
    assert marks.under(4 * MARK_STEP_OFFSETS - 1) == 21
    marks.forget_below(4 * MARK_STEP_OFFSETS)
    assert marks.under(3 * MARK_STEP_OFFSETS) == 0
    assert marks.under(9 * MARK_STEP_OFFSETS) == 63
