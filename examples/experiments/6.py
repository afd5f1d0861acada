"""Events 1 to 100 are compacted: what does the model see, and are they still there?

    python examples/experiments/6.py [URL]

1. An agent reads files until its session has more than 100 events.
2. Events 1 to 100 are compacted: a summary stands for them in the context. No event is
   changed or removed.
3. The agent reads one of them again by its number, with the tool `read_event`. Then: how
   many tokens it was and is, and that the originals are what they were.

Without a URL it runs in memory.
"""

import asyncio
import sys
from typing import Any

import foldline
from foldline import (
    ModelResponse,
    OwnedSession,
    Tool,
    Toolbox,
    ToolContext,
    ToolRequest,
    Turn,
)
from foldline.events import CompactionCompleted, text_of

TO_SEQ = 100
NOTES = ("mind the database", "and the network", "no mocks", "be quick", "go on")


def read(arguments: dict[str, Any], context: ToolContext) -> str:
    """Read a file."""
    del context
    return "\n".join(f"{arguments['path']}:{line} = {line * 7}" for line in range(60))


async def call(turn: Turn, tools: Toolbox, tool: str, arguments: str) -> str:
    """One call that a scripted model asks for; gives the tool's output."""
    context = await turn.context(policy="full")
    async with turn.model_call(context, model="script", provider="none") as asked:
        request = ToolRequest(tool, arguments)
        calls = await asked.complete(ModelResponse.of("", request))
    (done,) = await turn.run_tools(calls, tools)
    return text_of(getattr(done, "output", ()))


async def originals(owned: OwnedSession) -> list[bytes]:
    """The stored bytes of events 1 to 100."""
    return [recorded.body async for recorded in owned.events(upto_seq=TO_SEQ)]


async def experiment(url: str) -> dict[str, object]:
    """Run it; gives what it found."""
    async with foldline.connect(url) as client:
        owned = await client.create(agent="reader", goal="find the slow test")
        tools = Toolbox(Tool(read, effect="READ_ONLY"), foldline.read_event_tool(owned))
        await owned.declare(tools)
        async with owned.turn("look at every file") as turn:
            for said in NOTES:
                await owned.message(said)
            while (await owned.state()).seq < TO_SEQ + 20:
                seq = (await owned.state()).seq
                await call(turn, tools, "read", f'{{"path": "tests/{seq}.py"}}')
            before = await originals(owned)
            await turn.compact(to_seq=TO_SEQ)
            context = await turn.context(policy="full")
            output = await anext(
                r.seq async for r in owned.events() if r.type == "ToolExecutionCompleted"
            )
            again = await call(turn, tools, "read_event", f'{{"seq": {output}}}')
        done = [r.event async for r in owned.events() if r.type == "CompactionCompleted"]
        (compacted,) = [event for event in done if isinstance(event, CompactionCompleted)]
        return {
            "compacted": f"{compacted.from_seq} to {compacted.to_seq}",
            "tokens_before": compacted.token_before,
            "tokens_after": compacted.token_after,
            "messages": len(context.messages),
            "goal_shown": "find the slow test" in str(context.messages),
            "originals_kept": before == await originals(owned),
            "read_again": ":59 = 413" in again,
        }


def main() -> int:
    """Print what was found; exit code 0 if it is as it should be."""
    found = asyncio.run(experiment(sys.argv[1] if len(sys.argv) > 1 else "memory:"))
    for name, value in found.items():
        print(f"{name:<16} {value}")
    kept = (
        found["compacted"] == f"1 to {TO_SEQ}"
        and found["originals_kept"]
        and found["read_again"]
        and found["goal_shown"]
    )
    return 0 if kept else 1


if __name__ == "__main__":
    raise SystemExit(main())
