"""What a harness is given beside its session: in a replay, and live in a fork.

`Inputs` is what a harness sees of it. In a replay all of it is the record's; live, the
harness has its own model and tools, and what was said later is said again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from foldline.producers.model import ModelResponse
from foldline.producers.prepare import Redacts, Said, blocks_of
from foldline.producers.redaction_text import PLACEHOLDER
from foldline.producers.replay_script import Script
from foldline.producers.session import OwnedSession
from foldline.producers.tools import Toolbox
from foldline.projections.context import Context
from foldline.projections.recorded_steps import RecordedTurn
from foldline.projections.recording import Environment, Recording
from foldline.projections.replay import (
    Divergence,
    environment_difference,
    tools_difference,
)
from foldline.schemas.blocks import Blocks, text_of
from foldline.schemas.events import SessionCreated

FORKED = "FORK"
"""The trigger of the first turn of a fork that begins within a turn."""

CONCEALED = "‹secret›"
"""What stands for any secret where two environments are compared."""

AskModel = Callable[[Context], Awaitable[ModelResponse]]
"""Asks a model: a context in, its answer out."""


@dataclass(frozen=True, slots=True)
class Opening:
    """What opened a turn: a trigger, and what somebody said, if anything."""

    trigger: str
    blocks: Blocks = ()


class Inputs(Protocol):
    """What a harness is given beside its session, in a replay and live."""

    @property
    def live(self) -> bool:
        """Whether models and tools are really asked and run."""
        ...

    async def set_up(
        self,
        session: OwnedSession,
        *,
        instructions: Said = (),
        tools: Toolbox | None = None,
        environment_json: str | None = None,
    ) -> None:
        """Set the session up as the harness would: once, before its first turn."""
        ...

    def turns(self) -> Iterator[Opening]:
        """What opens each turn, in their order."""
        ...

    def model(self, ask: AskModel) -> AskModel:
        """What answers instead of the harness's own model; live, that model itself."""
        ...


class ReplayedInputs:
    """Inputs of a replay: all of it is the record's."""

    live = False

    def __init__(self, script: Script, *, redactor: Redacts) -> None:
        self._script = script
        self._redactor = redactor

    async def set_up(
        self,
        session: OwnedSession,
        *,
        instructions: Said = (),
        tools: Toolbox | None = None,
        environment_json: str | None = None,
    ) -> None:
        """Set the session up, and compare with how it was."""
        recording = self._script.recording
        known = recording.environment_at(recording.last_seq)
        found = _moved(known, environment_json, self._redactor)
        if found is not None:
            await self._script.diverge(found)
        at_seq = recording.first_seq - 1
        await _set_up(session, recording, instructions, tools, at_seq=at_seq)

    def turns(self) -> Iterator[Opening]:
        """What opened each recorded turn."""
        return map(_opening, self._script.recording.turns)

    def model(self, ask: AskModel) -> AskModel:
        """What gives the recorded answers, in their order; `ask` is never called."""
        del ask
        return self._answer

    async def _answer(self, context: Context) -> ModelResponse:
        del context  # compared when the call begins
        return await self._script.answer()


class LiveInputs:
    """Inputs of a fork that goes on: its own model and tools, and what was said later."""

    live = True

    def __init__(
        self,
        recording: Recording,
        fork_seq: int,
        *,
        within_turn: bool,
        redactor: Redacts,
    ) -> None:
        self.divergence: Divergence | None = None
        self.left = asyncio.Event()
        """Set where the harness runs elsewhere than it ran; it is then to be cancelled."""
        self._recording = recording
        self._fork_seq = fork_seq
        self._within_turn = within_turn
        self._redactor = redactor

    async def set_up(
        self,
        session: OwnedSession,
        *,
        instructions: Said = (),
        tools: Toolbox | None = None,
        environment_json: str | None = None,
    ) -> None:
        """Set up what differs from what the fork goes on with.

        In another environment than that of the record nothing goes on.
        """
        known = self._recording.environment_at(self._fork_seq)
        self.divergence = _moved(known, environment_json, self._redactor)
        if self.divergence is not None:
            self.left.set()
            await asyncio.get_running_loop().create_future()
        await _set_up(session, self._recording, instructions, tools, at_seq=self._fork_seq)

    def turns(self) -> Iterator[Opening]:
        """The rest of the turn that was open at the fork; then what was said later."""
        if self._within_turn:
            yield Opening(FORKED)
        for turn in self._recording.turns:
            if turn.seq > self._fork_seq:
                yield _opening(turn)

    def model(self, ask: AskModel) -> AskModel:
        """The harness's own model."""
        return ask


def _moved(
    known: Environment | None, environment_json: str | None, redactor: Redacts
) -> Divergence | None:
    """How the environment is another one; where one was not told, nobody can say."""
    if known is None or environment_json is None:
        return None
    told = SessionCreated(agent="", environment_json=environment_json)
    stored, _ = redactor.redact_event(told)
    made = stored.environment_json if isinstance(stored, SessionCreated) else None
    # A secret has another placeholder on another machine: which one it is does not count.
    recorded = Environment(known.seq, PLACEHOLDER.sub(CONCEALED, known.said_json))
    return environment_difference(recorded, PLACEHOLDER.sub(CONCEALED, made or ""))


def _opening(turn: RecordedTurn) -> Opening:
    return Opening(turn.trigger, turn.message.blocks if turn.message else ())


async def _set_up(
    session: OwnedSession,
    known: Recording,
    instructions: Said,
    tools: Toolbox | None,
    *,
    at_seq: int,
) -> None:
    """Set what is not in force already, by a recording up to a seq."""
    said = text_of(blocks_of(instructions))
    told = known.instructions_at(at_seq, role="system")
    if said and said != (text_of(told.blocks) if told else ""):
        await session.instruct(instructions)
    declared = known.tools_at(at_seq)
    if tools is None:
        return
    if declared is None or tools_difference(at_seq, declared, tools.declarations()):
        await session.declare(tools)
