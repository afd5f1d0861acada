"""Sessions whose contexts were made smaller, replayed: the record's own steps are done."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from foldline.processors.log import Log
from foldline.processors.open_log import open_log
from foldline.producers.model import ModelResponse, ToolRequest
from foldline.producers.model_summariser import ModelSummariser, Question
from foldline.producers.replaying import replay
from foldline.producers.session import OwnedSession
from foldline.projections.policy import ContextPolicy
from foldline.schemas.blocks import text_block
from foldline.schemas.events import CompactionCompleted, ContextPruned
from foldline.testing.context_kit import COMPACTS, TIGHT, TOOLS
from tests.harness import client


@dataclass
class Reader:
    """A harness that reads files; its model may make the summaries."""

    policy: ContextPolicy = TIGHT
    summarises: bool = False
    steps: int = 8
    compacts_itself: bool = False
    pins: bool = False
    summaries: list[Question] = field(default_factory=list[Question])

    async def ask(self, question: Question) -> ModelResponse:
        """A summary, another each time."""
        self.summaries.append(question)
        return ModelResponse((text_block(f"summary {len(self.summaries)}"),))

    async def run(self, session: OwnedSession, inputs: Any = None) -> None:
        """Read them all, in a turn, and go on in another."""
        if self.summarises:
            session.summarise_by(ModelSummariser(self.ask, model="small"))
        if inputs is not None:
            await inputs.set_up(session, tools=TOOLS)
        else:
            await session.declare(TOOLS)
        openings = (
            ["look around", "go on"]
            if inputs is None
            else [opening.blocks for opening in inputs.turns()]
        )
        number, policy = 0, self.policy
        for said in openings:
            async with session.turn(said) as turn:
                for step in range(self.steps):
                    context = await turn.context(policy=policy)
                    if self.pins and step == 1:
                        answer = next(m for m in context.messages if m.role == "assistant")
                        policy = replace(policy, pinned=answer.event_ids)
                    async with turn.model_call(context, model="m", provider="p") as call:
                        path = f'{{"path": "src/{number}.py", "why": "{"long " * 90}"}}'
                        request = ToolRequest("read", path)
                        calls = await call.complete(ModelResponse.of("so", request))
                    await turn.run_tools(calls, TOOLS)
                    number += 1
                if self.compacts_itself:
                    await turn.compact(policy=self.policy)
        await session.complete()


@pytest.fixture
def log() -> Log:
    return open_log("memory:")


@pytest.mark.parametrize(
    "reader",
    [
        Reader(),
        Reader(COMPACTS),
        Reader(COMPACTS, pins=True),
        Reader(COMPACTS, summarises=True),
        Reader(ContextPolicy("full"), compacts_itself=True),
        Reader(TIGHT, compacts_itself=True, summarises=True),
    ],
)
async def test_a_replay_shows_the_model_what_it_was_shown(log: Log, reader: Reader) -> None:
    async with client(log) as opened:
        owned = await opened.create(agent="reader")
        await reader.run(owned)
    steps = [
        r.event
        for r in log.events(owned.session_id)
        if isinstance(r.event, (CompactionCompleted, ContextPruned))
    ]
    assert steps
    again = replace(reader, summaries=[])
    report = await replay(log, owned.session_id, again.run)
    assert report.divergence is None, report.divergence
    assert not report.ended
    assert again.summaries == []


async def test_another_policy_in_the_harness_changes_nothing_in_a_replay(log: Log) -> None:
    async with client(log) as opened:
        owned = await opened.create(agent="reader")
        await Reader(ContextPolicy("full")).run(owned)
    report = await replay(log, owned.session_id, Reader(TIGHT).run)
    assert report.divergence is None, report.divergence
