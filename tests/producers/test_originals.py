"""What is read of a long history: its beginning, its newest, and what is open between."""

from collections.abc import Iterator

import pytest

from foldline.processors.log import Log
from foldline.processors.open_log import open_log
from foldline.producers import originals
from foldline.producers.client import connect
from foldline.producers.originals import FIRST_EVENTS, read_origins
from foldline.producers.owned import OwnedSession
from foldline.producers.turn import Turn
from foldline.projections.policy import LEAN
from foldline.projections.summarising import facts_of
from foldline.schemas.blocks import text_block
from foldline.schemas.events import (
    AssistantMessage,
    InputProvided,
    InputRequested,
    KnownEvent,
    PlanItem,
    PlanUpdated,
    SystemObservation,
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
