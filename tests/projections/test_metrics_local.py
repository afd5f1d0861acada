"""Counts of a log of one machine: stored with how far they are, exact over SIGKILL."""

import json
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from foldline.cli import main
from foldline.errors import LogUnavailableError
from foldline.processors.open_log import open_log
from foldline.processors.stored import AuditableLog
from foldline.projections.metrics_local import LocalCounter
from foldline.projections.metrics_store import MetricsStore
from foldline.schemas.events import ToolCallRequested, TurnEnded, TurnStarted
from foldline.testing import LogStory
from foldline.testing.samples import created, said

IN_MEMORY = Path(":memory:")
COMMAND = "import sys; from foldline.cli import main; sys.exit(main())"
OF_ITSELF = re.compile(r"\bfoldline_(ready|metrics_live_timestamp_seconds)\b")
POINTS = ("CP_METRICS_BEFORE_COMMIT", "CP_METRICS_IN_COMMIT", "CP_METRICS_AFTER_COMMIT")


@pytest.fixture(params=["sqlite", "jsonl"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"{request.param}:///{tmp_path}/sessions.log"


def tell(log: AuditableLog, session_id: str, turns: int = 1) -> None:
    """A session with some turns; one that is there goes on."""
    story = LogStory(log, session_id=session_id)
    if not story.seq:
        story.given(created())
    for number in range(turns):
        call = ToolCallRequested(
            call_id=f"{story.seq}:{number}",
            tool="shell",
            args_hash="h",
            message_id="m",
            position=0,
            arguments=(),
        )
        story.given(TurnStarted(trigger="USER"), said(), call, TurnEnded(outcome="ABORTED"))


def recounted(log: AuditableLog) -> Any:
    store = MetricsStore(IN_MEMORY, identity="a recount")
    counter = LocalCounter(log, store)
    counter.catch_up()
    series = counter.counting.shown.series
    store.close()
    return series


def stored(path: Path, log: AuditableLog) -> Any:
    store = MetricsStore(path, identity=log.url)
    counter = LocalCounter(log, store)
    counter.catch_up()
    series = counter.counting.shown.series
    store.close()
    return series


def test_counts_go_on_where_they_were_and_equal_a_recount(tmp_path: Path, url: str) -> None:
    log = open_log(url)
    path = tmp_path / "counts.db"
    for _ in range(3):
        tell(log, "a")
        tell(log, "b", turns=2)
        assert stored(path, log) == recounted(log)
    assert stored(path, log) == recounted(log)
    log.close()


def test_an_event_that_comes_again_is_not_counted_again(url: str) -> None:
    log = open_log(url)
    tell(log, "a")
    counter = LocalCounter(log, MetricsStore(IN_MEMORY, identity="x"))
    counter.catch_up()
    before = counter.counting.shown.series
    for recorded in log.structure("a"):
        counter.counting.take(recorded)
    counter.counting.commit()
    assert counter.counting.shown.series == before
    assert counter.counting.shown.repeats == 5
    log.close()


@pytest.mark.parametrize("turns", [1, 2, 3], ids=["shorter", "as long", "longer"])
def test_another_log_of_the_same_name_is_counted_anew(tmp_path: Path, turns: int) -> None:
    path = tmp_path / "counts.db"
    first, second = (open_log(f"sqlite:///{tmp_path}/{name}.db") for name in "ab")
    tell(first, "a", turns=2)
    tell(second, "a", turns=turns)
    for log in (first, second):
        store = MetricsStore(path, identity="one name")
        counter = LocalCounter(log, store)
        counter.catch_up()
        assert counter.counting.shown.series == recounted(log)
        store.close()
        log.close()


def test_a_second_process_on_the_same_counts_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foldline.projections.metrics_store.BUSY_TIMEOUT_S", 0.05)
    store = MetricsStore(tmp_path / "counts.db", identity="x")
    with pytest.raises(LogUnavailableError):
        MetricsStore(tmp_path / "counts.db", identity="x")
    store.close()


def serving(url: str, state: Path, **more: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, "metrics", "--serve", "127.0.0.1:0", "--json"],
        env={"FOLDLINE_URL": url, "FOLDLINE_STATE_DIR": str(state), **more},
        stdout=subprocess.PIPE,
        text=True,
    )


def scraped(address: str) -> str:
    with urllib.request.urlopen(address, timeout=10) as answer:  # noqa: S310 - our own process
        return answer.read().decode()


def counts_in(text: str) -> list[str]:
    """All but what a process that goes on says of itself."""
    return [line for line in text.splitlines() if not OF_ITSELF.search(line)]


@pytest.mark.crash
@pytest.mark.slow
def test_a_consumer_killed_at_any_point_equals_a_recount(
    tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    log = open_log(url)
    for nth, point in enumerate(POINTS, start=1):
        tell(log, "a", turns=2)
        tell(log, f"of-{point}")
        killed = serving(url, tmp_path, FOLDLINE_CRASH_AT=f"{point}:1")
        killed.communicate(timeout=60)
        assert killed.returncode == -signal.SIGKILL, nth
    last = serving(url, tmp_path)
    assert last.stdout is not None
    address = json.loads(last.stdout.readline())["url"]
    while "foldline_metrics_lag_events" not in (text := scraped(address)) or (
        'foldline_metrics_lag_events{partition=""} 0' not in text
    ):
        pass
    last.terminate()
    assert last.wait(30) == 0
    last.stdout.close()
    log.close()
    assert main(["metrics", "--log", url]) == 0
    assert counts_in(capsys.readouterr().out) == counts_in(text)
