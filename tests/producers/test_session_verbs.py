"""The owner's plain verbs, and results that are read back instead of run again."""

from typing import Any

import pytest

from foldline.errors import AppendRefusedError, LogUnavailableError
from foldline.producers.model import ToolRequest
from foldline.producers.session import OwnedSession
from foldline.producers.tools import (
    Backgrounded,
    Cancelled,
    Denied,
    Done,
    Failed,
    TimedOut,
    Tool,
    Toolbox,
    ToolContext,
    Unknown,
    parse_arguments,
)
from foldline.producers.turn import Turn
from foldline.schemas.blocks import text_block
from foldline.schemas.events import (
    BackgroundEnded,
    CheckpointCreated,
    KnownEvent,
    PermissionDenied,
    PlanUpdated,
    SystemObservation,
    ToolBackgrounded,
    ToolCallValidated,
    ToolExecutionCancelled,
    ToolExecutionCompleted,
    ToolExecutionFailed,
    ToolExecutionStarted,
    ToolExecutionTimedOut,
    ToolOutcomeResolved,
    ToolOutcomeUnknown,
)
from foldline.schemas.snapshots import state_hash
from tests.harness import client, memory, model_says, types_in

OUTPUT = (text_block("o"),)
CALL = "?"
"""Stands for the call's id until it is known."""


def never(arguments: dict[str, Any], context: ToolContext) -> str:
    """Must not run: its call has begun or ended."""
    raise AssertionError(f"run again: {arguments} {context.call_id}")


NEVER = Toolbox(Tool(never))
STARTED = ToolExecutionStarted(call_id=CALL, effect="UNSAFE", operation_id="op")


async def with_a_call(owned: OwnedSession, turn: Turn, *events: KnownEvent) -> Any:
    """Record what became of a call, and then run it."""
    (call,) = await model_says(turn, ToolRequest("never", "{}", "p"))
    for event in events:
        fields = {"call_id": call.call_id} if hasattr(event, "call_id") else {}
        await owned.append(event.model_copy(update=fields))
    (result,) = await turn.run_tools([call], NEVER)
    return result


COMPLETED = ToolExecutionCompleted(call_id=CALL, exit_code=1, output=OUTPUT)
BACKGROUNDED = ToolBackgrounded(call_id=CALL, handle="h")


@pytest.mark.parametrize(
    ("events", "kind", "shown"),
    [
        ([STARTED, COMPLETED], Done, {"output": OUTPUT, "exit_code": 1}),
        (
            [
                STARTED,
                ToolExecutionFailed(
                    call_id=CALL, layer="TOOL", error_type="E", executed="NO"
                ),
            ],
            Failed,
            {"error_type": "E", "executed": "NO"},
        ),
        (
            [
                STARTED,
                ToolExecutionCancelled(call_id=CALL, reason="r", stop_confirmed=True),
            ],
            Cancelled,
            {"reason": "r", "stop_confirmed": True},
        ),
        (
            [
                STARTED,
                ToolExecutionCancelled(call_id=CALL, reason="r", stop_confirmed=False),
            ],
            Cancelled,
            {"stop_confirmed": False},
        ),
        (
            [
                STARTED,
                ToolExecutionTimedOut(call_id=CALL, after_ms=7, stop_confirmed=True),
            ],
            TimedOut,
            {"after_ms": 7, "stop_confirmed": True},
        ),
        ([STARTED], Unknown, {}),
        ([STARTED, ToolOutcomeUnknown(call_id=CALL, reason="r")], Unknown, {}),
        (
            [
                STARTED,
                ToolOutcomeResolved(
                    call_id=CALL, outcome="COMPLETED", resolver="r", output=OUTPUT
                ),
            ],
            Done,
            {"output": OUTPUT},
        ),
        (
            [
                STARTED,
                ToolOutcomeResolved(
                    call_id=CALL, outcome="FAILED", resolver="r", evidence=OUTPUT
                ),
            ],
            Failed,
            {"blocks": OUTPUT},
        ),
        ([STARTED, BACKGROUNDED], Backgrounded, {"handle": "h"}),
        (
            [
                STARTED,
                BACKGROUNDED,
                BackgroundEnded(handle="h", outcome="COMPLETED", output=OUTPUT),
            ],
            Done,
            {"output": OUTPUT},
        ),
        (
            [STARTED, BACKGROUNDED, BackgroundEnded(handle="h", outcome="FAILED")],
            Failed,
            {"executed": "UNKNOWN"},
        ),
        (
            [STARTED, BACKGROUNDED, BackgroundEnded(handle="h", outcome="CANCELLED")],
            Cancelled,
            {"stop_confirmed": True},
        ),
        (
            [STARTED, BACKGROUNDED, BackgroundEnded(handle="h", outcome="UNKNOWN")],
            Unknown,
            {},
        ),
        (
            [PermissionDenied(call_id=CALL, decided_by="POLICY", feedback=OUTPUT)],
            Denied,
            {"feedback": OUTPUT},
        ),
        (
            [ToolCallValidated(call_id=CALL, valid=False, problem="p")],
            Failed,
            {"executed": "NO"},
        ),
    ],
)
async def test_a_call_that_has_an_end_is_not_run_and_its_end_is_the_result(
    events: list[KnownEvent], kind: type, shown: dict[str, Any]
) -> None:
    """Case B31: whatever became of it is taken from the log."""
    async with client(memory()) as own:
        owned = await own.create(agent="a")
        turn = owned.turn("go")
        await turn.__aenter__()
        result = await with_a_call(owned, turn, *events)
        assert type(result) is kind
        assert {name: getattr(result, name) for name in shown} == shown


async def test_a_checkpoint_holds_the_hash_of_the_state_before_it() -> None:
    """So that verify can check it."""
    async with client(memory()) as own:
        owned = await own.create(agent="a")
        await owned.message("hello")
        before = await owned.state()
        await owned.checkpoint()
        event = [recorded.event async for recorded in owned.events()][-1]
        assert isinstance(event, CheckpointCreated)
        assert (event.upto_seq, event.state_hash) == (before.seq, state_hash(before))


async def test_set_up_and_observations_are_recorded_by_the_owner() -> None:
    """In the open turn where there is one."""
    async with client(memory()) as own:
        owned = await own.create(agent="a")
        await owned.instruct("be brief", role="developer")
        await owned.declare(NEVER)
        async with owned.turn("go") as turn:
            observed = SystemObservation(origin="harness", blocks=OUTPUT)
            await turn.append(observed, PlanUpdated(items=()))
            await owned.append_all([observed, observed])
        events = [recorded async for recorded in owned.events()]
        observations = [r for r in events if r.type == "SystemObservation"]
        assert [r.envelope.turn_id for r in observations] == [turn.turn_id] * 3
        state = await owned.state()
        assert list(state.instructions) == ["developer"]
        assert state.tools is not None


@pytest.mark.parametrize("end", ["complete", "fail", "cancel"])
async def test_a_session_ends_once_and_its_turn_with_it(end: str) -> None:
    """What ends the session leaves nothing to end."""
    async with client(memory()) as own:
        owned = await own.create(agent="a")
        async with owned.turn("go"):
            if end == "complete":
                await owned.complete("DONE", "all of it")
            elif end == "fail":
                await owned.fail("OutOfBudget", "spent")
            else:
                await owned.end_cancelled("lunch")
        assert (await owned.state()).ended
        assert "TurnEnded" not in await types_in(owned)
        with pytest.raises(AppendRefusedError):
            await owned.complete()


async def test_an_owner_asks_for_a_stop_as_anybody_may() -> None:
    """One word, one meaning: `cancel` asks, `end_cancelled` ends."""
    async with client(memory()) as own:
        owned = await own.create(agent="a")
        async with owned.turn("go"):
            await owned.cancel("slow", target="CALL", target_id="c")
            await owned.cancel("lunch")
            assert not (await owned.state()).ended
        assert (await types_in(owned)).count("CancellationRequested") == 2
        await owned.end_cancelled("lunch")
        assert (await owned.state()).status == "CANCELLED"


async def test_an_outcome_that_could_not_be_recorded_is_said_when_closing() -> None:
    """Nothing is dropped in silence; the lease is given up all the same."""
    log = memory()

    def run(arguments: dict[str, Any], context: ToolContext) -> str:
        return f"{arguments}{context.attempt}"

    own = client(log)
    await own.__aenter__()
    owned = await own.create(agent="a", session_id="s")
    turn = owned.turn("go")
    await turn.__aenter__()
    calls = await model_says(turn, ToolRequest("run", "{}", "p"))
    log.lose_types = frozenset({"ToolExecutionCompleted"})
    with pytest.raises(LogUnavailableError):
        await turn.run_tools(calls, Toolbox(Tool(run)))
    with pytest.raises(LogUnavailableError):
        await own.close()
    log.lose_types = frozenset()
    async with client(log) as other:
        taken = await other.take("s")
        assert (await taken.recover(Toolbox())).unknown == 1


@pytest.mark.parametrize(
    ("text", "arguments"),
    [("", {}), (" ", {}), ("{}", {}), ("[]", None), ("7", None), ("[" * 9_999, None)],
)
def test_no_text_means_no_arguments_and_only_an_object_is_good(
    text: str, arguments: dict[str, Any] | None
) -> None:
    """Some models write nothing for a tool without parameters."""
    parsed, problem = parse_arguments(text)
    assert parsed == arguments
    assert bool(problem) == (arguments is None)
