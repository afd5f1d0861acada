"""A harness whose agent has a subagent do the charging: to be killed and begun again.

    python -m tests.delegating URL SESSION LEDGER

Whatever was left, it goes on to the end. Prints how the call ended.
"""

import asyncio
import sys
from pathlib import Path

from foldline.errors import SessionNotFoundError, SubagentEndedError
from foldline.producers.client import Client, connect
from foldline.producers.model import ToolRequest
from foldline.producers.session import OwnedSession
from foldline.producers.tools import PendingCall, Toolbox, ToolResult
from foldline.producers.turn import Turn
from tests import charging
from tests.charging import say
from tests.harness import model_says


async def _owned(client: Client, session_id: str, tools: Toolbox) -> OwnedSession:
    """The parent: made now, or taken over and settled as far as can be."""
    try:
        owned = await client.take(session_id)
    except SessionNotFoundError:
        return await client.create(agent="lead", session_id=session_id)
    await owned.recover(tools)
    return owned


async def _turn(owned: OwnedSession) -> Turn:
    state = await owned.state()
    return owned.turn("go") if state.turn is None else await owned.resume_turn()


async def work(child: OwnedSession, tools: Toolbox) -> None:
    """The child's work, from wherever it is."""
    await child.recover(tools)
    state = await child.state()
    if state.turn is not None or not state.counts.get("TurnEnded"):
        async with await _turn(child) as turn:
            await charging.go_on(child, turn, tools)
    await child.complete("DONE", "charged by a subagent")


async def delegate(owned: OwnedSession, call: PendingCall, tools: Toolbox) -> ToolResult:
    """Have a child work on a call, and give what it came to."""
    try:
        child = await owned.subagent(call, agent="cashier", goal="charge it", tools=tools)
    except SubagentEndedError:
        say("ended before")
    else:
        await work(child, tools)
    return await owned.subagent_result(call)


async def go(client: Client, session_id: str, tools: Toolbox) -> None:
    """The parent's work, from wherever it is."""
    owned = await _owned(client, session_id, tools)
    state = await owned.state()
    if state.ended:
        return
    if state.turn is not None or not state.counts.get("TurnEnded"):
        async with await _turn(owned) as turn:
            calls = await owned.unfinished_calls()
            if not calls and not state.counts.get("ToolCallRequested"):
                calls = await model_says(turn, ToolRequest("task", "{}", "p"))
            for call in calls:
                result = await delegate(owned, call, tools)
                say(f"result {type(result).__name__}")
    await owned.complete()


async def main(url: str, session_id: str, ledger: str) -> None:
    """Go on to the end."""
    async with connect(url) as client:
        await go(client, session_id, charging.toolbox(Path(ledger), "RECONCILABLE"))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
