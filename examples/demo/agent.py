"""A small agent on foldline: one process of it, fresh or in the place of a dead one.

    python agent.py --log URL --session-id ID --repository DIR --post-office HOST:PORT

1. Take the session over, or create it.
2. Recover: whatever the last owner left open is settled before anything else.
3. Go on with the open turn, or begin one: context, model, tools, and again.
4. Complete the session.

`replayed` is the same loop for `foldline replay --execute agent:replayed`.

Nothing is remembered between two processes but what is in the log. What this one prints
is for the demo: JSON, and in it how long it took from `take` to the first context.
"""

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path

from model import INSTRUCTIONS, TASK, Model, RemoteModel, Script
from tools import Sandbox

import foldline
from foldline import Client, OwnedSession, Toolbox, Turn
from foldline.context import Context
from foldline.errors import (
    AppendRefusedError,
    FoldlineError,
    LiveOwnerError,
    SessionNotFoundError,
)
from foldline.replay import AskModel, Inputs


async def run(options: argparse.Namespace) -> None:
    """Bring the session to its end, from wherever it is."""
    toolbox = Sandbox(options.repository, options.post_office).toolbox()
    model = RemoteModel(options.model_url, options.model) if options.model else Script()
    async with foldline.connect(options.log) as client:
        began_s = time.perf_counter()
        owned = await own(client, options.session_id, toolbox)
        turn = None if owned is None else await open_turn(owned)
        if turn is not None:
            async with turn:
                context = await first_context(turn, toolbox)
                print(json.dumps({"wake_ms": _since_ms(began_s)}), flush=True)
                await work(turn, context, model, toolbox, ask=model.answer)
        if owned is not None:
            await owned.complete()


async def own(client: Client, session_id: str, toolbox: Toolbox) -> OwnedSession | None:
    """The session, with nothing left open by its last owner; None if it has ended."""
    try:
        owned = await take(client, session_id)
    except SessionNotFoundError:
        return await client.create(
            agent="demo",
            instructions=INSTRUCTIONS,
            tools=toolbox,
            session_id=session_id,
        )
    except AppendRefusedError as error:
        if error.verdict.kind == "CLOSED":
            return None
        raise
    await owned.recover(toolbox)
    return owned


async def take(client: Client, session_id: str) -> OwnedSession:
    """Take the session over, as soon as its last owner is known to be dead."""
    while True:
        try:
            return await client.take(session_id)
        except LiveOwnerError as error:
            await asyncio.sleep(error.expires_in_ms / 1000)


async def open_turn(owned: OwnedSession) -> Turn | None:
    """The turn that is open, or a first one; None if the work was done already."""
    state = await owned.state()
    if state.turn is not None:
        return await owned.resume_turn()
    return owned.turn(TASK) if state.status == "CREATED" else None


async def first_context(turn: Turn, toolbox: Toolbox) -> Context:
    """The context, after the calls that were asked for and certainly not begun."""
    calls = await turn.open_calls()
    if calls:
        await turn.run_tools(calls, toolbox)
    return await turn.context()


async def work(
    turn: Turn, context: Context, model: Model, toolbox: Toolbox, *, ask: AskModel
) -> None:
    """The agent loop: ask the model, run its tools, until it asks for none."""
    while True:
        async with turn.model_call(
            context, model=model.name, provider=model.provider
        ) as call:
            calls = await call.complete(await ask(context))
        if not calls:
            return
        await turn.run_tools(calls, toolbox)
        context = await turn.context()


async def replayed(session: OwnedSession, inputs: Inputs) -> None:
    """Drive a session from its record: the same loop, and nothing really happens."""
    await drive(session, inputs, Sandbox(Path(), "").toolbox())


async def drive(session: OwnedSession, inputs: Inputs, toolbox: Toolbox) -> None:
    """Set up, go through every turn, complete."""
    model = Script()
    ask = inputs.model(model.answer)
    await inputs.set_up(session, instructions=INSTRUCTIONS, tools=toolbox)
    for opening in inputs.turns():
        async with session.turn(opening.blocks, trigger=opening.trigger) as turn:
            await work(turn, await turn.context(), model, toolbox, ask=ask)
    await session.complete()


def _since_ms(began_s: float) -> float:
    return round((time.perf_counter() - began_s) * 1000, 1)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", required=True)
    parser.add_argument("--session-id", required=True)
    parser.add_argument("--repository", type=Path, required=True)
    parser.add_argument("--post-office", required=True)
    parser.add_argument("--model-url", default="")
    parser.add_argument("--model", default="")
    return parser.parse_args()


def main() -> None:
    """Run one process of the agent; the session outlives it."""
    try:
        asyncio.run(run(_options()))
    except (OSError, FoldlineError) as error:
        sys.exit(f"agent: {error}")


if __name__ == "__main__":
    main()
