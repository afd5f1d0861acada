"""Crash recovery that finds out, instead of trying again.

    python examples/experiments/3.py [FOLDER]

A process runs one tool and is killed with SIGKILL: the effect has happened, and nobody
has recorded it. Another process takes the session over. What it does depends on what
repeating the tool would do:

| effect      | recovery                                           | effects in the end |
| ----------- | -------------------------------------------------- | ------------------ |
| UNSAFE      | outcome unknown, a person is asked, nothing is run | 1                  |
| RECONCILABLE| the world is asked by operation_id: it happened    | 1                  |
| IDEMPOTENT  | run again with the same operation_id               | 2, of one operation|
"""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import foldline
from foldline import (
    LiveOwnerError,
    ModelResponse,
    OwnedSession,
    Reconciled,
    Tool,
    Toolbox,
    ToolContext,
    ToolRequest,
)
from foldline.tools import Effect

EFFECTS: tuple[Effect, ...] = ("UNSAFE", "RECONCILABLE", "IDEMPOTENT")
CRASH_AT = "CP_TOOL_AFTER_EFFECT:1"
SESSION = "pays-once"
SETTINGS = {"FOLDLINE_START_BY_MS": "300"}
"""A repetition waits until the first start can begin no more: as a rule, five seconds."""


def tools_of(effect: Effect, ledger: Path) -> Toolbox:
    """One tool whose every effect is a line in a ledger."""

    def pay(arguments: dict[str, Any], ctx: ToolContext) -> str:
        with ledger.open("a") as lines:
            lines.write(f"{ctx.operation_id}\n")
        return f"paid {arguments['euro']}"

    def was_paid(arguments: dict[str, Any], ctx: ToolContext) -> Reconciled:
        paid = ctx.operation_id in ledger.read_text()
        return Reconciled(paid, f"paid {arguments['euro']}", evidence="the ledger")

    reconcile = was_paid if effect == "RECONCILABLE" else None
    return Toolbox(Tool(pay, effect=effect, reconcile=reconcile))


async def first(url: str, tools: Toolbox) -> None:
    """What the process does that dies of it."""
    async with foldline.connect(url) as client:
        owned = await client.create(agent="payer", session_id=SESSION, tools=tools)
        async with owned.turn("Pay 3 euro.") as turn:
            context = await turn.context()
            async with turn.model_call(context, model="script", provider="none") as call:
                wanted = ToolRequest("pay", '{"euro": 3}')
                calls = await call.complete(ModelResponse.of("", wanted))
            await turn.run_tools(calls, tools)


async def second(url: str, tools: Toolbox) -> dict[str, object]:
    """Take the session over, and recover; gives what came of the call."""
    async with foldline.connect(url) as client:
        owned = await _taken(client)
        report = await owned.recover(tools)
        state = await owned.state()
        calls = {**state.calls, **state.finished}
        return {
            "call": [call.status for call in calls.values()],
            "asked": len(state.requests),
            "unknown": report.unknown,
            "resolved": report.resolved,
            "retried": report.retried,
        }


async def _taken(client: foldline.Client) -> OwnedSession:
    while True:
        try:
            return await client.take(SESSION)
        except LiveOwnerError as alive:
            await asyncio.sleep(alive.expires_in_ms / 1000)


def experiment(effect: Effect, folder: Path) -> dict[str, object]:
    """Kill one process, recover in this one; gives what it found."""
    folder.mkdir(parents=True)
    url, ledger = f"sqlite:///{folder / 'sessions.db'}", folder / "ledger"
    killed = subprocess.run(  # noqa: S603 - this very script
        [sys.executable, __file__, "first", str(EFFECTS.index(effect)), str(folder)],
        env=os.environ | SETTINGS | {"FOLDLINE_CRASH_AT": CRASH_AT},
        check=False,
    )
    found = asyncio.run(second(url, tools_of(effect, ledger)))
    operations = ledger.read_text().split()
    return {
        "killed": killed.returncode == -signal.SIGKILL,
        **found,
        "effects": len(operations),
        "operations": len(set(operations)),
    }


RIGHT = {
    "UNSAFE": (["UNKNOWN"], 1, 1),
    "RECONCILABLE": (["COMPLETED"], 1, 1),
    "IDEMPOTENT": (["COMPLETED"], 2, 1),
}
"""How the call stands, and how many effects and operations there are."""


def main() -> int:
    """Print what was found; exit code 0 if it is as it should be."""
    if sys.argv[1:2] == ["first"]:
        folder = Path(sys.argv[3])
        effect = EFFECTS[int(sys.argv[2])]
        url = f"sqlite:///{folder / 'sessions.db'}"
        asyncio.run(first(url, tools_of(effect, folder / "ledger")))
        return 1  # it should have been killed
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
    right = True
    for effect in EFFECTS:
        found = experiment(effect, folder / effect.lower())
        print(f"{effect:<14}{found}")
        said = (found["call"], found["effects"], found["operations"])
        right = right and bool(found["killed"]) and said == RIGHT[effect]
    return 0 if right else 1


if __name__ == "__main__":
    raise SystemExit(main())
