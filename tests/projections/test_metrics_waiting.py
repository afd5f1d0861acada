"""What metrics know beside counts: who waits longest, and since when they are live."""

from contextlib import closing
from pathlib import Path

from foldline.processors.open_log import open_log
from foldline.processors.stored import AuditableLog
from foldline.projections.metrics_counting import Counting
from foldline.projections.metrics_local import LocalCounter
from foldline.projections.metrics_store import MetricsStore
from foldline.projections.metrics_text import SessionMetrics
from foldline.testing import LogStory
from foldline.testing.samples import created
from tests import happenings as h

OLDEST = "foldline_approvals_oldest_timestamp_seconds"
LIVE = "foldline_metrics_live_timestamp_seconds"


def asking(log: AuditableLog, session_id: str, *, mode: str = "OWNED") -> LogStory:
    story = LogStory(log, session_id=session_id)
    return story.given(created(mode=mode), h.turn(), h.question())


def asked_at(story: LogStory) -> int:
    last = list(story.log.structure(story.session_id))[-1]
    return last.envelope.recorded_at


def waiting_since(path: Path, log: AuditableLog) -> int:
    """As a process says it that has just been started."""
    store = MetricsStore(path, identity="x")
    counter = LocalCounter(log, store)
    counter.catch_up()
    since = counter.counting.shown.waiting_since
    assert value_of(OLDEST, counter.counting) == since / 1e6
    store.close()
    return since


def value_of(name: str, counting: Counting) -> float | None:
    return SessionMetrics(lambda: counting.shown).registry.get_sample_value(name)


def test_the_request_that_waits_longest_is_known_among_others(tmp_path: Path) -> None:
    with closing(open_log("memory:")) as log:
        path = tmp_path / "counts.db"
        assert waiting_since(path, log) == 0
        first = asking(log, "a")
        first_at = asked_at(first)
        second_at = asked_at(asking(log, "b"))
        assert waiting_since(path, log) == first_at
        first.when(h.answer(), writer="ann", epoch=0)
        assert waiting_since(path, log) == second_at > first_at
        LogStory(log, session_id="b").when(h.answer(), writer="ann", epoch=0)
        assert waiting_since(path, log) == 0


def test_a_request_that_is_answered_elsewhere_waits_for_nobody_here(tmp_path: Path) -> None:
    with closing(open_log("memory:")) as log:
        asking(log, "m", mode="MIRRORED")
        assert waiting_since(tmp_path / "counts.db", log) == 0


def test_counts_are_live_since_they_were_whole_and_anew_when_they_are(
    tmp_path: Path,
) -> None:
    path = tmp_path / "counts.db"
    store = MetricsStore(path, identity="x")
    counting = Counting(store)
    assert value_of(LIVE, counting) == 0.0
    counting.go_live(5_000_000)
    counting.go_live(9_000_000)
    store.close()
    again = Counting(store := MetricsStore(path, identity="x"))
    assert value_of(LIVE, again) == 5.0
    again.start_anew()
    again.go_live(7_000_000)
    assert value_of(LIVE, again) == 7.0
    store.close()
    other = Counting(store := MetricsStore(path, identity="y"))
    assert value_of(LIVE, other) == 0.0
    store.close()
