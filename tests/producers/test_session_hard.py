"""What tools, models and callers do that nobody expects of them."""

import asyncio
import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from foldline.errors import AppendRefusedError
from foldline.processors.memory_log import MemoryLog
from foldline.producers.identity import wall_clock
from foldline.producers.model import ModelResponse, ToolRequest
from foldline.producers.tools import (
    Background,
    Denied,
    Done,
    Failed,
    Tool,
    Toolbox,
    ToolContext,
    ToolOutput,
)
from foldline.schemas.events import PermissionDenied, ToolExecutionCompleted
from foldline.schemas.recorded import Append
from foldline.schemas.state import SUSPENDED
from foldline.schemas.verdicts import Verdict
from tests.harness import (
    QUICK,
    FaultyLog,
    client,
    count,
    memory,
    model_says,
    one_turn,
    until,
)

Arguments = dict[str, Any]
CALL = ToolRequest("tool", "{}", "p")


class Mute:
    """Has no words for itself."""

    def __str__(self) -> str:
        """Fail."""
        raise ValueError


class MuteError(Mute, Exception):
    """Has no words for what went wrong."""


def itself() -> list[object]:
    """A list that holds itself."""
    around: list[object] = []
    around.append(around)
    return around


def gives(value: object) -> Toolbox:
    """One tool, which gives a value, or raises it."""

    def tool(arguments: Arguments, context: ToolContext) -> object:
        assert (arguments, context.attempt) == ({}, 1)
        if isinstance(value, BaseException):
            raise value
        return value

    return Toolbox(Tool(tool))


@pytest.mark.parametrize("value", [itself(), {(1, 2): 3}, Mute(), float("nan")])
async def test_an_outcome_is_recorded_whatever_a_tool_gives(value: object) -> None:
    """The effect happened; that its words are odd changes nothing about that."""
    async with client(memory()) as own:
        owned = await own.create(agent="a")
        (result,) = await one_turn(owned, gives(value), CALL)
        assert isinstance(result, Done)
        assert await count(owned, "ToolExecutionCompleted") == 1


@pytest.mark.parametrize("error", [StopIteration(), SystemExit(2), MuteError()])
async def test_an_outcome_is_recorded_whatever_a_tool_raises(error: Exception) -> None:
    """Also what a future cannot hold, and what cannot be shown."""
    async with client(memory()) as own:
        owned = await own.create(agent="a")
        (result,) = await one_turn(owned, gives(error), CALL)
        assert isinstance(result, Failed)
        assert not (await owned.state()).calls


async def test_a_coroutine_that_wants_to_exit_ends_its_call_and_not_the_harness() -> None:
    """Parsing a command line does it, of all things."""

    async def tool(arguments: Arguments, context: ToolContext) -> None:
        raise SystemExit(f"{arguments} {context.attempt}")

    async with client(memory()) as own:
        owned = await own.create(agent="a")
        (result,) = await one_turn(owned, Toolbox(Tool(tool)), CALL)
        assert isinstance(result, Failed)


async def test_an_exit_code_or_handle_that_is_none_does_not_lose_the_outcome() -> None:
    """One is withheld; of the other nothing is known but that the tool ended."""
    async with client(memory()) as own:
        owned = await own.create(agent="a")
        (done,) = await one_turn(owned, gives(ToolOutput("x", exit_code=2**70)), CALL)
        assert isinstance(done, Done)
        handle: Any = 5
        (failed,) = await one_turn(owned, gives(Background(handle)), CALL)
        assert isinstance(failed, Failed)
        assert not (await owned.state()).calls


async def test_a_function_around_a_coroutine_function_is_waited_for() -> None:
    """A decorator hides what it is; done is what has happened, not what was promised."""
    happened: list[int] = []

    async def work(context: ToolContext) -> str:
        await asyncio.sleep(0)
        happened.append(context.attempt)
        return "done"

    def tool(arguments: Arguments, context: ToolContext) -> object:
        assert not arguments
        return work(context)

    async with client(memory()) as own:
        owned = await own.create(agent="a")
        (result,) = await one_turn(owned, Toolbox(Tool(tool)), CALL)
        assert isinstance(result, Done)
        assert (happened, result.output[0].body) == ([1], "done")


@pytest.mark.parametrize("part", ["words", ToolRequest(None, "{}")])  # type: ignore[arg-type]
async def test_an_answer_that_cannot_be_recorded_leaves_no_model_call_open(
    part: Any,
) -> None:
    """It failed; that is what is recorded of it."""
    async with client(memory()) as own:
        owned = await own.create(agent="a")
        with pytest.raises((AttributeError, ValueError)):
            async with owned.turn("go") as turn, turn.model_call(model="m") as call:
                await call.complete(ModelResponse(parts=[part]))
        assert await count(owned, "ModelCallFailed") == 1
        assert not (await owned.state()).model_calls


@pytest.mark.parametrize("steps", [1, 3, 8, 20])
async def test_a_turn_that_is_cancelled_while_it_begins_ends_all_the_same(
    steps: int,
) -> None:
    """What was sent is recorded; nobody else would say how it ended."""
    async with client(memory()) as own:
        owned = await own.create(agent="a")

        async def work() -> None:
            async with owned.turn("go") as turn, turn.model_call(model="m"):
                await asyncio.sleep(60)

        working = asyncio.create_task(work())
        for _ in range(steps):
            await asyncio.sleep(0)
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        state = await owned.state()
        assert state.turn is None
        assert not state.model_calls


# --- sessions that come and go -------------------------------------------------------


async def test_a_session_that_rests_is_taken_while_its_last_owner_lives() -> None:
    """Suspending gives the lease up: that is what it is for."""
    log = memory()
    async with client(log) as own, client(log) as other:
        owned = await own.create(agent="a")
        async with owned.turn("go"):
            await owned.suspend("later")
        assert owned.is_over
        assert (await other.take(owned.session_id)).epoch == 2


async def test_a_session_that_ended_is_reopened_while_its_last_owner_lives() -> None:
    """And its lease is renewed no more."""
    log = memory()
    async with client(log) as own, client(log) as other:
        owned = await own.create(agent="a")
        async with owned.turn("go"):
            pass
        await owned.complete()
        assert log.leases.get(owned.session_id) is None
        assert (await other.reopen(owned.session_id, reason="more")).epoch == 2


async def test_a_second_turn_inside_a_turn_is_refused_and_changes_nothing() -> None:
    """The outer one goes on, and rests with its session."""
    async with client(memory()) as own:
        owned = await own.create(agent="a")
        async with owned.turn("outer"):
            with pytest.raises(AppendRefusedError):
                await owned.turn("inner").__aenter__()
            await owned.suspend("later")
        assert (await owned.state()).status == SUSPENDED


async def test_closing_the_client_waits_for_the_outcome_of_what_runs() -> None:
    """Whoever runs the tools may be another task."""
    begun = asyncio.Event()

    async def tool(arguments: Arguments, context: ToolContext) -> str:
        begun.set()
        await context.cancellation()
        return f"stopped {arguments}"

    log = memory()
    async with client(log) as own:
        owned = await own.create(agent="a", session_id="s")
        turn = await owned.turn("go").__aenter__()
        calls = await model_says(turn, CALL)
        running = asyncio.create_task(turn.run_tools(calls, Toolbox(Tool(tool))))
        await begun.wait()
    assert isinstance((await running)[0], Done)
    assert isinstance(list(log.events("s"))[-1].event, ToolExecutionCompleted)


async def test_who_uses_a_session_of_a_closed_client_is_told_so() -> None:
    """Reading, saying something and deciding; closing again does nothing."""
    async with client(memory()) as own:
        owned = await own.create(agent="a")
        view = await own.open(owned.session_id)
    for use in (owned.state, owned.checkpoint, partial(view.steer, "left")):
        with pytest.raises(RuntimeError, match="the client is closed"):
            await use()
    await owned.close()
    await view.close()


async def test_a_key_is_the_same_key_however_much_came_in_between() -> None:
    """A webhook tries again tomorrow, in another process."""
    log = memory()
    async with client(log) as own:
        owned = await own.create(agent="a")
        first = await owned.steer("left", idempotency_key="k")
        for number in range(150):
            await owned.label(at=str(number))
        async with client(log) as later:
            view = await later.open(owned.session_id)
            assert await view.steer("left", idempotency_key="k") == first
        assert await count(owned, "SteeringReceived") == 1


async def test_many_sessions_that_wait_keep_nobody_from_reading() -> None:
    """Following has threads of its own; more sessions than those take turns."""
    release = asyncio.Event()

    async def tool(arguments: Arguments, context: ToolContext) -> str:
        await release.wait()
        return f"{arguments} {context.attempt}"

    async with client(memory()) as own:
        toolbox = Toolbox(Tool(tool))
        owners = [await own.create(agent="a") for _ in range(24)]
        running = [asyncio.create_task(one_turn(owned, toolbox, CALL)) for owned in owners]
        await until(owners[-1], "ToolExecutionStarted")
        for _ in range(50):
            assert len(await own.sessions()) == len(owners)
        release.set()
        assert all(isinstance(result[0], Done) for result in await asyncio.gather(*running))


def asks() -> Toolbox:
    """One tool, which is never granted here."""

    def tool(arguments: Arguments, context: ToolContext) -> str:
        raise AssertionError(arguments, context)

    return Toolbox(Tool(tool, approval="always"))


class HesitantLog(FaultyLog):
    """A log that lets a person's answer come before the owner's own denial."""

    def __init__(self) -> None:
        super().__init__(MemoryLog(settings=QUICK, clock=wall_clock))
        self.waits = threading.Event()
        self.answered = threading.Event()

    def append(self, appends: Sequence[Append]) -> list[Verdict]:
        """Append, an owner's denial only when a person has answered."""
        actor = appends[0].envelope.actor
        if isinstance(appends[0].event, PermissionDenied) and actor.kind == "AGENT":
            self.waits.set()
            assert self.answered.wait(30)
        return super().append(appends)


async def test_a_denial_in_the_moment_of_an_interruption_is_what_became_of_it() -> None:
    """Whichever comes first closes the call; the other is no error."""
    log = HesitantLog()
    async with client(log) as own, client(log) as person:
        owned = await own.create(agent="a")
        view = await person.open(owned.session_id)
        toolbox = asks()
        async with owned.turn("go") as turn:
            calls = await model_says(turn, CALL)
            running = asyncio.create_task(turn.run_tools(calls, toolbox))
            await until(owned, "PermissionRequested")
            requests = (await owned.state()).requests
            await view.steer("no")
            assert await asyncio.to_thread(log.waits.wait, 30)
            await view.deny(next(iter(requests)), "use X")
            log.answered.set()
            (denied,) = await running
        assert isinstance(denied, Denied)
        assert denied.feedback[0].body == "use X"
        assert await count(owned, "PermissionDenied") == 1
