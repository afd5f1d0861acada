"""A harness for the storm: tools of every effect, an owner that may die at any time.

    python -m tests.storming URL LEDGER SEED

Creates the session or takes it, recovers, and goes on with the script to the end. The
effect of a tool is a line in the ledger: the call's number in the script, the
operation_id and the attempt. Prints how it ended.
"""

import asyncio
import json
import random
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from foldline.errors import (
    AppendRefusedError,
    FencedError,
    LiveOwnerError,
    SessionNotFoundError,
)
from foldline.producers.client import Client, connect
from foldline.producers.model import ModelResponse, ToolRequest
from foldline.producers.owned import OwnedSession
from foldline.producers.tools import (
    PendingCall,
    Reconciled,
    Tool,
    Toolbox,
    ToolContext,
    Waiting,
)
from foldline.producers.turn import Turn
from foldline.projections.context import Context
from foldline.projections.recovery import RecoveryPolicy
from foldline.schemas.state import CREATED, ENDED, SessionState
from foldline.schemas.verdicts import CLOSED

SESSION = "storm"
TOOLS = ("look", "write", "deduplicated", "asked", "unsafe", "approved")
ROUNDS = 6
PATIENT = RecoveryPolicy(resumes_max=1_000, attempts_max=1_000)


def script(seed: int) -> list[list[ToolRequest]]:
    """What the model asks for, answer by answer; every call has a number of its own."""
    chance = random.Random(f"script {seed}")
    number = 0
    answers: list[list[ToolRequest]] = []
    for _ in range(ROUNDS):
        requests: list[ToolRequest] = []
        for tool in chance.choices(TOOLS, k=chance.randint(1, 4)):
            requests.append(ToolRequest(tool, json.dumps({"number": number}), "same"))
            number += 1
        answers.append(requests)
    return answers


def toolbox(ledger: Path) -> Toolbox:
    """The tools; `deduplicated` does no operation twice, the others whatever comes."""
    chance = random.Random()

    def act(name: str) -> Any:
        def run(arguments: dict[str, Any], context: ToolContext) -> str:
            # A reconciler finds at once what has begun: an effect comes first.
            note(ledger, name, arguments, context)
            context.wait_cancelled(chance.random() * 0.3)
            return f"{name} done"

        return run

    def deduplicated(arguments: dict[str, Any], context: ToolContext) -> str:
        context.wait_cancelled(chance.random() * 0.15)
        with suppress(FileExistsError):
            (ledger.parent / f"did.{arguments['number']}.{context.operation_id}").touch(
                exist_ok=False
            )
        context.wait_cancelled(chance.random() * 0.15)
        return "deduplicated done"

    def look_up(arguments: dict[str, Any], context: ToolContext) -> Reconciled:
        happened = context.operation_id in told(ledger)
        return Reconciled(happened, f"found {arguments['number']}", "the ledger")

    async def approved(arguments: dict[str, Any], context: ToolContext) -> str:
        await asyncio.sleep(chance.random() * 0.2)
        note(ledger, "approved", arguments, context)
        return "approved done"

    return Toolbox(
        Tool(act("look"), name="look", effect="READ_ONLY", cancellable=True),
        Tool(act("write"), name="write", effect="IDEMPOTENT", timeout_s=0.2),
        Tool(
            deduplicated,
            effect="RECONCILABLE",
            reconcile=look_up,
        ),
        Tool(act("asked"), name="asked", effect="RECONCILABLE", reconcile=look_up),
        Tool(act("unsafe"), name="unsafe", timeout_s=0.25),
        Tool(approved, name="approved", approval="always"),
    )


def note(ledger: Path, name: str, arguments: dict[str, Any], context: ToolContext) -> None:
    """Do it: a line of the ledger."""
    line = f"{name} {arguments['number']} {context.operation_id} {context.attempt}\n"
    with ledger.open("a", encoding="utf-8") as lines:
        lines.write(line)


def told(ledger: Path) -> str:
    """All effects: the ledger's lines, and what happened by its being there."""
    lines = ledger.read_text(encoding="utf-8") if ledger.exists() else ""
    did = [name.name.split(".") for name in ledger.parent.glob("did.*")]
    return lines + "".join(f"deduplicated {n} {op} 0\n" for _, n, op in did)


def check(context: Context) -> None:
    """Every call has exactly one result, in call order, right behind its message."""
    messages = context.messages
    for message, behind in zip(messages, (*messages[1:], None), strict=True):
        asked = [part.call_id for part in message.parts if part.kind == "call"]
        assert message.parts
        if asked:
            assert behind is not None
            assert behind.role == "tool"
            assert [part.call_id for part in behind.parts] == asked
        elif message.role == "tool":
            assert any(part.kind == "result" for part in message.parts)


async def go_on(turn: Turn, tools: Toolbox, answers: list[list[ToolRequest]]) -> None:
    """The agent loop: as many answers as the context does not show yet."""
    calls = await turn.open_calls()
    while True:
        await turn.run_tools(calls, tools, approval_wait_s=1.0)
        context = await turn.context()
        check(context)
        if turn.cancelled:
            return
        said = sum(message.role == "assistant" for message in context.messages)
        requests = answers[said] if said < len(answers) else []
        async with turn.model_call(context, model="scripted") as call:
            calls = await call.complete(ModelResponse.of(f"answer {said}", *requests))
        if not calls and not (calls := await turn.open_calls()):
            return
        if said >= len(answers) and await waits(turn, tools, calls):
            return


async def waits(turn: Turn, tools: Toolbox, calls: list[PendingCall]) -> bool:
    """Whether the calls that are left still wait for a person when they are run."""
    results = await turn.run_tools(calls, tools, approval_wait_s=1.0)
    return any(isinstance(result, Waiting) for result in results)


async def owned_session(client: Client, tools: Toolbox) -> OwnedSession | None:
    """The session, as soon as its last owner is gone; None if it has ended."""
    while True:
        try:
            owned = await client.take(SESSION)
        except LiveOwnerError as alive:
            await asyncio.sleep(min(alive.expires_in_ms, 50) / 1000)
        except SessionNotFoundError:
            return await client.create(agent="a", session_id=SESSION, tools=tools)
        except AppendRefusedError as error:
            if error.verdict.kind == CLOSED:
                return None
            raise
        else:
            await owned.recover(tools, policy=PATIENT)
            return owned


def is_parked(state: SessionState) -> bool:
    """Whether only a person can go on: something is asked, or waits to be granted."""
    return bool(state.requests)


async def work(client: Client, tools: Toolbox, seed: int) -> str:
    """Bring the session to its end, or to where a person is asked."""
    owned = await owned_session(client, tools)
    if owned is None:
        return "ended"
    state = await owned.state()
    if state.status in ENDED:
        return "ended"
    if state.turn is not None or state.status == CREATED:
        turn = await owned.resume_turn() if state.turn else owned.turn("go")
        async with turn:
            await go_on(turn, tools, script(seed))
            if is_parked(await owned.state()):
                await owned.suspend("a person is asked")
                return "parked"
    await owned.complete()
    return "completed"


async def main(url: str, ledger: str, seed: int) -> None:
    """One owner, from its take to its end."""
    async with connect(url) as client:
        try:
            print(await work(client, toolbox(Path(ledger)), seed))  # noqa: T201
        except FencedError:
            print("fenced")  # noqa: T201


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
