"""Forks over HTTP: made, listed and read as one history, each tenant's apart."""

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from foldline.errors import RefusedRequestError
from foldline.processors.clock import wall_clock
from foldline.processors.http_wire import EVENTS, path_part, unpack_events
from foldline.processors.memory_log import MemoryLog
from foldline.producers.client import connect
from foldline.schemas.blocks import text_block
from foldline.schemas.events import GoalSet
from foldline.settings import Settings
from foldline.testing import LogStory, make_append
from foldline.testing.fork_contract import LARGE
from foldline.testing.log_story import new_id
from foldline.testing.samples import created, said, started
from tests.serving import Served, TokenBook, serving

NO_CHILDREN: dict[str, Any] = {"children": [], "cursor": None}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    book = TokenBook(tmp_path_factory.mktemp("book") / "tokens.json")
    book.add("mine", "read", "append", "own")
    book.add("writes", "append")
    book.add("reads", "read")
    book.add("other", "read", "append", "own", tenant="other")
    log = MemoryLog(settings=Settings(), clock=wall_clock)
    with serving(log, tokens=book.open()) as served:
        yield served
    log.close()


@pytest.fixture
def mine(served: Served) -> Iterator[httpx2.Client]:
    with served.http("fl_mine") as client:
        yield client


@pytest.fixture
def story(served: Served) -> LogStory:
    goal = GoalSet(blocks=(text_block("ship it"),))
    return LogStory(served.node.log).given(created(), goal, started(), said("one"))


def fork(client: httpx2.Client, parent_id: str, **body: Any) -> Any:
    return client.post(f"/sessions/{parent_id}/fork", json=body)


def test_a_fork_is_made_by_its_seq_and_nobody_owns_it(
    mine: httpx2.Client, served: Served, story: LogStory
) -> None:
    before = story.state
    answer = fork(mine, story.session_id, at_seq=3, agent="b", labels={"try": "2"}).json()
    assert (answer["kind"], answer["seq"], answer["fork_seq"]) == ("ACCEPTED", 4, 3)
    state = served.node.log.state(answer["session_id"])
    assert state is not None
    assert (state.agent, state.epoch, state.owner, state.turn) == ("b", 0, "", None)
    assert state.goal is not None
    assert state.goal.seq == 4
    assert story.state == before


def test_the_same_request_again_is_one_fork(mine: httpx2.Client, story: LogStory) -> None:
    body = {"at_seq": 2, "session_id": new_id(), "event_id": new_id()}
    kinds = [fork(mine, story.session_id, **body).json()["kind"] for _ in range(2)]
    assert kinds == ["ACCEPTED", "DUPLICATE"]
    children = mine.get(f"/sessions/{story.session_id}/children").json()["children"]
    assert [child["session_id"] for child in children] == [body["session_id"]]


@pytest.mark.parametrize("at_seq", [0, -1, 5, 2**40, 2**63 - 1])
def test_a_seq_that_is_not_there_is_refused(
    mine: httpx2.Client, story: LogStory, at_seq: int
) -> None:
    answer = fork(mine, story.session_id, at_seq=at_seq)
    assert (answer.status_code, answer.json()["kind"]) == (422, "fork_point")
    assert mine.get(f"/sessions/{story.session_id}/children").json() == NO_CHILDREN


def test_children_come_in_pages_the_oldest_first(
    mine: httpx2.Client, story: LogStory
) -> None:
    forks = [new_id() for _ in range(3)]
    for name in forks:
        fork(mine, story.session_id, at_seq=2, session_id=name)
    found: list[str] = []
    params: dict[str, Any] = {"limit": 2}
    while True:
        page = mine.get(f"/sessions/{story.session_id}/children", params=params).json()
        found += [child["session_id"] for child in page["children"]]
        if page["cursor"] is None:
            break
        params["cursor"] = page["cursor"]
    assert found == forks


@pytest.mark.parametrize("name", ["a\nb", "\x1b[2J", "a\u202eb", " a"])
def test_no_new_session_has_a_name_that_nobody_can_see(
    served: Served, mine: httpx2.Client, story: LogStory, name: str
) -> None:
    """Neither a fork, nor what a client of any kind creates."""
    path = f"/sessions/{path_part(name)}/appends"
    event = {"type": "SessionCreated", "fields": {"agent": "a"}}
    by_hand = make_append(name, created(), known_seq=0, epoch=0, writer="w")
    answers = [
        fork(mine, story.session_id, at_seq=1, session_id=name),
        mine.post(path, json=event),
    ]
    for answer in answers:
        assert (answer.status_code, answer.json()["kind"]) == (422, "bad_session_id")
    log = served.log("fl_mine")
    with pytest.raises(RefusedRequestError, match="422 bad_session_id"):
        log.append([by_hand])
    log.close()
    assert served.node.log.state(name) is None


def test_a_token_that_may_not_read_or_append_forks_nothing(
    served: Served, story: LogStory
) -> None:
    for secret in ("fl_writes", "fl_reads"):
        with served.http(secret) as client:
            assert fork(client, story.session_id, at_seq=1).status_code == 403


def test_another_tenants_session_is_none(served: Served, story: LogStory) -> None:
    """Neither as a parent, nor as a child, nor as an ancestor that a writer names."""
    with served.http("fl_other") as other, served.http("fl_mine") as mine:
        assert fork(other, story.session_id, at_seq=1).status_code == 404
        path = f"/sessions/{story.session_id}/children"
        assert other.get(path).status_code == 404
        theirs = new_id()
        named = {
            "agent": "spy",
            "relation": "FORK",
            "parent_session_id": story.session_id,
            "fork_seq": 2,
        }
        envelope = story.append(created()).envelope.model_copy(
            update={"session_id": theirs, "tenant": "other", "prev_hash": b"\1" * 32}
        )
        event = created().model_copy(update=named)
        append = story.append(event)._replace(envelope=envelope, known_seq=0)
        assert served.node.log.append([append])[0].kind == "ACCEPTED"
        for what in ("events?joined=true", "context", "state?joined=true&at_seq=1"):
            answer = other.get(f"/sessions/{theirs}/{what}")
            assert (answer.status_code, answer.json()["kind"]) == (409, "lineage"), what
            assert "ship it" not in answer.text
        assert other.get(f"/sessions/{theirs}/events").status_code == 200
        assert fork(other, theirs, at_seq=2).status_code == 409
        assert mine.get(path).json() == NO_CHILDREN


def test_events_and_states_are_joined_where_it_is_asked_for(
    mine: httpx2.Client, story: LogStory
) -> None:
    name = new_id()
    fork(mine, story.session_id, at_seq=3, session_id=name)
    own = mine.get(f"/sessions/{name}/events").json()["events"]
    assert [event["seq"] for event in own] == [4]
    params: dict[str, Any] = {"joined": True, "limit": 2}
    seqs: list[int] = []
    holders: list[str] = []
    while True:
        page = mine.get(f"/sessions/{name}/events", params=params).json()
        seqs += [event["seq"] for event in page["events"]]
        holders += [event["session_id"] for event in page["events"]]
        params["after_seq"] = page["next_after_seq"]
        if not page["more"]:
            break
    assert seqs == [1, 2, 3, 4]
    assert holders == [story.session_id] * 3 + [name]
    stored = mine.get(
        f"/sessions/{name}/events", params={"joined": True}, headers={"accept": EVENTS}
    )
    assert [event.seq for event in unpack_events(stored.content)] == [1, 2, 3, 4]
    path = f"/sessions/{name}/state"
    assert mine.get(path, params={"at_seq": 2}).status_code == 404
    state = mine.get(path, params={"at_seq": 2, "joined": True}).json()
    assert (state["session_id"], state["seq"]) == (story.session_id, 2)
    assert mine.get(path, params={"joined": True}).json()["seq"] == 4


def test_a_forks_context_begins_with_its_parents(
    mine: httpx2.Client, story: LogStory
) -> None:
    name = new_id()
    fork(mine, story.session_id, at_seq=4, session_id=name)
    paths = [f"/sessions/{s}/context" for s in (story.session_id, name)]
    shown = [mine.get(path).json()["request"] for path in paths]
    assert shown[0]["messages"] == shown[1]["messages"]
    assert shown[1]["messages"][-1]["content"] == "one"


async def test_a_client_forks_what_others_stored_with_large_bodies(
    served: Served,
) -> None:
    """The parent came another way: its blobs were not uploaded by this tenant's token."""
    async with connect(served.node.log) as client:
        parent = await client.create(agent="a", instructions=LARGE)
    log = served.log("fl_mine")
    async with connect(log) as client:
        fork = await client.fork(parent.session_id, 2)
        async with fork.turn("now") as turn:
            context = await turn.context()
        assert LARGE in context.messages[0].parts[0].text
    log.close()


def test_a_blob_that_no_parent_names_is_still_refused(
    mine: httpx2.Client, story: LogStory
) -> None:
    blob = {"sha256": "ab" * 32, "size": 3, "media_type": "text/plain"}
    fields = {
        "agent": "a",
        "relation": "FORK",
        "parent_session_id": story.session_id,
        "fork_seq": 2,
        "inherits": ["goal"],
        "inherited": {"goal": [{"kind": "text", "body": blob}]},
    }
    body = {"type": "SessionCreated", "fields": fields}
    answer = mine.post(f"/sessions/{new_id()}/appends", json=body)
    assert answer.status_code == 422, answer.text
