"""What holds of every context, whatever was compacted: a part of `ContextContract`."""

import asyncio
from dataclasses import replace
from typing import Any

from foldline.processors.log import Log
from foldline.producers.client import connect
from foldline.producers.model import ModelResponse, ToolRequest
from foldline.producers.policies import Deny
from foldline.producers.tools import (
    PendingCall,
    Tool,
    Toolbox,
    ToolContext,
)
from foldline.schemas.blocks import Block, text_block
from foldline.schemas.events import (
    CompactionCompleted,
    ToolExecutionCompleted,
)
from foldline.schemas.state import SessionState
from foldline.testing.context_kit import COMPACTS, TOOLS, check, events_of, step, text_of


class WholeContextContract:
    """Part of `ContextContract`, which gives the fixture `log`."""

    async def test_no_cut_parts_a_call_from_its_result(self, log: Log) -> None:
        """Cases B11, B12, B23: wherever somebody wants the cut, and whatever waits."""
        async with connect(log) as client:
            base = await client.create(agent="a", policy="full")
            async with base.turn("go") as turn:
                for name in "ab":
                    reads = [("read", f'{{"path": "{name}{n}"}}') for n in range(3)]
                    await step(turn, *reads, ("fail", "{}"), words=f"batch {name}")
                await base.steer("use nix")
                await step(turn, words="with nix")
                turn.leave()
            last = (await base.state()).seq
            for seq in range(1, last + 1, 2):
                fork = await base.fork(last, policy="full")
                async with fork.turn("on") as turn:
                    compacted = await turn.compact(to_seq=seq)
                    context = await turn.context()
                check(context)
                if compacted:
                    (done,) = await events_of(fork, CompactionCompleted)
                    assert 1 <= done.to_seq <= seq
                await fork.close()

    async def test_an_interruption_of_parallel_calls_leaves_a_context_that_is_whole(
        self, log: Log
    ) -> None:
        """Case B11: one of three had ended; then a compaction goes over them."""
        async with connect(log) as client:
            owned = await client.create(agent="a", policy="full")
            async with owned.turn("go") as turn:
                context = await turn.context()
                asked = [ToolRequest("read", f'{{"path": "{n}"}}') for n in "abc"]
                async with turn.model_call(context, model="m") as call:
                    calls = await call.complete(ModelResponse.of("", *asked))
                await turn.run_tools(calls[:1], TOOLS)
                await owned.steer("use nix")
                await turn.run_tools(calls, TOOLS)
                assert turn.interrupted
                context = await step(turn, words="with nix")
                (results,) = [m for m in context.messages if m.role == "tool"]
                ids = [part.call_id for part in results.parts]
                assert ids == [call.call_id for call in calls]
                assert await turn.compact(to_seq=context.upto_seq)
                check(await turn.context())

    async def test_an_unknown_outcome_is_told_through_compactions_until_it_is_known(
        self, log: Log
    ) -> None:
        """Case B32: nobody sends the mail again because it was forgotten."""
        delivered = asyncio.Event()

        async def send(_arguments: dict[str, Any], _context: ToolContext) -> str:
            await delivered.wait()
            return "DELIVERED AFTER ALL"

        tools = Toolbox(*TOOLS, Tool(send, effect="UNSAFE", timeout_s=0.01))
        unknown = "Nobody knows how these ended, verify first:\\n- [7] send"
        async with connect(log) as client:
            owned = await client.create(agent="a", policy=COMPACTS)
            async with owned.turn("mail Ada") as turn:
                await step(turn, ("send", '{"to": "ada"}'), tools=tools)
                for name in "abc":
                    await step(turn, ("read", f'{{"path": "src/{name}.py"}}'))
                context = await step(turn, words="hm")
                assert await events_of(owned, CompactionCompleted)
                assert unknown in text_of(context)
                delivered.set()
                async for found in owned.follow():
                    if found.type == "ToolExecutionCompleted" and "AFTER" in str(found):
                        break
                context = await step(turn, words="so it was sent")
                assert "DELIVERED AFTER ALL" in text_of(context)
                for name in "def":
                    await step(turn, ("read", f'{{"path": "src/{name}.py"}}'))
                context = await step(turn, words="done")
                assert unknown not in text_of(context)
                assert "AFTER ALL" in text_of(context)

    async def test_an_outcome_between_a_context_and_its_freezing_is_shown(
        self, log: Log
    ) -> None:
        async def hang(_arguments: dict[str, Any], context: ToolContext) -> str:
            await context.cancellation()
            return "ENDED AT ONCE"

        tools = Toolbox(Tool(hang, effect="UNSAFE", timeout_s=0.001))
        async with connect(log) as client:
            owned = await client.create(agent="a")
            async with owned.turn("go") as turn:
                for number in range(6):
                    await step(turn, ("hang", f'{{"n": {number}}}'), tools=tools)
                async for found in owned.follow():
                    if found.type == "ToolExecutionCompleted":
                        break
                context = await turn.context()
            ended = await events_of(owned, ToolExecutionCompleted)
            assert text_of(context).count("ENDED AT ONCE") == len(ended)

    async def test_a_denial_and_its_reason_are_told_through_compactions(
        self, log: Log
    ) -> None:
        """Case B34: a person's word is not forgotten; one denial ends nothing."""

        def deny(_call: PendingCall, tool: Tool, _state: SessionState) -> Deny | None:
            return Deny("mirrors", "USE THE MIRROR") if tool.name == "fail" else None

        async with connect(log) as client:
            owned = await client.create(agent="a", policy=COMPACTS)
            async with owned.turn("fetch it") as turn:
                context = await turn.context()
                async with turn.model_call(context, model="m") as call:
                    request = ToolRequest("fail", '{"url": "x"}')
                    calls = await call.complete(ModelResponse.of("", request))
                await turn.run_tools(calls, TOOLS, policy=deny)
                for name in "abc":
                    await step(turn, ("read", f'{{"path": "src/{name}.py"}}'))
                context = await step(turn, words="with the mirror")
                assert not turn.parked
            assert await events_of(owned, CompactionCompleted)
            assert "USE THE MIRROR" in text_of(context)

    async def test_what_is_pinned_stays_through_compactions(self, log: Log) -> None:
        async with connect(log) as client:
            owned = await client.create(agent="a")
            async with owned.turn("PINNED WORDS stay " * 20) as turn:
                first = await turn.context(policy="full")
                (pinned,) = first.messages[0].event_ids
                policy, context = replace(COMPACTS, pinned=(pinned,)), first
                for number in range(6):
                    context = await turn.context(policy=policy)
                    check(context)
                    async with turn.model_call(context, model="m") as call:
                        request = ToolRequest("read", f'{{"path": "{number}.py"}}')
                        calls = await call.complete(ModelResponse.of("", request))
                    await turn.run_tools(calls, TOOLS)
            done = await events_of(owned, CompactionCompleted)
            assert len(done) > 1
            assert all(event.kept == (pinned,) for event in done)
            texts = [p.text for m in context.messages for p in m.parts]
            assert "PINNED WORDS stay " * 20 in texts

    async def test_empty_blocks_and_lone_surrogates_do_no_harm_through_compactions(
        self, log: Log
    ) -> None:
        """Cases B06 and B38: said, in arguments, in an output that is cut in an emoji."""

        def half(_arguments: dict[str, Any], _context: ToolContext) -> str:
            return "half of it \ud83d " * 200

        tools = Toolbox(Tool(half, effect="READ_ONLY"))
        async with connect(log) as client:
            owned = await client.create(agent="a", goal="\ud99c", policy=COMPACTS)
            async with owned.turn("say \ud83d") as turn:
                for number in range(3):
                    context = await turn.context()
                    check(context)
                    text_of(context)
                    async with turn.model_call(context, model="m") as call:
                        request = ToolRequest("half", f'{{"d": "현\ud99c{number}"}}')
                        parts = (text_block(""), Block(kind="text", body=" "), request)
                        calls = await call.complete(ModelResponse(parts=parts))
                    await turn.run_tools(calls, tools)
                context = await step(turn, words="\ud83d", tools=tools)
            assert await events_of(owned, CompactionCompleted)
            assert "\ufffd" in text_of(context)
            said = [p for m in context.messages for p in m.parts if p.kind == "text"]
            assert all(part.text.strip() for part in said)
