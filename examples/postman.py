"""A whole harness on one page. Kill it at any time; `postman.py ID` goes on with it."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import foldline
from foldline import (
    ModelResponse,
    Reconciled,
    Tool,
    Toolbox,
    ToolContext,
    ToolRequest,
    Turn,
)
from foldline.models import to_openai_messages

SENT = Path("sent-mails.txt")  # stands for a mail service


def send_mail(arguments: dict[str, Any], ctx: ToolContext) -> str:
    """Send a mail. Its operation_id stays the same, whoever tries again."""
    with SENT.open("a") as service:
        service.write(f"{ctx.operation_id} {arguments['to']}\n")
    return f"sent to {arguments['to']}"


def was_sent(arguments: dict[str, Any], ctx: ToolContext) -> Reconciled:
    """Find out what nobody recorded: does the service know this operation?"""
    sent = SENT.exists() and ctx.operation_id in SENT.read_text()
    return Reconciled(sent, f"sent to {arguments['to']}", evidence=f"{SENT}: {sent}")


TOOLS = Toolbox(Tool(send_mail, effect="RECONCILABLE", reconcile=was_sent))


async def ask_model(messages: list[dict[str, Any]]) -> ModelResponse:
    """Stands for your model; `from_openai` and `from_anthropic` make a ModelResponse."""
    if messages[-1]["role"] == "tool":
        return ModelResponse.of("Ada knows.")
    return ModelResponse.of("", ToolRequest("send_mail", '{"to": "ada@example.org"}'))


async def main(session_id: str | None) -> None:
    """Begin a session, or go on with one that another process left."""
    async with foldline.connect() as client:
        if session_id is None:
            session = await client.create(agent="postman", tools=TOOLS)
        else:
            session = await client.take(session_id)  # fences whoever had it before
            await session.recover(TOOLS)  # settles what it left open
        print(session.session_id, flush=True)
        state = await session.state()
        if state.turn is not None:
            await work(await session.resume_turn())
        elif state.status == "CREATED":  # nobody has begun a turn
            await work(session.turn("Tell Ada."))
        await session.complete()


async def work(turn: Turn) -> None:
    """The agent's loop: tools, context, model, until it asks for no tool."""
    async with turn:
        calls = await turn.open_calls()  # asked for, and not yet run
        while True:
            await turn.run_tools(calls, TOOLS)
            context = await turn.context()
            async with turn.model_call(context, model="scripted") as call:
                answer = await ask_model(to_openai_messages(context))
                calls = await call.complete(answer)
            if not calls or turn.cancelled:
                break


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:2] or [None]))
