"""A stream has no hole, no repetition and no end of its own; it goes on where it was."""

import json
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from foldline.processors.clock import wall_clock
from foldline.processors.log import FOLLOW_MAX_EVENTS
from foldline.processors.memory_log import MemoryLog
from foldline.processors.open_log import open_log
from foldline.projections.tokens import save
from foldline.projections.views import event_view
from foldline.schemas.verdicts import ACCEPTED
from foldline.settings import Settings
from foldline.testing import LogStory
from foldline.testing.samples import created, said, started, told
from tests.serving import WAIT_S, Served, TokenBook, serving

QUICK = Settings(http_heartbeat_ms=50)


@pytest.fixture
def served() -> Iterator[Served]:
    log = MemoryLog(settings=QUICK, clock=wall_clock)
    with serving(log, settings=QUICK) as served:
        yield served
    log.close()


@pytest.fixture
def story(served: Served) -> LogStory:
    return LogStory(served.node.log).given(created(), started())


@contextmanager
def streaming(
    served: Served, story: LogStory, *, last_event_id: int | None = None, **params: Any
) -> Generator[Iterator[str]]:
    """The lines of a stream."""
    headers = {} if last_event_id is None else {"last-event-id": str(last_event_id)}
    path = f"/sessions/{story.session_id}/events/stream"
    with (
        served.http() as http,
        http.stream("GET", path, headers=headers, params=params) as answer,
    ):
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield answer.iter_lines()


def events(lines: Iterator[str], count: int) -> list[tuple[int, Any]]:
    """The next events: id and data."""
    found: list[tuple[int, Any]] = []
    seq = 0
    while len(found) < count:
        line = next(lines)
        if line.startswith("id: "):
            seq = int(line.removeprefix("id: "))
        elif line.startswith("data: "):
            found.append((seq, json.loads(line.removeprefix("data: "))))
    return found


def test_a_stream_tells_what_was_and_what_comes(served: Served, story: LogStory) -> None:
    with streaming(served, story) as lines:
        seqs = [seq for seq, _ in events(lines, 2)]
        for n in range(3):
            story.given(said(str(n)))
            seqs += [seq for seq, _ in events(lines, 1)]
    assert seqs == [1, 2, 3, 4, 5]


def test_its_data_is_the_events_view(served: Served, story: LogStory) -> None:
    story.given(said("a\nb\u2028c"))
    with streaming(served, story, after_seq=2) as lines:
        ((_, data),) = events(lines, 1)
    (recorded,) = story.log.events(story.session_id, after_seq=2)
    assert data == event_view(recorded)


def test_it_goes_on_behind_the_last_event_that_was_seen(
    served: Served, story: LogStory
) -> None:
    story.given(*[said(str(n)) for n in range(5)])
    with streaming(served, story, last_event_id=4, after_seq=1) as lines:
        assert [seq for seq, _ in events(lines, 3)] == [5, 6, 7]


def test_a_long_backlog_comes_whole_and_in_order(served: Served, story: LogStory) -> None:
    told(story, 2 * FOLLOW_MAX_EVENTS)
    last = story.seq
    with streaming(served, story) as lines:
        assert [seq for seq, _ in events(lines, last)] == list(range(1, last + 1))


def test_of_some_types_only(served: Served, story: LogStory) -> None:
    story.given(said("one"))
    with streaming(served, story, types="UserMessage") as lines:
        assert [seq for seq, _ in events(lines, 1)] == [3]
        story.given(said("two"))
        assert [seq for seq, _ in events(lines, 1)] == [4]


def test_a_quiet_stream_says_that_it_lives(served: Served, story: LogStory) -> None:
    with streaming(served, story, after_seq=2) as lines:
        heard = [line for _, line in zip(range(6), lines, strict=False)]
    assert heard.count(": alive") >= 2


def test_many_streams_of_many_sessions_cost_no_thread_each(served: Served) -> None:
    stories = [LogStory(served.node.log).given(created()) for _ in range(20)]
    before = threading.active_count()
    told_seqs: list[list[int]] = [[] for _ in stories]
    ready = threading.Barrier(len(stories) + 1)

    def listen(number: int) -> None:
        with streaming(served, stories[number], after_seq=1) as lines:
            next(lines)
            ready.wait(WAIT_S)
            told_seqs[number] = [seq for seq, _ in events(lines, 2)]

    listeners = [threading.Thread(target=listen, args=(n,)) for n in range(len(stories))]
    for listener in listeners:
        listener.start()
    ready.wait(WAIT_S)
    of_the_service = threading.active_count() - before - len(listeners)
    for story in stories:
        story.given(started(), said())
    for listener in listeners:
        listener.join(WAIT_S)
    assert told_seqs == [[2, 3]] * len(stories)
    limits = QUICK.http_readers + QUICK.http_appenders + 1
    assert of_the_service <= limits


def test_so_many_streams_are_open_at_once_and_no_more(story: LogStory) -> None:
    settings = Settings(http_streams_max=1, http_heartbeat_ms=50)
    with serving(story.log, settings=settings) as served:  # type: ignore[arg-type]
        path = f"/sessions/{story.session_id}/events/stream"
        with streaming(served, story) as lines:
            next(lines)
            with served.http() as http:
                answer = http.get(path)
        assert (answer.status_code, answer.json()["kind"]) == (503, "busy")
        while served.node.streams:
            time.sleep(0.01)
        with streaming(served, story) as lines:
            assert len(events(lines, 2)) == 2


def test_a_read_that_waits_for_a_seq_takes_a_place_too(story: LogStory) -> None:
    settings = Settings(http_streams_max=1, http_heartbeat_ms=50)
    with (
        serving(story.log, settings=settings) as served,  # type: ignore[arg-type]
        streaming(served, story) as lines,
        served.http() as http,
    ):
        next(lines)
        for what in ("state", "events"):
            path = f"/sessions/{story.session_id}/{what}"
            assert http.get(path).status_code == 200
            answer = http.get(path, params={"min_seq": 99})
            assert (answer.status_code, answer.json()["kind"]) == (503, "busy")


def test_a_stream_ends_when_the_service_stops(served: Served, story: LogStory) -> None:
    with streaming(served, story, after_seq=2) as lines:
        next(lines)
        served.server.should_exit = True
        assert list(lines)[-1] in ("", ": alive")


def test_a_stream_ends_where_the_log_does_not_answer(tmp_path: Path) -> None:
    log = open_log(f"sqlite:///{tmp_path}/sessions.db")
    story = LogStory(log).given(created(), started(), said("last"))
    with (
        serving(log, settings=QUICK) as served,
        streaming(served, story, after_seq=2) as lines,
    ):
        assert [seq for seq, _ in events(lines, 1)] == [3]
        log.close()
        assert [line for line in lines if line.startswith("data")] == []


def test_a_client_that_comes_back_misses_nothing_over_restarts(tmp_path: Path) -> None:
    """The service goes down and comes up three times while somebody appends."""
    log = open_log(f"sqlite:///{tmp_path}/sessions.db")
    story = LogStory(log).given(created())
    count, port = 120, 0
    done = threading.Event()

    def write() -> None:
        for n in range(count):
            story.when(said(str(n)), epoch=0).then(ACCEPTED)
            time.sleep(0.002)
        done.set()

    writer = threading.Thread(target=write)
    seen: list[int] = []
    writer.start()
    restarts = 0
    while len(seen) <= count:
        with serving(log, settings=QUICK, port=port) as served:
            port = int(served.url.rpartition(":")[2])
            enough = len(seen) + 25 if restarts < 3 else count + 1
            with streaming(served, story, last_event_id=seen[-1] if seen else 0) as lines:
                while len(seen) < enough:
                    seen += [seq for seq, _ in events(lines, 1)]
        restarts += 1
    writer.join()
    assert seen == list(range(1, count + 2))
    assert restarts == 4
    log.close()


def test_who_waits_for_a_session_that_becomes_anothers_sees_nothing(
    served: Served,
) -> None:
    story = LogStory(served.node.log, tenant="other")
    with served.http() as http:
        path = f"/sessions/{story.session_id}/events"
        writer = threading.Timer(0.05, lambda: story.given(created()))
        writer.start()
        answer = http.get(path, params={"wait_ms": 300})
        writer.join()
    assert (answer.status_code, answer.json()["events"]) == (200, [])


def test_a_client_that_goes_away_gives_its_place_back(
    served: Served, story: LogStory
) -> None:
    with streaming(served, story) as lines:
        next(lines)
        assert served.node.streams == 1
    for _ in range(1_000):
        if not served.node.streams:
            break
        time.sleep(0.01)
    assert served.node.streams == 0


@pytest.mark.parametrize("stream", ["/sessions/s/events/stream", "/approvals/stream"])
@pytest.mark.parametrize("way", ["removed", "other scopes"])
def test_a_stream_ends_with_its_token(tmp_path: Path, stream: str, way: str) -> None:
    """And what comes afterwards is not told on it."""
    log = MemoryLog(settings=QUICK, clock=wall_clock)
    story = LogStory(log, session_id="s").given(created())
    book = TokenBook(tmp_path / "tokens.json")
    secret = book.add("gone", "read")
    with (
        serving(log, tokens=book.open(), settings=QUICK) as served,
        served.http(secret) as http,
        http.stream("GET", stream) as answer,
    ):
        lines = answer.iter_lines()
        while next(lines) != ": alive":
            pass
        book.tokens.clear()
        save(book.path, book.tokens)
        if way == "other scopes":
            book.add("gone", "append")
        for line in lines:  # until it ends
            assert line in ("", ": alive")
        story.given(started())
        assert http.get("/sessions").status_code in (401, 403)
    log.close()
