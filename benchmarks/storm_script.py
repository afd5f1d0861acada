"""What a seed of the storm asks for: sessions, what the model says, tools with effects.

An effect is a line of the ledger, written in one piece: tool, session, the call's number
in the script, operation_id, attempt. What must not happen twice is counted by the number:
an effect repeated under another operation_id is twice all the same.
"""

import asyncio
import json
import os
import random
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foldline.producers.model import ToolRequest
from foldline.producers.tools import Reconciled, Tool, Toolbox, ToolContext

TOOLS = ("look", "write", "deduplicated", "asked", "unsafe", "approved")
SESSIONS_MAX = 3
ANSWERS_MAX = 3
CALLS_MAX = 3

SLOW_S = 0.06
"""The longest that a tool takes, where it is not stuck."""

STUCK = 0.03
"""How many of the calls run into their tool's timeout."""


@dataclass(frozen=True, slots=True)
class Effect:
    """Something that a tool did."""

    tool: str
    session_id: str
    number: int
    operation_id: str


@dataclass(frozen=True, slots=True)
class Script:
    """One seed: its sessions, and what is said in them."""

    seed: int
    run: str
    """What tells this run's sessions from another's on the same log."""

    folder: Path
    """For its ledger and whatever its processes write."""

    @property
    def tenant(self) -> str:
        """Whose sessions they are: a recovery looks after those of its own seed."""
        return f"storm-{self.run}-{self.seed}"

    @property
    def sessions(self) -> list[str]:
        """The ids of its sessions."""
        count = random.Random(f"sessions {self.seed}").randint(1, SESSIONS_MAX)
        return [f"{self.tenant}-{number}" for number in range(count)]

    def answers(self, session_id: str) -> list[list[ToolRequest]]:
        """What the model asks for, answer by answer; every call has its own number."""
        place = self.sessions.index(session_id)
        chance = random.Random(f"script {self.seed} {place}")
        number = 0
        answers: list[list[ToolRequest]] = []
        for _ in range(chance.randint(1, ANSWERS_MAX)):
            requests: list[ToolRequest] = []
            for tool in chance.choices(TOOLS, k=chance.randint(1, CALLS_MAX)):
                arguments = json.dumps({"number": number})
                requests.append(ToolRequest(tool, arguments, "same"))
                number += 1
            answers.append(requests)
        return answers

    # --- effects ---------------------------------------------------------------------

    def note(self, name: str, arguments: dict[str, Any], context: ToolContext) -> None:
        """Do it: a line of the ledger."""
        number, attempt = arguments["number"], context.attempt
        words = (name, context.session_id, number, context.operation_id, attempt)
        self.write("ledger", " ".join(map(str, words)))

    def write(self, file: str, line: str) -> None:
        """Add a line to a file of this seed; it is there if the process dies next."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        descriptor = os.open(self.folder / file, flags, 0o644)
        try:
            os.write(descriptor, f"{line}\n".encode())
        finally:
            os.close(descriptor)

    def lines(self, file: str) -> list[list[str]]:
        """The words of every line of a file of this seed."""
        path = self.folder / file
        if not path.exists():
            return []
        return [line.split() for line in path.read_text(encoding="utf-8").splitlines()]

    def effects(self) -> list[Effect]:
        """All that tools did: the ledger's lines, and what is done by its being there."""
        noted = [
            Effect(tool, session_id, int(number), operation_id)
            for tool, session_id, number, operation_id, _ in self.lines("ledger")
        ]
        done = [path.name.split("@") for path in self.folder.glob("did@*")]
        return noted + [
            Effect("deduplicated", session_id, int(number), operation_id)
            for _, session_id, number, operation_id in done
        ]

    def happened(self, operation_id: str) -> bool:
        """Whether an operation had its effect."""
        return any(effect.operation_id == operation_id for effect in self.effects())


def toolbox(script: Script) -> Toolbox:
    """Tools of all four effects; `deduplicated` does no operation twice."""
    chance = random.Random()

    def act(name: str) -> Any:
        def run(arguments: dict[str, Any], context: ToolContext) -> str:
            # A reconciler finds at once what has begun: an effect comes first.
            script.note(name, arguments, context)
            stuck = chance.random() < STUCK
            context.wait_cancelled(0.5 if stuck else chance.random() * SLOW_S)
            return f"{name} done"

        return run

    def deduplicated(arguments: dict[str, Any], context: ToolContext) -> str:
        context.wait_cancelled(chance.random() * SLOW_S / 2)
        name = f"did@{context.session_id}@{arguments['number']}@{context.operation_id}"
        with suppress(FileExistsError):
            (script.folder / name).touch(exist_ok=False)
        context.wait_cancelled(chance.random() * SLOW_S / 2)
        return "deduplicated done"

    def look_up(arguments: dict[str, Any], context: ToolContext) -> Reconciled:
        happened = script.happened(context.operation_id)
        return Reconciled(happened, f"found {arguments['number']}", "the ledger")

    async def approved(arguments: dict[str, Any], context: ToolContext) -> str:
        await asyncio.sleep(chance.random() * SLOW_S)
        script.note("approved", arguments, context)
        return "approved done"

    return Toolbox(
        Tool(act("look"), name="look", effect="READ_ONLY", cancellable=True),
        Tool(act("write"), name="write", effect="IDEMPOTENT", timeout_s=0.2),
        Tool(deduplicated, effect="RECONCILABLE", reconcile=look_up),
        Tool(act("asked"), name="asked", effect="RECONCILABLE", reconcile=look_up),
        Tool(act("unsafe"), name="unsafe", timeout_s=0.25),
        Tool(approved, name="approved", approval="always"),
    )
