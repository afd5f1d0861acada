"""What is read of a long history: its beginning, its newest, and what is open between."""

from collections.abc import Iterator

import pytest

from foldline.processors.log import Log
from foldline.processors.open_log import open_log
from foldline.producers import originals
from foldline.producers.client import connect
from foldline.producers.originals import FIRST_EVENTS, Taking, read_origins
from foldline.producers.session import OwnedSession
from foldline.producers.turn import Turn
from foldline.projections.policy import LEAN
from foldline.projections.summarising import facts_of, summary_of
from foldline.schemas.blocks import text_block
from foldline.schemas.events import (
    AssistantMessage,
    ContextCleared,
    HistoryRewound,
    InputProvided,
    InputRequested,
    KnownEvent,
    MessageRetracted,
    PlanItem,
    PlanUpdated,
    SystemObservation,
    UserMessage,
)
from tests.happenings import backgrounded, done, request, start
from tests.words import Words

NEWEST = 30


@pytest.fixture(autouse=True)
def short_of_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gap begins behind a few hundred events, not behind many thousand."""
    monkeypatch.setattr(originals, "NEWEST_EVENTS", NEWEST)


@pytest.fixture
def log() -> Iterator[Log]:
    """A log in memory."""
    log = open_log("memory:")
    yield log
    log.close()


async def says(turn: Turn, count: int) -> None:
    """So many events that say nothing of a fact."""
    said = SystemObservation(origin="x", blocks=(text_block("o"),))
    await turn.append(*[said for _ in range(count)])


async def facts(log: Log, owned: OwnedSession) -> str:
    """The facts that a summary of a session has."""
    state = await owned.state()
    read = read_origins(log, state, state.seq)
    assert len(read.events) < FIRST_EVENTS + NEWEST + 10
    return facts_of(read.upto(state.seq), policy=LEAN, counter=Words())


PLAN = PlanUpdated(
    items=(PlanItem(item_id="1", status="PENDING", blocks=(text_block("ship it"),)),)
)
QUESTION = InputRequested(request_id="q", prompt=(text_block("when?"),))
SAID = AssistantMessage(message_id="m", blocks=(text_block("so"),))
CALL = (SAID, request(tool="serve"), start())


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ((PLAN,), "PENDING: ship it"),
        ((QUESTION,), "when?"),
        (CALL, "verify first:\n- [{seq}] serve"),
        ((*CALL, backgrounded("h7")), "[{seq}] serve : goes on in the background, as h7"),
        ((SAID, request(tool="serve")), "[{seq}] serve : not run"),
    ],
)
async def test_what_is_open_is_told_wherever_it_lies(
    log: Log, events: tuple[KnownEvent, ...], told: str
) -> None:
    """A plan, a question, a call: between the first events and the newest."""
    async with connect(log) as client:
        owned = await client.create(agent="a")
        async with owned.turn("go") as turn:
            await says(turn, FIRST_EVENTS)
            await turn.append(*events)
            seq = (await owned.state()).seq - len(events) + 2
            await says(turn, NEWEST * 2)
            assert told.format(seq=seq) in await facts(log, owned)
            turn.leave()


@pytest.mark.parametrize(
    ("begun", "ended"),
    [
        (CALL, (done(),)),
        ((QUESTION,), (InputProvided(request_id="q", blocks=(text_block("now"),)),)),
    ],
)
async def test_what_ended_where_nothing_is_read_is_not_told_as_open(
    log: Log, begun: tuple[KnownEvent, ...], ended: tuple[KnownEvent, ...]
) -> None:
    """It began among the first events; nobody is to verify it."""
    async with connect(log) as client:
        owned = await client.create(agent="a")
        async with owned.turn("go") as turn:
            await turn.append(*begun)
            assert await facts(log, owned) != ""
            await says(turn, FIRST_EVENTS)
            await turn.append(*ended)
            await says(turn, NEWEST * 2)
            assert await facts(log, owned) == ""


async def summary(log: Log, owned: OwnedSession, taking: Taking | None = None) -> str:
    """The summary of a session."""
    state = await owned.state()
    read = read_origins(log, state, state.seq, taking)
    assert len(read.events) < FIRST_EVENTS + NEWEST + 10
    return summary_of(read.upto(state.seq), policy=LEAN, counter=Words())


def said(name: str, words: str, replaces: str | None = None) -> UserMessage:
    """A person says something."""
    return UserMessage(message_id=name, blocks=(text_block(words),), replaces=replaces)


@pytest.mark.parametrize(
    "event",
    [
        MessageRetracted(message_ids=("u",)),
        said("v", "instead", "u"),
        ContextCleared(),
        HistoryRewound(to_seq=3),
    ],
)
async def test_what_was_taken_back_where_little_is_read_is_not_summarised(
    log: Log, event: KnownEvent
) -> None:
    """It was said among the first, and taken back between them and the newest."""
    taking = Taking()
    async with connect(log) as client:
        owned = await client.create(agent="a")
        async with owned.turn("go") as turn:
            assert (await owned.state()).seq == 3
            await owned.append(said("u", "the SECRET word"))
            await says(turn, FIRST_EVENTS + NEWEST)
            assert "the SECRET word" in await summary(log, owned, taking)
            await owned.append(event)
            await says(turn, NEWEST * 2)
            for known in (taking, None):
                told = await summary(log, owned, known)
                assert "SECRET" not in told
                assert ("- instead" in told) == isinstance(event, UserMessage)
            turn.leave()


async def test_the_first_events_are_those_behind_the_last_clearing_that_holds(
    log: Log,
) -> None:
    """One that was rewound is none; what was open before it is told all the same."""
    async with connect(log) as client:
        owned = await client.create(agent="a")
        async with owned.turn("go") as turn:
            await owned.append(said("u", "old words"))
            await turn.append(QUESTION)
            await says(turn, FIRST_EVENTS)
            await owned.append(ContextCleared())
            await owned.append(said("v", "the new task"))
            await says(turn, FIRST_EVENTS)
            seq = (await owned.state()).seq
            await owned.append(ContextCleared())
            await turn.append(HistoryRewound(to_seq=seq))
            await says(turn, NEWEST * 2)
            told = await summary(log, owned)
            turn.leave()
    assert "the new task" in told
    assert "when?" in told
    assert "old words" not in told


async def test_what_an_ancestor_took_back_is_not_summarised_for_a_fork(log: Log) -> None:
    """Nor shown again to its model."""
    async with connect(log) as client:
        owned = await client.create(agent="a")
        async with owned.turn("go") as turn:
            await owned.append(said("u", "the SECRET word"))
            seq = (await owned.state()).seq
            await says(turn, FIRST_EVENTS)
            await owned.append(MessageRetracted(message_ids=("u",)))
            await says(turn, 5)
        fork = await owned.fork((await owned.state()).seq)
        async with fork.turn("on") as turn:
            await says(turn, NEWEST * 2)
            assert "SECRET" not in await summary(log, fork)
            assert await fork.is_taken_back(seq)
            assert not await fork.is_taken_back(seq + 1)
            turn.leave()
