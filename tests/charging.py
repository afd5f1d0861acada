"""A harness with one tool whose effect must not happen twice: to be killed and resumed.

    python -m tests.charging run URL SESSION LEDGER EFFECT      create, one turn, a charge
    python -m tests.charging finish URL SESSION LEDGER EFFECT   take, recover, go on

The effect is a line in the ledger: the operation_id and the attempt. Prints `acked ID`
for every event that the log acknowledged, and how it ended.
"""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from foldline.errors import FencedError, SessionNotFoundError
from foldline.processors.open_log import open_log
from foldline.producers.client import Client, connect
from foldline.producers.model import ToolRequest
from foldline.producers.session import OwnedSession
from foldline.producers.tools import (
    Effect,
    Failed,
    Reconciled,
    Tool,
    Toolbox,
    ToolContext,
    ToolResult,
)
from foldline.producers.turn import Turn
from foldline.schemas.recorded import Append
from foldline.schemas.verdicts import Verdict
from tests.harness import FaultyLog, model_says


def say(line: str) -> None:
    """Print a line, at once."""
    print(line, flush=True)  # noqa: T201 - the parent reads it


class TellingLog(FaultyLog):
    """A log that says what it acknowledged."""

    def append(self, appends: Sequence[Append]) -> list[Verdict]:
        """Append, and tell."""
        verdicts = super().append(appends)
        for verdict in verdicts:
            if verdict.recorded:
                say(f"acked {verdict.event_id}")
        return verdicts


def toolbox(ledger: Path, effect: Effect) -> Toolbox:
    """The one tool, with an effect that a ledger shows."""

    def charge(arguments: dict[str, Any], context: ToolContext) -> str:
        with ledger.open("a", encoding="utf-8") as lines:
            lines.write(f"{context.operation_id} {context.attempt}\n")
        return f"charged {arguments['amount']}"

    def look_up(arguments: dict[str, Any], context: ToolContext) -> Reconciled:
        charged = context.operation_id in ledger_of(ledger)
        return Reconciled(charged, f"charged {arguments['amount']}", "the ledger")

    return Toolbox(Tool(charge, effect=effect, reconcile=look_up))


def ledger_of(ledger: Path) -> list[str]:
    """The operation_id of every line."""
    if not ledger.exists():
        return []
    lines = ledger.read_text(encoding="utf-8").splitlines()
    return [line.split()[0] for line in lines]


async def go_on(owned: OwnedSession, turn: Turn, tools: Toolbox) -> list[ToolResult]:
    """Ask for the charge unless it was asked for, and run what has still to run."""
    state = await owned.state()
    if state.counts.get("ToolCallRequested"):
        calls = await turn.open_calls()
    else:
        calls = await model_says(turn, ToolRequest("charge", '{"amount": 5}', "p"))
    return await turn.run_tools(calls, tools)


async def run(client: Client, session_id: str, tools: Toolbox) -> None:
    """The first owner's work."""
    owned = await client.create(agent="a", session_id=session_id, goal="pay", tools=tools)
    async with owned.turn("go") as turn:
        for result in await go_on(owned, turn, tools):
            kind = type(result).__name__
            error = result.error_type if isinstance(result, Failed) else ""
            say(f"result {kind} {error}")
    await owned.complete()


async def finish(client: Client, session_id: str, tools: Toolbox) -> None:
    """Another owner's work: whatever was left, to the end."""
    try:
        owned = await client.take(session_id)
    except SessionNotFoundError:
        await run(client, session_id, tools)
        return
    say(f"report {await owned.recover(tools)}")
    state = await owned.state()
    if state.turn is not None:
        async with await owned.resume_turn() as turn:
            await go_on(owned, turn, tools)
    elif not state.counts.get("ToolCallRequested"):
        async with owned.turn("go") as turn:
            await go_on(owned, turn, tools)
    await owned.complete()


async def main(command: str, url: str, session_id: str, ledger: str, effect: str) -> None:
    """Do one of the two, and say how it ended."""
    log = TellingLog(open_log(url))
    tools = toolbox(Path(ledger), cast("Effect", effect))
    try:
        async with connect(log) as client:
            await {"run": run, "finish": finish}[command](client, session_id, tools)
    except FencedError:
        say("fenced")
    else:
        say("finished")
    finally:
        log.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
