"""Reports of others about compactions that loop or forget, as sequences: B20, B21, B22."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from foldline.processors.log import Log
from foldline.processors.open_log import open_log
from foldline.producers.client import connect
from foldline.producers.model import ModelResponse
from foldline.producers.summarisers import Extractive, Summariser
from foldline.producers.tools import Tool, Toolbox, ToolContext, ToolError
from foldline.producers.turn import Turn
from foldline.schemas.blocks import text_block
from foldline.schemas.events import (
    CompactionCompleted,
    CompactionStarted,
    SystemObservation,
    Usage,
)
from foldline.testing.context_kit import (
    COMPACTS,
    Scripted,
    check,
    events_of,
    read,
    step,
    text_of,
)

READ = "read"


@pytest.fixture
def log() -> Iterator[Log]:
    """A log in memory."""
    log = open_log("memory:")
    yield log
    log.close()


def file(name: str) -> tuple[str, str]:
    """A call that reads a file."""
    return READ, f'{{"path": "src/{name}.py"}}'


# --- B20: a stale count compacts again at once -------------------------------------------


async def nothing(_turn: Turn) -> None:
    """A turn in which nothing happens."""


async def huge_usage(turn: Turn) -> None:
    """A provider reports the usage of long ago once more."""
    async with turn.model_call(await turn.context(), model="m", provider="p") as call:
        usage = Usage(input_tokens=10**9, output_tokens=1)
        await call.complete(ModelResponse((text_block("ok"),), usage=usage))


async def failing_model(turn: Turn) -> None:
    """The model does not answer."""
    async with turn.model_call(await turn.context(), model="m") as call:
        await call.fail("Overloaded", "try again")


async def observation(turn: Turn) -> None:
    """A few words that nobody answers."""
    await turn.append(SystemObservation(origin="x", blocks=(text_block("tick"),)))


@pytest.mark.parametrize("happens", [nothing, huge_usage, failing_model, observation])
@pytest.mark.parametrize("summariser", [Extractive(), Scripted("all went well")])
async def test_b20_a_count_from_before_a_compaction_compacts_nothing_again(
    log: Log, happens: Callable[[Turn], Awaitable[None]], summariser: Summariser
) -> None:
    """By whoever owns the session: what counts is the context as it is."""
    async with connect(log) as client:
        owned = await client.create(agent="a", policy=COMPACTS)
        owned.summarise_by(summariser)
        async with owned.turn("look around") as turn:
            for name in "abc":
                await step(turn, file(name))
            await step(turn, words="done")
        count = len(await events_of(owned, CompactionStarted))
        assert count
    for _ in range(2):
        async with connect(log) as client:
            owned = await client.take(owned.session_id, policy=COMPACTS)
            owned.summarise_by(summariser)
            for _ in range(2):
                async with owned.turn("") as turn:
                    await happens(turn)
                    check(await turn.context())
            assert len(await events_of(owned, CompactionStarted)) == count


# --- B21: many compactions in one turn, and no progress ----------------------------------

Round = Sequence[tuple[str, str]]

SAME: Round = [file("a"), file("b")]
FAILS: Round = [("fail", '{"target": "all"}'), file("a")]
AT_ONCE: Round = [file("a"), file("a"), file("a")]


def no_target(arguments: dict[str, object], _context: ToolContext) -> str:
    """Fails at length, the same way each time."""
    msg = f"no such target: {arguments} " + "again and again " * 100
    raise ToolError(msg, executed="NO")


TOOLS = Toolbox(Tool(read, effect="READ_ONLY"), Tool(no_target, name="fail"))


@pytest.mark.parametrize("requests", [SAME, FAILS, AT_ONCE])
@pytest.mark.parametrize("at_once", [1, 40])
@pytest.mark.parametrize("summariser", [Extractive(), Scripted(ValueError("no model"))])
async def test_b21_compactions_without_progress_stop_and_a_person_is_asked(
    log: Log, requests: Round, at_once: int, summariser: Summariser
) -> None:
    """The task stays known: also where each owner is there for one round only."""
    async with connect(log) as client:
        owned = await client.create(agent="a", policy=COMPACTS)
        name = owned.session_id
        async with owned.turn("THE SMALL TASK") as turn:
            await step(turn, words="yes")
            turn.leave()
    parked, rounds = "", 0
    done: Sequence[Any] = []
    while not parked and rounds < 40:
        async with connect(log) as client:
            owned = await client.take(name, policy=COMPACTS)
            owned.summarise_by(summariser)
            turn = await owned.resume_turn()
            for _ in range(at_once):
                rounds += 1
                for request in requests:
                    await step(turn, request, tools=TOOLS)
                if turn.parked:
                    break
            parked = turn.parked
            if not parked:
                turn.leave()
            done = await events_of(owned, CompactionCompleted)
    assert "times without progress" in parked
    assert len(done) <= COMPACTS.no_progress_max + 2
    assert "THE SMALL TASK" in str(done[-1].blocks[0].body)


# --- B22: what failed is forgotten, and tried for ever -----------------------------------


@pytest.mark.parametrize("summariser", [Extractive(), Scripted("all went well")])
@pytest.mark.parametrize("kinds", [1, 5])
async def test_b22_what_failed_is_told_with_how_often_through_every_compaction(
    log: Log, summariser: Summariser, kinds: int
) -> None:
    """Of one call and of several, whoever makes the summaries."""
    policy = replace(COMPACTS, no_progress_max=99)
    async with connect(log) as client:
        owned = await client.create(agent="a", policy=policy)
        owned.summarise_by(summariser)
        async with owned.turn("THE TASK") as turn:
            for again in range(1, 5):
                for kind in range(kinds):
                    await step(turn, ("fail", f'{{"target": "all{kind}"}}'))
                await step(turn, file(f"x{again}"))
                await step(turn, file(f"y{again}"))
                await turn.compact()
                shown = text_of(await turn.context())
                newest = range(max(kinds - 3, 0), kinds)
                assert all(f"all{kind}" in shown for kind in newest), shown
                counted = [n for n in (again - 1, again) if f"{n} times" in shown]
                assert counted or again == 1, shown
        assert len(await events_of(owned, CompactionCompleted)) > 3
