"""A person sees what waits for an answer, and answers it, by their own token only."""

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from foldline.projections.recovery import question_id
from foldline.projections.tokens import NoTokens
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
    ToolExecutionStarted,
    ToolOutcomeResolved,
    ToolOutcomeUnknown,
)
from foldline.testing import LogStory
from foldline.testing.log_story import new_id
from foldline.testing.samples import created, said, started
from tests.serving import Served, TokenBook, serving_memory


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    book = TokenBook(tmp_path_factory.mktemp("served") / "tokens.json")
    book.add("boss", "read", "approve", kind="PERSON")
    book.add("robot", "read", "append", "approve", kind="SERVICE")
    book.add("other", "read", "approve", tenant="other", kind="PERSON")
    book.add("agent", "read", "approve", kind="PERSON", actor_id="owner")
    book.add("guard", "read", "append", "approve", kind="PERSON", roles=("security",))
    with serving_memory(book.open()) as served:
        yield served


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


def test_recoverys_question_is_answered_by_an_outcome_which_closes_the_call(
    http: httpx2.Client, story: LogStory
) -> None:
    start = ToolExecutionStarted(call_id="m:7", operation_id="o", effect="UNSAFE")
    request = ToolCallRequested(
        call_id="m:7", tool="mail", arguments=(), args_hash="h7", message_id="a", position=7
    )
    story.given(request, start)
    story.given(ToolOutcomeUnknown(call_id="m:7", attempt=1, reason="killed"))
    question = question_id("m:7", 1)
    prompt = (text_block("did it happen?"),)
    story.given(InputRequested(request_id=question, call_id="m:7", prompt=prompt))
    answer = http.post(path(story, "input", question), json={"text": "yes"})
    assert (answer.status_code, answer.json()["kind"]) == (422, "bad_answer")
    answer = http.post(path(story, "input", question), json={"text": "FAILED"})
    assert answer.json()["kind"] == "ACCEPTED"
    *_, last = story.log.events(story.session_id)
    assert isinstance(last.event, ToolOutcomeResolved)
    assert (last.event.outcome, last.event.resolver) == (
        "FAILED",
        "PERSON:boss@example",
    )
    assert "m:7" not in story.state.calls


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


# --- who may, and what with ------------------------------------------------------------


def ask_of_security(story: LogStory) -> None:
    """A second request, for people with a role."""
    asked = PermissionRequested(
        request_id="ask-3", kind="PLAN", approvers=("security", "boss"), display=()
    )
    story.given(asked)


def test_a_request_that_names_roles_is_answered_by_one_of_them_only(
    served: Served, http: httpx2.Client, story: LogStory
) -> None:
    ask_of_security(story)
    listed = http.get(f"/sessions/{story.session_id}/approvals").json()["requests"]
    assert [p["approvers"] for p in listed] == [[], ["security", "boss"]]
    for verb in ("grant", "deny"):
        answer = http.post(path(story, verb, "ask-3"), json={})
        assert (answer.status_code, answer.json()["kind"]) == (403, "no_role")
        assert "security, boss" in answer.json()["detail"]
    with served.http("fl_guard") as guard:
        answer = guard.post(path(story, "grant", "ask-3"), json={})
        assert answer.json()["kind"] == "ACCEPTED"


def test_an_answer_that_is_appended_is_held_to_the_same(
    served: Served, story: LogStory
) -> None:
    ask_of_security(story)
    fields = {"request_id": "ask-3", "decided_by": "PERSON", "grant_id": "g"}
    body = {"type": "PermissionGranted", "fields": fields}
    appends = f"/sessions/{story.session_id}/appends"
    statuses: dict[str, tuple[int, str]] = {}
    for who in ("robot", "guard"):
        with served.http(f"fl_{who}") as http:
            answer = http.post(appends, json=body)
            statuses[who] = (answer.status_code, answer.json()["kind"])
    assert statuses == {"robot": (403, "no_person"), "guard": (200, "ACCEPTED")}


@pytest.mark.parametrize("verb", ["grant", "deny"])
def test_who_asked_is_not_who_approves(served: Served, story: LogStory, verb: str) -> None:
    """A person's token whose subject is who asked."""
    given = {"args_hash": "h1"} if verb == "grant" else {}
    with served.http("fl_agent") as http:
        answer = http.post(path(story, verb), json=given)
    assert (answer.status_code, answer.json()["kind"]) == (403, "own_request")
    assert "ask-1" in story.state.requests


def test_a_grant_may_edit_the_arguments_of_one_call(
    http: httpx2.Client, story: LogStory
) -> None:
    given: dict[str, Any] = {"args_hash": "h1", "edited_arguments": {"command": "ls"}}
    refused = http.post(path(story, "grant"), json=given | {"scope": "SESSION"})
    assert (refused.status_code, refused.json()["kind"]) == (422, "bad_edit")
    assert http.post(path(story, "grant"), json=given).json()["kind"] == "ACCEPTED"
    *_, last = story.log.events(story.session_id)
    assert isinstance(last.event, PermissionGranted)
    assert last.event.edited_arguments[0].body == '{"command": "ls"}'
    assert last.event.edited_args_hash not in (None, "h1")


def test_arguments_with_a_secret_are_not_edited_in(
    served: Served, http: httpx2.Client, story: LogStory
) -> None:
    """Refused at the grant, by its route and as an append; nothing of it is stored."""
    secret = "ghp_" + "a1B2c3D4e5" * 4
    body = json.dumps({"command": secret})
    fields = {"request_id": "ask-1", "decided_by": "PERSON", "grant_id": "g"}
    edited = fields | {"edited_arguments": [{"kind": "json", "body": body}]}
    appends = f"/sessions/{story.session_id}/appends"
    given = {"args_hash": "h1", "edited_arguments": {"command": secret}}
    with served.http("fl_guard") as guard:
        answers = [
            http.post(path(story, "grant"), json=given),
            guard.post(appends, json={"type": "PermissionGranted", "fields": edited}),
        ]
    for answer in answers:
        assert (answer.status_code, answer.json()["kind"]) == (422, "bad_edit")
        assert secret not in answer.text
    assert "ask-1" in story.state.requests


def test_a_service_without_tokens_checks_the_roles_of_its_operator() -> None:
    """Where its settings say them; else whoever reaches it has every role."""
    kinds: list[list[str]] = []
    for roles in ({"dev"}, {"dev", "boss"}, set[str]()):
        with serving_memory(NoTokens(roles=frozenset(roles))) as open_to_all:
            story = LogStory(open_to_all.node.log).given(created(), started(), said())
            ask_of_security(story)
            with open_to_all.http("") as http:
                answer = http.post(path(story, "grant", "ask-3"), json={}).json()
        kinds.append([answer["kind"], answer.get("detail", "")])
    assert kinds[0] == [
        "no_role",
        "the operator has none of the roles: security, boss",
    ]
    assert [kind for kind, _ in kinds[1:]] == ["ACCEPTED", "ACCEPTED"]


# --- the stream --------------------------------------------------------------------------


def next_of(lines: Iterator[str], name: str, request_id: str) -> dict[str, Any]:
    """The next event of this name about this request."""
    for line in lines:
        if line == f"event: {name}":
            data = json.loads(next(lines).removeprefix("data: "))
            if data.get("request_id") == request_id:
                return data
    raise AssertionError(name)


def test_a_stream_tells_what_waits_what_comes_and_what_became_of_it(
    served: Served, http: httpx2.Client, story: LogStory
) -> None:
    with (
        served.http("fl_boss") as listening,
        listening.stream("GET", "/approvals/stream") as answer,
    ):
        lines = answer.iter_lines()
        assert [next(lines), next(lines), next(lines)][2] == "event: pending"
        listed = json.loads(next(lines).removeprefix("data: "))["requests"]
        assert story.session_id in {pending["session_id"] for pending in listed}
        new = new_id()
        story.given(InputRequested(request_id=new, prompt=(text_block("Which?"),)))
        assert next_of(lines, "requested", new)["display"][0]["body"] == "Which?"
        http.post(path(story, "input", new), json={"text": "main"})
        told = next_of(lines, "settled", new)
        assert (told["outcome"], told["by"]) == ("ANSWERED", "boss@example")
    with (
        served.http("fl_other") as listening,
        listening.stream("GET", "/approvals/stream") as answer,
    ):
        lines = answer.iter_lines()
        theirs = [next(lines) for _ in range(4)][3]
        assert json.loads(theirs.removeprefix("data: "))["requests"] == []
