"""Recovery carried out: what the old owner left open is settled, and nothing twice."""

import asyncio
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from foldline.errors import AnswerRefusedError, AppendRefusedError
from foldline.producers.client import connect
from foldline.producers.model import ToolRequest
from foldline.producers.recovery_actions import RecoveryReport
from foldline.producers.session import OwnedSession
from foldline.producers.tools import (
    Done,
    Reconciled,
    Tool,
    Toolbox,
    ToolContext,
)
from foldline.projections.calls import UNKNOWN_TEXT
from foldline.projections.recovery import RecoveryPolicy
from foldline.projections.render import to_openai_messages
from foldline.schemas.choices import CancelTarget, ResolvedOutcome
from foldline.schemas.events import (
    CompactionStarted,
    InputRequested,
    KnownEvent,
    ToolExecutionCompleted,
    ToolExecutionStarted,
    ToolOutcomeResolved,
    ToolOutcomeUnknown,
)
from foldline.settings import Settings
from tests.harness import FaultyLog, client, count, memory, model_says, types_in, until

Arguments = dict[str, Any]
SHORT = Settings(start_by_ms=150, lease_ttl_ms=60_000)
"""A start_by that a test can wait for."""


class Charge:
    """A tool with an effect that can be looked up, as far as it tells."""

    def __init__(self, effect: Any, *, tells: bool | None = None) -> None:
        self.done: list[str] = []
        self.asked = 0
        self.was_asked = threading.Event()
        self.tells = tells
        self.fails = False
        reconcile = self.reconcile if effect == "RECONCILABLE" else None
        self.toolbox = Toolbox(
            Tool(self.run, name="charge", effect=effect, reconcile=reconcile)
        )

    def run(self, arguments: Arguments, context: ToolContext) -> str:
        """Charge once more."""
        self.done.append(f"{context.operation_id}:{context.attempt}")
        return f"charged {arguments['amount']}"

    def reconcile(self, arguments: Arguments, context: ToolContext) -> Reconciled:
        """Look it up."""
        self.asked += 1
        self.was_asked.set()
        if self.fails:
            raise ConnectionError("the bank is away")
        assert context.operation_id
        return Reconciled(self.tells, f"charged {arguments['amount']}", "row 17")


@asynccontextmanager
async def crashed(
    tool: Charge,
    log: FaultyLog | None = None,
    *,
    started: bool = True,
    start_by_ms: int = SHORT.start_by_ms,
) -> AsyncGenerator[tuple[OwnedSession, FaultyLog]]:
    """A session whose owner is gone with a call of `charge` under way; taken over."""
    log = log or memory()
    async with connect(log, settings=SHORT) as own:
        owned = await own.create(agent="a", session_id="s")
        turn = owned.turn("go")
        await turn.__aenter__()
        (call,) = await model_says(turn, ToolRequest("charge", '{"amount": 5}', "p"))
        if started:
            (declared,) = list(tool.toolbox)
            start = ToolExecutionStarted(
                call_id=call.call_id,
                effect=declared.effect,
                operation_id="op",
                start_by_ms=start_by_ms,
            )
            await owned.append(start)
    async with connect(log, settings=SHORT) as other:
        yield await other.take("s"), log


async def finish(owned: OwnedSession, toolbox: Toolbox) -> list[Any]:
    """Go on with the turn to its end; gives the results of what still had to run."""
    async with await owned.resume_turn() as turn:
        return await turn.run_tools(await turn.open_calls(), toolbox)


async def one(owned: OwnedSession, kind: type[KnownEvent]) -> Any:
    """The one event of a type."""
    (event,) = [
        recorded.event
        async for recorded in owned.events()
        if isinstance(recorded.event, kind)
    ]
    return event


async def test_what_the_reconciler_found_is_recorded_and_not_run_again() -> None:
    """Row 7: completed by the probe; the model sees its output."""
    tool = Charge("RECONCILABLE", tells=True)
    async with crashed(tool) as (owned, _):
        report = await owned.recover(tool.toolbox)
        assert report == RecoveryReport(resolved=1)
        assert await finish(owned, tool.toolbox) == []
        assert tool.done == []
        resolved = await one(owned, ToolOutcomeResolved)
        assert (resolved.outcome, resolved.resolver) == ("COMPLETED", "reconciler:charge")
        assert resolved.output[0].body == "charged 5"
        assert resolved.evidence[0].body == "row 17"


async def test_a_no_counts_only_once_the_old_owner_can_no_longer_begin() -> None:
    """Asked again after start_by, by the log's clock; then run with the same id."""
    tool = Charge("RECONCILABLE", tells=False)
    async with crashed(tool) as (owned, _):
        start_by_at = next(iter((await owned.state()).calls.values())).start_by_at
        report = await owned.recover(tool.toolbox)
        call_id = report.to_run[0]
        assert report == RecoveryReport(not_executed=1, to_run=[call_id])
        assert tool.asked == 2
        events = [recorded async for recorded in owned.events()]
        assert events[-1].envelope.recorded_at > start_by_at
        (result,) = await finish(owned, tool.toolbox)
        assert isinstance(result, Done)
        assert result.attempt == 2
        assert tool.done == ["op:2"]


async def test_a_no_that_turns_into_a_yes_while_waiting_is_a_yes() -> None:
    """The old owner began at the last moment: that is what the waiting is for."""
    tool = Charge("RECONCILABLE", tells=False)
    async with crashed(tool) as (owned, _):
        recovering = asyncio.create_task(owned.recover(tool.toolbox))
        await asyncio.to_thread(tool.was_asked.wait, 30)
        tool.tells = True
        assert (await recovering).resolved == 1
        assert tool.done == []


@pytest.mark.parametrize("kind", ["cannot tell", "fails", "is missing", "is unsafe"])
async def test_without_an_answer_the_outcome_is_unknown_and_a_person_is_asked(
    kind: str,
) -> None:
    """Never run again because of silence; the model is told the truth."""
    tool = Charge("UNSAFE" if kind == "is unsafe" else "RECONCILABLE", tells=None)
    tool.fails = kind == "fails"
    async with crashed(tool) as (owned, _):
        toolbox = Toolbox() if kind == "is missing" else tool.toolbox
        report = await owned.recover(toolbox)
        assert report == RecoveryReport(unknown=1, asked=1)
        assert await one(owned, ToolOutcomeUnknown)
        question = await one(owned, InputRequested)
        assert "charge" in question.prompt[0].body
        assert (await owned.state()).status == "WAITING_APPROVAL"
        again = await owned.recover(toolbox)
        assert (again.unknown, again.asked, again.waiting) == (0, 0, [question.request_id])
        async with await owned.resume_turn() as turn:
            assert await turn.open_calls() == []
            messages = to_openai_messages(await turn.context())
            assert messages[-1]["content"] == UNKNOWN_TEXT
        assert tool.done == []


@pytest.mark.parametrize(
    ("outcome", "runs"), [("COMPLETED", 0), ("FAILED", 0), ("NOT_EXECUTED", 1)]
)
async def test_a_person_says_how_it_ended_and_the_call_goes_on_from_there(
    outcome: ResolvedOutcome, runs: int
) -> None:
    """Through the same inbox as approvals; only NOT_EXECUTED lets it run."""
    tool = Charge("UNSAFE")
    async with crashed(tool) as (owned, log):
        await owned.recover(tool.toolbox)
        (call,) = await owned.unfinished_calls()
        async with client(log) as person:
            await asyncio.sleep(SHORT.start_by_ms / 1000)
            view = await person.open("s")
            await view.resolve(call.call_id, outcome, evidence="I looked")
        assert not (await owned.state()).requests
        results = await finish(owned, tool.toolbox)
        assert len(results) == len(tool.done) == runs


@pytest.mark.parametrize(
    ("said", "runs"), [("completed", 0), ('"FAILED"', 0), ("not executed", 1)]
)
async def test_the_answer_to_recoverys_question_is_how_the_call_ended(
    said: str, runs: int
) -> None:
    """In the inbox as in `resolve`: else the question would go, and the doubt stay."""
    tool = Charge("UNSAFE")
    async with crashed(tool) as (owned, log):
        await owned.recover(tool.toolbox)
        question = await one(owned, InputRequested)
        async with client(log) as person:
            await asyncio.sleep(SHORT.start_by_ms / 1000)
            view = await person.open("s")
            with pytest.raises(AnswerRefusedError, match="COMPLETED, FAILED, NOT_EXECUTED"):
                await view.answer(question.request_id, "it did, I think")
            assert question.request_id in (await owned.state()).requests
            await view.answer(question.request_id, said)
        assert not (await owned.state()).requests
        assert (await one(owned, ToolOutcomeResolved)).resolver.startswith("PERSON:")
        results = await finish(owned, tool.toolbox)
        assert len(results) == len(tool.done) == runs


@pytest.mark.parametrize("effect", ["READ_ONLY", "IDEMPOTENT"])
async def test_what_may_be_repeated_is_repeated_under_the_same_operation_id(
    effect: str,
) -> None:
    """Once the old attempt can no longer begin; its result is there for the model."""
    tool = Charge(effect)
    async with crashed(tool) as (owned, _):
        report = await owned.recover(tool.toolbox)
        assert report == RecoveryReport(retried=1)
        assert tool.done == ["op:2"]
        assert await finish(owned, tool.toolbox) == []
        async with owned.turn("and?") as turn:
            messages = to_openai_messages(await turn.context())
            assert messages[-2]["content"] == "charged 5"


async def test_a_tool_that_is_gone_is_not_repeated_and_not_forgotten() -> None:
    """The new process has another toolbox."""
    tool = Charge("IDEMPOTENT")
    async with crashed(tool) as (owned, _):
        report = await owned.recover(Toolbox())
        assert report == RecoveryReport(unknown=1)
        unknown = await one(owned, ToolOutcomeUnknown)
        assert "no tool 'charge'" in unknown.reason


async def test_a_call_that_never_began_is_left_to_the_turn() -> None:
    """Its arguments come from the log."""
    tool = Charge("UNSAFE")
    async with crashed(tool, started=False) as (owned, _):
        report = await owned.recover(tool.toolbox)
        assert len(report.to_run) == 1
        (result,) = await finish(owned, tool.toolbox)
        assert isinstance(result, Done)
        assert len(tool.done) == 1


async def test_arguments_that_were_redacted_are_not_run_with_their_placeholders() -> None:
    """It would be another call than the model asked for."""
    tool = Charge("UNSAFE")
    log = memory()
    secret = "ghp_" + "a1B2" * 9
    async with client(log) as own:
        owned = await own.create(agent="a", session_id="s")
        async with owned.turn("go") as turn:
            asked = ToolRequest("charge", f'{{"amount": "{secret}"}}', "p")
            (call,) = await model_says(turn, asked)
            assert call.arguments == {"amount": secret}
            turn.leave()
    async with client(log) as other:
        owned = await other.take("s")
        await owned.recover(tool.toolbox)
        (result,) = await finish(owned, tool.toolbox)
        assert "redacted" in result.blocks[0].body
        assert tool.done == []


async def test_model_calls_and_compactions_of_the_old_owner_are_closed() -> None:
    """Nobody will record their answers."""
    log = memory()
    async with client(log) as own:
        owned = await own.create(agent="a", session_id="s")
        async with owned.turn("go") as turn:
            await turn.model_call(model="x").__aenter__()
            seq = (await owned.state()).seq
            await owned.append(
                CompactionStarted(compaction_id="c", base_seq=seq, reason="r")
            )
            turn.leave()
    async with client(log) as other:
        owned = await other.take("s")
        report = await owned.recover(Toolbox())
        assert report.model_calls_cancelled == 1
        state = await owned.state()
        assert not state.model_calls
        assert state.open_compaction is None


@pytest.mark.parametrize("target", ["TURN", "SESSION"])
async def test_a_cancellation_that_the_old_owner_did_not_see_is_carried_out(
    target: CancelTarget,
) -> None:
    """After what may have happened is settled."""
    tool = Charge("RECONCILABLE", tells=True)
    log = memory()
    async with client(log) as person, crashed(tool, log) as (owned, _):
        await (await person.open("s")).cancel("enough", target=target)
        report = await owned.recover(tool.toolbox)
        assert (report.cancelled, report.resolved) == (target, 1)
        state = await owned.state()
        assert state.status == ("IDLE" if target == "TURN" else "CANCELLED")


async def test_a_request_that_expired_meanwhile_is_said_to_have() -> None:
    """And its call can be asked for again."""
    log = memory()

    def run(arguments: Arguments, context: ToolContext) -> str:
        return f"{arguments}{context.attempt}"

    toolbox = Toolbox(Tool(run, approval="always"))
    async with client(log) as own:
        owned = await own.create(agent="a", session_id="s")
        async with owned.turn("go") as turn:
            calls = await model_says(turn, ToolRequest("run", "{}", "p"))
            await turn.run_tools(calls, toolbox, approval_wait_ms=1, approval_expires_ms=30)
            turn.leave()
    await asyncio.sleep(0.05)
    async with client(log) as other:
        owned = await other.take("s")
        report = await owned.recover(toolbox)
        assert report.requests_expired == 1
        assert report.to_run == [calls[0].call_id]


async def test_a_turn_resumed_again_and_again_asks_for_a_person() -> None:
    """Case B05: bounded, then a human; not the same resume for ever."""
    tool = Charge("IDEMPOTENT")
    async with crashed(tool) as (_, log):
        for _ in range(2):
            async with client(log) as another:
                owned = await another.take("s", steal=True)
        async with client(log) as last:
            owned = await last.take("s", steal=True)
            policy = RecoveryPolicy(resumes_max=3)
            report = await owned.recover(tool.toolbox, policy=policy)
            assert len(report.needs_person) == 1
            assert (report.retried, report.unknown) == (0, 1)
            assert tool.done == []


async def test_finished_calls_are_taken_from_the_log_however_often_one_resumes() -> None:
    """Cases B31, B36: an effect before an approval stays one effect."""
    log = memory()
    effects: list[str] = []

    def mail(arguments: Arguments, context: ToolContext) -> str:
        effects.append(context.operation_id)
        return f"sent {arguments}"

    def gated(arguments: Arguments, context: ToolContext) -> str:
        effects.append(context.operation_id)
        return f"done {arguments}"

    toolbox = Toolbox(
        Tool(mail), Tool(gated, approval="always"), Tool(gated, name="b", approval="always")
    )
    names = ("mail", "gated", "b")
    async with client(log) as own:
        owned = await own.create(agent="a", session_id="s")
        async with owned.turn("go") as turn:
            asked = [ToolRequest(name, "{}", name) for name in names]
            calls = await model_says(turn, *asked)
            await turn.run_tools(calls, toolbox, approval_wait_ms=10)
            turn.leave()
    for _ in range(3):
        async with client(log) as other:
            owned = await other.take("s")
            report = await owned.recover(toolbox)
            for request_id in report.waiting[:1]:
                await owned.grant(request_id)
            turn = await owned.resume_turn()
            todo = await turn.open_calls()
            await turn.run_tools(todo, toolbox, approval_wait_ms=10)
    async with client(log) as last:
        owned = await last.take("s")
        async with await owned.resume_turn() as turn:
            results = await turn.run_tools(calls, toolbox)
        assert [type(result) for result in results] == [Done, Done, Done]
        assert len(effects) == len(set(effects)) == 3
        assert await count(owned, "PermissionRequested") == 2


async def test_a_recovery_that_was_fenced_settles_nothing_more() -> None:
    """Two recoveries at once: the newer owner's is the one that counts."""
    tool = Charge("RECONCILABLE", tells=False)
    asked, answer = threading.Event(), threading.Event()

    def slow(arguments: Arguments, context: ToolContext) -> Reconciled:
        asked.set()
        answer.wait(30)
        return Reconciled(executed=True, said=f"{arguments}{context.attempt}")

    toolbox = Toolbox(Tool(tool.run, name="charge", effect="RECONCILABLE", reconcile=slow))
    async with crashed(tool) as (owned, log), client(log) as other:
        recovering = asyncio.create_task(owned.recover(toolbox))
        await asyncio.to_thread(asked.wait, 30)
        newer = await other.take("s", steal=True)
        await newer.recover(tool.toolbox)
        await finish(newer, tool.toolbox)
        answer.set()
        with pytest.raises(AppendRefusedError):
            await recovering
        assert tool.done == ["op:2"]
        assert (await types_in(newer)).count("ToolOutcomeResolved") == 1


async def test_what_somebody_else_settled_meanwhile_is_planned_around() -> None:
    """People, and the late outcomes of the old owner, do not wait for a recovery."""
    async with crashed(Charge("RECONCILABLE")) as (owned, log):

        async def reconcile(arguments: Arguments, context: ToolContext) -> Reconciled:
            async with connect(log, settings=SHORT) as person:
                await (await person.open("s")).resolve(context.call_id, "COMPLETED")
            return Reconciled(executed=True, said=f"charged {arguments['amount']}")

        tool = Tool(
            Charge("UNSAFE").run, name="charge", effect="RECONCILABLE", reconcile=reconcile
        )
        assert await owned.recover(Toolbox(tool)) == RecoveryReport()
        assert (await one(owned, ToolOutcomeResolved)).resolver.startswith("PERSON:")


async def test_a_recovery_that_is_cancelled_loses_no_outcome() -> None:
    """What it repeated is repeated; whoever waited is not there any more."""
    begun, release = threading.Event(), threading.Event()

    def charge(arguments: Arguments, context: ToolContext) -> str:
        begun.set()
        release.wait(30)
        return f"charged {arguments['amount']}, attempt {context.attempt}"

    async with crashed(Charge("IDEMPOTENT")) as (owned, _):
        toolbox = Toolbox(Tool(charge, effect="IDEMPOTENT"))
        recovering = asyncio.create_task(owned.recover(toolbox))
        assert await asyncio.to_thread(begun.wait, 30)
        recovering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await recovering
        release.set()
        await until(owned, "ToolExecutionCompleted")
        assert (await one(owned, ToolExecutionCompleted)).attempt == 2
