"""Between its turns a session is steered, or told to go on: a replay is, too."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Literal

import pytest

from foldline.errors import PendingSteeringError, SubagentEndedError
from foldline.producers.model import ModelResponse, ToolRequest
from foldline.producers.replay_inputs import Inputs
from foldline.producers.replaying import replay
from foldline.producers.session import OwnedSession, SessionView
from foldline.producers.tools import PendingCall, Tool, Toolbox, ToolContext
from foldline.producers.turn import Turn
from foldline.projections.replay import HARNESS
from foldline.schemas.choices import CancelTarget
from tests.harness import FaultyLog, client, memory, until


@pytest.fixture
def log() -> FaultyLog:
    return memory()


async def ask(turn: Turn, model: Any) -> None:
    context = await turn.context()
    async with turn.model_call(context, model="m", provider="p") as call:
        await call.complete(await model(context))


async def answer(_context: Any) -> ModelResponse:
    return ModelResponse.of("Done.")


async def until_the_end(session: OwnedSession, model: Any) -> None:
    """Complete the session, and take up first what came meanwhile."""
    while True:
        try:
            await session.complete()
        except PendingSteeringError:
            turn = await session.steered_turn()
            assert turn is not None
            async with turn:
                await ask(turn, model)
        else:
            return


async def idle(session: OwnedSession, model: Any) -> None:
    """Wait for steering, for a while."""
    while (turn := await session.steered_turn(wait_s=0.05)) is not None:
        async with turn:
            await ask(turn, model)


async def recorded(
    log: FaultyLog, drive: Callable[[OwnedSession, Any], Awaitable[None]], steered: int
) -> str:
    async with client(log) as opened:
        owned = await opened.create(agent="a")
        view = await opened.open(owned.session_id)

        async def steered_on(context: Any) -> ModelResponse:
            nonlocal steered
            if steered:
                steered -= 1
                await view.steer("And this.")
            return await answer(context)

        async with owned.turn("Do it.") as turn:
            await ask(turn, steered_on)
        await drive(owned, steered_on)
        return owned.session_id


def harness(drive: Callable[[OwnedSession, Any], Awaitable[None]]) -> Any:
    async def replayed(session: OwnedSession, inputs: Inputs) -> None:
        opening = next(inputs.turns())
        async with session.turn(opening.blocks) as turn:
            await ask(turn, inputs.model(answer))
        await drive(session, inputs.model(answer))

    return replayed


@pytest.mark.parametrize("steered", [0, 1, 3])
@pytest.mark.parametrize("drive", [until_the_end, idle])
async def test_steering_that_came_before_the_end_is_taken_up_again(
    log: FaultyLog,
    drive: Callable[[OwnedSession, Any], Awaitable[None]],
    steered: int,
) -> None:
    session_id = await recorded(log, drive, steered)
    report = await replay(log, session_id, harness(drive))
    assert report.divergence is None, report.divergence
    assert (report.model_calls, report.turns) == (1 + steered, 1 + steered)
    assert (report.given, report.not_given) == (steered, ())


async def test_a_harness_that_passes_over_steering_leaves_its_record(
    log: FaultyLog,
) -> None:
    async def hasty(session: OwnedSession, _model: Any) -> None:
        await session.complete(expire_steering="no time")

    session_id = await recorded(log, until_the_end, 1)
    report = await replay(log, session_id, harness(hasty))
    assert report.divergence is not None
    assert report.divergence.cause == HARNESS
    session_id = await recorded(log, hasty, 1)
    assert (await replay(log, session_id, harness(hasty))).ok
    report = await replay(log, session_id, harness(until_the_end))
    assert report.divergence is not None
    assert report.divergence.cause == HARNESS


@pytest.mark.parametrize("end", ["complete", "fail", "end_cancelled"])
async def test_a_subagent_has_ended_as_it_did(log: FaultyLog, end: str) -> None:
    statuses: list[str] = []

    async def delegate(session: OwnedSession, turn: Turn, model: Any) -> None:
        context = await turn.context()
        async with turn.model_call(context, model="m", provider="p") as call:
            (asked,) = await call.complete(await model(context))
        with suppress(SubagentEndedError):
            try:
                child = await session.subagent(asked, agent="looker")
            except SubagentEndedError as error:
                statuses.append(error.status)
                raise
            async with child.turn("Look."):
                pass
            await (child.fail("Broken") if end == "fail" else getattr(child, end)())
        await session.subagent_result(asked)

    async def calls(_context: Any) -> ModelResponse:
        return ModelResponse.of("", ToolRequest("look"))

    async def again(session: OwnedSession, inputs: Inputs) -> None:
        for opening in inputs.turns():
            async with session.turn(opening.blocks) as turn:
                await delegate(session, turn, inputs.model(calls))

    async with client(log) as opened:
        owned = await opened.create(agent="a")
        async with owned.turn("Look.") as turn:
            await delegate(owned, turn, calls)
    assert (await replay(log, owned.session_id, again)).ok
    ended = {"complete": "COMPLETED", "fail": "FAILED", "end_cancelled": "CANCELLED"}
    assert statuses == [ended[end]]


async def _work(_arguments: dict[str, Any], _context: ToolContext) -> str:
    """A tool that ends when it is told to."""
    await asyncio.Event().wait()
    return "never"


How = CancelTarget | Literal["STEERING"]


async def _stopped(view: SessionView, call_id: str, how: How) -> None:
    """A person wants the call, the turn or whatever goes on to stop."""
    if how == "STEERING":
        await view.steer("Look.")
        return
    target_id = call_id if how == "CALL" else None
    await view.cancel("not that", target=how, target_id=target_id)


@pytest.mark.parametrize("when", ["before it begins", "while it runs"])
@pytest.mark.parametrize("how", ["CALL", "TURN", "STEERING"])
async def test_a_harness_is_told_of_a_stop_what_it_was_told_then(
    log: FaultyLog, how: How, when: str
) -> None:
    """Why, and whether all was to stop or one call alone."""
    told: list[Any] = []
    tools = Toolbox(Tool(_work, name="work", cancellable=True))

    async def model(_context: Any) -> ModelResponse:
        return ModelResponse.of("", ToolRequest("work"))

    async def drive(turn: Turn, model: Any, run: Any) -> None:
        context = await turn.context()
        async with turn.model_call(context, model="m", provider="p") as call:
            calls = await call.complete(await model(context))
        (result,) = await run(turn, calls)
        told.append((result.reason, turn.interrupted, turn.cancelled))

    async def rerun(turn: Turn, calls: list[PendingCall]) -> Any:
        return await turn.run_tools(calls, tools)

    async def again(session: OwnedSession, inputs: Inputs) -> None:
        for opening in inputs.turns():
            async with session.turn(opening.blocks) as turn:
                await drive(turn, inputs.model(model), rerun)

    async with client(log) as opened:
        owned = await opened.create(agent="a")
        view = await opened.open(owned.session_id)

        async def run(turn: Turn, calls: list[PendingCall]) -> Any:
            if when == "before it begins":
                await _stopped(view, calls[0].call_id, how)
                return await turn.run_tools(calls, tools)
            running = asyncio.create_task(turn.run_tools(calls, tools))
            await until(owned, "ToolExecutionStarted")
            await _stopped(view, calls[0].call_id, how)
            return await running

        async with owned.turn("Work.") as turn:
            await drive(turn, model, run)
    report = await replay(log, owned.session_id, again)
    assert report.ok, report.divergence
    live, replayed = told
    assert replayed == live
