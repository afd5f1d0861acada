"""A harness with two calls that each need a person: to be killed, and started again.

    python -m tests.approving URL SESSION LEDGER

Creates the session or takes it over, runs what may run, waits for people. The effect is
a line in the ledger: the call's arguments. Prints how it ended.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

from foldline.errors import LiveOwnerError, SessionNotFoundError
from foldline.producers.client import Client, connect
from foldline.producers.model import ToolRequest
from foldline.producers.session import OwnedSession
from foldline.producers.tools import Tool, Toolbox, ToolContext
from foldline.producers.turn import Turn
from tests.harness import model_says

PARTS = ("a", "b")


def toolbox(ledger: Path) -> Toolbox:
    """The one tool, with an effect that a ledger shows."""

    def pay(arguments: dict[str, Any], context: ToolContext) -> str:
        with ledger.open("a", encoding="utf-8") as lines:
            lines.write(f"{arguments['part']}\n")
        return f"paid, attempt {context.attempt}"

    return Toolbox(Tool(pay, approval="always"))


async def go_on(owned: OwnedSession, turn: Turn, tools: Toolbox) -> None:
    """One call after the other: the second is asked for once the first has run."""
    state = await owned.state()
    if state.counts.get("ToolCallRequested"):
        calls = await turn.open_calls()
    else:
        wanted = [ToolRequest("pay", f'{{"part": "{part}"}}', part) for part in PARTS]
        calls = await model_says(turn, *wanted)
    for call in calls:
        await turn.run_tools([call], tools)


async def work(client: Client, session_id: str, tools: Toolbox) -> None:
    """Begin, or go on where the last process was."""
    try:
        owned = await _taken(client, session_id)
    except SessionNotFoundError:
        owned = await client.create(agent="payer", session_id=session_id)
        async with owned.turn("go") as turn:
            await go_on(owned, turn, tools)
    else:
        await owned.recover(tools)
        async with await owned.resume_turn() as turn:
            await go_on(owned, turn, tools)
    await owned.complete()


async def _taken(client: Client, session_id: str) -> OwnedSession:
    while True:
        try:
            return await client.take(session_id)
        except LiveOwnerError as alive:
            await asyncio.sleep(max(alive.expires_in_ms, 20) / 1000)


async def main(url: str, session_id: str, ledger: str) -> None:
    """Work, to the end."""
    async with connect(url) as client:
        await work(client, session_id, toolbox(Path(ledger)))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
