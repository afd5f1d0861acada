"""A harness to replay: one tool that acts, one that asks first, and what they counted."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from foldline.processors.log import Log
from foldline.producers.client import Client
from foldline.producers.model import ModelResponse, ToolRequest
from foldline.producers.replay_inputs import Inputs
from foldline.producers.session import OwnedSession
from foldline.producers.tools import Reconciled, Tool, Toolbox, ToolContext
from foldline.producers.turn import Turn
from foldline.projections.context import Context
from tests.harness import client

INSTRUCTIONS = "You send mails."
ANSWERS = (
    ModelResponse.of("I send it.", ToolRequest("send", '{"to": "ada"}')),
    ModelResponse.of("", ToolRequest("note", '{"text": "sent"}')),
    ModelResponse.of("Ada knows."),
)
"""What the model answers in a turn, one after the other."""


@dataclass
class World:
    """Whatever really happens is counted here: in a replay nothing must be."""

    sent: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])
    reconciled: int = 0
    asked: int = 0

    @property
    def touched(self) -> int:
        """How often anything happened."""
        return len(self.sent) + len(self.notes) + self.reconciled + self.asked


@dataclass
class Agent:
    """A harness; `run` is what drives it, live and replayed."""

    world: World = field(default_factory=World)
    instructions: str = INSTRUCTIONS
    answers: Sequence[ModelResponse] = ANSWERS
    more_tools: Sequence[Tool] = ()
    send_schema: dict[str, Any] = field(default_factory=lambda: {"type": "object"})
    environment: str | None = None
    asks_itself: bool = False
    model_name: str = "m"
    send_effect: Any = "RECONCILABLE"
    approval: Any = "never"

    def toolbox(self) -> Toolbox:
        """Its tools."""
        send = Tool(
            self._send,
            name="send",
            effect=self.send_effect,
            reconcile=self._was_sent if self.send_effect == "RECONCILABLE" else None,
            input_schema=self.send_schema,
        )
        note = Tool(self._note, name="note", effect="UNSAFE", approval=self.approval)
        return Toolbox(send, note, *self.more_tools)

    def _send(self, arguments: dict[str, Any], context: ToolContext) -> str:
        self.world.sent.append(context.operation_id)
        return f"sent to {arguments['to']}"

    def _was_sent(self, arguments: dict[str, Any], context: ToolContext) -> Reconciled:
        self.world.reconciled += 1
        sent = context.operation_id in self.world.sent
        return Reconciled(sent, f"sent to {arguments['to']}", evidence="looked")

    def _note(self, arguments: dict[str, Any], _context: ToolContext) -> str:
        self.world.notes.append(arguments["text"])
        return "noted"

    async def answer(self, context: Context) -> ModelResponse:
        """The next answer: there is one for each result since the last person spoke."""
        self.world.asked += 1
        spoken = max(i for i, m in enumerate(context.messages) if m.role == "user")
        results = sum(m.role == "tool" for m in context.messages[spoken:])
        return self.answers[min(results, len(self.answers) - 1)]

    async def run(self, session: OwnedSession, inputs: Inputs) -> None:
        """Drive a session through all its turns."""
        await inputs.set_up(
            session,
            instructions=self.instructions,
            tools=self.toolbox(),
            environment_json=self.environment,
        )
        ask = self.answer if self.asks_itself else inputs.model(self.answer)
        for opening in inputs.turns():
            async with session.turn(opening.blocks, trigger=opening.trigger) as turn:
                await self.drive(turn, ask)
        await session.complete()

    async def drive(self, turn: Turn, ask: Any) -> None:
        """One turn: ask the model, run its tools, until it asks for none."""
        calls = await turn.open_calls()
        while True:
            if calls:
                await turn.run_tools(calls, self.toolbox())
            context = await turn.context()
            if turn.cancelled:
                return
            async with turn.model_call(
                context, model=self.model_name, provider="p"
            ) as call:
                calls = await call.complete(await ask(context))
            if not calls:
                return

    async def record(self, opened: Client, *said: str) -> OwnedSession:
        """A session of this agent, for real."""
        owned = await opened.create(
            agent="postman",
            instructions=self.instructions,
            tools=self.toolbox(),
            environment_json=self.environment,
        )
        for words in said:
            async with owned.turn(words) as turn:
                await self.drive(turn, self.answer)
        return owned

    def elsewhere(self, **changed: Any) -> "Agent":
        """The same agent in another world, with something changed."""
        return replace(self, world=World(), **changed)


async def recorded(log: Log, agent: Agent | None = None, *said: str) -> str:
    """Record a whole session into a log; gives its id."""
    async with client(log) as opened:
        owned = await (agent or Agent()).record(opened, *(said or ("Tell Ada.",)))
        await owned.complete()
        return owned.session_id
