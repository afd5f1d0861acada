"""The fleet on Kafka: a real `foldline fleet worker`, killed, and begun again."""

import json
import signal
import sys
import urllib.request
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest

from foldline import kafka
from foldline.kafka_admin import find_drift
from foldline.processors.log import Log
from foldline.processors.open_log import open_log
from foldline.processors.stored import AuditableLog
from foldline.projections.fleet_fold import limits_of
from foldline.projections.fleet_local import look
from foldline.projections.fleet_rows import version_of
from foldline.projections.fleet_windows import Span, window_view
from foldline.schemas.events import (
    ToolCallRequested,
    ToolExecutionFailed,
    ToolExecutionStarted,
    TurnStarted,
)
from foldline.testing import LogStory
from foldline.testing.samples import created
from foldline.topics import Drift
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

    def __init__(self, log: FreshLog, *, crash_at: str, place: str) -> None:
        variables = {
            "FOLDLINE_CRASH_AT": crash_at,
            "FOLDLINE_STATE_DIR": str(log.folder / place),
            "PYTHONPATH": str(ROOT),
        }
        self.process = Process(
            [sys.executable, "-c", COMMAND, "fleet", "worker", "--json"],
            log=log.folder / f"{place}.log",
            environment={**log.environment, **variables},
            folder=log.folder,
        )

    def wait_ready(self) -> str:
        """Where it serves, once its partitions are restored."""
        said = self.process.wait_for('"ready"', timeout_s=READY_S)
        [ready] = [line for line in said.splitlines() if '"ready"' in line][-1:]
        return f"http://127.0.0.1:{json.loads(ready)['health_port']}"


@contextmanager
def fleet(
    log: FreshLog, *, crash_at: str = "", place: str = "fleet"
) -> Generator[FleetWorker]:
    worker = FleetWorker(log, crash_at=crash_at, place=place)
    try:
        yield worker
    finally:
        worker.process.kill()


def text_of(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - our own process
        return answer.read().decode()


def asked(url: str) -> Any:
    return json.loads(text_of(url))


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


def drifts_of(log: FreshLog) -> list[Drift]:
    """What about the topics is not as it must be, the fleet's changelog among them."""
    version = version_of(log.settings)
    topics: Any = kafka.admin(log.cluster, log.settings).list_topics(timeout=10).topics
    assert log.names.fleet_changelog(version) in topics
    return find_drift(log.cluster, log.settings, partitions=log.partitions, fleet=version)


def wait_for(looked: Callable[[], bool], what: str) -> None:
    wait_until(lambda: looked() or None, timeout_s=READY_S, what=lambda: what)


def wait_counted(url: str, log: AuditableLog, settings: Any) -> None:
    """Wait until it shows the windows of a recount, of all partitions."""
    windows = f"{url}/fleet/windows?size_s=60"
    wait_until(
        lambda: asked(windows)["windows"] == recounted(log, settings) or None,
        timeout_s=READY_S,
        what=lambda: (
            f"the windows of {recounted(log, settings)}: {asked(windows)}; "
            + text_of(f"{url}/metrics")
        ),
    )


def test_a_fleet_killed_behind_its_append_is_taken_over_by_another_one(
    make_fresh_log: MakeLog,
) -> None:
    """Each loop is said once, each event counts once, and what was listed still is."""
    log = make_fresh_log(
        partitions=2,
        snapshot_lag_events=1,
        fleet_commit_ms=200,
        verdict_timeout_ms=3_000,
    )
    with in_environment(log), running_worker(log) as worker:
        opened = open_log(log.url, settings=log.settings)
        with fleet(log, crash_at="CP_FLEET_AFTER_APPEND:2") as killed:
            killed.wait_ready()
            first = go_round(opened)
            wait_for(lambda: bool(loops_of(opened, first.session_id)), "a loop")
            second = go_round(opened, times=5)
            assert killed.process.wait(READY_S) == -signal.SIGKILL
            assert len(loops_of(opened, second.session_id)) == 1
        with fleet(log, place="another") as other:
            url = other.wait_ready()
            wait_counted(url, opened, log.settings)
            for story in (first, second):
                listed = asked(f"{url}/fleet/loops?session={story.session_id}")["loops"]
                assert [loop["kind"] for loop in listed] == ["SAME_CALL"]
                assert len(loops_of(opened, story.session_id)) == 1
            mismatches = 'foldline_fleet_states_compared_total{result="mismatch"} 0.0'
            assert mismatches in text_of(f"{url}/metrics")
            assert drifts_of(log) == []
            other.process.stop()
            go_round(opened)
            worker.kill()
            other.process.wake()
            other.process.wait_for("no verdict", timeout_s=READY_S)
            assert other.process.terminate() == 0, "it ends though nobody answers"
        opened.close()
