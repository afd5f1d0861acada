"""The first context after a wake, over HTTP: one read, whole, and of one's own tenant."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from foldline.processors.clock import wall_clock
from foldline.processors.http_log import HttpLog
from foldline.processors.http_wire import API, SOURCES, unpack_events, unpack_sources
from foldline.processors.memory_log import MemoryLog
from foldline.producers.client import Client, connect
from foldline.producers.session import OwnedSession
from foldline.projections.context import Context
from foldline.projections.reading import context_of
from foldline.schemas.events import ContextCleared
from foldline.settings import Settings
from foldline.testing import LogStory
from foldline.testing.samples import created, said, told
from tests.serving import Served, TokenBook, serving

STATE = "/sessions/{session_id}/state"
SCHEMA = "/schemas/{schema_id}"
"""Once for each type of event; a client that starts later fetches them when it connects."""

ALL = "/sessions/{session_id}/context/sources"
PARTS = {ALL, "/sessions/{session_id}/events", "/blobs/{sha256}"}

LARGE = "a long instruction " * 4_000
"""More than an event holds inline."""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    book = TokenBook(tmp_path / "tokens.json")
    book.add("mine", "read", "append", "own")
    book.add("other", "read", "append", "own", tenant="other")
    with (
        closing(MemoryLog(settings=Settings(), clock=wall_clock)) as log,
        serving(log, tokens=book.open()) as served,
    ):
        yield served


@pytest.fixture
def mine(served: Served) -> Iterator[HttpLog]:
    with closing(served.log("fl_mine")) as log:
        yield log


def asked(served: Served) -> dict[str, float]:
    """How often each kind of read was asked for."""
    found: dict[str, float] = {}
    for metric in served.node.metrics.requests.collect():
        for sample in metric.samples:
            if sample.name.endswith("_total") and sample.labels["method"] == "GET":
                route = sample.labels["route"].removeprefix(API)
                found[route] = found.get(route, 0) + sample.value
    return found


async def woken(
    client: Client, served: Served, session_id: str
) -> tuple[Context, set[str]]:
    """The first context of a new owner, and which reads it took beside the state's."""
    owned = await client.take(session_id)
    async with owned.turn("go on") as turn:
        before = asked(served)
        context = await turn.context(policy="full")
        after = asked(served)
    await owned.suspend("done")
    reads = {route for route in after if after[route] > before.get(route, 0)}
    return context, reads - {STATE, SCHEMA}


async def asleep(client: Client) -> OwnedSession:
    """A session that its owner left: in force are a large text and a goal."""
    owned = await client.create(agent="a", instructions=LARGE, goal="ship it")
    await owned.message("old")
    await owned.append(ContextCleared())
    await owned.message(LARGE)
    await owned.suspend("for now")
    return owned


async def test_a_first_context_is_one_read_with_the_texts_of_its_blobs(
    served: Served, mine: HttpLog
) -> None:
    """What was in force at its base included; and it is what the log has."""
    async with connect(mine) as client:
        owned = await asleep(client)
        context, reads = await woken(client, served, owned.session_id)
        assert reads == {ALL}
        assert context.base_seq > 1
        again, reads = await woken(client, served, owned.session_id)
    assert reads == {ALL}
    rebuilt = context_of(served.node.log, owned.session_id)
    assert rebuilt is not None
    assert again.as_bytes() == rebuilt.as_bytes()
    assert LARGE in context.messages[0].parts[0].text


async def test_a_fork_wakes_with_one_read_too(served: Served, mine: HttpLog) -> None:
    """Its ancestors' events come along, and images in them can be fetched by their own."""
    async with connect(mine) as client:
        owned = await asleep(client)
        view = await client.open(owned.session_id)
        fork = await view.fork(at_seq=(await view.state()).seq)
        await fork.suspend("for now")
        context, reads = await woken(client, served, fork.session_id)
        assert reads == {ALL}
        assert [message.role for message in context.messages] == ["system", "user", "user"]


async def test_what_one_answer_does_not_hold_is_read_behind_it() -> None:
    """Also where no text fits."""
    settings = Settings(warm_session_bytes=3_000)
    with (
        closing(MemoryLog(settings=Settings(), clock=wall_clock)) as log,
        serving(log, settings=settings) as served,
        closing(served.log()) as mine,
    ):
        async with connect(mine) as client:
            owned = await asleep(client)
            told(LogStory(log, session_id=owned.session_id, writer="w"), 20)
            context, reads = await woken(client, served, owned.session_id)
            assert reads == PARTS
            assert len(context.messages) > 20


def test_sources_are_of_ones_own_tenant_and_as_new_as_was_asked(served: Served) -> None:
    story = LogStory(served.node.log).given(created(), said("one"), said("two"))
    path = f"/sessions/{story.session_id}/context/sources"
    with served.http("fl_mine") as mine, served.http("fl_other") as other:
        answer = mine.get(path, params={"min_seq": 3}, headers={"accept": SOURCES})
        wire = unpack_sources(answer.content)
        assert (wire.base_seq, wire.upto_seq) == (0, 3)
        assert [event.seq for event in unpack_events(wire.events)] == [1, 2, 3]
        assert mine.get("/sessions/nobody/context/sources").status_code == 404
        assert other.get(path).status_code == 404
        story.given(said("three"))
        wire = unpack_sources(mine.get(path).content)
        assert wire.upto_seq == 4
    assert served.node.warm.kept_sessions == 1


def test_a_context_at_the_head_is_built_from_what_is_warm(served: Served) -> None:
    """The same as without: also after an event came."""
    story = LogStory(served.node.log).given(created(), said("one"))
    path = f"/sessions/{story.session_id}/context"
    with served.http("fl_mine") as mine:
        first = mine.get(path).json()
        assert served.node.warm.kept_sessions == 1
        assert first == mine.get(path, params={"at_seq": 2}).json()
        story.given(said("two"))
        assert len(mine.get(path).json()["request"]["messages"]) == 2
