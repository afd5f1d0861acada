"""One call cancelled alone, before it began here: it does not begin, its siblings go on."""

import asyncio
from typing import Any, Literal

import pytest

from foldline.producers.model import ToolRequest
from foldline.producers.policies import ApprovalLimits
from foldline.producers.recovery_actions import CANCELLED, Step
from foldline.producers.session import OwnedSession
from foldline.producers.tools import Cancelled, Done, Tool, Toolbox, ToolContext
from foldline.producers.turn import Turn
from foldline.schemas.blocks import text_of
from foldline.schemas.choices import CancelTarget
from foldline.schemas.events import (
    PermissionDenied,
    ToolExecutionCancelled,
    ToolExecutionStarted,
    ToolOutcomeResolved,
)
from foldline.schemas.state import CALL_UNKNOWN
from tests.harness import FaultyLog, client, count, memory, model_says, until
from tests.producers.test_recover import Charge, crashed, finish, one

WHY = "not that one"


def quick(arguments: dict[str, Any], context: ToolContext) -> str:
    """A tool that is done at once."""
    return f"{arguments}{context.attempt}"


async def forever(arguments: dict[str, Any], context: ToolContext) -> str:
    """A tool that ends when it is told to."""
    await asyncio.Event().wait()
    return f"{arguments}{context.attempt}"


async def cancel(log: FaultyLog, call_id: str) -> None:
    """Somebody wants one call not to be."""
    async with client(log) as person:
        view = await person.open("s")
        await view.cancel(WHY, target="CALL", target_id=call_id)


async def shown_last(turn: Turn) -> str:
    """What the model is shown as the last call's result."""
    (part,) = (await turn.context()).messages[-1].parts[-1].parts
    return part.text


How = CancelTarget | Literal["STEERING"]


async def only_call(owned: OwnedSession) -> str:
    """The id of the one open call."""
    (call_id,) = (await owned.state()).calls
    return call_id


async def stop(log: FaultyLog, owned: OwnedSession, how: How) -> str:
    """Somebody wants the call, the turn or the session stopped, or the agent to look up."""
    if how == "STEERING":
        async with client(log) as person:
            await (await person.open("s")).steer("use nix")
        return "interrupted by steering"
    target_id = await only_call(owned) if how == "CALL" else None
    async with client(log) as person:
        await (await person.open("s")).cancel(WHY, target=how, target_id=target_id)
    return WHY


# --- by who runs it ------------------------------------------------------------------


async def test_a_call_that_was_cancelled_before_it_is_run_does_not_begin() -> None:
    """The model is told, and its other call goes on."""
    log = memory()
    async with client(log) as own:
        owned = await own.create(agent="a", session_id="s")
        async with owned.turn("go") as turn:
            requests = ToolRequest("quick", "{}", "1"), ToolRequest("quick", "{}", "2")
            calls = await model_says(turn, *requests)
            await cancel(log, calls[1].call_id)
            done, stopped = await turn.run_tools(calls, Toolbox(Tool(quick)))
            assert isinstance(done, Done)
            assert stopped == Cancelled(calls[1], WHY, stop_confirmed=True)
            assert await count(owned, "ToolExecutionStarted") == 1
            assert await shown_last(turn) == f"Not run: {WHY}."
            assert not turn.cancelled


async def test_a_call_that_is_cancelled_while_it_waits_for_permission_waits_no_more() -> (
    None
):
    """Nobody is asked about it any more."""
    log = memory()
    async with client(log) as own:
        owned = await own.create(agent="a", session_id="s")
        async with owned.turn("go") as turn:
            calls = await model_says(turn, ToolRequest("quick", "{}", "1"))
            toolbox = Toolbox(Tool(quick, approval="always"))
            running = asyncio.create_task(
                turn.run_tools(calls, toolbox, approval_wait_ms=3_600_000)
            )
            await until(owned, "PermissionRequested")
            await cancel(log, calls[0].call_id)
            assert await running == [Cancelled(calls[0], WHY, stop_confirmed=True)]
            assert not (await owned.state()).requests
            assert await count(owned, "ToolExecutionStarted") == 0


async def test_a_grant_does_not_bring_a_cancelled_call_back() -> None:
    """Cancelled while nobody waited for the answer, which then came."""
    log = memory()
    async with client(log) as own:
        owned = await own.create(agent="a", session_id="s")
        async with owned.turn("go") as turn:
            calls = await model_says(turn, ToolRequest("quick", "{}", "1"))
            toolbox = Toolbox(Tool(quick, approval="always"))
            await turn.run_tools(calls, toolbox, approval_wait_ms=0)
            (request_id,) = (await owned.state()).requests
            await cancel(log, calls[0].call_id)
            async with client(log) as person:
                await (await person.open("s")).grant(request_id)
            (result,) = await turn.run_tools(calls, toolbox)
            assert isinstance(result, Cancelled)
            assert await count(owned, "ToolExecutionStarted") == 0


async def test_nobody_is_asked_at_rest_about_a_call_that_was_cancelled() -> None:
    """It was refused too often, and then cancelled: the session is not parked for it."""
    log = memory()
    limits = ApprovalLimits(denials_max=0)
    async with client(log) as own:
        owned = await own.create(agent="a", session_id="s")
        async with owned.turn("go") as turn:
            requests = ToolRequest("quick", "{}", "1"), ToolRequest("forever", "{}", "2")
            refused, other = await model_says(turn, *requests)
            toolbox = Toolbox(
                Tool(quick, approval="always"), Tool(forever, cancellable=True)
            )
            running = asyncio.create_task(
                turn.run_tools([refused, other], toolbox, limits=limits)
            )
            await until(owned, "ToolExecutionStarted")
            await cancel(log, refused.call_id)
            await cancel(log, other.call_id)
            assert [type(result) for result in await running] == [Cancelled, Cancelled]
            assert not turn.parked
            assert not (await owned.state()).requests


# --- by who recovers it --------------------------------------------------------------


async def test_what_turns_out_not_to_have_happened_is_not_run_once_it_was_cancelled() -> (
    None
):
    """The first attempt was to stop; there is no second."""
    tool = Charge("RECONCILABLE", tells=False)
    async with crashed(tool) as (owned, log):
        call_id = await only_call(owned)
        await cancel(log, call_id)
        report = await owned.recover(tool.toolbox)
        assert (report.not_executed, report.to_run) == (1, [])
        assert report.done[-1] == Step(CANCELLED, call_id, 1, WHY)
        assert await finish(owned, tool.toolbox) == []
        assert tool.done == []
        denied = await one(owned, PermissionDenied)
        assert text_of(denied.feedback) == f"Not run: {WHY}."
        assert (await owned.state()).status == "IDLE"


async def test_a_recovery_that_died_before_it_closed_a_cancelled_call_is_made_good() -> (
    None
):
    """It had recorded that nothing happened, and no more."""
    tool = Charge("RECONCILABLE")
    async with crashed(tool) as (owned, log):
        call_id = await only_call(owned)
        await cancel(log, call_id)
        await asyncio.sleep(0.2)  # its start_by
        await owned.append(
            ToolOutcomeResolved(
                call_id=call_id, attempt=1, outcome="NOT_EXECUTED", resolver="r"
            )
        )
        report = await owned.recover(tool.toolbox)
        assert report.done == [Step(CANCELLED, call_id, 1, WHY)]
        assert await finish(owned, tool.toolbox) == []
        assert await count(owned, "ToolExecutionStarted") == 1


async def test_a_cancellation_during_the_recovery_keeps_the_call_from_beginning() -> None:
    """The recovery had read the session before."""
    tool = Charge("RECONCILABLE", tells=False)
    async with crashed(tool) as (owned, log):
        call_id = await only_call(owned)
        recovering = asyncio.create_task(owned.recover(tool.toolbox))
        assert await asyncio.to_thread(tool.was_asked.wait, 30)
        await cancel(log, call_id)
        assert (await recovering).not_executed == 1
        await finish(owned, tool.toolbox)
        assert tool.done == []
        assert (await owned.state()).calls == {}


@pytest.mark.parametrize("effect", ["READ_ONLY", "IDEMPOTENT"])
async def test_what_may_be_repeated_is_not_once_it_was_cancelled(effect: str) -> None:
    """Nor by the recovery after that one."""
    tool = Charge(effect)
    async with crashed(tool) as (owned, log):
        call_id = await only_call(owned)
        await cancel(log, call_id)
        for _ in range(2):
            assert (await owned.recover(tool.toolbox)).retried == 0
        assert (await owned.state()).calls[call_id].status == CALL_UNKNOWN
        assert await finish(owned, tool.toolbox) == []
        assert (await one(owned, ToolExecutionStarted)).attempt == 1


@pytest.mark.parametrize("effect", ["READ_ONLY", "IDEMPOTENT"])
@pytest.mark.parametrize("how", ["CALL", "TURN", "SESSION", "STEERING"])
async def test_what_was_to_stop_before_its_recovery_is_not_repeated(
    how: How, effect: str
) -> None:
    """Nobody knows whether it happened, and nobody waits for it: the model is told."""
    tool = Charge(effect)
    async with crashed(tool) as (owned, log):
        await stop(log, owned, how)
        assert (await owned.recover(tool.toolbox)).unknown == 1
        assert await count(owned, "ToolExecutionStarted") == 1
        assert tool.done == []


async def test_a_stop_while_recovery_waits_for_the_old_owner_keeps_it_from_repeating() -> (
    None
):
    """It had planned to; what was recorded before the new attempt counts."""
    tool = Charge("IDEMPOTENT")
    async with crashed(tool, start_by_ms=1_000) as (owned, log):
        recovering = asyncio.create_task(owned.recover(tool.toolbox))
        await until(owned, "SessionResumed")
        await stop(log, owned, "CALL")
        assert (await recovering).unknown == 1
        assert await count(owned, "ToolExecutionStarted") == 1
        assert tool.done == []


async def test_a_call_that_was_cancelled_while_nobody_had_it_is_closed() -> None:
    """It never began; the model is told why."""
    tool = Charge("UNSAFE")
    async with crashed(tool, started=False) as (owned, log):
        call_id = await only_call(owned)
        await cancel(log, call_id)
        report = await owned.recover(tool.toolbox)
        assert (report.to_run, report.done) == ([], [Step(CANCELLED, call_id, 0, WHY)])
        assert tool.done == []
        async with await owned.resume_turn() as turn:
            assert await turn.open_calls() == []
            assert WHY in await shown_last(turn)


@pytest.mark.parametrize("how", ["CALL", "TURN", "SESSION", "STEERING"])
async def test_what_recovery_runs_again_can_be_stopped(how: How) -> None:
    """It may run for hours; another call's end is not its own."""
    began = asyncio.Event()

    async def stuck(arguments: dict[str, Any], context: ToolContext) -> str:
        began.set()
        return await forever(arguments, context)

    toolbox = Toolbox(Tool(stuck, name="charge", effect="READ_ONLY", cancellable=True))
    async with crashed(Charge("READ_ONLY")) as (owned, log):
        recovering = asyncio.create_task(owned.recover(toolbox))
        await began.wait()
        await cancel(log, "another call")
        why = await stop(log, owned, how)
        assert (await recovering).retried == 1
        stopped = await one(owned, ToolExecutionCancelled)
        assert (stopped.attempt, stopped.reason, stopped.stop_confirmed) == (2, why, True)
