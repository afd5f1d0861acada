"""Turns and model calls: begun, answered, ended, each recorded whatever happens."""

import asyncio
import json

import pytest

from foldline.errors import (
    AppendRefusedError,
    FencedError,
    LogUnavailableError,
    UncertainAppendError,
)
from foldline.producers.model import (
    ModelResponse,
    ToolRequest,
)
from foldline.producers.tools import Done, Failed, Tool, Toolbox, ToolContext
from foldline.projections.context import Context
from foldline.projections.render import to_openai_messages
from foldline.schemas.choices import SteeringMode, TurnOutcome
from foldline.schemas.events import (
    AssistantMessage,
    ModelCallFailed,
    ModelCallStarted,
    RequestRef,
    ToolCallRequested,
    ToolCallValidated,
    TurnEnded,
)
from tests.harness import QUICK, client, count, memory, model_says, one_turn, types_in

ECHO = ToolRequest("echo", '{"say": "hi"}', "X")


def echo(arguments: dict[str, object], context: ToolContext) -> object:
    """Say it again."""
    assert context.attempt == 1
    return arguments.get("say")


TOOLS = Toolbox(Tool(echo, effect="READ_ONLY"))


def last_words(context: Context) -> str:
    """The text of the last message."""
    return "".join(part.text for part in context.messages[-1].parts)


async def test_a_turn_is_recorded_from_its_trigger_to_its_end() -> None:
    """All of it names the turn."""
    async with client(memory()) as own:
        owned = await own.create(agent="a")
        results = await one_turn(owned, TOOLS, ECHO)
        assert [type(result) for result in results] == [Done]
        events = [recorded async for recorded in owned.events()]
        assert [recorded.type for recorded in events] == [
            "SessionCreated",
            "TurnStarted",
            "UserMessage",
            "ModelCallStarted",
            "ModelCallCompleted",
            "AssistantMessage",
            "ToolCallRequested",
            "ToolExecutionStarted",
            "ToolExecutionCompleted",
            "TurnEnded",
        ]
        assert len({recorded.envelope.turn_id for recorded in events[1:]}) == 1
        assert (await owned.state()).status == "IDLE"


async def test_the_answer_and_its_calls_are_one_batch() -> None:
    """No crash leaves a message without its calls on one machine."""
    log = memory()
    async with client(log) as own:
        owned = await own.create(agent="a")
        await one_turn(owned, TOOLS, ECHO)
        batches = [[append.schema_name for append in batch] for batch in log.batches]
        assert ["ModelCallCompleted", "AssistantMessage", "ToolCallRequested"] in batches


async def test_an_error_in_a_turn_ends_it_as_failed() -> None:
    """And goes on to whoever called."""
    async with client(memory()) as own:
        owned = await own.create(agent="a")
        with pytest.raises(ZeroDivisionError):
            async with owned.turn("go"):
                raise ZeroDivisionError
        ended = [recorded.event async for recorded in owned.events()][-1]
        assert ended == TurnEnded(outcome="FAILED", reason="ZeroDivisionError")


async def test_a_cancelled_turn_ends_as_aborted() -> None:
    """The task's cancellation reaches the log."""
    async with client(memory()) as own:
        owned = await own.create(agent="a")
        begun = asyncio.Event()

        async def wait() -> None:
            async with owned.turn("go"):
                begun.set()
                await asyncio.sleep(60)

        task = asyncio.create_task(wait())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        ended = [recorded.event async for recorded in owned.events()][-1]
        assert ended == TurnEnded(outcome="ABORTED", reason="CancelledError")


async def test_a_turn_is_not_done_while_a_call_of_it_has_no_end() -> None:
    """The harness says what it means: end it otherwise, or suspend."""
    async with client(memory()) as own:
        owned = await own.create(agent="a")
        with pytest.raises(AppendRefusedError) as refused:
            async with owned.turn("go") as turn:
                await model_says(turn, ECHO)
        assert refused.value.verdict.rule == "open_work"
        assert (await owned.state()).turn is not None


@pytest.mark.parametrize("outcome", ["LIMIT", "ABORTED"])
async def test_a_turn_may_be_ended_otherwise(outcome: TurnOutcome) -> None:
    """Once; leaving the block adds nothing."""
    async with client(memory()) as own:
        owned = await own.create(agent="a")
        async with owned.turn("go") as turn:
            await model_says(turn, ECHO)
            await turn.end(outcome, reason="r")
        assert (await types_in(owned))[-1] == "TurnEnded"
        assert await count(owned, "TurnEnded") == 1


async def test_a_turn_left_by_suspending_stays_open() -> None:
    """Whoever takes the session goes on with it."""
    log = memory()
    async with client(log) as own:
        owned = await own.create(agent="a", session_id="s")
        async with owned.turn("go") as turn:
            await model_says(turn, ECHO)
            await owned.suspend("night")
        assert (await owned.state()).status == "SUSPENDED"
    async with client(log) as other:
        owned = await other.take("s")
        async with await owned.resume_turn() as turn:
            results = await turn.run_tools(await turn.open_calls(), TOOLS)
            assert [type(result) for result in results] == [Done]
        assert (await owned.state()).status == "IDLE"


async def test_there_is_no_turn_to_resume_where_none_is_open() -> None:
    """An idle session begins one."""
    async with client(memory()) as own:
        owned = await own.create(agent="a")
        with pytest.raises(Exception, match="no turn is open"):
            await owned.resume_turn()


# --- model calls ---------------------------------------------------------------------


async def test_a_model_that_fails_is_recorded_with_its_error() -> None:
    """The error goes on to the harness, which may try again."""
    async with client(memory()) as own:
        owned = await own.create(agent="a")
        async with owned.turn("go") as turn:
            with pytest.raises(ConnectionError):
                async with turn.model_call(model="x"):
                    raise ConnectionError("reset by peer")
            async with turn.model_call(model="x") as call:
                await call.fail("overloaded", "busy", retryable=True)
        failed = [
            recorded.event
            async for recorded in owned.events()
            if isinstance(recorded.event, ModelCallFailed)
        ]
        assert [event.error_type for event in failed] == ["ConnectionError", "overloaded"]
        assert failed[1].retryable


async def test_a_model_call_left_without_an_answer_is_recorded_as_cancelled() -> None:
    """By leaving it, or by the task's cancellation."""
    async with client(memory()) as own:
        owned = await own.create(agent="a")
        async with owned.turn("go") as turn:
            async with turn.model_call(model="x"):
                pass
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05), turn.model_call(model="x"):
                    await asyncio.sleep(60)
        assert await count(owned, "ModelCallCancelled") == 2
        assert not (await owned.state()).model_calls


async def test_an_answer_that_the_log_did_not_take_is_recorded_by_the_same_again() -> None:
    """Once: the tokens were spent, the answer is here."""
    log = memory()
    async with client(log) as own:
        owned = await own.create(agent="a")
        response = ModelResponse.of("thinking", ECHO)
        async with owned.turn("go") as turn:
            async with turn.model_call(model="x") as call:
                log.lose_types = frozenset({"AssistantMessage"})
                with pytest.raises(LogUnavailableError):
                    await call.complete(response)
                log.lose_types = frozenset()
                calls = await call.complete(response)
            await turn.run_tools(calls, TOOLS)
        assert await count(owned, "AssistantMessage") == 1
        assert await count(owned, "ToolCallRequested") == 1


@pytest.mark.parametrize("recorded", [True, False])
async def test_a_beginning_that_may_be_recorded_is_ended_before_anything_else(
    recorded: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """A turn, a model call: the next one begins as if they had never been."""
    log = memory()
    log.uncertain = True
    lost = QUICK.resend_max + 1

    def lose() -> None:
        log.lose_after, log.lose_before = (lost, 0) if recorded else (0, lost)

    async with client(log) as own:
        owned = await own.create(agent="a")
        lose()
        with pytest.raises(UncertainAppendError):
            await owned.turn("go").__aenter__()
        async with owned.turn("go") as turn:
            lose()
            with pytest.raises(UncertainAppendError):
                await turn.model_call(model="x").__aenter__()
            async with turn.model_call(model="x") as call:
                await call.complete(ModelResponse.of("ok"))
        state = await owned.state()
        assert (state.status, state.model_calls) == ("IDLE", {})
        assert await count(owned, "TurnEnded") == 2


async def test_a_request_names_how_to_build_it_again() -> None:
    """Ranges, renderer and hash: not a copy of the history in every call."""
    async with client(memory()) as own:
        owned = await own.create(agent="a", instructions="be brief")
        async with owned.turn("go") as turn:
            context = await turn.context()
            async with turn.model_call(context, model="x") as call:
                await call.complete(ModelResponse.of("ok"))
        (started,) = [
            recorded.event
            async for recorded in owned.events()
            if isinstance(recorded.event, ModelCallStarted)
        ]
        assert isinstance(started.request, RequestRef)
        assert started.request.sha256 == context.sha256()
        assert started.request.ranges[0].to_seq == context.upto_seq
        assert len(started.request.instructions_event_ids) == 1


async def test_a_call_that_the_provider_sends_twice_runs_once() -> None:
    """Case B17: the same id and arguments in the same turn, while the first is open."""
    async with client(memory()) as own:
        owned = await own.create(agent="a")
        async with owned.turn("go") as turn:
            twice = await model_says(turn, ECHO, ECHO)
            assert len(twice) == 1
            again = await model_says(turn, ECHO)
            assert [call.call_id for call in again] == [twice[0].call_id]
            results = await turn.run_tools(again, TOOLS)
            assert [type(result) for result in results] == [Done]
        assert await count(owned, "ToolCallRequested") == 1
        assert await count(owned, "ToolExecutionStarted") == 1


async def test_a_provider_that_repeats_its_ids_gets_each_call_run() -> None:
    """Case B16: once the first has ended, the same id is another call."""
    async with client(memory()) as own:
        owned = await own.create(agent="a")
        for _ in range(2):
            await one_turn(owned, TOOLS, ECHO)
        async with owned.turn("go") as turn:
            calls = await model_says(turn, ECHO)
            first = await turn.run_tools(calls, TOOLS)
            again = await turn.run_tools(calls, TOOLS)
            assert first == again
        assert await count(owned, "ToolExecutionCompleted") == 3


async def test_arguments_that_do_not_parse_stay_as_the_model_wrote_them() -> None:
    """Case B13: the call and its result are both kept, and both are shown."""
    async with client(memory()) as own:
        owned = await own.create(agent="a")
        async with owned.turn("go") as turn:
            calls = await model_says(turn, ToolRequest("echo", '{"say": ', "X"))
            assert calls[0].arguments is None
            (result,) = await turn.run_tools(calls, TOOLS)
            assert isinstance(result, Failed)
            assert (result.executed, result.layer) == ("NO", "MODEL")
            messages = to_openai_messages(await turn.context())
            function = messages[-2]["tool_calls"][0]["function"]
            assert json.loads(function["arguments"]) == {"_unparsed": '{"say": '}
            assert "cannot be run" in messages[-1]["content"]
        events = [recorded.event async for recorded in owned.events()]
        (validated,) = [e for e in events if isinstance(e, ToolCallValidated)]
        assert not validated.valid
        (requested,) = [e for e in events if isinstance(e, ToolCallRequested)]
        assert requested.arguments[0].body == '{"say": '


async def test_a_call_of_a_tool_that_is_not_there_is_answered_as_invalid() -> None:
    """It does not stop the others."""
    async with client(memory()) as own:
        owned = await own.create(agent="a")
        results = await one_turn(owned, TOOLS, ToolRequest("fly", "{}", "1"), ECHO)
        assert [type(result) for result in results] == [Failed, Done]


# --- steering ------------------------------------------------------------------------


async def test_steering_is_put_before_the_model_once_and_marked_as_applied() -> None:
    """Case B37: pending until then, in whatever process that is."""
    log = memory()
    async with client(log) as own, client(log) as person:
        owned = await own.create(agent="a", session_id="s")
        async with owned.turn("go") as turn:
            await (await person.open("s")).steer("use nix")
            first = await turn.context()
            second = await turn.context()
            assert last_words(first) == "use nix"
            assert first.messages == second.messages
        assert await count(owned, "SteeringApplied") == 1
        assert not (await owned.state()).steering


async def test_steering_survives_its_owner_and_is_delivered_after_the_resume() -> None:
    """Exactly once, also where the owner died between taking and applying it."""
    log = memory()
    async with client(log) as own:
        owned = await own.create(agent="a", session_id="s")
        async with owned.turn("go") as turn:
            await owned.steer("use nix")
            turn.leave()
    async with client(log) as other:
        owned = await other.take("s")
        await owned.recover(TOOLS)
        async with await owned.resume_turn() as turn:
            assert last_words(await turn.context()) == "use nix"
            assert last_words(await turn.context()) == "use nix"
        assert await count(owned, "SteeringApplied") == 1


@pytest.mark.parametrize("mode", ["NEXT_TURN", "ON_IDLE"])
async def test_steering_for_later_waits_for_the_next_turn(mode: SteeringMode) -> None:
    """It does not reach the turn that was open when it came."""
    async with client(memory()) as own:
        owned = await own.create(agent="a")
        async with owned.turn("go") as turn:
            await owned.steer("later", mode=mode)
            assert last_words(await turn.context()) == "go"
        async with owned.turn(trigger="STEERING") as turn:
            assert last_words(await turn.context()) == "later"


async def test_a_fenced_owner_ends_nothing_and_says_nothing_more() -> None:
    """Its turn is another's now."""
    log = memory()
    async with client(log) as own, client(log) as other:
        owned = await own.create(agent="a", session_id="s")
        turn = owned.turn("go")
        await turn.__aenter__()
        taken = await other.take("s", steal=True)
        with pytest.raises(FencedError) as fenced:
            await model_says(turn, ECHO)
        await turn.__aexit__(FencedError, fenced.value, None)
        assert await count(taken, "TurnEnded") == 0
        assert (await taken.state()).turn is not None


async def test_a_model_that_says_nothing_leaves_no_empty_message() -> None:
    """Nothing to show is nothing recorded as said."""
    async with client(memory()) as own:
        owned = await own.create(agent="a")
        await one_turn(owned, TOOLS)
        events = [recorded.event async for recorded in owned.events()]
        assert not any(isinstance(event, AssistantMessage) for event in events)
