"""Steering and stops from another process: delivered once over any kill, and in time."""

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from foldline.producers.client import connect
from foldline.producers.tools import Toolbox
from foldline.schemas.recorded import Recorded
from foldline.testing.log_story import new_id
from tests.charging_run import LIMIT_S, ROOT
from tests.steered import SAID

POINTS = ("CP_STEERING_BEFORE_APPLIED", "CP_STEERING_AFTER_APPLIED")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/sessions.db"


@contextmanager
def harness(*arguments: str, **environment: str) -> Generator[subprocess.Popen[str]]:
    """A process of the harness; killed if it is left alive."""
    own = {k: v for k, v in os.environ.items() if not k.startswith("FOLDLINE_")}
    with subprocess.Popen(
        [sys.executable, "-m", "tests.steered", *arguments],
        cwd=ROOT,
        env=own | environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    """The next line that a process says."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def types_between(events: list[Recorded], first: str, last: str) -> list[str]:
    """The types of the events from one to another."""
    types = [recorded.type for recorded in events]
    return types[types.index(first) : types.index(last) + 1]


@pytest.mark.crash
@pytest.mark.parametrize("point", POINTS)
async def test_a_harness_killed_while_it_takes_steering_in_delivers_it_once(
    url: str, point: str
) -> None:
    """Case B37: acknowledged is pending until applied, and applied is in every context."""
    name = new_id()
    with harness("context", url, name, FOLDLINE_CRASH_AT=f"{point}:1") as process:
        assert line(process) == "acked"
        assert process.wait(LIMIT_S) == -signal.SIGKILL
        assert line(process) == ""
    async with connect(url) as client:
        owned = await client.take(name)
        pending = (await owned.state()).steering
        assert len(pending) == (point == POINTS[0])
        await owned.recover(Toolbox())
        async with await owned.resume_turn() as turn:
            for _ in range(2):
                context = await turn.context()
                parts = [p.text for m in context.messages for p in m.parts]
                assert parts.count(SAID) == 1
        state = await owned.state()
        assert state.counts["SteeringApplied"] == 1
        assert not state.steering


@pytest.mark.parametrize("kind", ["stoppable", "blocking"])
async def test_steering_stops_a_tool_that_can_stop_in_another_process(
    url: str, kind: str
) -> None:
    """It ends by being stopped, as nothing else would end it; then comes the context."""
    name = new_id()
    with harness("tool", url, name, kind) as process:
        assert line(process) == "began"
        async with connect(url) as person:
            await (await person.open(name)).steer(SAID)
            assert line(process) == "result Cancelled"
            assert line(process) == f"then {SAID}"
            assert process.wait(LIMIT_S) == 0
            view = await person.open(name)
            events = [recorded async for recorded in view.events()]
    assert types_between(events, "SteeringReceived", "SteeringApplied") == [
        "SteeringReceived",
        "ToolExecutionCancelled",
        "SteeringApplied",
    ]


async def test_steering_waits_for_the_safe_end_of_a_tool_in_another_process(
    url: str,
) -> None:
    """It is not stopped; what it did is in the log, and then comes the context."""
    name = new_id()
    with harness("tool", url, name, "careful") as process:
        assert line(process) == "began"
        async with connect(url) as person:
            await (await person.open(name)).steer(SAID)
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
            assert line(process) == "result Done"
            assert line(process) == f"then {SAID}"
            assert process.wait(LIMIT_S) == 0


@pytest.mark.parametrize("target", ["SESSION", "TURN", "CALL"])
async def test_a_stop_from_another_process_stops_the_tool(url: str, target: str) -> None:
    name = new_id()
    with harness("tool", url, name, "stoppable") as process:
        assert line(process) == "began"
        async with connect(url) as person:
            view = await person.open(name)
            (call_id,) = (await view.state()).calls
            target_id = call_id if target == "CALL" else None
            await view.cancel("lunch", target=target, target_id=target_id)
            assert line(process) == "result Cancelled"
            assert line(process).startswith("then")
            ended = "ended DONE" if target == "CALL" else "ended ABORTED"
            assert line(process) == ended
            assert process.wait(LIMIT_S) == 0
