"""Who watches many sessions sees which stand still, of their own tenant only."""

from collections.abc import Iterator

import httpx2
import pytest

from foldline.projections import service_recovery
from foldline.schemas.blocks import text_block
from foldline.schemas.events import (
    AssistantMessage,
    InputRequested,
    ModelCallStarted,
    SessionSuspended,
    ToolCallRequested,
    ToolExecutionStarted,
)
from foldline.testing import LogStory
from foldline.testing.samples import created, said, started
from tests.serving import Served, TokenBook, serving_memory


@pytest.fixture
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    book = TokenBook(tmp_path_factory.mktemp("served") / "tokens.json")
    book.add("sre", "read")
    book.add("other", "read", tenant="other")
    with serving_memory(book.open()) as served:
        yield served


@pytest.fixture
def http(served: Served) -> Iterator[httpx2.Client]:
    with served.http("fl_sre") as client:
        yield client


@pytest.fixture
def story(served: Served) -> LogStory:
    """A session whose owner has no lease, in the middle of a call."""
    story = LogStory(served.node.log).given(created(), started(), said())
    return story.given(
        ModelCallStarted(model_call_id="m", provider="p", model="m"),
        AssistantMessage(message_id="a", model_call_id="m", final=True, blocks=()),
        ToolCallRequested(
            call_id="m:0",
            tool="charge",
            args_hash="h",
            message_id="a",
            position=0,
            arguments=(),
        ),
        ToolExecutionStarted(call_id="m:0", effect="RECONCILABLE", operation_id="op"),
    )


def test_a_session_without_an_owner_is_listed_with_its_plan(
    http: httpx2.Client, story: LogStory
) -> None:
    (listed,) = http.get("/recovery").json()["sessions"]
    assert listed["session_id"] == story.session_id
    assert (listed["why"], listed["open_calls"]) == ("owner_gone", 1)
    plan = http.get(f"/sessions/{story.session_id}/recovery").json()
    names = [action["action"] for action in plan["actions"]]
    assert names == ["CancelModelCall", "Reconcile"]
    assert plan["actions"][1]["operation_id"] == "op"


@pytest.mark.parametrize(("limit", "shown"), [("SHOWN_MAX", 1), ("LOOKED_AT_MAX", 1)])
def test_who_asks_is_told_that_there_may_be_more(
    served: Served,
    http: httpx2.Client,
    story: LogStory,
    monkeypatch: pytest.MonkeyPatch,
    limit: str,
    shown: int,
) -> None:
    answer = http.get("/recovery").json()
    assert (len(answer["sessions"]), answer["more"]) == (1, False)
    LogStory(served.node.log).given(created(), started())
    monkeypatch.setattr(service_recovery, limit, shown)
    answer = http.get("/recovery").json()
    assert (len(answer["sessions"]), answer["more"]) == (1, True)
    if limit == "SHOWN_MAX":  # the longest silent one
        assert answer["sessions"][0]["session_id"] == story.session_id


def test_a_session_whose_owner_lives_is_not(
    served: Served, http: httpx2.Client, story: LogStory
) -> None:
    served.node.log.leases.renew(story.session_id, epoch=1, writer="w", ttl_ms=60_000)
    assert http.get("/recovery").json()["sessions"] == []


def test_what_recovery_parked_waits_for_a_person_and_what_somebody_suspended_does_not(
    http: httpx2.Client, story: LogStory
) -> None:
    story.given(
        InputRequested(request_id="recovery:park:1", prompt=(text_block("go on?"),)),
        SessionSuspended(reason="recovery: resumed too often"),
    )
    (listed,) = http.get("/recovery").json()["sessions"]
    assert (listed["why"], listed["requests"]) == ("parked", ["recovery:park:1"])


def test_another_tenant_sees_nothing_of_it(served: Served, story: LogStory) -> None:
    with served.http("fl_other") as other:
        assert other.get("/recovery").json()["sessions"] == []
        answer = other.get(f"/sessions/{story.session_id}/recovery")
        assert answer.status_code == 404
