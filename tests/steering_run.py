"""Processes of `tests.steered` that are killed, steered and stopped from outside."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager

from foldline.errors import LiveOwnerError
from foldline.producers.client import Client, connect
from foldline.producers.session import OwnedSession
from foldline.producers.tools import Toolbox
from foldline.schemas.recorded import Recorded
from foldline.testing.log_story import new_id
from tests.charging_run import LIMIT_S, ROOT
from tests.steered import SAID

POINTS = ("CP_STEERING_BEFORE_APPLIED", "CP_STEERING_AFTER_APPLIED")

Environment = Mapping[str, str]


@contextmanager
def harness(*arguments: str, environment: Environment) -> Generator[subprocess.Popen[str]]:
    """A process of the harness; killed if it is left alive."""
    own = {k: v for k, v in os.environ.items() if not k.startswith("FOLDLINE_")}
    with subprocess.Popen(
        [sys.executable, "-m", "tests.steered", *arguments],
        cwd=ROOT,
        env=own | dict(environment),
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


async def taken(client: Client, session_id: str) -> OwnedSession:
    """Take a session as soon as its owner's lease has run out."""
    while True:
        try:
            return await client.take(session_id)
        except LiveOwnerError as alive:
            await asyncio.sleep(alive.expires_in_ms / 1000)


async def check_delivered_once(url: str, point: str, environment: Environment) -> None:
    """Kill a harness while it takes steering in: the next owner shows it, once."""
    name = new_id()
    crash = {"FOLDLINE_CRASH_AT": f"{point}:1"}
    given = dict(environment) | crash
    with harness("context", url, name, environment=given) as process:
        assert line(process) == "acked"
        assert process.wait(LIMIT_S) == -signal.SIGKILL
        assert line(process) == ""
    async with connect(url) as client:
        owned = await taken(client, name)
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


async def check_stopped(url: str, kind: str, environment: Environment) -> None:
    """Steer while a tool runs that nothing else would end: it is stopped, then shown."""
    name = new_id()
    with harness("tool", url, name, kind, environment=environment) as process:
        assert line(process) == "began"
        async with connect(url) as person:
            view = await person.open(name)
            await view.steer(SAID)
            assert line(process) == "result Cancelled"
            assert line(process) == f"then {SAID}"
            assert process.wait(LIMIT_S) == 0
            events = [recorded async for recorded in view.events()]
    assert types_between(events, "SteeringReceived", "SteeringApplied") == [
        "SteeringReceived",
        "ToolExecutionCancelled",
        "SteeringApplied",
    ]
