"""How an owner keeps contexts small, on any log: tests to inherit, with a fixture `log`.

An owner prunes and compacts by events; a summary tells what matters; nothing loops; the
originals stay readable; and every context that comes of it is one that an API takes.
"""

import pytest

from foldline.processors.log import Log
from foldline.producers.client import connect
from foldline.producers.model import ModelResponse, ToolRequest
from foldline.producers.reading_tool import read_event_tool
from foldline.producers.tools import (
    Toolbox,
)
from foldline.projections.policy import FULL, ROOMY
from foldline.projections.prune_step import RULE
from foldline.schemas.blocks import text_block
from foldline.schemas.events import (
    CompactionCompleted,
    CompactionStarted,
    ContextPruned,
    ModelCallStarted,
    PlanItem,
    PlanUpdated,
    RequestRef,
)
from foldline.schemas.state import SUSPENDED
from foldline.testing.context_kit import (
    COMPACTS,
    LINES,
    TIGHT,
    TOOLS,
    check,
    events_of,
    recorded,
    recorded_end,
    step,
    text_of,
)
from foldline.testing.summary_contract import SummaryContract
from foldline.testing.whole_context_contract import WholeContextContract


class ContextContract(SummaryContract, WholeContextContract):
    """Inherit it and give the fixture `log`."""

    async def test_old_outputs_become_references_that_the_model_can_open(
        self, log: Log
    ) -> None:
        async with connect(log) as client:
            owned = await client.create(agent="a", policy=TIGHT)
            tools = Toolbox(*TOOLS, read_event_tool(owned))
            await owned.declare(tools)
            async with owned.turn("look around") as turn:
                for name in "abc":
                    await step(turn, ("read", f'{{"path": "src/{name}.py"}}'), tools=tools)
                context = await step(turn, words="done")
                (pruned, *_) = await recorded(owned, ContextPruned)
                assert isinstance(pruned.event, ContextPruned)
                assert pruned.event.rule == RULE
                assert pruned.envelope.turn_id == turn.turn_id
                assert "src/a.py" in text_of(context)
                outcome = await recorded_end(owned)
                await step(turn, ("read_event", f'{{"seq": {outcome}}}'), tools=tools)
                assert f"src/a.py:{LINES - 1} says" in text_of(await turn.context())

    async def test_every_request_says_by_which_policy_its_context_was_made(
        self, log: Log
    ) -> None:
        async with connect(log) as client:
            owned = await client.create(agent="a", policy=TIGHT)
            async with owned.turn("go") as turn:
                await step(turn, words="one")
                context = await turn.context(policy="full")
                async with turn.model_call(context, model="m") as call:
                    await call.complete(ModelResponse.of("two"))
                context = await turn.context(policy="roomy", budget=5_000)
                async with turn.model_call(context, model="m") as call:
                    await call.complete(ModelResponse.of("three"))
            requests = [e.request for e in await events_of(owned, ModelCallStarted)]
            named = [
                (request.policy, request.policy_version)
                for request in requests
                if isinstance(request, RequestRef)
            ]
            assert named == [("tight", 7), ("full", 1), ("roomy@5000", 2)]

    async def test_a_session_keeps_its_policy_and_gives_it_to_its_subagents_and_forks(
        self, log: Log
    ) -> None:
        """As long as its harness says no other, whoever takes it."""
        async with connect(log) as client:
            owned = await client.create(agent="a", policy="roomy")
            async with owned.turn("go") as turn:
                context = await turn.context()
                async with turn.model_call(context, model="m") as call:
                    requests = [ToolRequest("ask", "{}"), ToolRequest("ask", "[]")]
                    first, second = await call.complete(ModelResponse.of("", *requests))
                child = await owned.subagent(first, agent="b")
                assert child.context_policy == ROOMY
                other = await owned.subagent(second, agent="b", policy="full")
                assert other.context_policy == FULL
                turn.leave()
            seq = (await owned.state()).seq
            await owned.close()
            taken = await client.take(owned.session_id)
            await (await taken.resume_turn()).context()
            view = await client.open(owned.session_id)
            fork = await view.fork(seq)
            async with fork.turn("on") as turn:
                await turn.context()
            assert [taken.context_policy, fork.context_policy] == [ROOMY, ROOMY]

    async def test_a_fork_and_a_subagent_take_over_a_policy_that_no_log_can_name(
        self, log: Log
    ) -> None:
        async with connect(log) as client:
            owned = await client.create(agent="a", policy=TIGHT)
            async with owned.turn("go") as turn:
                context = await turn.context()
                async with turn.model_call(context, model="m") as call:
                    request = ToolRequest("ask", "{}")
                    (asked,) = await call.complete(ModelResponse.of("", request))
                child = await owned.subagent(asked, agent="b")
                fork = await owned.fork((await owned.state()).seq)
                assert [child.context_policy, fork.context_policy] == [TIGHT, TIGHT]

    async def test_goal_constraints_plan_task_and_failures_survive_compactions(
        self, log: Log
    ) -> None:
        """Case B22: what failed is told with how often, however often it is compacted."""
        async with connect(log) as client:
            owned = await client.create(agent="a", goal="THE GOAL", policy=COMPACTS)
            async with owned.turn("THE TASK: never touch prod") as turn:
                item = PlanItem(item_id="1", status="PENDING", blocks=(text_block("STEP"),))
                await turn.append(PlanUpdated(items=(item,)))
                for number in range(6):
                    await step(turn, ("fail", '{"target": "all"}'))
                    await step(turn, ("read", f'{{"path": "src/{number}.py"}}'))
                context = await step(turn, words="done")
            assert len(await events_of(owned, CompactionCompleted)) > 1
            shown = text_of(context)
            for told in ("THE GOAL", "THE TASK", "PENDING: STEP", "no such target"):
                assert told in shown
            counted = [n for n in range(4, 7) if f"{n} times" in shown]
            assert counted, shown

    async def test_a_stale_count_or_an_empty_turn_compacts_nothing_again(
        self, log: Log
    ) -> None:
        """Case B20: what counts is the context as it is, not what was used before."""
        async with connect(log) as client:
            owned = await client.create(agent="a", policy=COMPACTS)
            async with owned.turn("look around") as turn:
                for name in "abc":
                    await step(turn, ("read", f'{{"path": "src/{name}.py"}}'))
                await step(turn, words="done")
            count = len(await events_of(owned, CompactionStarted))
            assert count
            for _ in range(5):
                async with owned.turn("") as turn:
                    await turn.context()
                    await turn.context()
            assert len(await events_of(owned, CompactionStarted)) == count

    async def test_an_agent_that_goes_round_in_circles_is_stopped_and_a_person_asked(
        self, log: Log
    ) -> None:
        """Case B21: compact, read the same again, compact."""
        async with connect(log) as client:
            owned = await client.create(agent="a", policy=COMPACTS)
            async with owned.turn("a small task") as turn:
                for _ in range(40):
                    for name in "ab":
                        await step(turn, ("read", f'{{"path": "src/{name}.py"}}'))
                    if turn.parked:
                        break
                assert "3 times without progress" in turn.parked
            done = await events_of(owned, CompactionCompleted)
            assert COMPACTS.no_progress_max <= len(done) <= COMPACTS.no_progress_max + 2
            state = await owned.state()
            assert state.phase == SUSPENDED
            (request_id,) = state.requests
            await (await client.open(owned.session_id)).answer(request_id, "RESUME")
            again = await client.take(owned.session_id, policy=COMPACTS)
            turn = await again.resume_turn()
            async with turn:
                check(await turn.context())
                assert not turn.parked
            done_after = await events_of(again, CompactionCompleted)
            assert len(done_after) == len(done) + 1

    async def test_an_agent_that_gets_on_is_never_stopped(self, log: Log) -> None:
        """The other side of B21: each file is read once."""
        async with connect(log) as client:
            owned = await client.create(agent="a", policy=COMPACTS)
            async with owned.turn("a large task") as turn:
                for number in range(14):
                    await step(turn, ("read", f'{{"path": "src/{number}.py"}}'))
                assert not turn.parked
            done = await events_of(owned, CompactionCompleted)
            assert len(done) > COMPACTS.no_progress_max

    async def test_what_cannot_be_made_smaller_is_said_once_and_never_tried_in_a_loop(
        self, log: Log, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with connect(log) as client:
            owned = await client.create(agent="a", policy=TIGHT)
            async with owned.turn("word " * 3_000) as turn:
                for _ in range(4):
                    check(await turn.context())
                assert owned.over_budget_tokens > 1_000
            assert await recorded(owned, CompactionStarted, ContextPruned) == []
            said = [r for r in caplog.records if "above its budget" in r.getMessage()]
            assert len(said) == 1
