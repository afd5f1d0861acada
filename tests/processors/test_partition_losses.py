"""Events that were deleted cost the sessions that had them, and nobody else."""

import shutil
from pathlib import Path

import pytest

from foldline.errors import LogTruncatedError
from foldline.processors.restore_ways import Restored
from foldline.schemas.codec import Codec, frame, unframe
from foldline.schemas.snapshots import encode_snapshot, state_hash
from foldline.schemas.state import FOLD_VERSION
from foldline.schemas.verdicts import ACCEPTED, UNRECOVERABLE, Verdict
from foldline.testing.samples import created, said
from tests.cluster.fixtures import MakeLog
from tests.cluster.logs import FreshLog, running_worker, start_worker
from tests.cluster.processes import wait_until
from tests.kafka_checker import Checked, check, read, read_snapshots
from tests.kafka_feed import Feed
from tests.processors.cutting import cuts, expected_losses, published
from tests.processors.restoring import delete_records, put, restored

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SETTINGS = {"snapshot_lag_events": 40, "worker_batch_max": 20}

Told = tuple[FreshLog, Checked, Feed]


@pytest.fixture
def told(make_fresh_log: MakeLog) -> Told:
    """A log of one partition, of many sessions with few events each."""
    log = make_fresh_log(partitions=1, **SETTINGS)
    feed = Feed(log, seed=11, sessions=24)
    feed.tell(200)
    with running_worker(log) as worker:
        feed.settle()
        worker.terminate()
    return log, check(log, feed.answers), feed


def assert_lost(result: Restored, checked: Checked, lost: dict[str, int]) -> None:
    """These sessions are lost, and every other one is as the checker found it."""
    for session_id, state in checked.states.items():
        one, held = result.partition.lost(session_id), result.table.get(session_id)
        if session_id in lost:
            assert held is None, session_id
            assert one is not None, session_id
            assert one.known_seq == lost[session_id], session_id
            assert one.tenant == state.tenant, session_id
        else:
            assert one is None, session_id
            assert held is not None, session_id
            assert state_hash(held) == state_hash(state), session_id
    assert result.partition.lost_sessions == len(lost)


def test_exactly_the_sessions_with_deleted_events_are_lost(
    told: Told, tmp_path: Path
) -> None:
    log, checked, _ = told
    planned = [(cut, expected_losses(log, before=cut)) for cut in cuts(log)]
    assert planned[0][1]
    assert len(planned[-1][1]) < len(checked.states)
    for cut, lost in planned:
        delete_records(log, log.names.events, before=cut)
        with restored(log, tmp_path / str(cut)) as result:
            assert_lost(result, checked, lost)


def test_a_restore_that_ends_in_the_middle_forgets_nobody(told: Told) -> None:
    log, checked, _ = told
    cut = list(cuts(log))[1]
    lost = expected_losses(log, before=cut)
    delete_records(log, log.names.events, before=cut)
    die_in_restore(log)
    with restored(log, log.folder / "half", slot="half") as result:
        assert_lost(result, checked, lost)


def die_in_restore(log: FreshLog) -> None:
    """A worker `half` writes what it folds, and dies before it knows who is lost."""
    crash_at = "CP_CUT_BEFORE_SETTLE:1"
    often = {"FOLDLINE_TABLE_FLUSH_EVENTS": "4"}
    worker = start_worker(log, name="half", crash_at=crash_at, environment=often)
    assert worker.wait_dead() != 0


def tell(log: FreshLog, feed: Feed, count: int) -> None:
    """A worker takes so many appends more, and ends."""
    feed.tell(count)
    with running_worker(log) as worker:
        feed.settle()
        worker.terminate()


def test_a_table_from_before_the_cut_loses_who_had_events_between(
    make_fresh_log: MakeLog,
) -> None:
    log = make_fresh_log(partitions=1, worker_batch_max=20)
    feed = Feed(log, seed=12, sessions=20)
    tell(log, feed, 90)
    shutil.copytree(log.folder / "w1", log.folder / "half")
    (slot,) = (log.folder / "half").glob("workers/*/w1")
    slot.rename(slot.with_name("half"))
    begin = read(log, log.names.events, 0)[-1].offset() + 1
    tell(log, feed, 60)
    checked = check(log, feed.answers)
    codec = Codec(log.registry)
    events = [
        (message.offset(), codec.decode_structure(*unframe(message.value())).envelope)
        for message in read(log, log.names.events, 0)
    ]
    cut = begin + 15
    gone = {e.session_id for offset, e in events if begin <= offset < cut}
    lost = {
        name: max(
            (e.seq for o, e in events if e.session_id == name and o < begin), default=0
        )
        for name in gone
    }
    delete_records(log, log.names.events, before=cut)
    die_in_restore(log)
    with restored(log, log.folder / "half", slot="half") as result:
        assert result.refolded
        assert_lost(result, checked, lost)
        assert set(result.table.dirty()) <= checked.states.keys() - lost.keys()


def test_a_table_that_covers_what_was_deleted_loses_nothing_and_publishes_its_states(
    told: Told, tmp_path: Path
) -> None:
    log, checked, feed = told
    end = read(log, log.names.events, 0)[-1].offset() + 1
    delete_records(log, log.names.events, before=end)
    with running_worker(log):

        def covered() -> bool:
            mark, _ = read_snapshots(log, 0)
            return mark is not None and mark.low >= end

        wait_until(covered, timeout_s=30, what=lambda: "a mark above the first event")
        feed.append("one-more", created())
        feed.settle()
    with restored(log, tmp_path / "a") as result:
        assert result.partition.lost_sessions == 0
        for session_id, state in checked.states.items():
            held = result.table.get(session_id)
            assert held is not None, session_id
            assert state_hash(held) == state_hash(state), session_id


def test_appends_are_needed_only_from_where_the_mark_says(
    told: Told, tmp_path: Path
) -> None:
    log, checked, _ = told
    mark, _ = read_snapshots(log, 0)
    assert mark is not None
    assert mark.low_input_offset > 0
    cut = list(cuts(log))[3]
    lost = expected_losses(log, before=cut)
    delete_records(log, log.names.events, before=cut)
    delete_records(log, log.names.appends, before=mark.low_input_offset)
    with restored(log, tmp_path / "a") as result:
        assert_lost(result, checked, lost)


def test_without_the_appends_only_what_is_proven_to_be_whole_goes_on(
    told: Told, tmp_path: Path
) -> None:
    log, checked, _ = told
    cut = list(cuts(log))[2]
    lost = expected_losses(log, before=cut)
    delete_records(log, log.names.events, before=cut)
    codec = Codec(log.registry)
    left = {
        codec.decode_structure(*unframe(m.value())).envelope.session_id
        for m in read(log, log.names.events, 0)
    }
    delete_records(log, log.names.appends, before=-1)
    with restored(log, tmp_path / "a") as result:
        for session_id in checked.states:
            whole = session_id in left and session_id not in lost
            assert (result.table.get(session_id) is not None) == whole, session_id
            if lost.get(session_id):
                assert result.partition.lost(session_id) is not None


def test_a_snapshot_that_is_no_good_costs_its_session_only(
    told: Told, tmp_path: Path
) -> None:
    log, checked, _ = told
    mark, snapshots = read_snapshots(log, 0)
    assert mark is not None
    delete_records(log, log.names.events, before=mark.low)
    bad = next(iter(snapshots))
    put(log, log.names.snapshots(FOLD_VERSION), bad, b"junk")
    put(log, log.names.snapshots(FOLD_VERSION), bad, b"junk")
    with restored(log, tmp_path / "a") as result:
        assert_lost(result, checked, {})  # the one before it is good
    put(log, log.names.snapshots(FOLD_VERSION), "never-there", b"junk")
    with restored(log, tmp_path / "b") as result:
        assert result.partition.lost("never-there") is not None
        assert result.partition.lost_sessions == 1


def test_deleted_events_below_a_snapshot_that_does_not_fit_stop_the_partition(
    told: Told, tmp_path: Path
) -> None:
    """Nobody is lost while a state of what was deleted may still be somewhere."""
    log, _, _ = told
    mark, snapshots = read_snapshots(log, 0)
    assert mark is not None
    delete_records(log, log.names.events, before=mark.low)
    last = read(log, log.names.events, 0)[-1].key().decode()
    state = snapshots[last]
    state.seq += 1_000
    value = frame(log.registry.id_of("Snapshot"), encode_snapshot(state))
    put(log, log.names.snapshots(FOLD_VERSION), last, value)
    with pytest.raises(LogTruncatedError), restored(log, tmp_path / "a"):
        pass


def answer(feed: Feed, session_id: str, *, known_seq: int) -> Verdict:
    """The verdict on one message to a session."""
    append = feed.append(session_id, said("still there?"), epoch=0, known_seq=known_seq)
    return feed.settle()[append.envelope.event_id]


def test_others_go_on_and_every_worker_agrees_on_who_is_lost(told: Told) -> None:
    log, checked, feed = told
    cut = list(cuts(log))[2]
    lost = expected_losses(log, before=cut)
    whole = next(s for s in checked.states if s not in lost)
    gone = next(iter(lost))
    delete_records(log, log.names.events, before=cut)
    shutil.rmtree(log.folder / "w1")
    for name in ("w1", "w1", "w2"):
        with running_worker(log, name=name) as worker:
            wait_until(
                lambda: published(log).keys() == lost.keys(),
                timeout_s=30,
                what=lambda: "lost sessions to be published",
            )
            seq = checked.states[whole].seq
            known = max(feed.heads[whole], seq)
            verdict = answer(feed, whole, known_seq=known)
            assert verdict.kind == ACCEPTED
            feed.heads[whole] = verdict.seq
            verdict = answer(feed, gone, known_seq=checked.states[gone].seq)
            assert verdict.kind == UNRECOVERABLE
            assert "of events were deleted" in verdict.detail
            assert verdict.current_seq == lost[gone]
            again = feed.append(gone, created())
            assert feed.settle()[again.envelope.event_id].kind == UNRECOVERABLE
            new = feed.append(f"new-{name}-{known}", created())
            assert feed.settle()[new.envelope.event_id].kind == ACCEPTED
            worker.terminate()
    assert {s: one.known_seq for s, one in published(log).items()} == lost
