"""Cases of reports about offsets: a commit that stops or jumps, a restart that repeats.

Each test names the case and what had gone wrong elsewhere.
"""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cluster.fixtures import MakeLog
from tests.cluster.logs import FreshLog, running_worker, start_worker
from tests.kafka_checker import Checked, check, read
from tests.kafka_feed import Feed
from tests.processors.test_worker_intake import Record, Stand

RECORDS = 12


def handed_over(first: int, length: int, lost: set[int], twice: set[int]) -> list[int]:
    """A part of a partition, with holes, and some of it twice."""
    whole = range(first, min(first + length, RECORDS))
    kept = [offset for offset in whole if offset not in lost]
    return [offset for offset in kept for _ in range(1 + (offset in twice))]


some = st.sets(st.integers(0, RECORDS - 1), max_size=3)
parts = st.builds(
    handed_over, st.integers(0, RECORDS - 1), st.integers(1, RECORDS), some, some
)


def admitted(stand: Stand, offsets: Sequence[int]) -> list[int]:
    """Admit what is a worker's own of these; its position goes on behind that."""
    taken, _ = stand.owned(*(Record(offset) for offset in offsets))
    found = taken.get(0, [])
    if found:
        stand.offsets[0] = found[-1] + 1
    return found


@given(st.lists(parts, max_size=12))
def test_a_position_is_the_end_of_what_was_processed_without_a_gap(
    handed: list[list[int]],
) -> None:
    """B46: after [22, 22, 23], or a gap, the commit stood still or jumped over records.

    Whatever a client hands over, and however often: each record once, in order, none left
    out; what was lost on the way is fetched again, and then the position goes on.
    """
    stand = Stand({0: 0})
    done: list[int] = []
    for offsets in handed:
        done += admitted(stand, offsets)
        assert done == list(range(len(done)))
        assert stand.offsets[0] == len(done)
        # A client that is told to go back gives what comes next, whole.
        if stand.rewound:
            stand.rewound.clear()
            done += admitted(stand, range(len(done), RECORDS))
            assert done == list(range(RECORDS))
    done += admitted(stand, range(RECORDS))
    assert done == list(range(RECORDS))


# --- B47 -----------------------------------------------------------------------------


def committed(log: FreshLog) -> dict[int, int]:
    """How many events each partition has, as whoever counts downstream reads them."""
    return {
        index: len(read(log, log.names.events, index)) for index in range(log.partitions)
    }


def states(checked: Checked) -> dict[str, int]:
    return {name: state.seq for name, state in checked.states.items()}


@pytest.mark.kafka
@pytest.mark.crash
def test_a_kill_a_restart_and_one_worker_more_count_nothing_twice(
    make_fresh_log: MakeLog,
) -> None:
    """B47: after a kill, a rebalance or any restart the last records counted once more."""
    log = make_fresh_log(partitions=2, worker_batch_max=5, table_flush_ms=200)
    feed = Feed(log, seed=47, sessions=3)
    feed.tell(30)
    feed.flush()
    worker = start_worker(log, crash_at="CP_WORKER_BEFORE_OFFSETS:2")
    try:
        worker.wait_dead()
        with (
            running_worker(log, name="w1") as first,
            running_worker(log, name="w2") as more,
        ):
            feed.settle()
            assert [first.terminate(), more.terminate()] == [0, 0]
        before, folded = committed(log), states(check(log, feed.answers))
        assert sum(before.values()) == sum(folded.values()) > 0
        with running_worker(log, name="w1") as again:
            feed.take(0.3)
            assert again.terminate() == 0
        assert committed(log) == before
        assert states(check(log, feed.answers, tables=[log.folder / "w1"])) == folded
    finally:
        worker.kill()
        feed.close()
