"""Steering and stops from another process: delivered once over any kill, and in time."""

from pathlib import Path

import pytest

from foldline.producers.client import connect
from foldline.schemas.choices import CancelTarget
from foldline.testing.log_story import new_id
from tests.charging_run import LIMIT_S
from tests.steered import SAID
from tests.steering_run import (
    POINTS,
    check_delivered_once,
    check_stopped,
    harness,
    line,
)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/sessions.db"


@pytest.mark.crash
@pytest.mark.parametrize("point", POINTS)
async def test_a_harness_killed_while_it_takes_steering_in_delivers_it_once(
    url: str, point: str
) -> None:
    """Case B37: acknowledged is pending until applied, and applied is in every context."""
    await check_delivered_once(url, point, {})


@pytest.mark.parametrize("kind", ["stoppable", "blocking"])
async def test_steering_stops_a_tool_that_can_stop_in_another_process(
    url: str, kind: str
) -> None:
    """It ends by being stopped, as nothing else would end it; then comes the context."""
    await check_stopped(url, kind, {})


async def test_steering_waits_for_the_safe_end_of_a_tool_in_another_process(
    url: str,
) -> None:
    """It is not stopped; what it did is in the log, and then comes the context."""
    name = new_id()
    with harness("tool", url, name, "careful", environment={}) as process:
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
async def test_a_stop_from_another_process_stops_the_tool(
    url: str, target: CancelTarget
) -> None:
    """The turn ends with it, unless only the call was to stop."""
    name = new_id()
    with harness("tool", url, name, "stoppable", environment={}) as process:
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
