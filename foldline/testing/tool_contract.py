"""What every log must do so that tools run once: a part of `LogContract`.

What a provider sends again, what a person is asked, what a resume finds done, and what
nobody waits for any longer: the log has it, and nothing happens twice.
"""

import asyncio
import threading
from typing import Any

from foldline.processors.log import Log
from foldline.producers.client import connect
from foldline.producers.model import ModelResponse, ToolRequest
from foldline.producers.tools import (
    Done,
    PendingCall,
    TimedOut,
    Tool,
    Toolbox,
    ToolContext,
    Waiting,
)
from foldline.producers.turn import Turn
from foldline.testing.log_story import new_id

RESUMES = 3
"""How often a session is taken up again while a person is asked."""


class Sending:
    """A tool that counts how often it sent something."""

    def __init__(self, **options: Any) -> None:
        self.sent = 0
        self.release = threading.Event()
        self.box = Toolbox(
            Tool(self.run, name="send"),
            Tool(self.run, name="gated", approval="always"),
            Tool(self.late, name="late", **options),
        )

    def run(self, arguments: dict[str, Any], context: ToolContext) -> str:
        """Send."""
        self.sent += 1
        return f"sent {len(arguments)} {context.attempt}"

    def late(self, arguments: dict[str, Any], context: ToolContext) -> str:
        """Send, and come back when it is let."""
        self.sent += 1
        self.release.wait()
        return f"sent late {len(arguments)} {context.attempt}"


async def asks(turn: Turn, *requests: ToolRequest) -> list[PendingCall]:
    """One answer of the model with these calls."""
    async with turn.model_call(model="m", provider="p") as call:
        return await call.complete(ModelResponse.of("", *requests))


class ToolContract:
    """Part of `LogContract`, which gives the fixture `log`."""

    async def test_a_call_that_the_provider_sends_again_runs_once(self, log: Log) -> None:
        """Case B17: the stream was reset; the same id and arguments in the same turn."""
        tool = Sending()
        async with connect(log) as client:
            owned = await client.create(agent="a")
            async with owned.turn("go") as turn:
                again = ToolRequest("send", '{"to": "b"}', "same")
                (first,) = await asks(turn, again)
                (second,) = await asks(turn, again)
                assert second.call_id == first.call_id
                results = await turn.run_tools([first], tool.box)
                results += await turn.run_tools([second], tool.box)
            assert all(isinstance(result, Done) for result in results)
            assert (await owned.state()).counts["ToolExecutionCompleted"] == 1
        assert tool.sent == 1

    async def test_a_call_is_in_the_log_before_permission_for_it_is_asked(
        self, log: Log
    ) -> None:
        """Case B19: what waits for a person is whole, for whoever resumes it."""
        tool = Sending()
        async with connect(log) as client:
            owned = await client.create(agent="a")
            async with owned.turn("go") as turn:
                calls = await asks(turn, ToolRequest("gated", "{}", new_id()))
                (waiting,) = await turn.run_tools(calls, tool.box, approval_wait_ms=0)
                assert isinstance(waiting, Waiting)
                turn.leave()
            await owned.suspend("lunch")
        types = [recorded.type for recorded in log.events(owned.session_id)]
        assert types.index("ToolCallRequested") < types.index("PermissionRequested")
        async with connect(log) as person:
            await (await person.open(owned.session_id)).grant(waiting.request_id)
        async with connect(log) as other:
            owned = await other.take(owned.session_id)
            async with await owned.resume_turn() as turn:
                (result,) = await turn.run_tools(await turn.open_calls(), tool.box)
                assert isinstance(result, Done)
                last = (await turn.context()).messages[-1]
                assert "sent" in str(last.parts)
        assert tool.sent == 1

    async def test_what_was_done_before_an_approval_is_done_once(self, log: Log) -> None:
        """Case B31: however often somebody resumes, it is taken from the log."""
        tool = Sending()
        async with connect(log) as client:
            owned = await client.create(agent="a")
            async with owned.turn("go") as turn:
                requests = (
                    ToolRequest("send", "{}", new_id()),
                    ToolRequest("gated", "{}", new_id()),
                )
                calls = await asks(turn, *requests)
                done, _ = await turn.run_tools(calls, tool.box, approval_wait_ms=0)
                turn.leave()
        for _ in range(RESUMES):
            async with connect(log) as other:
                owned = await other.take(owned.session_id)
                await owned.recover(tool.box)
                turn = await owned.resume_turn()
                again, waiting = await turn.run_tools(calls, tool.box, approval_wait_ms=0)
                assert isinstance(again, Done)
                assert isinstance(done, Done)
                assert again.output == done.output
                assert isinstance(waiting, Waiting)
        assert tool.sent == 1

    async def test_a_time_out_is_no_end_and_the_late_outcome_attaches(
        self, log: Log
    ) -> None:
        """Cases B32, B33: unknown until then, as the model is told; then a late note."""
        tool = Sending(timeout_s=0.05)
        async with connect(log) as client:
            owned = await client.create(agent="a")
            async with owned.turn("go") as turn:
                calls = await asks(turn, ToolRequest("late", "{}", new_id()))
                (result,) = await turn.run_tools(calls, tool.box)
                assert isinstance(result, TimedOut)
                assert "Verify first" in str((await turn.context()).messages[-1].parts)
                (call,) = (await owned.state()).calls.values()
                assert (call.status, call.executed) == ("TIMED_OUT", "UNKNOWN")
                tool.release.set()
                async with asyncio.timeout(60):
                    async for recorded in owned.follow():
                        if recorded.type == "ToolExecutionCompleted":
                            break
                assert "Late result" in str((await turn.context()).messages[-1].parts)
            state = await owned.state()
            assert not state.calls
            assert state.finished[call.call_id].status == "COMPLETED"
        assert tool.sent == 1
