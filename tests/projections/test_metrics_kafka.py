"""Counts of a log on Kafka: positions and counts in one store, exact over SIGKILL."""

import json
import signal
import sys
import time
import urllib.error
import urllib.request

import pytest

from foldline.cli import main
from foldline.processors.open_log import open_log
from foldline.projections.metrics_local import LocalCounter
from foldline.projections.metrics_store import MetricsStore
from foldline.projections.metrics_text import view_of
from tests.cluster.fixtures import MakeLog
from tests.cluster.logs import FreshLog, running_worker
from tests.cluster.processes import Process
from tests.cluster.shared import ROOT
from tests.kafka_feed import Feed

pytestmark = [pytest.mark.kafka, pytest.mark.crash, pytest.mark.slow]

COMMAND = "import sys; from foldline.cli import main; sys.exit(main())"
POINTS = (
    "CP_METRICS_AFTER_POLL",
    "CP_METRICS_BEFORE_COMMIT",
    "CP_METRICS_IN_COMMIT",
    "CP_METRICS_AFTER_COMMIT",
)
COUNTED_IN_S = 60


def command(log: FreshLog, *arguments: str, crash_at: str = "", name: str) -> Process:
    variables = {"FOLDLINE_CRASH_AT": crash_at, "PYTHONPATH": str(ROOT)}
    return Process(
        [sys.executable, "-c", COMMAND, "metrics", "--json", *arguments],
        log=log.folder / f"{name}.log",
        environment={**log.environment, **variables},
        folder=log.folder,
    )


def recount(log: FreshLog) -> dict[str, object]:
    """The same numbers on another way: session by session, from a replica."""
    whole = open_log(log.url, settings=log.settings)
    store = MetricsStore(log.folder / "recount.db", identity="a recount")
    counter = LocalCounter(whole, store)
    counter.catch_up()
    view = view_of(counter.counting.shown)
    store.close()
    whole.close()
    return view


def text_once_counted(address: str) -> str:
    end = time.monotonic() + COUNTED_IN_S
    ready = address.replace("/metrics", "/readyz")
    while time.monotonic() < end:
        try:
            urllib.request.urlopen(ready, timeout=10).close()  # noqa: S310 - our own process
        except urllib.error.HTTPError as error:
            error.close()
            time.sleep(0.1)
            continue
        with urllib.request.urlopen(address, timeout=10) as answer:  # noqa: S310 - our own process
            return answer.read().decode()
    raise AssertionError("not counted in time")


def test_a_consumer_killed_at_any_point_equals_a_recount(
    make_fresh_log: MakeLog,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = make_fresh_log(partitions=2)
    feed = Feed(log, seed=3)
    with running_worker(log):
        for point in POINTS:
            feed.tell(40)
            feed.settle()
            serve = ("--serve", "127.0.0.1:0")
            killed = command(log, *serve, crash_at=f"{point}:2", name=point)
            while killed.running:
                feed.tell(3)
                feed.take(0.2)
            assert killed.wait(30) == -signal.SIGKILL, killed.said()
        feed.settle()
    feed.close()
    last = command(log, "--serve", "127.0.0.1:0", name="last")
    last.wait_for("serving", timeout_s=30)
    text = text_once_counted(json.loads(last.said().splitlines()[0])["url"])
    assert last.terminate() == 0
    for name, value in log.environment.items():
        monkeypatch.setenv(name, value)
    assert main(["metrics", "--json"]) == 0
    counted = json.loads(capsys.readouterr().out)
    assert counted == json.loads(json.dumps(recount(log)))
    for sample in counted["metrics"]["foldline_events_total"]:
        kind, value = sample["labels"]["type"], float(sample["value"])
        assert f'foldline_events_total{{type="{kind}"}} {value}' in text
    started = sum(
        row["value"] for row in counted["metrics"]["foldline_sessions_started_total"]
    )
    verdicts = [verdict for verdict in feed.answers.values() if verdict.recorded]
    events = sum(row["value"] for row in counted["metrics"]["foldline_events_total"])
    assert events == len({verdict.event_id for verdict in verdicts})
    assert started == len(feed.heads)
