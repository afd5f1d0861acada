"""A harness that is steered while it works: to be killed, and watched from outside.

    python -m tests.steered context URL SESSION          create, one turn, one context
    python -m tests.steered tool URL SESSION KIND        create, one turn, one long tool

Prints `began` when the tool runs, and how it ended. A `careful` tool cannot be stopped:
it ends when a line comes on stdin.
"""

import asyncio
import sys
from typing import Any

from foldline.producers.client import Client, connect
from foldline.producers.model import ToolRequest
from foldline.producers.tools import Tool, Toolbox, ToolContext
from tests.charging import say
from tests.harness import model_says

SAID = "use nix"


async def stoppable(arguments: dict[str, Any], context: ToolContext) -> str:
    """Works until it is stopped."""
    say("began")
    await asyncio.Event().wait()
    return f"{arguments}{context.attempt}"


def blocking(arguments: dict[str, Any], context: ToolContext) -> str:
    """Works in a thread, until it finds that it is to stop."""
    say("began")
    context.wait_cancelled()
    raise RuntimeError(f"{arguments}{context.attempt}")


def careful(arguments: dict[str, Any], context: ToolContext) -> str:
    """Cannot be stopped: comes to its safe end when it is let."""
    say("began")
    sys.stdin.readline()
    return f"safe {arguments}{context.attempt}"


KINDS = {
    "stoppable": Tool(stoppable, cancellable=True),
    "blocking": Tool(blocking, cancellable=True),
    "careful": Tool(careful),
}


async def look(client: Client, session_id: str) -> None:
    """Steering is there before the context is built; killed around that."""
    owned = await client.create(agent="a", session_id=session_id)
    async with owned.turn("go") as turn:
        await owned.steer(SAID, idempotency_key="k")
        say("acked")
        await turn.context()
        say("shown")
        turn.leave()


async def work(client: Client, session_id: str, kind: str) -> None:
    """One tool, and the context after it."""
    owned = await client.create(agent="a", session_id=session_id)
    async with owned.turn("go") as turn:
        calls = await model_says(turn, ToolRequest(kind, "{}", "p"))
        (result,) = await turn.run_tools(calls, Toolbox(*KINDS.values()))
        say(f"result {type(result).__name__}")
        context = await turn.context()
        say(f"then {context.messages[-1].parts[0].text}")
    say("ended ABORTED" if turn.cancelled else "ended DONE")


async def main(command: str, url: str, session_id: str, kind: str = "") -> None:
    """Do one of the two."""
    async with connect(url) as client:
        if command == "context":
            await look(client, session_id)
        else:
            await work(client, session_id, kind)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
