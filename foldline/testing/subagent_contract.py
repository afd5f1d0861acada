"""What every log must do for subagents, hand-offs and background work: of `LogContract`.

A child works on a call of its parent, in whatever process; its end is the call's end,
once. A stop follows the tree. What runs in the background outlives turns and owners.
"""

import asyncio
from typing import Any

import pytest

from foldline.errors import AppendRefusedError, LiveOwnerError, SubagentEndedError
from foldline.processors.log import Log
from foldline.producers.client import Client, connect
from foldline.producers.model import ModelResponse, ToolRequest
from foldline.producers.recovering import RecoveryWorker
from foldline.producers.session import OwnedSession
from foldline.producers.tools import (
    Background,
    Backgrounded,
    Cancelled,
    Done,
    Failed,
    PendingCall,
    Tool,
    Toolbox,
    ToolContext,
)
from foldline.producers.turn import Turn
from foldline.projections.subagents import children_to_wait_for
from foldline.schemas.choices import CancelTarget
from foldline.schemas.events import SessionCancelled
from foldline.testing.log_story import new_id


async def asked(turn: Turn, count: int = 1) -> list[PendingCall]:
    """Calls that the model asks subagents to work on."""
    requests = [ToolRequest("task", "{}", new_id()) for _ in range(count)]
    async with turn.model_call(model="m", provider="p") as call:
        return await call.complete(ModelResponse.of("", *requests))


async def forever(arguments: dict[str, Any], context: ToolContext) -> str:
    """A tool that works until it is stopped."""
    await asyncio.Event().wait()
    return f"{arguments}{context.attempt}"


def types_of(log: Log, session_id: str) -> list[str]:
    """The types of a session's events, in order."""
    return [recorded.type for recorded in log.events(session_id)]


async def answered(child: OwnedSession, said: str) -> None:
    """A child's whole work: one turn, and its answer."""
    async with child.turn("go"):
        pass
    await child.complete("DONE", said)


async def begun(client: Client) -> tuple[OwnedSession, Turn, PendingCall, OwnedSession]:
    """A parent in a turn, the call, and the child that works on it."""
    parent = await client.create(agent="lead")
    turn = parent.turn("go")
    await turn.__aenter__()
    (call,) = await asked(turn)
    child = await parent.subagent(call, agent="scout", goal="find it", instructions="look")
    return parent, turn, call, child


class SubagentContract:
    """Part of `LogContract`, which gives the fixture `log`."""

    async def test_a_child_is_named_by_its_parent_before_it_begins(self, log: Log) -> None:
        async with connect(log) as client:
            parent, turn, call, child = await begun(client)
            state, own = await parent.state(), await child.state()
            assert state.subagents[child.session_id].call_id == call.call_id
            assert (own.relation, own.parent_session_id, own.parent_call_id) == (
                "SUBAGENT",
                parent.session_id,
                call.call_id,
            )
            assert own.agent == "scout"
            assert own.goal is not None
            assert (state.calls[call.call_id].status, len(state.handles)) == (
                "BACKGROUND",
                1,
            )
            context = await turn.context()
            assert "in the background" in context.messages[-1].parts[0].parts[0].text
            assert types_of(log, parent.session_id)[-4:-1] == [
                "SubagentStarted",
                "ToolExecutionStarted",
                "ToolBackgrounded",
            ]

    @pytest.mark.parametrize(
        ("end", "kind", "says"),
        [
            ("complete", Done, "42"),
            ("fail", Failed, "Broken"),
            ("cancel", Cancelled, "lunch"),
        ],
    )
    async def test_the_end_of_a_child_is_the_end_of_the_call(
        self, log: Log, end: str, kind: type, says: str
    ) -> None:
        async with connect(log) as client:
            parent, turn, call, child = await begun(client)
            async with turn:
                waiting = asyncio.create_task(parent.subagent_result(call))
                match end:
                    case "complete":
                        await answered(child, "42")
                    case "fail":
                        await child.fail("Broken")
                    case _:
                        await child.end_cancelled("lunch")
                assert isinstance(await waiting, kind)
                assert isinstance(await parent.subagent_result(call), kind)
                context = await turn.context()
                text = "".join(p.text for p in context.messages[-1].parts[0].parts)
                assert says in text
            types = types_of(log, parent.session_id)
            for event_type in ("BackgroundEnded", "SubagentEnded", "ToolExecutionStarted"):
                assert types.count(event_type) == 1
            state = await parent.state()
            assert not state.subagents
            assert not state.handles

    async def test_the_same_call_means_the_same_child_for_every_owner(
        self, log: Log
    ) -> None:
        """The first owner of both is gone; another one goes on with the child."""
        async with connect(log) as client:
            parent, turn, call, child = await begun(client)
            assert (await child.state()).epoch == 1
            turn.leave()
        async with connect(log) as other:
            parent = await other.take(parent.session_id)
            await parent.recover(Toolbox())
            async with await parent.resume_turn():
                again = await parent.subagent(call, agent="scout", goal="find it")
                assert again.session_id == child.session_id
                assert (await again.state()).epoch == 2
                await answered(again, "found")
                assert isinstance(await parent.subagent_result(call), Done)
        assert types_of(log, parent.session_id).count("ToolExecutionStarted") == 1
        assert types_of(log, child.session_id).count("GoalSet") == 1

    async def test_a_child_that_lives_elsewhere_is_waited_for(self, log: Log) -> None:
        async with connect(log) as one, connect(log) as two:
            parent, _, call, child = await begun(one)
            parent = await two.take(parent.session_id, steal=True)
            with pytest.raises(LiveOwnerError):
                await parent.subagent(call, agent="scout")
            waiting = asyncio.create_task(parent.subagent_result(call))
            await answered(child, "from there")
            result = await waiting
            assert isinstance(result, Done)
            assert result.output[0].body == "from there"

    async def test_a_call_is_completed_from_a_child_that_ended_meanwhile(
        self, log: Log
    ) -> None:
        """From the leaves up: nothing is run again."""
        async with connect(log) as one, connect(log) as two:
            parent, turn, call, child = await begun(one)
            turn.leave()
            await parent.close()
            await answered(child, "42")
            parent = await two.take(parent.session_id)
            await parent.recover(Toolbox())
            async with await parent.resume_turn() as turn:
                with pytest.raises(SubagentEndedError):
                    await parent.subagent(call, agent="scout")
                result = await parent.subagent_result(call)
                assert isinstance(result, Done)
                assert not await turn.open_calls()
            assert types_of(log, parent.session_id).count("BackgroundEnded") == 1

    async def test_a_parent_waits_for_children_that_are_not_settled(self, log: Log) -> None:
        async with connect(log) as one, connect(log) as two:
            parent, _, _, child = await begun(one)
            child_turn = child.turn("look")
            async with child_turn:
                child_turn.leave()
            await parent.close()
            assert _waits_for(log, parent) == [child.session_id]  # it lives
            await child.close()
            assert _waits_for(log, parent) == [child.session_id]  # recovery is due
            child = await two.take(child.session_id)
            async with await child.resume_turn():
                pass
            await child.close()
            assert _waits_for(log, parent) == []  # it rests: its parent goes on with it

    @pytest.mark.parametrize("target", ["SESSION", "TURN", "CALL"])
    async def test_a_stop_follows_the_tree_in_whatever_process_it_is(
        self, log: Log, target: CancelTarget
    ) -> None:
        async with connect(log) as one, connect(log) as two, connect(log) as person:
            parent = await one.create(agent="lead")
            async with parent.turn("go") as turn:
                first, second = await asked(turn, 2)
                child = await parent.subagent(first, agent="scout")
                other = await parent.subagent(second, agent="scout")
                await child.close()
                child = await two.take(child.session_id)
                async with child.turn("look") as child_turn:
                    below, tool = await asked(child_turn, 2)
                    leaf = await child.subagent(below, agent="leaf")
                    box = Toolbox(Tool(forever, name="task", cancellable=True))
                    running = asyncio.create_task(child_turn.run_tools([tool], box))
                    view = await person.open(parent.session_id)
                    target_id = first.call_id if target == "CALL" else None
                    await view.cancel("enough", target=target, target_id=target_id)
                    (result,) = await running
                    assert isinstance(result, Cancelled)
                    assert child_turn.cancelled
                assert (await leaf.state()).cancellation is not None
                spared = (await other.state()).cancellation is None
                assert spared == (target == "CALL")
                await child.end_cancelled("enough")
                assert isinstance(await parent.subagent_result(first), Cancelled)
                for left in (leaf, other):
                    await left.end_cancelled("enough")
                await parent.settle_subagents()
            assert not (await parent.state()).subagents

    async def test_a_child_that_begins_after_a_stop_is_told_at_once(self, log: Log) -> None:
        async with connect(log) as client, connect(log) as person:
            parent = await client.create(agent="lead")
            async with parent.turn("go") as turn:
                (call,) = await asked(turn)
                view = await person.open(parent.session_id)
                await view.cancel("enough", target="TURN")
                child = await parent.subagent(call, agent="scout")
                cancellation = (await child.state()).cancellation
                assert cancellation is not None
                assert cancellation.reason == "enough"
                await child.end_cancelled("enough")
                await parent.subagent_result(call)
                await turn.end("ABORTED")

    async def test_the_end_of_a_session_asks_its_children_to_stop(self, log: Log) -> None:
        async with connect(log) as client:
            parent, turn, _, child = await begun(client)
            async with turn:
                pass
            await parent.complete()
            assert (await child.state()).cancellation is not None

    @pytest.mark.parametrize("by", ["recovery of the child", "another request", "a look"])
    async def test_children_are_stopped_of_a_parent_that_died_with_its_end(
        self, log: Log, by: str
    ) -> None:
        async with connect(log) as client, connect(log) as another:
            parent, turn, call, child = await begun(client)
            async with turn:
                pass
            # As its owner leaves it, who is killed before the children are told.
            await parent.append(SessionCancelled(reason="lunch"))
            assert (await child.state()).cancellation is None
            if by == "another request":
                with pytest.raises(AppendRefusedError):
                    await (await another.open(parent.session_id)).cancel()
                assert (await child.state()).cancellation is not None
            elif by == "a look":  # of recovery, while the child's own owner lives
                await child.turn("work").__aenter__()
                await RecoveryWorker(another, toolbox=Toolbox()).sweep()
                assert (await child.state()).cancellation is not None
            else:
                await child.close()
                taken = await another.take(child.session_id)
                report = await taken.recover(Toolbox(Tool(forever, name=call.tool)))
                assert report.cancelled == "SESSION"
                assert (await child.state()).status == "CANCELLED"

    async def test_steering_ends_the_waiting_for_a_child_and_not_the_child(
        self, log: Log
    ) -> None:
        async with connect(log) as client, connect(log) as person:
            parent, turn, call, child = await begun(client)
            async with turn:
                waiting = asyncio.create_task(parent.subagent_result(call))
                await (await person.open(parent.session_id)).steer("what about this?")
                assert isinstance(await waiting, Backgrounded)
                assert (await child.state()).cancellation is None
                context = await turn.context()
                assert context.messages[-1].parts[0].text == "what about this?"
                await answered(child, "late")
                assert isinstance(await parent.subagent_result(call), Done)
                note = "".join(p.text for p in (await turn.context()).messages[-1].parts)
                assert "Late result" in note
                assert "late" in note

    # --- hand-offs -------------------------------------------------------------------

    async def test_another_agent_goes_on_and_the_owner_stays(self, log: Log) -> None:
        async with connect(log) as client:
            owned = await client.create(agent="triage", instructions="sort")
            async with owned.turn("my invoice is wrong") as turn:
                (call,) = await asked(turn)
                tools = Toolbox(Tool(forever, name="refund"))
                for _ in range(2):
                    await owned.hand_off(
                        "billing", call_id=call.call_id, instructions="pay", tools=tools
                    )
                state = await owned.state()
                assert (state.agent, state.epoch) == ("billing", 1)
                assert state.counts["HandedOff"] == 1
                context = await turn.context()
                assert [tool.name for tool in context.tools] == ["refund"]
                assert "pay" in str(context.messages[-1].parts)
                await turn.end("ABORTED")
            *_, last = [recorded async for recorded in owned.events()]
            assert last.envelope.actor.id == "billing"
            assert types_of(log, owned.session_id).count("InstructionsSet") == 2

    # --- background ------------------------------------------------------------------

    async def test_what_runs_in_the_background_outlives_turn_and_owner(
        self, log: Log
    ) -> None:
        """Case B33: listed while it runs; another owner tells its end; a late note."""

        async def begin(arguments: dict[str, Any], context: ToolContext) -> Background:
            return Background("job-1", f"begun {len(arguments)} {context.attempt}")

        box = Toolbox(Tool(begin, name="task"))
        async with connect(log) as one:
            owned = await one.create(agent="a")
            async with owned.turn("go") as turn:
                (call,) = await asked(turn)
                await turn.run_tools([call], box)
                assert "goes on in the background, as job-1" in str(await turn.context())
        async with connect(log) as two:
            owned = await two.take(owned.session_id)
            report = await owned.recover(box)
            assert report.handles == ["job-1"]
            async with owned.turn("and now?") as turn:
                assert list((await owned.state()).handles) == ["job-1"]
                await owned.background_ended("job-1", "COMPLETED", "all 3 tests pass")
                (last,) = (await turn.context()).messages[-1:]
                assert "Late result" in last.parts[0].text
                assert "all 3 tests pass" in str(last.parts)
            state = await owned.state()
            assert not state.handles
            assert state.finished[call.call_id].status == "COMPLETED"


def _waits_for(log: Log, parent: OwnedSession) -> list[str]:
    state = log.state(parent.session_id)
    assert state is not None
    return children_to_wait_for(log, state)
