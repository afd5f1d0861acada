"""A person sees what waits for an answer, and answers it, by their own token only."""

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from foldline.processors.memory_log import MemoryLog
from foldline.processors.open_log import wall_clock
from foldline.schemas.blocks import json_block, text_block
from foldline.schemas.events import (
    AssistantMessage,
    InputProvided,
    InputRequested,
    ModelCallCompleted,
    ModelCallStarted,
    PermissionDenied,
    PermissionGranted,
    PermissionRequested,
    ToolCallRequested,
)
from foldline.settings import Settings
from foldline.testing import LogStory
from foldline.testing.log_story import new_id
from foldline.testing.samples import created, said, started
from tests.serving import Served, TokenBook, serving


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    book = TokenBook(tmp_path_factory.mktemp("served") / "tokens.json")
    book.add("boss", "read", "approve", kind="PERSON")
    book.add("robot", "read", "append", "approve", kind="SERVICE")
    book.add("other", "read", "approve", tenant="other", kind="PERSON")
    log = MemoryLog(settings=Settings(), clock=wall_clock)
    with serving(log, tokens=book.open()) as served:
        yield served
    log.close()


@pytest.fixture
def http(served: Served) -> Iterator[httpx2.Client]:
    with served.http("fl_boss") as client:
        yield client


@pytest.fixture
def story(served: Served) -> LogStory:
    """A session that asks whether it may run a command."""
    story = LogStory(served.node.log).given(created(), started(), said())
    return story.given(
        ModelCallStarted(model_call_id="m", provider="p", model="m"),
        AssistantMessage(message_id="a", model_call_id="m", final=True, blocks=()),
        ToolCallRequested(
            call_id="m:0",
            tool="shell",
            args_hash="h1",
            message_id="a",
            position=0,
            arguments=(json_block('{"command": "rm -r build"}'),),
        ),
        ModelCallCompleted(model_call_id="m", finish_reason="tool"),
        PermissionRequested(
            request_id="ask-1",
            call_id="m:0",
            args_hash="h1",
            options=("once", "always"),
            display=(text_block("Delete the build folder?"),),
        ),
    )


def path(story: LogStory, verb: str, request_id: str = "ask-1") -> str:
    return f"/sessions/{story.session_id}/approvals/{request_id}/{verb}"


def test_a_person_sees_what_is_asked_and_with_which_arguments(
    http: httpx2.Client, story: LogStory
) -> None:
    listed = http.get("/approvals").json()["requests"]
    (pending,) = [p for p in listed if p["session_id"] == story.session_id]
    assert (pending["request_id"], pending["kind"]) == ("ask-1", "TOOL")
    assert (pending["tool"], pending["args_hash"]) == ("shell", "h1")
    assert pending["arguments"][0]["body"] == '{"command": "rm -r build"}'
    assert pending["display"][0]["body"] == "Delete the build folder?"
    assert pending["options"] == ["once", "always"]
    of_session = http.get(f"/sessions/{story.session_id}/approvals").json()["requests"]
    assert of_session == [pending]


def test_a_grant_is_recorded_as_the_persons(http: httpx2.Client, story: LogStory) -> None:
    answer = http.post(path(story, "grant"), json={"args_hash": "h1"})
    assert (answer.status_code, answer.json()["kind"]) == (200, "ACCEPTED")
    *_, last = story.log.events(story.session_id)
    assert isinstance(last.event, PermissionGranted)
    assert (last.event.request_id, last.event.args_hash) == ("ask-1", "h1")
    assert last.event.decided_by == "PERSON"
    assert (last.envelope.actor.kind, last.envelope.actor.id) == ("PERSON", "boss@example")
    assert story.state.requests == {}


def test_a_grant_of_other_arguments_is_refused(
    http: httpx2.Client, story: LogStory
) -> None:
    for args_hash in ("h2", ""):
        answer = http.post(path(story, "grant"), json={"args_hash": args_hash})
        assert (answer.status_code, answer.json()["kind"]) == (409, "other_arguments")
    assert "ask-1" in story.state.requests


def test_a_denial_tells_the_agent_why(http: httpx2.Client, story: LogStory) -> None:
    given = {"feedback": "not on Fridays", "may_request_again": True}
    answer = http.post(path(story, "deny"), json=given)
    assert answer.json()["kind"] == "ACCEPTED"
    *_, last = story.log.events(story.session_id)
    assert isinstance(last.event, PermissionDenied)
    assert last.event.feedback[0].body == "not on Fridays"
    assert last.event.may_request_again


def test_an_answer_that_is_sent_again_is_the_same_answer(
    http: httpx2.Client, story: LogStory
) -> None:
    given = {"args_hash": "h1", "event_id": new_id(), "known_seq": story.state.seq}
    first = http.post(path(story, "grant"), json=given).json()
    again = http.post(path(story, "grant"), json=given).json()
    assert (first["kind"], again["kind"]) == ("ACCEPTED", "DUPLICATE")
    assert again["seq"] == first["seq"]


@pytest.mark.parametrize("verb", ["grant", "deny", "input"])
def test_an_answer_that_can_be_sent_again_says_where_it_belongs(
    http: httpx2.Client, story: LogStory, verb: str
) -> None:
    given = {"event_id": new_id()} | ({"text": "yes"} if verb == "input" else {})
    answer = http.post(path(story, verb), json=given)
    assert (answer.status_code, answer.json()["kind"]) == (422, "no_known_seq")
    assert story.state.requests


def test_what_was_answered_can_be_answered_by_nobody_else(
    http: httpx2.Client, story: LogStory
) -> None:
    http.post(path(story, "deny"), json={})
    answer = http.post(path(story, "grant"), json={"args_hash": "h1"})
    assert (answer.status_code, answer.json()["kind"]) == (404, "no_request")


def test_a_question_gets_an_answer_and_no_permission(
    http: httpx2.Client, story: LogStory
) -> None:
    prompt = (text_block("Which branch?"),)
    story.given(InputRequested(request_id="ask-2", prompt=prompt))
    answer = http.post(path(story, "grant", "ask-2"), json={})
    assert (answer.status_code, answer.json()["kind"]) == (409, "other_request")
    answer = http.post(path(story, "input"), json={"text": "main"})
    assert (answer.status_code, answer.json()["kind"]) == (409, "other_request")
    answer = http.post(path(story, "input", "ask-2"), json={"text": "main"})
    assert answer.json()["kind"] == "ACCEPTED"
    *_, last = story.log.events(story.session_id)
    assert isinstance(last.event, InputProvided)


@pytest.mark.parametrize(
    ("who", "status", "kind"),
    [("robot", 403, "no_person"), ("other", 404, "no_session")],
)
def test_nobody_answers_for_a_person_of_another_kind_or_tenant(
    served: Served, story: LogStory, who: str, status: int, kind: str
) -> None:
    verbs: dict[str, Any] = {"grant": {"args_hash": "h1"}, "deny": {}}
    with served.http(f"fl_{who}") as http:
        for verb, given in verbs.items():
            answer = http.post(path(story, verb), json=given)
            assert (answer.status_code, answer.json()["kind"]) == (status, kind)
    assert "ask-1" in story.state.requests
