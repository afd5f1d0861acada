"""Restores while the broker compacts the snapshots: the old ones or the new, never torn."""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from foldline.processors.fold import fold_in, initial
from foldline.schemas.snapshots import state_hash
from foldline.schemas.state import FOLD_VERSION, SessionState
from foldline.schemas.topic_records import LOW_WATER_KEY
from tests.cluster.fixtures import MakeLog
from tests.cluster.logs import FreshLog, running_worker
from tests.cluster.operators import set_config
from tests.cluster.processes import wait_until
from tests.kafka_checker import Checked, check, read, read_snapshots
from tests.kafka_feed import Feed
from tests.processors.restoring import assert_same, put, restored

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SETTINGS = {"partitions": 1, "snapshot_lag_events": 10, "worker_batch_max": 10}

CLEAN_S = 90
"""A stock broker's cleaner rests for 15 s when it has found nothing to do."""


def test_readers_beside_the_cleaner_see_old_snapshots_or_new_ones(
    make_fresh_log: MakeLog, tmp_path: Path
) -> None:
    """Row 23: every state that a reader gets is that of a prefix of its session."""
    log = make_fresh_log(**SETTINGS)
    feed = Feed(log, seed=23, sessions=4)
    with running_worker(log) as worker:
        feed.tell(100)
        feed.settle()
        oldest = first_mark(log)
        compact_at_once(log)
        with reading(log) as seen:
            restores = 0

            def cleaned() -> bool:
                nonlocal restores
                feed.tell(10)
                feed.settle()
                with restored(log, tmp_path / f"beside-{restores}"):
                    restores += 1
                return first_mark(log) > oldest

            wait_until(cleaned, timeout_s=CLEAN_S, what=lambda: "the cleaner")
        assert worker.terminate() == 0
    checked = check(log, feed.answers, tables=[worker.state_dir])
    assert_prefixes(checked, seen)
    with restored(log, tmp_path / "after") as result:
        assert 0 < result.refolded < checked.events
        assert_same(result, checked)


def test_a_table_that_was_away_for_too_long_is_built_anew(
    make_fresh_log: MakeLog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Row 23: below the low-water mark it cannot be brought up to date any more.

    Events down there may be deleted, and records of the snapshots be compacted away: so
    nothing of the old table is patched.
    """
    log = make_fresh_log(**SETTINGS)
    feed = Feed(log, seed=123, sessions=4)
    with running_worker(log):
        feed.tell(60)
        feed.settle()
        with restored(log, tmp_path / "table") as result:
            assert_same(result, check(log, feed.answers))
        feed.tell(100)
        feed.settle()
    checked = check(log, feed.answers)
    caplog.set_level("INFO", logger="foldline.worker")
    with restored(log, tmp_path / "table") as result:
        assert "its table is older than the low-water mark" in caplog.text
        assert_same(result, checked)
    caplog.clear()
    with restored(log, tmp_path / "table") as result:
        assert "older" not in caplog.text
        assert_same(result, checked)


def test_a_snapshot_that_was_deleted_costs_its_session_a_fold(
    make_fresh_log: MakeLog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Row 23: a tombstone is no state; the session is folded from its first event.

    Whoever has folded it publishes it again, so that the tombstone itself may go.
    """
    log = make_fresh_log(**SETTINGS)
    feed = Feed(log, seed=223, sessions=4)
    with running_worker(log):
        feed.tell(100)
        feed.settle()
    checked = check(log, feed.answers)
    _, snapshots = read_snapshots(log, 0)
    name, topic = next(iter(snapshots)), log.names.snapshots(FOLD_VERSION)
    put(log, topic, name, None)
    with restored(log, tmp_path / "tombstone") as result:
        assert_same(result, checked)
    assert f"somebody deleted that of {name!r}" in caplog.text
    with running_worker(log, name="w2"):
        feed.tell(40)
        feed.settle()
    newest = {message.key(): message.value() for message in read(log, topic, 0)}
    assert newest[name.encode()] is not None
    with restored(log, tmp_path / "after") as result:
        assert_same(result, check(log, feed.answers))


# --- the cleaner ---------------------------------------------------------------------


def compact_at_once(log: FreshLog) -> None:
    """The cleaner takes whatever lies behind the newest few records."""
    set_config(
        log,
        log.names.snapshots(FOLD_VERSION),
        min_compaction_lag_ms=0,
        max_compaction_lag_ms=100,
        min_cleanable_dirty_ratio=0.01,
        segment_ms=100,
        delete_retention_ms=0,
    )


def first_mark(log: FreshLog) -> int:
    """The offset of the oldest low-water record: each is replaced by the next."""
    messages = read(log, log.names.snapshots(FOLD_VERSION), 0)
    return min(m.offset() for m in messages if m.key() == LOW_WATER_KEY)


@contextmanager
def reading(log: FreshLog) -> Generator[list[SessionState]]:
    """A reader that begins again and again; what it is given of sessions."""
    over = threading.Event()
    seen: list[SessionState] = []

    def run() -> None:
        while not over.is_set():
            seen.extend(read_snapshots(log, 0)[1].values())

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def assert_prefixes(checked: Checked, seen: list[SessionState]) -> None:
    """Each state is what the first so many events of its session make."""
    wanted: dict[tuple[str, int], bytes | str] = {}
    for session_id, session in checked.sessions.items():
        state = initial(session_id)
        for event in session:
            fold_in(state, event)
            wanted[session_id, event.seq] = state_hash(state)
    assert seen
    for state in seen:
        assert state_hash(state) == wanted[state.session_id, state.seq]
