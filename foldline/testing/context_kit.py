"""What the contracts of contexts share: tools, policies, summarisers, an agent's step."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from foldline.producers.model import ModelResponse, ToolRequest
from foldline.producers.session import OwnedSession
from foldline.producers.summarisers import SummaryRequest
from foldline.producers.tools import (
    Tool,
    Toolbox,
    ToolContext,
    ToolError,
)
from foldline.producers.turn import Turn
from foldline.projections.context import Context
from foldline.projections.policy import ContextPolicy
from foldline.projections.render import FORMATS, render
from foldline.projections.render_rules import breaches
from foldline.schemas.blocks import Blocks, text_block
from foldline.schemas.events import (
    KnownEvent,
    UserMessage,
)
from foldline.schemas.recorded import Recorded

TIGHT = ContextPolicy(
    "tight",
    version=7,
    budget_tokens=900,
    window_tokens=150,
    prune_step_tokens=300,
    compact_step_tokens=600,
    summary_tokens=400,
    prune_result_tokens=60,
)
"""So small that a few outputs bring it to every step that there is."""

COMPACTS = replace(TIGHT, prune_step_tokens=0)
"""The same, but nothing is pruned."""

LINES = 40
"""How long an output of `read` is: some 400 tokens."""


def read(arguments: dict[str, Any], _context: ToolContext) -> str:
    """A file, the same each time."""
    path = arguments["path"]
    return "\n".join(f"{path}:{line} says nothing new" for line in range(LINES))


def fail(arguments: dict[str, Any], _context: ToolContext) -> str:
    """Fails, the same way each time."""
    msg = f"no such target: {arguments}"
    raise ToolError(msg, executed="NO")


TOOLS = Toolbox(Tool(read, effect="READ_ONLY"), Tool(fail, effect="IDEMPOTENT"))


async def step(
    turn: Turn, *requests: tuple[str, str], words: str = "", tools: Toolbox = TOOLS
) -> Context:
    """One context, one answer of a model, its tools; gives the context."""
    context = await turn.context()
    check(context)
    if not turn.parked:
        asked = [ToolRequest(tool, arguments) for tool, arguments in requests]
        async with turn.model_call(context, model="m", provider="p") as call:
            calls = await call.complete(ModelResponse.of(words, *asked))
        await turn.run_tools(calls, tools)
    return context


def check(context: Context) -> None:
    """Every API takes it."""
    for form in FORMATS:
        request = render(context, form, model="m", provider="p", read_blob=None)
        assert breaches(request, form) == []


def text_of(context: Context) -> str:
    """All that a context says."""
    return context.as_bytes().decode()


async def recorded(owned: OwnedSession, *types: type[KnownEvent]) -> list[Recorded]:
    """The events of some types."""
    return [r async for r in owned.events() if isinstance(r.event, types)]


async def events_of(owned: OwnedSession, kind: type[KnownEvent]) -> Sequence[Any]:
    """The same without their envelopes."""
    return [r.event for r in await recorded(owned, kind)]


class Scripted:
    """A summariser that says, or raises, what it is told to; and what it was asked."""

    strategy = "scripted/1"

    def __init__(self, *said: str | Exception) -> None:
        self.said = list(said)
        self.asked: list[SummaryRequest] = []

    async def summarise(self, request: SummaryRequest) -> Blocks:
        """The next of its answers; the last one again and again."""
        self.asked.append(request)
        said = self.said.pop(0) if len(self.said) > 1 else self.said[0]
        if isinstance(said, Exception):
            raise said
        return (text_block(said),) if said else ()


async def recorded_end(owned: OwnedSession) -> int:
    """The event of the first outcome of a tool."""
    async for found in owned.events():
        if found.type == "ToolExecutionCompleted":
            return found.seq
    return 0


class Endless:
    """A summariser that never comes to an end."""

    strategy = "endless/1"

    async def summarise(self, request: SummaryRequest) -> Blocks:
        """Nothing."""
        del request
        await asyncio.Event().wait()
        return ()


class Meanwhile:
    """A summariser during whose first works somebody takes something back."""

    strategy = "meanwhile/1"

    def __init__(self, owned: OwnedSession, event: KnownEvent, *, times: int = 1) -> None:
        self._owned = owned
        self._events = [event] * times

    async def summarise(self, request: SummaryRequest) -> Blocks:
        """What people said."""
        if self._events:
            await self._owned.append(self._events.pop())
        events = [recorded.event for recorded in request.originals.events]
        return tuple(
            block
            for event in events
            if isinstance(event, UserMessage)
            for block in event.blocks
        )
