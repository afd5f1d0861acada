"""The reducer: what is pending, completed, permitted, wanted, and where a session stands.

    python examples/experiments/2.py [URL]

An agent asks for two tools. One runs; the other waits for a person, who grants it. Then
its events are folded one by one, with nothing but `initial` and `evolve`, and a table
shows what the state says after each. In the end it is the state that the log holds.

Without a URL it runs in memory.
"""

import asyncio
import sys
from collections.abc import Iterable
from typing import Any

import foldline
from foldline import (
    ModelResponse,
    OwnedSession,
    Tool,
    Toolbox,
    ToolContext,
    ToolRequest,
)
from foldline.events import Recorded
from foldline.logs import SessionState, evolve, initial, state_hash

Row = tuple[int, str, str, bool, int, int, int]
"""Seq, type, then of the state after it: status, goal, open calls, requests, ended."""


def look(arguments: dict[str, Any], ctx: ToolContext) -> str:
    """A tool that anybody may run."""
    return f"{arguments['path']}, attempt {ctx.attempt}"


def delete(arguments: dict[str, Any], ctx: ToolContext) -> str:
    """A tool that wants a person's word."""
    return f"deleted {arguments['path']} as {ctx.operation_id}"


TOOLS = Toolbox(Tool(look, effect="READ_ONLY"), Tool(delete, approval="always"))
WANTED = (ToolRequest("look", '{"path": "a"}'), ToolRequest("delete", '{"path": "a"}'))


async def work(owned: OwnedSession) -> None:
    """One turn: two calls, of which one needs a person."""
    async with owned.turn("Clean up.") as turn:
        context = await turn.context()
        async with turn.model_call(context, model="script", provider="none") as call:
            calls = await call.complete(ModelResponse.of("", *WANTED))
        await turn.run_tools(calls, TOOLS, approval_wait_ms=0)
        (request_id,) = (await owned.state()).requests
        await owned.grant(request_id)
        await turn.run_tools(await turn.open_calls(), TOOLS)


def fold(session_id: str, events: Iterable[Recorded]) -> tuple[list[Row], SessionState]:
    """The table, and the state in the end."""
    state = initial(session_id)
    rows: list[Row] = []
    for recorded in events:
        state = evolve(state, recorded)
        rows.append(
            (
                recorded.seq,
                recorded.type,
                state.status,
                state.goal is not None,
                len(state.calls),
                len(state.requests),
                len(state.finished),
            )
        )
    return rows, state


async def experiment(url: str) -> tuple[list[Row], bool]:
    """Run it; gives the table, and whether fold and log agree."""
    async with foldline.connect(url) as client:
        owned = await client.create(agent="cleaner", goal="an empty folder", tools=TOOLS)
        await work(owned)
        await owned.complete()
        events = [recorded async for recorded in owned.events()]
        rows, state = fold(owned.session_id, events)
        return rows, state_hash(state) == state_hash(await owned.state())


def main() -> int:
    """Print what was found; exit code 0 if it is as it should be."""
    rows, agree = asyncio.run(experiment(sys.argv[1] if len(sys.argv) > 1 else "memory:"))
    print(f"{'seq':>3} {'event':<24}{'status':<18}goal  open  requests  ended")
    for seq, kind, status, goal, calls, requests, ended in rows:
        line = f"{seq:>3} {kind:<24}{status:<18}{'yes' if goal else 'no':<4}"
        print(f"{line}{calls:>6}{requests:>10}{ended:>7}")
    print(f"the fold is the log's state: {agree}")
    waited = any(row[2] == "WAITING_APPROVAL" and row[5] == 1 for row in rows)
    last = rows[-1]
    right = agree and waited and (last[2], *last[4:]) == ("COMPLETED", 0, 0, 2)
    return 0 if right else 1


if __name__ == "__main__":
    raise SystemExit(main())
