"""A new fold version takes partitions over without folding every event at that time."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping

import pytest

from foldline.processors.shadow import SHADOW_SLOT, Shadow
from foldline.processors.worker_health import Health
from foldline.processors.worker_setup import Setup
from tests.cluster.fixtures import MakeLog
from tests.cluster.logs import FreshLog, running_worker
from tests.cluster.processes import Process, ask, free_ports
from tests.cluster.shared import ROOT
from tests.kafka_checker import check
from tests.kafka_feed import Feed

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

NEXT = [sys.executable, "-m", "tests.processors.next_fold"]
TIMEOUT_S = 90


def test_a_shadow_lets_a_new_fold_version_take_over_within_the_lag(
    make_fresh_log: MakeLog,
) -> None:
    log = make_fresh_log(partitions=2, snapshot_lag_events=20)
    feed = Feed(log, seed=11, sessions=6)
    with running_worker(log, name="old") as old:
        feed.tell(300)
        feed.settle()
        assert _run(log, "prepare").returncode == 0
        shadow = _run(log, "worker", "--shadow")
        assert shadow.returncode == 0, shadow.stderr
        assert "roll the workers now" in shadow.stdout
        (own,) = (log.folder / "new").glob("workers/*/shadow-*")
        assert [path.name for path in own.iterdir()] == ["lock"]  # its tables are gone
        feed.tell(10)
        feed.settle()
        (port,) = free_ports(1)
        new = Process(
            [*NEXT, "worker"],
            log=log.folder / "new.log",
            environment={**_environment(log), "FOLDLINE_HEALTH_PORT": str(port)},
        )
        try:
            assert old.terminate() == 0
            new.wait_for("is ready", timeout_s=TIMEOUT_S)
            late = _run(log, "worker", "--shadow")
            assert late.returncode == 4
            assert "they need no shadow" in late.stderr
            feed.tell(40)
            feed.settle()
            metrics = ask(port, "/metrics")[1]
            assert new.terminate() == 0
        finally:
            new.kill()
    folded = [int(n) for n in re.findall(r"(\d+) events folded", new.said())]
    assert sum(folded) <= 40, new.said()  # of some 250 events
    assert f"foldline_worker_restored_events_total {sum(folded)}.0" in metrics
    assert "foldline_worker_restore_seconds_count 2.0" in metrics
    check(log, feed.answers)


def test_a_new_fold_version_without_a_shadow_folds_everything_and_is_right(
    make_fresh_log: MakeLog,
) -> None:
    log = make_fresh_log(partitions=1, snapshot_lag_events=20)
    feed = Feed(log, seed=12, sessions=3)
    with running_worker(log, name="old") as old:
        feed.tell(100)
        feed.settle()
        assert old.terminate() == 0
    assert _run(log, "prepare").returncode == 0
    new = Process(
        [*NEXT, "worker"], log=log.folder / "new.log", environment=_environment(log)
    )
    try:
        new.wait_for("is ready", timeout_s=TIMEOUT_S)
        feed.tell(20)
        feed.settle()
        assert new.terminate() == 0
    finally:
        new.kill()
    checked = check(log, feed.answers)
    assert checked.events > 0


def test_a_shadow_that_is_stopped_ends_in_order(make_fresh_log: MakeLog) -> None:
    log = make_fresh_log(partitions=1)
    settings = log.settings.model_copy(update={"worker_slot": SHADOW_SLOT})
    setup = Setup.prepare(settings, health=Health(), on_ready=lambda _: None)
    try:
        shadow = Shadow(setup)
        shadow.stop()
        assert shadow.build() is False
    finally:
        setup.close()


def _environment(log: FreshLog) -> Mapping[str, str]:
    state_dir = str(log.folder / "new")
    return {**log.environment, "FOLDLINE_STATE_DIR": state_dir, "PYTHONPATH": str(ROOT)}


def _run(log: FreshLog, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*NEXT, *arguments],
        env={**os.environ, **_environment(log)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
