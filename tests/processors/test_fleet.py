"""The fleet on Kafka: a real `foldline fleet worker`, killed, and begun again."""

import json
import signal
import sys
import urllib.request
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest

from foldline.processors.log import Log
from foldline.processors.open_log import open_log
from foldline.processors.stored import AuditableLog
from foldline.projections.fleet_fold import limits_of
from foldline.projections.fleet_local import look
from foldline.projections.fleet_windows import Span, window_view
from foldline.schemas.events import (
    ToolCallRequested,
    ToolExecutionFailed,
    ToolExecutionStarted,
    TurnStarted,
)
from foldline.testing import LogStory
from foldline.testing.samples import created
from tests.cluster.fixtures import MakeLog
from tests.cluster.logs import FreshLog, running_worker
from tests.cluster.processes import Process, wait_until
from tests.cluster.served import in_environment
from tests.cluster.shared import ROOT

pytestmark = [pytest.mark.kafka, pytest.mark.crash, pytest.mark.slow]

COMMAND = "import sys; from foldline.cli import main; sys.exit(main())"
READY_S = 60
MINUTE = Span(60, 60)


class FleetWorker:
    """A fleet worker as a process; the same name is the same place."""

    def __init__(self, log: FreshLog, *, crash_at: str = "") -> None:
        variables = {"FOLDLINE_CRASH_AT": crash_at, "PYTHONPATH": str(ROOT)}
        self.process = Process(
            [sys.executable, "-c", COMMAND, "fleet", "worker", "--json"],
            log=log.folder / "fleet.log",
            environment={**log.environment, **variables},
            folder=log.folder,
        )

    def wait_ready(self) -> str:
        """Where it serves, once its partitions are restored."""
        said = self.process.wait_for('"ready"', timeout_s=READY_S)
        [ready] = [line for line in said.splitlines() if '"ready"' in line][-1:]
        return f"http://127.0.0.1:{json.loads(ready)['health_port']}"


@contextmanager
def fleet(log: FreshLog, *, crash_at: str = "") -> Generator[FleetWorker]:
    worker = FleetWorker(log, crash_at=crash_at)
    try:
        yield worker
    finally:
        worker.process.kill()


def asked(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - our own process
        return json.load(answer)


def go_round(log: Log, times: int = 3) -> LogStory:
    """A session that calls the same thing so often, with a failure in between."""
    story = LogStory(log).given(created(), TurnStarted(trigger="USER"))
    start = ToolExecutionStarted(call_id="m:0", operation_id="o", effect="READ_ONLY")
    failure = ToolExecutionFailed(call_id="m:0", layer="TOOL", error_type="E")
    story.given(request(0, args_hash="other"), start, failure)
    return story.given(*(request(number) for number in range(1, times + 1)))


def request(number: int, args_hash: str = "same") -> ToolCallRequested:
    return ToolCallRequested(
        call_id=f"m:{number}",
        tool="ls",
        args_hash=args_hash,
        message_id="m",
        position=0,
        arguments=(),
    )


def loops_of(log: Log, session_id: str) -> list[str]:
    return [one.type for one in log.events(session_id) if one.type == "LoopDetected"]


def recounted(log: AuditableLog, settings: Any) -> list[Any]:
    """The same windows, counted from the log without Faust."""
    seen = look(log, pane_s=60, since_us=0, limits=limits_of(settings))
    return [window_view(window) for window in seen.board.windows(MINUTE)]


def wait_for(looked: Callable[[], bool], what: str) -> None:
    wait_until(lambda: looked() or None, timeout_s=READY_S, what=lambda: what)


def test_a_fleet_killed_behind_its_append_says_a_loop_once_and_counts_all_once(
    make_fresh_log: MakeLog,
) -> None:
    log = make_fresh_log(partitions=2, snapshot_lag_events=1)
    with in_environment(log), running_worker(log):
        opened = open_log(log.url, settings=log.settings)
        with fleet(log, crash_at="CP_FLEET_AFTER_APPEND:1") as killed:
            killed.wait_ready()
            first = go_round(opened)
            assert killed.process.wait(READY_S) == -signal.SIGKILL
            assert len(loops_of(opened, first.session_id)) == 1
        with fleet(log) as again:
            url = again.wait_ready()
            second = go_round(opened, times=5)
            wait_for(lambda: bool(loops_of(opened, second.session_id)), "a loop")
            windows = f"{url}/fleet/windows?size_s=60"
            wait_for(
                lambda: asked(windows)["windows"] == recounted(opened, log.settings),
                "the windows of a recount",
            )
            listed = asked(f"{url}/fleet/loops?session={second.session_id}")["loops"]
            assert [loop["kind"] for loop in listed] == ["SAME_CALL"]
            with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:  # noqa: S310
                metrics = answer.read().decode()
            assert 'foldline_fleet_states_compared_total{result="mismatch"} 0.0' in metrics
            assert again.process.terminate() == 0
        for story in (first, second):
            assert len(loops_of(opened, story.session_id)) == 1
        opened.close()
