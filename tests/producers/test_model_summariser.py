"""Summaries that a model makes, through the session's own model calls."""

from typing import Any

import pytest

from foldline.processors.log import Log
from foldline.processors.open_log import open_log
from foldline.producers.client import connect
from foldline.producers.model import ModelResponse
from foldline.producers.model_summariser import CHUNKS_MAX, ModelSummariser, Question
from foldline.producers.session import OwnedSession
from foldline.projections.policy import ContextPolicy
from foldline.projections.reading import request_of
from foldline.schemas.blocks import Blob, text_block
from foldline.schemas.blocks import text_of as text_of_blocks
from foldline.schemas.events import (
    AssistantMessage,
    CompactionCompleted,
    CompactionFailed,
    ModelCallFailed,
    ModelCallStarted,
    Usage,
)
from foldline.testing.context_kit import step, text_of
from foldline.tokenizers import default_counter

POLICY = ContextPolicy("p", window_tokens=50, summary_tokens=300)


class Model:
    """Answers what it is told to, and remembers the questions."""

    def __init__(self, *said: str | Exception) -> None:
        self.said = said
        self.asked: list[Question] = []

    async def __call__(self, question: Question) -> ModelResponse:
        """The next answer."""
        self.asked.append(question)
        said = self.said[min(len(self.asked), len(self.said)) - 1]
        if isinstance(said, Exception):
            raise said
        parts = (text_block(said),) if said else ()
        return ModelResponse(parts, usage=Usage(input_tokens=70, output_tokens=7))


@pytest.fixture
def log() -> Log:
    return open_log("memory:")


async def worked(log: Log, model: Model, **options: Any) -> tuple[OwnedSession, str]:
    """A session of some reads, compacted by a model; gives it and what is shown then."""
    async with connect(log) as client:
        owned = await client.create(agent="a", policy="full", session_id="s")
        summariser = ModelSummariser(model, model="small", provider="p", **options)
        owned.summarise_by(summariser)
        async with owned.turn("THE TASK") as turn:
            for name in "abc":
                await step(turn, ("read", f'{{"path": "src/{name}.py"}}'))
            await step(turn, ("fail", "{}"))
            await step(turn, words="done")
            assert await turn.compact(policy=POLICY)
            shown = text_of(await turn.context(policy="full"))
        return owned, shown


async def test_a_models_summary_is_shown_and_its_call_is_one_of_the_session(
    log: Log,
) -> None:
    model = Model("Task: to read.\nFile changes: none.")
    async with connect(log) as client:
        owned, shown = await worked(log, model)
        view = await client.open("s")
        state = await view.state()
        events = [r.event async for r in view.events()]
    assert "File changes: none." in shown
    assert "no such target" in shown  # what failed is not left to the model
    assert "THE TASK" in model.asked[0].text
    assert "src/a.py:3 says" in model.asked[0].text
    starts = [e for e in events if isinstance(e, ModelCallStarted)]
    (asked,) = [start for start in starts if start.purpose == "COMPACTION"]
    assert (asked.model, asked.provider) == ("small", "p")
    assert state.usage.input_tokens == 70
    (done,) = [e for e in events if isinstance(e, CompactionCompleted)]
    assert done.strategy == "model/1"
    messages = [e for e in events if isinstance(e, AssistantMessage)]
    assert all("File changes" not in str(m.blocks) for m in messages)
    assert owned.context_policy.name == "full"


async def test_what_the_model_was_sent_for_a_summary_is_kept(log: Log) -> None:
    model = Model("short")
    await worked(log, model)
    starts = [r.event for r in log.events("s") if isinstance(r.event, ModelCallStarted)]
    (asked,) = [start for start in starts if start.purpose == "COMPACTION"]
    assert isinstance(asked.request, Blob)
    rebuilt = request_of(log, "s", asked.model_call_id)
    assert rebuilt is not None
    assert rebuilt.ok
    assert model.asked[0].text in rebuilt.data.decode()


async def test_more_than_the_model_has_room_for_is_asked_in_chunks_of_originals(
    log: Log,
) -> None:
    model = Model("part one", "part two", "part three")
    _, shown = await worked(log, model, room_tokens=500)
    assert 2 <= len(model.asked) <= CHUNKS_MAX
    assert "part one" in shown
    assert "part two" in shown
    assert all("part one" not in question.text for question in model.asked)


async def test_a_history_far_beyond_all_chunks_is_cut_and_still_summarised(
    log: Log,
) -> None:
    model = Model("part")
    await worked(log, model, room_tokens=60)
    assert len(model.asked) <= CHUNKS_MAX + 1


@pytest.mark.parametrize("said", [RuntimeError("overloaded"), ""])
async def test_a_model_that_fails_or_says_nothing_is_replaced_by_extracts(
    log: Log, said: str | Exception
) -> None:
    owned, shown = await worked(log, Model(said))
    assert "Summary of events" in shown
    events = [r.event for r in log.events(owned.session_id)]
    (failed,) = [e for e in events if isinstance(e, CompactionFailed)]
    assert "model/1" in failed.reason
    calls = [e for e in events if isinstance(e, ModelCallFailed)]
    assert len(calls) == (1 if isinstance(said, Exception) else 0)


async def test_an_answer_that_is_longer_than_it_may_be_is_cut(log: Log) -> None:
    model = Model("\n".join(f"line {number} of many" for number in range(500)))
    async with connect(log) as client:
        await worked(log, model)
        view = await client.open("s")
        (done,) = [
            r.event async for r in view.events() if isinstance(r.event, CompactionCompleted)
        ]
    assert "line 0 of many" in str(done.blocks)
    assert "line 499 of many" not in str(done.blocks)
    assert done.token_after is not None
    assert done.token_before is not None
    assert done.token_after < done.token_before


@pytest.mark.parametrize("chunked", [60_000, 500])
async def test_an_answer_and_the_facts_behind_it_are_within_the_summarys_room(
    log: Log, chunked: int
) -> None:
    """However much a model says, and however much failed."""
    model = Model("\n".join(f"line {number} of many" for number in range(500)))
    async with connect(log) as client:
        owned = await client.create(agent="a", policy="full")
        owned.summarise_by(ModelSummariser(model, model="s", room_tokens=chunked))
        async with owned.turn("THE TASK") as turn:
            for number in range(12):
                await step(turn, ("fail", f'{{"target": "number {number}"}}'))
                await step(turn, ("read", f'{{"path": "src/{number}.py"}}'))
            await turn.compact(policy=POLICY)
        (done,) = [
            r.event
            async for r in owned.events()
            if isinstance(r.event, CompactionCompleted)
        ]
    said = [text_of_blocks((block,)) for block in done.blocks]
    assert "number 11" in said[-1]
    tokens = sum(map(default_counter().count, said))
    frame = default_counter().count(said[0])
    assert tokens <= POLICY.summary_tokens + frame + 10
    assert all(question.answer_tokens < 200 for question in model.asked)


async def test_an_answer_of_one_long_line_is_cut_too(log: Log) -> None:
    async with connect(log) as client:
        await worked(log, Model("word " * 5_000))
        view = await client.open("s")
        (done,) = [
            r.event async for r in view.events() if isinstance(r.event, CompactionCompleted)
        ]
    assert done.strategy == "model/1"
    assert len(str(done.blocks)) < 5_000
