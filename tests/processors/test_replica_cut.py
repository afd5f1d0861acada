"""A reader goes on behind deleted records, with what is known, and says what is not."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from foldline.errors import LogTruncatedError, SessionTruncatedError
from foldline.processors.event_rows import LOST
from foldline.processors.replica import Replica
from foldline.processors.replica_reads import ReplicaReads
from foldline.schemas.codec import Codec
from foldline.schemas.snapshots import state_hash
from foldline.testing.samples import said
from tests.cluster.fixtures import MakeLog
from tests.cluster.logs import FreshLog, running_worker
from tests.cluster.processes import wait_until
from tests.kafka_checker import Checked, check, read, read_snapshots
from tests.kafka_feed import Feed
from tests.processors.cutting import cut_off, published

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@contextmanager
def replica(log: FreshLog, folder: Path) -> Generator[ReplicaReads]:
    """A reader of the log's only partition."""
    made = Replica(log.cluster, log.settings, folder=folder, codec=Codec(log.registry))
    reads = ReplicaReads(made, settings=log.settings)
    try:
        yield reads
    finally:
        reads.close()


def told(make_fresh_log: MakeLog, folder: Path) -> tuple[FreshLog, Feed, Checked]:
    """A log that one replica has read to the half of it, and one whole."""
    log = make_fresh_log(partitions=1, snapshot_lag_events=40, worker_batch_max=20)
    feed = Feed(log, seed=5, sessions=16)
    with running_worker(log) as worker:
        feed.tell(120)
        feed.settle()
        with replica(log, folder / "half") as reads:
            reads.sessions()
        feed.tell(120)
        feed.settle()
        worker.terminate()
    with replica(log, folder / "whole") as reads:
        reads.sessions()
    return log, feed, check(log, feed.answers)


def assert_known(reads: ReplicaReads, checked: Checked, lost: dict[str, int]) -> None:
    """States are those of the checker; of who is lost there is none."""
    for session_id, state in checked.states.items():
        if session_id in lost:
            with pytest.raises(SessionTruncatedError, match="UNRECOVERABLE") as caught:
                reads.state(session_id)
            assert caught.value.unrecoverable
            assert caught.value.tenant == state.tenant
        else:
            held = reads.state(session_id)
            assert held is not None, session_id
            assert state_hash(held) == state_hash(state), session_id
    listed = {row.session_id: row.status for row in reads.sessions(limit=1000)}
    assert listed.keys() == checked.states.keys()
    assert {name for name, status in listed.items() if status == LOST} == lost.keys()
    assert {row.session_id for row in reads.sessions(status=LOST)} == lost.keys()
    assert list(reads.inspect()) == []


def assert_no_holes(reads: ReplicaReads, checked: Checked) -> None:
    """What is there can be read, and nothing is read over a hole."""
    for session_id, session in checked.sessions.items():
        bodies = {event.seq: event.body for event in session}
        seqs, hole = read_upto_hole(reads, session_id, bodies)
        if hole is None:
            assert seqs == list(range(1, len(session) + 1))
            continue
        assert seqs == list(range(1, hole.known_seq + 1))
        if hole.next_seq:
            rest = reads.stored_events(session_id, after_seq=hole.next_seq - 1)
            found = {event.seq: event.body for event in rest}
            assert list(found) == list(range(hole.next_seq, len(session) + 1))
            assert all(bodies[seq] == body for seq, body in found.items())


def read_upto_hole(
    reads: ReplicaReads, session_id: str, bodies: Mapping[int, bytes]
) -> tuple[list[int], SessionTruncatedError | None]:
    """The seqs that are read before a hole, and what says that it is there."""
    seqs: list[int] = []
    try:
        for event in reads.stored_events(session_id):
            assert event.body == bodies[event.seq]
            seqs.append(event.seq)
    except SessionTruncatedError as error:
        return seqs, error
    return seqs, None


def test_readers_go_on_behind_deleted_records_once_the_workers_have_said_who_is_lost(
    make_fresh_log: MakeLog, tmp_path: Path
) -> None:
    log, feed, checked = told(make_fresh_log, tmp_path)
    lost = cut_off(log)
    with replica(log, tmp_path / "new") as reads, pytest.raises(LogTruncatedError):
        reads.state(next(iter(checked.states)))
    with running_worker(log, name="w2"):
        wait_until(
            lambda: published(log).keys() == lost.keys(),
            timeout_s=30,
            what=lambda: "lost sessions to be published",
        )
        for name in ("half", "new"):
            with replica(log, tmp_path / name) as reads:
                assert_known(reads, checked, lost)
                assert_no_holes(reads, checked)
        with replica(log, tmp_path / "whole") as reads:
            assert_known(reads, checked, {})
        whole = next(s for s in checked.states if s not in lost)
        seq = checked.states[whole].seq
        append = feed.append(whole, said("go on"), epoch=0, known_seq=seq)
        assert feed.settle()[append.envelope.event_id].seq == seq + 1
        for name in ("half", "new", "whole"):
            with replica(log, tmp_path / name) as reads:
                state = reads.state(whole)
                assert state is not None
                assert state.seq == seq + 1
                behind = reads.stored_events(whole, after_seq=seq)
                assert [event.seq for event in behind] == [seq + 1]
    mark, _ = read_snapshots(log, 0)
    assert mark is not None
    assert mark.low >= read(log, log.names.events, 0)[0].offset()
