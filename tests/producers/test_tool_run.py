"""Running tools: side by side, in call order, stopped when they can be, recorded always."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from foldline.errors import (
    AnswerRefusedError,
    AppendRefusedError,
    FencedError,
    LogUnavailableError,
    RedactionError,
    SettingsError,
    StartTooLateError,
    UncertainAppendError,
)
from foldline.processors.memory_log import MemoryLog
from foldline.producers import execution
from foldline.producers.client import connect
from foldline.producers.identity import wall_clock
from foldline.producers.model import ToolRequest
from foldline.producers.prepare import Draft, Preparer
from foldline.producers.redaction import Redactor
from foldline.producers.session import OwnedSession
from foldline.producers.tools import (
    Background,
    Backgrounded,
    Cancelled,
    Denied,
    Done,
    Failed,
    PendingCall,
    Reconciled,
    TimedOut,
    Tool,
    Toolbox,
    ToolContext,
    ToolError,
    ToolOutput,
    ToolResult,
    Unknown,
    Waiting,
    said_blocks,
)
from foldline.producers.turn import Turn
from foldline.schemas.blocks import json_block, text_block, text_of
from foldline.schemas.choices import GrantScope
from foldline.schemas.events import (
    KnownEvent,
    PermissionGranted,
    PermissionRequested,
    ToolExecutionCancelled,
    ToolExecutionCompleted,
    ToolExecutionFailed,
    ToolExecutionStarted,
    ToolExecutionTimedOut,
)
from foldline.settings import Settings
from foldline.testing import make_append
from tests.harness import (
    QUICK,
    FaultyLog,
    client,
    count,
    memory,
    model_says,
    one_turn,
    types_in,
    until,
)

Arguments = dict[str, Any]

OUTCOMES = (
    "ToolExecutionCompleted",
    "ToolExecutionFailed",
    "ToolOutcomeUnknown",
    "ToolOutcomeResolved",
)


def calls_of(*names: str) -> list[ToolRequest]:
    """One request per tool, with an id of its own."""
    return [ToolRequest(name, "{}", f"p{i}") for i, name in enumerate(names)]


@asynccontextmanager
async def turn_of(
    log: FaultyLog | None = None,
) -> AsyncGenerator[tuple[OwnedSession, Turn]]:
    """An owned session `s` with an open turn that nobody ends."""
    async with client(log or memory()) as own:
        owned = await own.create(agent="a", session_id="s")
        turn = owned.turn("go")
        await turn.__aenter__()
        yield owned, turn


async def events_of(owned: OwnedSession, kind: type[KnownEvent]) -> list[Any]:
    """The events of a type."""
    return [
        recorded.event
        async for recorded in owned.events()
        if isinstance(recorded.event, kind)
    ]


# --- what tools give -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "bodies"),
    [
        (None, []),
        ("text", ["text"]),
        ({"a": "ü"}, ['{"a": "ü"}']),
        ([1, 2], ["[1, 2]"]),
        (text_block("b"), ["b"]),
        ([text_block("a"), text_block("b")], ["a", "b"]),
        (7, ["7"]),
    ],
)
def test_whatever_a_tool_gives_becomes_blocks(said: object, bodies: list[str]) -> None:
    """Text, blocks as they are, anything else as JSON."""
    assert [block.body for block in said_blocks(said)] == bodies


async def test_results_come_in_call_order_and_outcomes_as_they_happen() -> None:
    """Cases B14, B15: three at once, the last first."""
    ended: list[str] = []
    gates = {name: asyncio.Event() for name in ("a", "b", "c")}

    def tool(name: str, after: str | None) -> Tool:
        async def run(arguments: Arguments, context: ToolContext) -> str:
            if after is not None:
                await gates[after].wait()
            ended.append(f"{name}{context.attempt}{len(arguments)}")
            gates[name].set()
            return name

        return Tool(run, name=name, effect="READ_ONLY")

    toolbox = Toolbox(tool("a", "b"), tool("b", "c"), tool("c", None))
    async with client(memory()) as own:
        owned = await own.create(agent="a")
        results = await one_turn(owned, toolbox, *calls_of("a", "b", "c"))
        assert [r.output[0].body for r in results if isinstance(r, Done)] == ["a", "b", "c"]
        completed = await events_of(owned, ToolExecutionCompleted)
        assert [event.output[0].body for event in completed] == ["c", "b", "a"]
        assert ended == ["c10", "b10", "a10"]


async def test_tools_that_block_run_in_threads_side_by_side() -> None:
    """Each waits for the other: one after the other they would never end."""
    barrier = threading.Barrier(3)

    def run(arguments: Arguments, context: ToolContext) -> ToolOutput:
        barrier.wait(30)
        return ToolOutput(f"{arguments}{context.cancelled}", exit_code=3)

    toolbox = Toolbox(*(Tool(run, name=name, effect="READ_ONLY") for name in "abc"))
    async with client(memory()) as own:
        owned = await own.create(agent="a")
        results = await one_turn(owned, toolbox, *calls_of("a", "b", "c"))
        assert [r.exit_code for r in results if isinstance(r, Done)] == [3, 3, 3]


async def test_a_tool_that_raises_fails_and_the_others_go_on() -> None:
    """What it knows of its effect is recorded with it."""

    def unsure(arguments: Arguments, context: ToolContext) -> str:
        raise ValueError(f"no {arguments} {context.call_id == ''}")

    def sure(arguments: Arguments, context: ToolContext) -> str:
        raise ToolError(f"refused {len(arguments)} {context.attempt}", executed="NO")

    def leaves(arguments: Arguments, context: ToolContext) -> str:
        raise SystemExit(len(arguments) + context.attempt)

    toolbox = Toolbox(Tool(unsure), Tool(sure), Tool(leaves))
    async with client(memory()) as own:
        owned = await own.create(agent="a")
        results = await one_turn(owned, toolbox, *calls_of("unsure", "sure", "leaves"))
        failed = [result for result in results if isinstance(result, Failed)]
        assert [(f.error_type, f.executed) for f in failed] == [
            ("ValueError", "UNKNOWN"),
            ("ToolError", "NO"),
            ("SystemExit", "UNKNOWN"),
        ]


@pytest.mark.parametrize(
    ("answer", "kind", "types"),
    [
        (True, Done, ["ToolOutcomeUnknown", "ToolOutcomeResolved"]),
        (False, Failed, ["ToolExecutionFailed"]),
        (None, Failed, ["ToolExecutionFailed"]),
        (ValueError("gone"), Failed, ["ToolExecutionFailed"]),
    ],
    ids=["it happened", "no trace of it yet", "it cannot tell", "it fails itself"],
)
async def test_a_tool_that_dies_after_its_effect_is_asked_before_it_counts_as_failed(
    answer: Any, kind: type[ToolResult], types: list[str]
) -> None:
    """A yes is evidence. A no is none: the effect may still be on its way."""
    sent: list[str] = []

    def mail(arguments: Arguments, context: ToolContext) -> str:
        sent.append(context.operation_id + str(arguments.get("to", "")))
        raise ToolError("killed by signal 9")

    def was_sent(arguments: Arguments, context: ToolContext) -> Reconciled:
        if isinstance(answer, Exception):
            raise answer
        known = context.operation_id + str(arguments.get("to", "")) in sent
        return Reconciled(answer, "mail 1", evidence=f"ledger: {known}")

    toolbox = Toolbox(Tool(mail, effect="RECONCILABLE", reconcile=was_sent))
    async with client(memory()) as own:
        owned = await own.create(agent="a")
        (result,) = await one_turn(owned, toolbox, *calls_of("mail"))
        assert isinstance(result, kind)
        if isinstance(result, Done):
            assert text_of(result.output) == "mail 1"
        told = [recorded.type async for recorded in owned.events()]
        assert [name for name in told if name in OUTCOMES] == types
        assert len(sent) == 1


async def test_a_tool_may_go_on_in_the_background_and_end_later() -> None:
    """Its handle is listed until then."""

    def run(arguments: Arguments, context: ToolContext) -> Background:
        return Background(f"h{len(arguments)}{context.attempt}", "pid 7")

    async with client(memory()) as own:
        owned = await own.create(agent="a")
        (result,) = await one_turn(owned, Toolbox(Tool(run)), *calls_of("run"))
        assert isinstance(result, Backgrounded)
        assert list((await owned.state()).handles) == ["h01"]
        await owned.background_ended("h01", "COMPLETED", "exit 0")
        assert not (await owned.state()).handles
        assert not (await owned.state()).calls


def test_tools_have_names_and_effects_that_mean_something() -> None:
    """Said when they are made, not when they run."""

    def run(arguments: Arguments, context: ToolContext) -> str:
        return f"{arguments}{context}"

    with pytest.raises(SettingsError, match="a tool needs a name"):
        Tool(_Nameless())
    with pytest.raises(SettingsError, match="READ_ONLY"):
        Tool(run, effect="HARMLESS")  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="its own name"):
        Toolbox(Tool(run), Tool(run))


class _Nameless:
    def __call__(self, arguments: Arguments, context: ToolContext) -> str:
        return f"{arguments}{context}"


# --- starts --------------------------------------------------------------------------


async def test_an_effect_does_not_begin_after_its_start_by() -> None:
    """The attempt is recorded as not executed: nobody has to wonder."""
    ran: list[str] = []

    def run(arguments: Arguments, context: ToolContext) -> str:
        ran.append(f"{arguments}{context.attempt}")
        return "done"

    settings = Settings(start_by_ms=0)
    async with connect(memory(), settings=settings) as own:
        owned = await own.create(agent="a")
        (result,) = await one_turn(owned, Toolbox(Tool(run)), *calls_of("run"))
        assert isinstance(result, Failed)
        assert (result.error_type, result.executed, result.layer) == (
            StartTooLateError.__name__,
            "NO",
            "HARNESS",
        )
        assert ran == []
        (failed,) = await events_of(owned, ToolExecutionFailed)
        assert (failed.executed, failed.layer) == ("NO", "HARNESS")


async def test_a_start_that_is_refused_runs_nothing() -> None:
    """An effect begins only after its start was accepted."""
    ran: list[str] = []

    def run(arguments: Arguments, context: ToolContext) -> str:
        ran.append(f"{arguments}{context.attempt}")
        return "done"

    async with turn_of() as (owned, turn):
        calls = await model_says(turn, *calls_of("run"))
        await owned.suspend("stop")
        with pytest.raises(AppendRefusedError):
            await turn.run_tools(calls, Toolbox(Tool(run)))
        assert ran == []


async def test_the_operation_id_follows_from_session_and_call() -> None:
    """Stable across attempts and processes, and another for another call."""
    seen: list[str] = []

    def run(arguments: Arguments, context: ToolContext) -> None:
        seen.append(context.operation_id)
        assert not arguments

    async with client(memory()) as own:
        owned = await own.create(agent="a")
        toolbox = Toolbox(Tool(run, name="a"), Tool(run, name="b"))
        await one_turn(owned, toolbox, *calls_of("a", "b"))
        started = await events_of(owned, ToolExecutionStarted)
        assert {event.operation_id for event in started} == set(seen)
        assert len(set(seen)) == 2


# --- what the log does not take, or does not answer -----------------------------------


@pytest.mark.parametrize("recorded", [True, False])
async def test_a_start_that_may_be_recorded_is_closed_as_not_executed(
    recorded: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """Without a verdict the effect does not begin, and nobody finds an open call later."""
    ran: list[str] = []

    def run(arguments: Arguments, context: ToolContext) -> str:
        ran.append(f"{arguments}{context.attempt}")
        return "output"

    log = memory()
    async with turn_of(log) as (owned, turn):
        calls = await model_says(turn, *calls_of("run"))
        lost = QUICK.resend_max + 1
        log.uncertain = True
        log.lose_after, log.lose_before = (lost, 0) if recorded else (0, lost)
        with pytest.raises(UncertainAppendError):
            await turn.run_tools(calls, Toolbox(Tool(run)))
        (result,) = await turn.run_tools(calls, Toolbox(Tool(run)))
        assert isinstance(result, Failed)
        assert result.executed == "NO"
        assert ran == []
        assert (await types_in(owned))[-2:] == [
            "ToolExecutionStarted",
            "ToolExecutionFailed",
        ]


async def test_an_outcome_that_was_not_taken_is_recorded_later_without_a_rerun() -> None:
    """Case B18: it ran, storing its output failed; effect once, outcome once."""
    ran: list[str] = []

    def run(arguments: Arguments, context: ToolContext) -> str:
        ran.append(f"{arguments}{context.attempt}")
        return "output"

    log = memory()
    async with turn_of(log) as (owned, turn):
        toolbox = Toolbox(Tool(run))
        calls = await model_says(turn, *calls_of("run"))
        log.lose_types = frozenset({"ToolExecutionCompleted"})
        with pytest.raises(LogUnavailableError):
            await turn.run_tools(calls, toolbox)
        with pytest.raises(LogUnavailableError):
            await turn.run_tools(calls, toolbox)
        log.lose_types = frozenset()
        (result,) = await turn.run_tools(calls, toolbox)
        assert isinstance(result, Done)
        assert result.output == (text_block("output"),)
        assert len(ran) == 1
        assert await count(owned, "ToolExecutionCompleted") == 1


async def test_an_outcome_waits_before_everything_else_that_is_decided() -> None:
    """Whatever the owner does next, the outcome goes out first."""

    def run(arguments: Arguments, context: ToolContext) -> str:
        return f"{arguments}{context.attempt}"

    log = memory()
    async with turn_of(log) as (owned, turn):
        calls = await model_says(turn, *calls_of("run"))
        log.lose_types = frozenset({"ToolExecutionCompleted"})
        with pytest.raises(LogUnavailableError):
            await turn.run_tools(calls, Toolbox(Tool(run)))
        log.lose_types = frozenset()
        await turn.end("DONE")
        assert (await types_in(owned))[-2:] == ["ToolExecutionCompleted", "TurnEnded"]


async def test_an_outcome_that_cannot_be_redacted_is_recorded_without_its_content() -> None:
    """The world did change; nothing of what could not be judged is kept."""

    class Unsure:
        def redact_event(self, event: KnownEvent) -> tuple[KnownEvent, dict[str, int]]:
            if "top secret" in str(event):
                raise RedactionError("rule", "it cannot tell")
            return event, {}

    def run(arguments: Arguments, context: ToolContext) -> str:
        return f"top secret {arguments}{context.attempt}"

    async with connect(memory(), redactor=Unsure()) as own:
        owned = await own.create(agent="a")
        await one_turn(owned, Toolbox(Tool(run)), *calls_of("run"))
        (completed,) = await events_of(owned, ToolExecutionCompleted)
        assert "not recorded" in completed.output[0].body


async def test_an_outcome_that_is_too_large_is_recorded_without_its_content() -> None:
    """No blob store takes it; that the tool ran is recorded all the same."""

    def dump(arguments: Arguments, context: ToolContext) -> str:
        return "x" * 200_000 + f"{arguments}{context.attempt}"

    settings = QUICK.model_copy(update={"blob_max_bytes": 100_000})
    small = MemoryLog(settings=settings, clock=wall_clock)
    async with client(FaultyLog(small)) as own:
        owned = await own.create(agent="a")
        (result,) = await one_turn(owned, Toolbox(Tool(dump)), *calls_of("dump"))
        assert isinstance(result, Done)
        (completed,) = await events_of(owned, ToolExecutionCompleted)
        assert "blob_max_bytes is 100000" in completed.output[0].body
        await owned.complete()


# --- stopping ------------------------------------------------------------------------


async def forever(arguments: Arguments, context: ToolContext) -> str:
    """A coroutine that only a cancellation ends."""
    await asyncio.sleep(600)
    return f"{arguments}{context.attempt}"


def in_thread(arguments: Arguments, context: ToolContext) -> str:
    """A thread that stops when it is told to."""
    context.wait_cancelled(600)
    raise InterruptedError(f"{arguments}{context.reason}")


@pytest.mark.parametrize("run", [forever, in_thread])
async def test_a_tool_that_can_stop_is_stopped_by_its_timeout(run: Any) -> None:
    """And that it did stop is recorded."""
    toolbox = Toolbox(Tool(run, name="t", cancellable=True, timeout_s=0.05))
    async with client(memory()) as own:
        owned = await own.create(agent="a")
        (result,) = await one_turn(owned, toolbox, *calls_of("t"))
        assert isinstance(result, TimedOut)
        assert result.stop_confirmed
        assert result.after_ms >= 50
        assert not (await owned.state()).calls


async def test_a_tool_that_cannot_stop_stays_open_and_its_late_outcome_is_taken() -> None:
    """Cases B32, B33: a time-out is no end; the output of later attaches to its call."""
    release = threading.Event()

    def run(arguments: Arguments, context: ToolContext) -> str:
        release.wait(30)
        return f"late {len(arguments)} {context.cancelled}"

    async with turn_of() as (owned, turn):
        toolbox = Toolbox(Tool(run, timeout_s=0.05))
        calls = await model_says(turn, *calls_of("run"))
        (result,) = await turn.run_tools(calls, toolbox)
        assert isinstance(result, TimedOut)
        assert not result.stop_confirmed
        assert (await owned.state()).calls[calls[0].call_id].status == "TIMED_OUT"
        again = await turn.run_tools(calls, toolbox)
        assert isinstance(again[0], TimedOut)
        await turn.context()
        release.set()
        await until(owned, "ToolExecutionCompleted")
        assert not (await owned.state()).calls
        context = await turn.context()
        assert "late 0 True" in context.messages[-1].parts[-1].text


async def test_a_tool_that_will_not_stop_is_left_and_its_stop_not_confirmed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It said that it can be cancelled, and then would not."""
    monkeypatch.setattr(execution, "STOP_GRACE_S", 0.05)
    release = threading.Event()

    def run(arguments: Arguments, context: ToolContext) -> str:
        release.wait(30)
        return f"{arguments}{context.attempt}"

    async with turn_of() as (owned, turn):
        toolbox = Toolbox(Tool(run, cancellable=True))
        calls = await model_says(turn, *calls_of("run"))
        running = asyncio.create_task(turn.run_tools(calls, toolbox))
        await until(owned, "ToolExecutionStarted")
        await owned.steer("stop that")
        (result,) = await running
        assert isinstance(result, Cancelled)
        assert not result.stop_confirmed
        release.set()
        await until(owned, "ToolExecutionCompleted")


async def test_steering_stops_what_can_stop_and_waits_for_what_cannot() -> None:
    """The others come to their safe end; then the context is rebuilt."""
    finish = asyncio.Event()

    async def careful(arguments: Arguments, context: ToolContext) -> str:
        await finish.wait()
        return f"safe {len(arguments)} {context.attempt}"

    log = memory()
    async with turn_of(log) as (owned, turn), client(log) as person:
        toolbox = Toolbox(
            Tool(forever, cancellable=True, effect="READ_ONLY"),
            Tool(careful),
            Tool(careful, name="gated", approval="always"),
        )
        calls = await model_says(turn, *calls_of("forever", "careful", "gated"))
        running = asyncio.create_task(turn.run_tools(calls, toolbox))
        await until(owned, "ToolExecutionStarted", 2)
        await until(owned, "PermissionRequested")
        await (await person.open("s")).steer("use nix")
        await until(owned, "ToolExecutionCancelled")
        finish.set()
        stopped, ended, waiting = await running
        assert isinstance(stopped, Cancelled)
        assert stopped.stop_confirmed
        assert isinstance(ended, Done)
        assert isinstance(waiting, Cancelled)
        assert turn.interrupted
        (cancelled,) = await events_of(owned, ToolExecutionCancelled)
        assert cancelled.reason == "interrupted by steering"
        context = await turn.context()
        assert context.messages[-1].parts[0].text == "use nix"
        await turn.end("DONE")


async def test_steering_that_came_before_keeps_calls_from_beginning() -> None:
    """Case B37: while the model was thinking, somebody changed their mind."""
    async with turn_of() as (owned, turn):
        calls = await model_says(turn, *calls_of("forever"))
        await owned.steer("use nix")
        (result,) = await turn.run_tools(calls, Toolbox(Tool(forever)))
        assert isinstance(result, Cancelled)
        assert await count(owned, "ToolExecutionStarted") == 0
        await turn.end("DONE")


async def test_one_call_may_be_cancelled_and_its_siblings_go_on() -> None:
    """Somebody stops just that."""
    log = memory()
    finish = asyncio.Event()

    async def other(arguments: Arguments, context: ToolContext) -> str:
        await finish.wait()
        return f"{arguments}{context.attempt}"

    async with turn_of(log) as (owned, turn), client(log) as person:
        toolbox = Toolbox(Tool(forever, cancellable=True), Tool(other, cancellable=True))
        calls = await model_says(turn, *calls_of("forever", "other"))
        running = asyncio.create_task(turn.run_tools(calls, toolbox))
        await until(owned, "ToolExecutionStarted", 2)
        view = await person.open("s")
        await view.cancel("enough", target="CALL", target_id=calls[0].call_id)
        await until(owned, "ToolExecutionCancelled")
        finish.set()
        stopped, ended = await running
        assert isinstance(stopped, Cancelled)
        assert stopped.reason == "enough"
        assert isinstance(ended, Done)
        assert not turn.cancelled


async def test_a_cancelled_turn_stops_its_tools_and_ends_as_aborted() -> None:
    """Somebody asked for it through the log; the harness sees it and stops."""
    log = memory()
    async with client(log) as own, client(log) as person:
        owned = await own.create(agent="a", session_id="s")
        async with owned.turn("go") as turn:
            calls = await model_says(turn, *calls_of("forever"))
            toolbox = Toolbox(Tool(forever, cancellable=True))
            running = asyncio.create_task(turn.run_tools(calls, toolbox))
            await until(owned, "ToolExecutionStarted")
            await (await person.open("s")).cancel("lunch", target="TURN")
            await running
            assert turn.cancelled
        assert (await types_in(owned))[-1] == "TurnEnded"
        assert (await owned.state()).cancellation is None


async def test_a_cancelled_caller_stops_the_tools_and_loses_no_outcome() -> None:
    """The task dies; what its tools did is still recorded."""
    release, began = threading.Event(), threading.Event()

    def stubborn(arguments: Arguments, context: ToolContext) -> str:
        began.set()
        release.wait(30)
        return f"{arguments}{context.attempt}"

    async with turn_of() as (owned, turn):
        toolbox = Toolbox(Tool(forever, cancellable=True), Tool(stubborn))
        calls = await model_says(turn, *calls_of("forever", "stubborn"))
        running = asyncio.create_task(turn.run_tools(calls, toolbox))
        await until(owned, "ToolExecutionStarted", 2)
        # Recorded is not begun: told to stop in between, it would never begin.
        assert await asyncio.to_thread(began.wait, 30)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await until(owned, "ToolExecutionCancelled")
        release.set()
        await until(owned, "ToolExecutionCompleted")
        assert not (await owned.state()).calls


async def test_a_fenced_owner_stops_its_tools_and_their_outcomes_are_facts() -> None:
    """Row 5: what it started did happen; what it wants to decide is refused."""
    log = memory()
    release, began = threading.Event(), threading.Event()

    def stubborn(arguments: Arguments, context: ToolContext) -> str:
        began.set()
        release.wait(30)
        return f"{arguments}{context.attempt}"

    async with turn_of(log) as (owned, turn), client(log) as other:
        toolbox = Toolbox(
            Tool(forever, cancellable=True),
            Tool(stubborn),
            Tool(stubborn, name="gated", approval="always"),
        )
        calls = await model_says(turn, *calls_of("forever", "stubborn", "gated"))
        running = asyncio.create_task(turn.run_tools(calls, toolbox))
        await until(owned, "ToolExecutionStarted", 2)
        # Recorded is not begun: told to stop in between, it would never begin.
        assert await asyncio.to_thread(began.wait, 30)
        await until(owned, "PermissionRequested")
        taken = await other.take("s", steal=True)
        await until(owned, "ToolExecutionCancelled")
        request_id = next(iter((await taken.state()).requests))
        await taken.grant(request_id)
        release.set()
        with pytest.raises(FencedError):
            await running
        await until(owned, "ToolExecutionCompleted")
        events = [recorded async for recorded in taken.events()]
        (completed,) = [r for r in events if r.type == "ToolExecutionCompleted"]
        assert completed.envelope.epoch == 1
        assert taken.epoch == 2


# --- permission ----------------------------------------------------------------------


def greet(arguments: Arguments, context: ToolContext) -> str:
    """Greet whom the arguments name."""
    assert context.attempt == 1
    return f"hello {arguments.get('name')}"


GATED = Toolbox(Tool(greet, approval="always"))
ADA = ToolRequest("greet", '{"name": "Ada"}', "p")
Answer = Callable[[OwnedSession, str], Any]


async def run_answered(log: FaultyLog, answer: Answer) -> list[Any]:
    """Run a gated call, and answer its request from another process."""
    async with turn_of(log) as (owned, turn), client(log) as person:
        calls = await model_says(turn, ADA)
        running = asyncio.create_task(turn.run_tools(calls, GATED))
        await until(owned, "PermissionRequested")
        view = await person.open("s")
        request_id = next(iter((await view.state()).requests))
        await answer(view, request_id)  # type: ignore[arg-type]
        results = await running
        await turn.end("DONE")
        return [*results, owned]


async def test_a_granted_call_runs_once_with_its_own_arguments() -> None:
    """Case B19: the request is recorded after the call is."""
    log = memory()

    async def grant(view: OwnedSession, request_id: str) -> None:
        await view.grant(request_id)

    result, *_ = await run_answered(log, grant)
    assert isinstance(result, Done)
    assert result.output[0].body == "hello Ada"
    types = [recorded.type for recorded in log.events("s")]
    assert types.index("ToolCallRequested") < types.index("PermissionRequested")
    assert types.index("PermissionGranted") < types.index("ToolExecutionStarted")


async def test_a_call_granted_with_edited_arguments_runs_with_these() -> None:
    """And the grant says their hash."""
    log = memory()

    async def edit(view: OwnedSession, request_id: str) -> None:
        await view.grant(request_id, edited_arguments='{"name": "Grace"}')

    result, *_ = await run_answered(log, edit)
    assert isinstance(result, Done)
    assert result.output[0].body == "hello Grace"


async def test_edited_arguments_that_do_not_parse_run_nothing() -> None:
    """A person mistypes too, and another client may not have looked."""

    async def edit(view: OwnedSession, request_id: str) -> None:
        with pytest.raises(AnswerRefusedError):
            await view.grant(request_id, edited_arguments='{"name": ')
        (request,) = (await view.state()).requests.values()
        await view.append(
            PermissionGranted(
                request_id=request_id,
                call_id=request.call_id,
                args_hash=request.args_hash,
                decided_by="PERSON",
                grant_id="g",
                edited_arguments=(text_block('{"name": '),),
            )
        )

    result, *_ = await run_answered(memory(), edit)
    assert isinstance(result, Failed)
    assert result.executed == "NO"


async def test_edited_arguments_with_a_secret_in_them_are_refused_at_the_grant() -> None:
    """With the placeholder it would be another call than the person meant."""
    secret = "ghp_" + "a1B2c3D4e5" * 4

    async def edit(view: OwnedSession, request_id: str) -> None:
        for value in (secret, "‹secret:github-pat:7f3a91c2›"):
            edited = f'{{"name": "{value}"}}'
            with pytest.raises(AnswerRefusedError, match="edited arguments hold"):
                await view.grant(request_id, edited_arguments=edited)
        by_hand = PermissionGranted(
            request_id=request_id,
            decided_by="PERSON",
            grant_id="g",
            edited_arguments=(json_block(f'{{"name": "{secret}"}}'),),
        )
        with pytest.raises(AnswerRefusedError, match="hold a secret"):
            await view.append(by_hand)
        await view.grant(request_id)

    result, *_ = await run_answered(memory(), edit)
    assert isinstance(result, Done)


async def test_a_client_answers_for_the_roles_that_its_settings_have() -> None:
    """With grant, deny, and an answer that is appended by hand."""
    log = memory()
    by_hand = PermissionGranted(request_id="r", decided_by="PERSON", grant_id="g")
    async with turn_of(log) as (owned, _):
        asked = PermissionRequested(
            request_id="r", kind="PLAN", approvers=("boss",), display=()
        )
        await owned.append(asked)
        other = QUICK.model_copy(update={"operator_roles": "dev"})
        async with client(log, settings=other) as person:
            view = await person.open(owned.session_id)
            for answer in (
                view.grant("r"),
                view.deny("r"),
                view.append(by_hand),
            ):
                with pytest.raises(AnswerRefusedError, match="one of the roles boss"):
                    await answer
        boss = QUICK.model_copy(update={"operator_roles": "dev, boss"})
        async with client(log, settings=boss) as person:
            await (await person.open(owned.session_id)).grant("r")


async def test_a_redacted_edit_that_is_in_the_log_already_runs_nothing() -> None:
    """Another writer may not have looked."""
    log = memory()

    async def edit(view: OwnedSession, request_id: str) -> None:
        state = await view.state()
        request = state.requests[request_id]
        secret = json_block('{"name": "ghp_%s"}' % ("a1B2c3D4e5" * 4))
        event = PermissionGranted(
            request_id=request_id,
            call_id=request.call_id,
            args_hash=request.args_hash,
            decided_by="PERSON",
            grant_id="g",
            edited_arguments=(secret,),
        )
        given = make_append("s", event, known_seq=state.seq, epoch=0, writer="w")
        preparer = Preparer(Redactor(b"key"), log.blobs, 10_000)
        appends = [
            given._replace(
                envelope=prepared.envelope,
                event=prepared.event,
                content=prepared.content,
                requires=prepared.requires,
            )
            for prepared in preparer.prepare(Draft(given.envelope, event))
        ]
        assert [v.kind for v in log.append(appends)] == ["ACCEPTED"] * 2

    result, *_ = await run_answered(log, edit)
    assert isinstance(result, Failed)
    assert "redacted" in text_of(result.blocks)


async def test_a_denied_call_does_not_run_and_the_run_goes_on() -> None:
    """Case B34: closed as denied, with the feedback for the model."""

    async def deny(view: OwnedSession, request_id: str) -> None:
        await view.deny(request_id, "ask first")

    result, *_ = await run_answered(memory(), deny)
    assert isinstance(result, Denied)
    assert result.feedback[0].body == "ask first"


async def test_a_request_without_answer_gives_a_call_that_waits() -> None:
    """It can be answered later, in another process, and runs then, once."""
    log = memory()
    async with turn_of(log) as (owned, turn):
        calls = await model_says(turn, ADA)
        (waiting,) = await turn.run_tools(calls, GATED, approval_wait_ms=50)
        assert isinstance(waiting, Waiting)
        (again,) = await turn.run_tools(calls, GATED, approval_wait_ms=50)
        assert again == waiting
        await owned.suspend("until somebody answers")
        await owned.grant(waiting.request_id)
    async with client(log) as other:
        owned = await other.take("s")
        await owned.recover(GATED)
        async with await owned.resume_turn() as turn:
            (result,) = await turn.run_tools(await turn.open_calls(), GATED)
            assert isinstance(result, Done)
        assert await count(owned, "PermissionRequested") == 1
        assert await count(owned, "ToolExecutionStarted") == 1


async def test_edited_arguments_survive_the_owner_that_asked() -> None:
    """The next process runs the call with what was granted."""
    log = memory()
    async with turn_of(log) as (owned, turn):
        calls = await model_says(turn, ADA)
        (waiting,) = await turn.run_tools(calls, GATED, approval_wait_ms=10)
        assert isinstance(waiting, Waiting)
        await owned.grant(waiting.request_id, edited_arguments='{"name": "Grace"}')
    async with client(log) as other:
        owned = await other.take("s")
        async with await owned.resume_turn() as turn:
            (result,) = await turn.run_tools(await turn.open_calls(), GATED)
            assert isinstance(result, Done)
            assert result.output[0].body == "hello Grace"


@pytest.mark.parametrize(("scope", "asked"), [("CALL", 3), ("TURN", 2), ("SESSION", 1)])
async def test_a_grant_holds_for_as_far_as_it_says(scope: GrantScope, asked: int) -> None:
    """Earlier grants are remembered, and named when they are used."""
    log = memory()
    async with client(log) as own, client(log) as person:
        owned = await own.create(agent="a", session_id="s")
        view = await person.open("s")

        async def answer() -> None:
            async for recorded in view.follow():
                if isinstance(recorded.event, PermissionRequested):
                    await view.grant(recorded.event.request_id, scope=scope)

        answering = asyncio.create_task(answer())
        async with owned.turn("one") as turn:
            await turn.run_tools(await model_says(turn, ADA), GATED)
            await turn.run_tools(await model_says(turn, ADA), GATED)
        async with owned.turn("two") as turn:
            await turn.run_tools(await model_says(turn, ADA), GATED)
        answering.cancel()
        assert await count(owned, "PermissionRequested") == asked
        granted = await events_of(owned, PermissionGranted)
        earlier = [g for g in granted if g.decided_by == "EARLIER_GRANT"]
        assert len(earlier) == 3 - asked
        assert await count(owned, "ToolExecutionCompleted") == 3


async def test_a_request_that_expires_is_an_outcome_of_its_own() -> None:
    """Case B35: said by the log's clock; the call can be asked for again."""
    async with turn_of() as (owned, turn):
        calls = await model_says(turn, ADA)
        (waiting,) = await turn.run_tools(
            calls, GATED, approval_wait_ms=200, approval_expires_ms=10
        )
        assert isinstance(waiting, Waiting)
        assert waiting.expired
        assert (await owned.state()).calls[calls[0].call_id].status == "EXPIRED"
        with pytest.raises(AppendRefusedError):
            await owned.grant(waiting.request_id)
        (again,) = await turn.run_tools(calls, GATED, approval_wait_ms=10)
        assert isinstance(again, Waiting)
        assert again.request_id != waiting.request_id


async def test_a_tool_may_ask_for_some_arguments_only() -> None:
    """Its approval is a function of them."""
    tool = Tool(greet, approval=lambda arguments: arguments["name"] == "Ada")
    async with turn_of() as (_, turn):
        calls = await model_says(turn, ADA, ToolRequest("greet", '{"name": "Bob"}', "q"))
        waiting, done = await turn.run_tools(calls, Toolbox(tool), approval_wait_ms=10)
        assert isinstance(waiting, Waiting)
        assert isinstance(done, Done)


async def test_a_call_that_somebody_else_left_running_is_not_run_here() -> None:
    """Unknown until recovery has settled it."""
    log = memory()
    release, began = threading.Event(), threading.Event()

    def run(arguments: Arguments, context: ToolContext) -> str:
        began.set()
        release.wait(30)
        return f"{arguments}{context.attempt}"

    async with turn_of(log) as (owned, turn), client(log) as other:
        calls = await model_says(turn, *calls_of("run"))
        running = asyncio.create_task(turn.run_tools(calls, Toolbox(Tool(run))))
        await until(owned, "ToolExecutionStarted")
        assert await asyncio.to_thread(began.wait, 30)
        taken = await other.take("s", steal=True)
        resumed = await taken.resume_turn()
        call = (await taken.unfinished_calls())[0]
        assert isinstance(call, PendingCall)
        (result,) = await resumed.run_tools([call], Toolbox(Tool(run)))
        assert isinstance(result, Unknown)
        release.set()
        (ended,) = await running
        assert isinstance(ended, Done)
        assert await events_of(taken, ToolExecutionTimedOut) == []
