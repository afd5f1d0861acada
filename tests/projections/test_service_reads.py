"""What the service says of sessions is what the log says."""

import asyncio
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import httpx2
import pytest

from foldline.processors.clock import wall_clock
from foldline.processors.http_wire import EVENTS, MORE, NEXT, STATE, unpack_events
from foldline.processors.memory_log import MemoryLog
from foldline.producers.client import connect
from foldline.projections import service_events
from foldline.projections.reading import request_of
from foldline.projections.recovery import RecoveryPolicy, plan_recovery
from foldline.projections.render import request_bytes
from foldline.projections.service_sessions import PAGE_MAX
from foldline.projections.views import event_view, session_view, state_view
from foldline.schemas.events import (
    ModelCallStarted,
    SessionCreated,
    ToolsDeclared,
    TurnEnded,
)
from foldline.schemas.snapshots import decode_snapshot
from foldline.settings import Settings
from foldline.testing import LogStory
from foldline.testing.samples import created, said, started, ticking, told
from tests.serving import Served, serving

QUICK = Settings(read_wait_ms=200)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    log = MemoryLog(settings=QUICK, clock=wall_clock)
    with serving(log, settings=QUICK) as served:
        yield served
    log.close()


@pytest.fixture
def http(served: Served) -> Iterator[httpx2.Client]:
    with served.http() as client:
        yield client


@pytest.fixture
def story(served: Served) -> LogStory:
    return LogStory(served.node.log).given(created(), started(), said("grüße"))


def get(http: httpx2.Client, path: str, **params: Any) -> Any:
    answer = http.get(path, params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_session_is_shown_as_it_is_listed(http: httpx2.Client, story: LogStory) -> None:
    (summary,) = [s for s in story.log.sessions() if s.session_id == story.session_id]
    assert get(http, f"/sessions/{story.session_id}") == session_view(summary)


def test_a_state_is_the_logs_now_and_at_any_seq(
    http: httpx2.Client, story: LogStory
) -> None:
    path = f"/sessions/{story.session_id}/state"
    assert get(http, path) == state_view(story.state)
    before = story.log.state(story.session_id, at_seq=2)
    assert before is not None
    assert get(http, path, at_seq=2) == state_view(before)


def test_a_client_gets_the_state_as_a_snapshot(
    http: httpx2.Client, story: LogStory
) -> None:
    answer = http.get(f"/sessions/{story.session_id}/state", headers={"accept": STATE})
    assert answer.headers["content-type"] == STATE
    assert decode_snapshot(answer.content) == story.state


def test_a_read_waits_for_the_seq_that_it_must_have(
    http: httpx2.Client, story: LogStory
) -> None:
    path = f"/sessions/{story.session_id}/state"
    writer = threading.Timer(0.05, lambda: story.given(said("later")))
    writer.start()
    assert get(http, path, min_seq=4)["seq"] == 4
    writer.join()


def test_events_wait_for_the_seq_that_they_must_have(
    http: httpx2.Client, story: LogStory
) -> None:
    writer = threading.Timer(0.05, lambda: story.given(said("later")))
    writer.start()
    page = get(http, f"/sessions/{story.session_id}/events", min_seq=4)
    writer.join()
    assert [event["seq"] for event in page["events"]] == [1, 2, 3, 4]


@pytest.mark.parametrize("what", ["state", "events"])
def test_a_read_that_does_not_come_so_far_says_when_to_ask_again(
    http: httpx2.Client, story: LogStory, what: str
) -> None:
    answer = http.get(f"/sessions/{story.session_id}/{what}", params={"min_seq": 99})
    assert (answer.status_code, answer.json()["kind"]) == (503, "not_so_far")
    assert answer.headers["retry-after"] == "1"


def test_events_come_page_by_page(http: httpx2.Client, story: LogStory) -> None:
    told(story, 10)
    path = f"/sessions/{story.session_id}/events"
    seen: list[Any] = []
    after_seq, more = 0, True
    while more:
        page = get(http, path, after_seq=after_seq, limit=4)
        seen += page["events"]
        after_seq, more = page["next_after_seq"], page["more"]
    assert seen == [event_view(r) for r in story.log.events(story.session_id)]


@pytest.mark.parametrize("accept", [EVENTS, "application/json"])
def test_a_page_of_some_types_ends_and_says_where_the_next_one_begins(
    http: httpx2.Client,
    story: LogStory,
    monkeypatch: pytest.MonkeyPatch,
    accept: str,
) -> None:
    """In both forms: else one request would look through a whole long session."""
    monkeypatch.setattr(service_events, "SCANNED_MAX", 2)
    path = f"/sessions/{story.session_id}/events"
    params: dict[str, str | int] = {"types": "NoSuchType"}
    answer = http.get(path, headers={"accept": accept}, params=params)
    if accept == EVENTS:
        assert list(unpack_events(answer.content)) == []
        assert (answer.headers[MORE], answer.headers[NEXT]) == ("1", "2")
    else:
        page = answer.json()
        assert (page["events"], page["more"], page["next_after_seq"]) == ([], True, 2)


def test_events_of_some_types_keep_their_seqs(http: httpx2.Client, story: LogStory) -> None:
    story.given(TurnEnded(outcome="DONE"))
    path = f"/sessions/{story.session_id}/events"
    page = get(http, path, types="TurnStarted,TurnEnded", limit=1)
    assert [(e["seq"], e["type"]) for e in page["events"]] == [(2, "TurnStarted")]
    assert page["more"]
    page = get(http, path, types="TurnStarted,TurnEnded", after_seq=2)
    assert [(e["seq"], e["type"]) for e in page["events"]] == [(4, "TurnEnded")]
    assert (page["more"], page["next_after_seq"]) == (False, 4)


def test_a_range_of_events(http: httpx2.Client, story: LogStory) -> None:
    path = f"/sessions/{story.session_id}/events"
    page = get(http, path, after_seq=1, upto_seq=2)
    assert [e["seq"] for e in page["events"]] == [2]


def test_a_client_gets_events_as_they_are_stored(
    http: httpx2.Client, story: LogStory
) -> None:
    path = f"/sessions/{story.session_id}/events"
    answer = http.get(path, headers={"accept": EVENTS}, params={"limit": 2})
    stored = list(story.log.stored_events(story.session_id))  # type: ignore[attr-defined]
    assert list(unpack_events(answer.content)) == stored[:2]
    assert answer.headers[MORE] == "1"
    answer = http.get(path, headers={"accept": EVENTS}, params={"types": "UserMessage"})
    assert [event.seq for event in unpack_events(answer.content)] == [3]
    assert MORE not in answer.headers


def test_a_page_ends_before_it_takes_too_much_memory() -> None:
    log = MemoryLog(settings=Settings(), clock=wall_clock)
    story = LogStory(log).given(created())
    story.given(*[said("x" * 3_000) for _ in range(5)])
    small = Settings(http_stream_buffer_bytes=4_000)
    with serving(log, settings=small) as served_small, served_small.http() as http:
        page = get(http, f"/sessions/{story.session_id}/events")
        assert (len(page["events"]), page["more"]) == (3, True)
        client = served_small.log()
        assert [r.seq for r in client.events(story.session_id)] == list(range(1, 7))
        client.close()
    log.close()


def test_a_wait_for_the_next_event_ends_with_it(
    http: httpx2.Client, story: LogStory
) -> None:
    path = f"/sessions/{story.session_id}/events"
    assert get(http, path, after_seq=3, wait_ms=1)["events"] == []
    writer = threading.Timer(0.05, lambda: story.given(said("later")))
    writer.start()
    page = get(http, path, after_seq=3, wait_ms=30_000)
    writer.join()
    assert [e["seq"] for e in page["events"]] == [4]


def test_the_schema_of_an_event_is_shown(http: httpx2.Client, story: LogStory) -> None:
    (first, *_) = story.log.events(story.session_id)
    assert get(http, f"/schemas/{first.schema_id}")["name"] == "SessionCreated"
    http.get(f"/sessions/{story.session_id}/events", headers={"accept": EVENTS})
    assert str(first.schema_id) in get(http, "/schemas")


def test_sessions_are_listed_page_by_page() -> None:
    log = MemoryLog(settings=Settings(), clock=ticking())
    stories = [LogStory(log).given(created()) for _ in range(7)]
    stories[3].given(started())
    with serving(log) as served, served.http() as http:
        seen: list[str] = []
        cursor = None
        while True:
            page = get(http, "/sessions", limit=2, **({"cursor": cursor} if cursor else {}))
            seen += [s["session_id"] for s in page["sessions"]]
            cursor = page["cursor"]
            if cursor is None:
                break
        assert seen == [s.session_id for s in log.sessions()]
        (running,) = get(http, "/sessions", status="RUNNING")["sessions"]
        assert running["session_id"] == stories[3].session_id
    log.close()


def test_a_list_of_sessions_of_one_moment_ends_and_has_each_once() -> None:
    """Also where it is more than one page of foldline's own client."""
    log = MemoryLog(settings=Settings(), clock=ticking(step=0))
    made = [LogStory(log).given(created()).session_id for _ in range(PAGE_MAX + 3)]
    with serving(log) as served, served.http() as http, closing(served.log()) as client:
        first = get(http, "/sessions", limit=PAGE_MAX)
        second = get(http, "/sessions", limit=PAGE_MAX, cursor=first["cursor"])
        assert second["cursor"] is None
        seen = [row["session_id"] for row in (*first["sessions"], *second["sessions"])]
        assert seen == sorted(made, reverse=True)
        assert [row.session_id for row in client.sessions(limit=5_000)] == seen
    log.close()


# --- contexts ------------------------------------------------------------------------


def greeted(served: Served) -> str:
    """The path of a session in which somebody said hello."""
    story = LogStory(served.node.log).given(
        SessionCreated(agent="coder"), ToolsDeclared(tools=()), started(), said("hello")
    )
    return f"/sessions/{story.session_id}"


def test_a_context_is_rendered_for_three_apis(http: httpx2.Client, served: Served) -> None:
    path = f"{greeted(served)}/context"
    chat = get(http, path)
    assert chat["request"]["messages"] == [{"role": "user", "content": "hello"}]
    assert (chat["base_seq"], chat["upto_seq"], chat["explanation"]) == (0, 4, None)
    blocks = [{"type": "text", "text": "hello"}]
    anthropic = get(http, path, format="anthropic", model="m")["request"]
    assert anthropic["messages"] == [{"role": "user", "content": blocks}]
    assert anthropic["model"] == "m"
    responses = get(http, path, format="openai-responses")["request"]
    assert responses["input"][0]["content"] == [{"type": "input_text", "text": "hello"}]
    assert get(http, path, format="")["request"] is None


def test_a_contexts_hash_is_of_the_request_as_it_is_sent(
    http: httpx2.Client, served: Served
) -> None:
    view = get(http, f"{greeted(served)}/context", format="anthropic")
    sent = json.dumps(view["request"], ensure_ascii=False, separators=(",", ":"))
    assert hashlib.sha256(sent.encode()).hexdigest() == view["sha256"]


def test_a_context_is_shown_as_it_was_and_explained(
    http: httpx2.Client, served: Served
) -> None:
    path = greeted(served)
    view = get(http, f"{path}/context", explain=True)
    (message,) = view["explanation"]["messages"]
    assert (message["role"], message["why"], message["text"]) == (
        "user",
        "in full",
        "hello",
    )
    assert [s["type"] for s in message["sources"]] == ["UserMessage"]
    assert view["explanation"]["tokens"]["total"] == message["tokens"] == 5
    assert get(http, f"{path}/context", at_seq=3, format="")["messages"] == 0
    assert http.get(f"{path}/context", params={"at_seq": 9}).status_code == 404


def test_two_contexts_are_compared(http: httpx2.Client, served: Served) -> None:
    path = f"{greeted(served)}/context/difference"
    found = get(http, path, from_seq=3)
    assert (found["same_messages"], found["only_grew"]) == (0, True)
    assert [message["text"] for message in found["new"]] == ["hello"]
    assert http.get(path).json()["kind"] == "no_model_call"


def test_the_request_of_a_model_call_is_rebuilt(
    http: httpx2.Client, served: Served
) -> None:
    path = greeted(served)
    story = LogStory(served.node.log, session_id=path.rpartition("/")[2])
    story.given(ModelCallStarted(model_call_id="m1", provider="p", model="m"))
    found = get(http, f"{path}/requests/m1")
    assert (found["ok"], found["request"]) == (False, None)
    assert found["problems"] == ["no request was recorded with this call"]
    assert http.get(f"{path}/requests/m2").json()["kind"] == "no_model_call"


def test_a_policy_shows_what_it_would_have_made(
    http: httpx2.Client, served: Served
) -> None:
    path = f"{greeted(served)}/context"
    plain = get(http, path)
    for how in ({"policy": "lean"}, {"budget": 1}, {"policy": "full", "budget": 9}):
        assert get(http, path, **how)["request"] == plain["request"]  # one message stays
    for wrong in ({"policy": "thin"}, {"budget": 0}):
        assert http.get(path, params=wrong).status_code == 422


async def test_a_client_of_the_service_rebuilds_what_was_sent(
    http: httpx2.Client, served: Served
) -> None:
    """With a body that is a blob; and the service rebuilds the same."""
    log = served.log()
    async with connect(log) as client:
        owned = await client.create(agent="a", instructions="many words " * 20_000)
        async with owned.turn("go") as turn:
            context = await turn.context()
            async with turn.model_call(context, model="m", format="anthropic") as call:
                sent = request_bytes(call.request)
    found = request_of(log, owned.session_id, call.model_call_id)
    assert found is not None
    assert (found.problems, found.data) == ((), sent)
    path = f"/sessions/{owned.session_id}/requests/{call.model_call_id}"
    view = await asyncio.to_thread(get, http, path)
    assert view["sha256"] == hashlib.sha256(sent).hexdigest()
    log.close()


def test_a_recovery_plan_is_the_one_that_a_new_owner_makes(
    http: httpx2.Client, story: LogStory
) -> None:
    story.given(ModelCallStarted(model_call_id="m1", provider="p", model="m"))
    plan = get(http, f"/sessions/{story.session_id}/recovery")
    state = story.state
    wanted = plan_recovery(state, state.recorded_at, RecoveryPolicy())
    assert [a["action"] for a in plan["actions"]] == [type(a).__name__ for a in wanted]
    assert plan["actions"][0] == {"action": "CancelModelCall", "model_call_id": "m1"}
    assert (plan["seq"], plan["epoch"]) == (4, 1)


def test_a_node_that_lives_and_is_ready_says_so(http: httpx2.Client) -> None:
    assert get(http, "../../healthz") == {"status": "ok"}
    assert get(http, "../../readyz") == {"ready": True, "partitions": []}


def test_what_is_counted_names_no_session(http: httpx2.Client, story: LogStory) -> None:
    get(http, f"/sessions/{story.session_id}")
    text = http.get("../../metrics").text
    route = 'route="/sessions/{session_id}"'
    assert f'foldline_service_requests_total{{method="GET",{route},status="200"}}' in text
    assert story.session_id not in text
