"""Every route of the service: who may use it, what a bad request is told, its words."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi.routing import APIRoute

from foldline.processors.clock import wall_clock
from foldline.processors.http_wire import APPENDS, EVENTS, path_part
from foldline.processors.memory_log import MemoryLog
from foldline.projections.service import PARTS, fastapi_of
from foldline.projections.service_node import Node
from foldline.projections.tokens import NoTokens
from foldline.settings import Settings
from foldline.testing import LogStory
from foldline.testing.samples import created, said, started
from tests.serving import Served, TokenBook, Uploads, serving

GOLDEN = Path(__file__).parents[1] / "golden" / "openapi.json"

OPEN_TO_ALL = {"/healthz", "/readyz"}

BODIES: dict[str, Any] = {
    "append_event": {"type": "UserMessage", "fields": {}},
    "fork_session": {"at_seq": 1},
    "steer": {"text": "use nix"},
    "cancel": {},
    "renew_lease": {"epoch": 1, "writer": "w", "ttl_ms": 1},
    "grant": {"args_hash": "x"},
    "deny": {},
    "provide_input": {"text": "yes"},
    "write_checkpoint": {"folder": "/nowhere"},
}


def described() -> dict[str, Any]:
    log = MemoryLog(settings=Settings(), clock=wall_clock)
    node = Node(log, Settings(), NoTokens(), lambda append: [append], Uploads())
    schema = fastapi_of(node).openapi()
    node.close()
    return schema


OPERATIONS = [
    pytest.param(method.upper(), path, operation, id=operation["operationId"])
    for path, methods in described()["paths"].items()
    for method, operation in methods.items()
]
GUARDED = [p for p in OPERATIONS if p.values[1] not in OPEN_TO_ALL]
OF_A_SESSION = [p for p in GUARDED if "{session_id}" in str(p.values[1])]


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> TokenBook:
    book = TokenBook(tmp_path_factory.mktemp("book") / "tokens.json")
    book.add("all", "read", "append", "approve", "own", "admin", kind="PERSON")
    book.add("none")
    every = ("read", "append", "approve", "own", "admin")
    book.add("other", *every, tenant="other", kind="PERSON")
    return book


@pytest.fixture(scope="module")
def served(book: TokenBook) -> Iterator[Served]:
    log = MemoryLog(settings=Settings(), clock=wall_clock)
    LogStory(log, session_id="mine").given(created(), started(), said())
    with serving(log, tokens=book.open()) as served:
        yield served
    log.close()


def ask(client: httpx2.Client, method: str, path: str, operation: dict[str, Any]) -> Any:
    """Call a route with whatever it needs at the least."""
    values = {"session_id": "mine", "sha256": "0" * 64, "schema_id": "1"}
    values |= {"request_id": "r", "model_call_id": "m"}
    url = re.sub(r"{(\w+)}", lambda match: values[match[1]], path)
    if not url.startswith("/foldline"):
        url = f"../..{url}"
    name = operation["operationId"]
    params = {"epoch": 1, "writer": "w"} if name == "release_lease" else {}
    content = b"" if method in ("PUT", "POST") else None
    json_body = BODIES.get(name)
    return client.request(
        method,
        url.removeprefix("/foldline/v1"),
        params=params,
        json=json_body,
        content=None if json_body is not None else content,
    )


@pytest.mark.parametrize(("method", "path", "operation"), GUARDED)
def test_without_a_token_no_route_answers(
    served: Served, method: str, path: str, operation: dict[str, Any]
) -> None:
    with served.http() as client:
        answer = ask(client, method, path, operation)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.json()["kind"] == "no_token"


@pytest.mark.parametrize(("method", "path", "operation"), GUARDED)
def test_an_unknown_token_opens_nothing(
    served: Served, method: str, path: str, operation: dict[str, Any]
) -> None:
    with served.http("fl_guessed") as client:
        assert ask(client, method, path, operation).status_code == 401


@pytest.mark.parametrize(("method", "path", "operation"), GUARDED)
def test_a_token_without_the_scope_is_refused(
    served: Served, method: str, path: str, operation: dict[str, Any]
) -> None:
    with served.http("fl_none") as client:
        answer = ask(client, method, path, operation)
    assert (answer.status_code, answer.json()["kind"]) == (403, "no_scope")


@pytest.mark.parametrize(("method", "path", "operation"), OF_A_SESSION)
def test_another_tenants_session_is_as_if_it_were_not_there(
    served: Served, method: str, path: str, operation: dict[str, Any]
) -> None:
    with served.http("fl_other") as client:
        answer = ask(client, method, path, operation)
        stranger = ask(client, method, path.replace("{session_id}", "nobodys"), operation)
    if operation["operationId"] == "append_event":
        assert (answer.status_code, answer.json()["kind"]) == (422, "bad_event")
    elif operation["operationId"] in ("show_lease", "renew_lease", "release_lease"):
        assert answer.status_code == 404
    else:
        assert answer.status_code == stranger.status_code == 404
        assert answer.json()["kind"] == stranger.json()["kind"]


def test_an_append_to_another_tenants_session_is_answered_as_to_none(
    served: Served,
) -> None:
    given = {"type": "SteeringReceived", "fields": {"blocks": "psst"}}
    with served.http("fl_other") as client:
        answer = client.post("/sessions/mine/appends", json=given).json()
        stranger = client.post("/sessions/nobodys/appends", json=given).json()
    for said_of in (answer, stranger):
        assert (said_of["kind"], said_of["recorded"]) == ("NO_SESSION", False)
        assert (said_of["current_seq"], said_of["epoch"], said_of["detail"]) == (0, 0, "")
    assert served.node.log.state("mine").seq == 3  # type: ignore[union-attr]


def test_who_waits_for_another_tenants_session_waits_as_for_none(served: Served) -> None:
    """Else a wait would tell who guesses ids which sessions there are."""
    with served.http("fl_other") as client:
        answers = [
            client.get(f"/sessions/{session_id}/events", params={"wait_ms": 50})
            for session_id in ("mine", "nobodys")
        ]
    nothing: dict[str, Any] = {"events": [], "next_after_seq": 0, "more": False}
    assert [(a.status_code, a.json()) for a in answers] == [(200, nothing)] * 2


def test_another_tenants_sessions_are_in_no_list(served: Served) -> None:
    with served.http("fl_other") as client:
        assert client.get("/sessions").json()["sessions"] == []
        assert client.get("/approvals").json()["requests"] == []
    other = served.log("fl_other")
    assert list(other.stored_sessions()) == []
    assert other.sessions() == []
    assert other.state("mine") is None
    other.close()


@pytest.mark.parametrize(
    ("method", "path", "given", "status", "kind"),
    [
        ("POST", "/sessions/mine/appends", {"json": {}}, 422, "bad_request"),
        ("POST", "/sessions/mine/appends", {"content": b"{"}, 422, "bad_request"),
        ("POST", "/sessions/mine/appends", {"json": {"type": "No"}}, 422, "unknown_type"),
        (
            "POST",
            "/sessions/mine/appends",
            {"json": {"type": "UserMessage", "fields": {"blocks": 7}}},
            422,
            "bad_event",
        ),
        (
            "POST",
            "/sessions/mine/appends",
            {"json": {"type": "UserMessage", "surprise": 1}},
            422,
            "bad_request",
        ),
        ("POST", "/appends", {"content": b"x"}, 415, "bad_media_type"),
        (
            "POST",
            "/appends",
            {"content": b"\xff", "headers": {"content-type": APPENDS}},
            400,
            "undecodable",
        ),
        ("PUT", "/sessions/mine/lease", {"json": {"epoch": -1}}, 422, "bad_request"),
        ("PUT", "/blobs/zz", {"content": b"x"}, 400, "bad_sha256"),
        ("PUT", f"/blobs/{'0' * 64}", {"content": b"x"}, 422, "other_bytes"),
        ("GET", "/sessions?limit=0", {}, 422, "bad_request"),
        ("GET", "/sessions?cursor=%21", {}, 400, "bad_cursor"),
        # the base64 of 2**63 and a session's id
        ("GET", "/sessions?cursor=OTIyMzM3MjAzNjg1NDc3NTgwOCBz", {}, 400, "bad_cursor"),
        ("GET", "/sessions/~%21/state", {}, 400, "bad_session_id"),
        ("GET", "/sessions/~/state", {}, 400, "bad_session_id"),
        ("GET", "/sessions/~7aCA/events?wait_ms=9", {}, 400, "bad_session_id"),
        ("GET", "/sessions/mine/state?at_seq=99", {}, 404, "no_event"),
        ("GET", f"/sessions/mine/state?at_seq={2**63}", {}, 422, "bad_request"),
        ("GET", f"/sessions/mine/state?min_seq={2**63}", {}, 422, "bad_request"),
        ("GET", f"/sessions/mine/events?min_seq={2**63}", {}, 422, "bad_request"),
        ("GET", f"/sessions/mine/events?after_seq={2**63}", {}, 422, "bad_request"),
        ("GET", f"/sessions/mine/events?upto_seq={2**63}", {}, 422, "bad_request"),
        ("GET", f"/sessions/mine/events/stream?after_seq={2**63}", {}, 422, "bad_request"),
        ("GET", f"/schemas/{2**63}", {}, 422, "bad_request"),
        ("GET", "/sessions/mine/context?format=xml", {}, 422, "bad_request"),
        ("GET", "/schemas/99", {}, 404, "no_schema"),
        ("GET", "/nothing", {}, 404, "not_found"),
        ("POST", "/sessions", {}, 405, "method_not_allowed"),
        ("POST", "/admin/checkpoint", {"json": {"folder": "/x"}}, 409, "no_replica"),
    ],
)
def test_a_bad_request_is_told_what_is_wrong(
    served: Served, method: str, path: str, given: dict[str, Any], status: int, kind: str
) -> None:
    with served.http("fl_all") as client:
        answer = client.request(method, path, **given)
    problem = answer.json()
    assert (answer.status_code, problem["kind"]) == (status, kind)
    assert answer.headers["content-type"] == "application/problem+json"
    assert problem["status"] == status
    assert problem["detail"]


def test_a_schema_that_its_log_does_not_know_is_left_out(served: Served) -> None:
    served.node.note_schemas([99])
    with served.http("fl_all") as client:
        client.get("/sessions/mine/events", headers={"accept": EVENTS})
        found = client.get("/schemas").json()
    assert found
    assert "99" not in found


@pytest.mark.parametrize("given", ["-1", "x", str(2**63), "9" * 5_000])
def test_a_last_event_id_that_is_no_seq_is_refused(served: Served, given: str) -> None:
    with served.http("fl_all") as client:
        answer = client.get(
            "/sessions/mine/events/stream", headers={"last-event-id": given}
        )
    assert (answer.status_code, answer.json()["kind"]) == (400, "bad_last_event_id")


@pytest.mark.parametrize("session_id", ["a/b", "..", "ä ö", "~x", "%2F", "x" * 300])
def test_any_session_id_can_be_asked_for(served: Served, session_id: str) -> None:
    LogStory(served.node.log, session_id=session_id).given(created())
    with served.http("fl_all") as client:
        answer = client.get(f"/sessions/{path_part(session_id)}")
    assert answer.json()["session_id"] == session_id


def test_answers_are_kept_by_nobody_on_the_way(served: Served) -> None:
    with served.http("fl_all") as client:
        headers = client.get("/sessions").headers
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"
    assert "server" not in headers


@pytest.mark.parametrize(("method", "path", "operation"), OPERATIONS)
def test_every_route_is_described(
    method: str, path: str, operation: dict[str, Any]
) -> None:
    assert operation["summary"], (method, path)
    assert operation["description"], (method, path)
    assert operation["tags"], (method, path)
    assert "2" in {status[0] for status in operation["responses"]}
    assert path in OPEN_TO_ALL or operation["security"], (method, path)


def test_the_description_is_the_one_that_clients_were_made_from(tmp_path: Path) -> None:
    now = json.dumps(described() | {"info": {}}, indent=1, sort_keys=True) + "\n"
    changed = tmp_path / "openapi.json"
    changed.write_text(now)
    assert now == GOLDEN.read_text(), f"if it is meant so: cp {changed} {GOLDEN}"


def test_no_route_hides_behind_another_of_its_path() -> None:
    """The first would answer, and the last be described."""
    places = [
        (route.path, method)
        for part in PARTS
        for route in part.router.routes
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    ]
    assert len(places) > len(OPERATIONS) // 2
    assert len(set(places)) == len(places)


def test_the_service_describes_itself(served: Served) -> None:
    with served.http() as client:
        assert client.get("/openapi.json").json()["info"]["title"] == "foldline"
