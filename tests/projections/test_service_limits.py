"""What one client asks for cannot be taken from all others: rates, sizes, times, places."""

import hashlib
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from foldline.processors.clock import wall_clock
from foldline.processors.file_blobs import FileBlobs
from foldline.processors.http_wire import (
    API,
    APPENDS,
    APPENDS_MAX,
    WireAppend,
    pack_appends,
)
from foldline.processors.memory_log import MemoryLog
from foldline.projections import service_server
from foldline.projections.service_limits import Lane, Rates
from foldline.projections.service_node import DOWNLOADS_MAX, UPLOADS_MAX, Standing
from foldline.projections.service_problems import Problem
from foldline.schemas.state import SessionState
from foldline.settings import Settings
from foldline.testing import LogStory
from foldline.testing.samples import created
from tests.serving import WAIT_S, Served, TokenBook, serving


@pytest.fixture
def log() -> Iterator[MemoryLog]:
    log = MemoryLog(settings=Settings(), clock=wall_clock)
    yield log
    log.close()


def test_a_token_is_held_to_its_rate_and_others_are_not(
    log: MemoryLog, tmp_path: Path
) -> None:
    book = TokenBook(tmp_path / "tokens.json")
    book.add("busy", "read")
    book.add("calm", "read", tenant="another")
    slow = Settings(token_rate_per_s=1)
    with serving(log, tokens=book.open(), settings=slow) as served:
        with served.http("fl_busy") as http:
            answers = [http.get("/sessions") for _ in range(5)]
        last = answers[-1]
        assert (last.status_code, last.json()["kind"]) == (429, "too_many")
        assert int(last.headers["retry-after"]) >= 1
        with served.http("fl_calm") as http:
            assert http.get("/sessions").status_code == 200


def test_all_tokens_of_a_tenant_share_its_rate(log: MemoryLog, tmp_path: Path) -> None:
    book = TokenBook(tmp_path / "tokens.json")
    names = [f"t{n}" for n in range(4)]
    for name in names:
        book.add(name, "read")
    slow = Settings(tenant_rate_per_s=1)
    statuses: list[int] = []
    with (
        serving(log, tokens=book.open(), settings=slow) as served,
        served.http() as http,
    ):
        for name in names * 5:
            headers = {"authorization": f"Bearer fl_{name}"}
            statuses.append(http.get("/sessions", headers=headers).status_code)
    assert statuses[0] == 200
    assert 429 in statuses


def test_every_event_of_a_batch_counts() -> None:
    rates = Rates(per_s=100, what="here")
    rates.take("a", 150)
    with pytest.raises(Problem) as caught:
        rates.take("a", 150)
    assert caught.value.status_code == 429
    rates.take("b", 10_000)  # more than a burst: a full bucket does
    with pytest.raises(Problem):
        rates.take("b")


def test_a_body_that_is_too_large_is_refused_whether_it_says_so_or_not(
    log: MemoryLog,
) -> None:
    small = Settings(http_body_max_bytes=1_200_000, blob_max_bytes=1_500_000)

    def pieces() -> Iterator[bytes]:
        for _ in range(13):
            yield b"x" * 100_000

    with serving(log, settings=small) as served, served.http() as http:
        headers = {"content-type": APPENDS}
        for content in (b"x" * 1_200_001, pieces()):
            answer = http.post("/appends", content=content, headers=headers)
            assert (answer.status_code, answer.json()["kind"]) == (413, "too_large")
        answer = http.put(f"/blobs/{'0' * 64}", content=b"x" * 1_300_000)
        assert answer.json()["kind"] == "other_bytes"
        answer = http.put(f"/blobs/{'0' * 64}", content=b"x" * 1_500_001)
        assert (answer.status_code, answer.json()["kind"]) == (413, "too_large")


def test_too_many_appends_at_once_are_refused(log: MemoryLog) -> None:
    with serving(log) as served, served.http() as http:
        body = pack_appends([WireAppend(b"", b"", b"", 0)] * (APPENDS_MAX + 1))
        answer = http.post("/appends", content=body, headers={"content-type": APPENDS})
    assert (answer.status_code, answer.json()["kind"]) == (413, "too_many_appends")


def send_slowly(served: Served, head: bytes) -> bytes:
    """Send the beginning of a request and nothing more; what is answered."""
    host, port = served.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=WAIT_S) as connection:
        connection.sendall(head)
        found = b""
        while piece := connection.recv(65_536):
            found += piece
            if b"\r\n\r\n" in found and b"}" in found:
                break
        return found


def test_a_body_that_comes_too_slowly_is_not_waited_for(log: MemoryLog) -> None:
    head = (
        b"POST /foldline/v1/appends HTTP/1.1\r\nhost: localhost\r\n"
        b"content-type: application/vnd.foldline.appends+msgpack\r\n"
        b"content-length: 100\r\n\r\nx"
    )
    with serving(log, settings=Settings(http_body_timeout_ms=100)) as served:
        found = send_slowly(served, head)
    assert b" 408 " in found
    assert b"too_slow" in found


def test_a_head_that_comes_too_slowly_ends_the_connection(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_server, "HEAD_TIMEOUT_S", 1.0)
    with serving(log) as served:
        assert send_slowly(served, b"GET /healthz HTTP/1.1\r\nhost: lo") == b""


def test_a_connection_that_is_used_again_is_held_to_the_same(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_server, "HEAD_TIMEOUT_S", 1.0)
    whole = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
    with serving(log) as served:
        host, port = served.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=WAIT_S) as connection:
            connection.sendall(whole)
            answer = b""
            while not answer.endswith(b"}"):  # head and body may come one by one
                answer += connection.recv(65_536)
            assert b" 200 " in answer
            connection.sendall(whole[:20])
            assert connection.recv(65_536) == b""


def test_words_that_anybody_may_send_are_no_labels(log: MemoryLog, tmp_path: Path) -> None:
    book = TokenBook(tmp_path / "tokens.json")
    admin = book.add("root", "admin")
    with serving(log, tokens=book.open()) as served, served.http() as http:
        for number in range(20):
            assert http.request(f"WORD{number}", "/sessions").status_code == 405
        with served.http(admin) as asking:
            text = asking.get("../../metrics").text
    assert "WORD" not in text
    counted = [line for line in text.splitlines() if 'method="OTHER"' in line]
    assert any(line.endswith(" 20.0") for line in counted)


# --- shares ----------------------------------------------------------------------------


@contextmanager
def connected(served: Served, head: str, *, by: str = "") -> Generator[socket.socket]:
    """A connection on which a request was sent, and nothing of its answer is read."""
    host, port = served.url.removeprefix("http://").split(":")
    with socket.socket() as connection:
        # What the system takes is little, so that the rest waits in the service.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.settimeout(WAIT_S)
        connection.connect((host, int(port)))
        bearer = f"authorization: Bearer fl_{by}\r\n" if by else ""
        lines = f"{head} HTTP/1.1\r\nhost: localhost\r\n{bearer}\r\n"
        connection.sendall(lines.encode())
        yield connection


def until(holds: Callable[[], bool]) -> None:
    """Wait until it holds."""
    ends = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < ends
        time.sleep(0.01)


def uploaded(served: Served, secret: str, data: bytes) -> str:
    """Store a blob; the path of it."""
    path = f"/blobs/{hashlib.sha256(data).hexdigest()}"
    with served.http(secret) as http:
        assert http.put(path, content=data).status_code == 200
    return path


LARGE = 16 * 1024 * 1024
"""More than the system holds for one connection."""


def test_a_client_that_does_not_read_is_let_go(log: MemoryLog) -> None:
    """In the middle of a large answer, and when only its end is left."""
    with serving(log, settings=Settings(http_send_timeout_ms=200)) as served:
        path = uploaded(served, "", b"x" * LARGE)
        open_now = served.server.server_state.connections
        until(lambda: not open_now)
        with connected(served, f"GET {API}{path}") as connection:
            until(lambda: bool(open_now))
            until(lambda: not open_now)
            found = 0
            with suppress(ConnectionResetError):
                while piece := connection.recv(1 << 20):
                    found += len(piece)
            assert found < LARGE


def test_who_reads_slowly_gets_all_of_it(log: MemoryLog) -> None:
    with serving(log, settings=Settings(http_send_timeout_ms=2_000)) as served:
        data = bytes(range(256)) * (LARGE // 256)
        path = uploaded(served, "", data)
        with served.http() as http, http.stream("GET", path) as answer:
            found = bytearray()
            for piece in answer.iter_bytes(1 << 20):
                time.sleep(0.005)
                found += piece
        assert found == data


@pytest.fixture
def two_tenants(tmp_path: Path) -> TokenBook:
    book = TokenBook(tmp_path / "tokens.json")
    book.add("busy", "read", "append")
    book.add("calm", "read", "append", tenant="another")
    return book


def test_blobs_that_one_tenant_leaves_unread_keep_no_other_waiting(
    log: MemoryLog, two_tenants: TokenBook
) -> None:
    with serving(log, tokens=two_tenants.open()) as served, ExitStack() as unread:
        path = uploaded(served, "fl_busy", b"x" * LARGE)
        for _ in range(DOWNLOADS_MAX + 1):
            request = connected(served, f"GET {API}{path}", by="busy")
            unread.enter_context(request)
        with served.http("fl_calm") as http:
            small = uploaded(served, "fl_calm", b"small")
            assert http.get(small).content == b"small"


def test_blobs_that_one_tenant_sends_slowly_keep_no_other_waiting(
    log: MemoryLog, two_tenants: TokenBook
) -> None:
    head = f"PUT {API}/blobs/{'0' * 64} HTTP/1.1\r\nhost: localhost\r\n"
    head += "authorization: Bearer fl_busy\r\ncontent-length: 100\r\n\r\nx"
    with serving(log, tokens=two_tenants.open()) as served, ExitStack() as slow:
        host, port = served.url.removeprefix("http://").split(":")
        for _ in range(UPLOADS_MAX + 1):
            sending = slow.enter_context(socket.create_connection((host, int(port))))
            sending.sendall(head.encode())
        uploaded(served, "fl_calm", b"small")


def test_one_tenant_waits_only_in_its_share_of_the_places(
    log: MemoryLog, two_tenants: TokenBook
) -> None:
    settings = Settings(tenant_streams_max=1, http_heartbeat_ms=50)
    LogStory(log, session_id="mine").given(created())
    LogStory(log, session_id="theirs", tenant="another").given(created())
    path = "/sessions/mine/events/stream"
    with (
        serving(log, tokens=two_tenants.open(), settings=settings) as served,
        served.http("fl_busy") as busy,
        served.http("fl_calm") as calm,
        busy.stream("GET", path) as first,
    ):
        lines = first.iter_lines()
        assert next(lines)
        refused = busy.get(path)
        assert (refused.status_code, refused.json()["kind"]) == (429, "too_many")
        with calm.stream("GET", "/sessions/theirs/events/stream") as answer:
            assert answer.status_code == 200
        assert next(lines) is not None


def test_a_store_of_blobs_that_is_away_says_nothing_of_what_is_in_it(
    log: MemoryLog, tmp_path: Path
) -> None:
    """Neither of a blob itself, nor whether a tenant has uploaded it."""
    folder = tmp_path / "uploads"
    notes = FileBlobs(folder, max_bytes=1 << 20)
    with serving(log, uploads=lambda _: notes) as served, served.http() as http:
        path = uploaded(served, "", b"here")
        away = tmp_path / "away"
        folder.rename(away)
        folder.write_text("a file is in the way")
        answer = http.get(path)
        assert (answer.status_code, answer.json()["kind"]) == (503, "log_unavailable")
        assert "retry-after" in answer.headers
        folder.unlink()
        away.rename(folder)
        assert http.get(path).content == b"here"


async def test_a_lane_has_so_many_places_and_no_more() -> None:
    import asyncio

    lane = Lane("test", threads=1, waiting_max=1)
    go = threading.Event()
    calls = [asyncio.create_task(lane.run(go.wait, WAIT_S)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(Problem) as caught:
        await lane.run(go.wait, WAIT_S)
    assert (caught.value.status_code, caught.value.kind) == (503, "busy")
    go.set()
    assert await asyncio.gather(*calls) == [True, True]
    assert await lane.run(lambda: 7) == 7
    lane.close()
    with pytest.raises(Problem, match="stops"):
        await lane.run(lambda: 7)


async def test_who_goes_away_gives_no_place_back_before_the_work_has_ended() -> None:
    import asyncio

    lane = Lane("test", threads=1, waiting_max=0)
    go = threading.Event()
    call = asyncio.create_task(lane.run(go.wait, WAIT_S))
    await asyncio.sleep(0)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    assert lane.under_way == 1
    go.set()
    lane.close()


# --- without tokens --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "localhost:1"}, 200),
        ({"host": "evil.example"}, 403),
        ({"origin": "https://evil.example"}, 403),
    ],
)
def test_without_tokens_no_page_in_a_browser_gets_in(
    log: MemoryLog, headers: dict[str, str], status: int
) -> None:
    with serving(log) as served, served.http() as http:
        assert http.get("/sessions", headers=headers).status_code == status


# --- partitions ------------------------------------------------------------------------


@dataclass
class Partitions:
    """Four partitions, of which this node serves two; each session's is its last digit."""

    partitions: int = 4
    served: range = range(2)
    caught_up: set[int] = field(default_factory=set[int])
    stopped: set[int] = field(default_factory=set[int])

    def partition_of(self, session_id: str) -> int:
        return int(session_id[-1])

    def standings(self) -> Sequence[Standing]:
        return [
            Standing(p, 5, 9, p in self.caught_up, stopped=p in self.stopped)
            for p in self.served
        ]


def test_a_session_of_another_node_is_told_where_it_is_not(log: MemoryLog) -> None:
    here = Partitions(caught_up={0, 1})
    with serving(log, replicated=here) as served, served.http() as http:
        for path in ("/sessions/s2", "/sessions/s2/events", "/sessions/s2/lease"):
            answer = http.get(path)
            assert (answer.status_code, answer.json()["kind"]) == (421, "another_node")
        problem: Any = answer.json()
        assert (problem["partition"], problem["served"]) == (2, [0, 1])
        assert problem["partitions"] == 4


def test_a_partition_that_is_not_here_yet_says_how_far_it_is(log: MemoryLog) -> None:
    LogStory(log, session_id="s0").given(created())
    here = Partitions(caught_up={0})
    with serving(log, replicated=here) as served, served.http() as http:
        answer = http.get("/sessions/s1")
        assert (answer.status_code, answer.json()["kind"]) == (503, "catching_up")
        assert answer.headers["retry-after"] == "2"
        assert (answer.json()["position"], answer.json()["end"]) == (5, 9)
        assert http.get("/sessions").status_code == 503
        ready = http.get("../../readyz")
        assert (ready.status_code, ready.json()["ready"]) == (503, False)
        assert ready.json()["partitions"][1]["caught_up"] is False
        assert http.get("/sessions/s0").status_code == 200
        here.caught_up.add(1)
        assert http.get("../../readyz").status_code == 200
        text = http.get("../../metrics").text
        assert 'foldline_service_replica_behind{partition="1"} 4.0' in text


def test_a_partition_that_is_read_no_further_is_told_until_it_goes_on(
    log: MemoryLog,
) -> None:
    """Once it was caught up, too: what is here of it is not all that was accepted."""
    for name in ("s0", "s1"):
        LogStory(log, session_id=name).given(created())
    here = Partitions(caught_up={0, 1})
    with serving(log, replicated=here) as served, served.http() as http:
        assert http.get("/sessions/s1/state").status_code == 200
        here.stopped.add(1)
        for path in ("/sessions/s1/state", "/sessions/s1/events", "/sessions"):
            answer = http.get(path)
            assert (answer.status_code, answer.json()["kind"]) == (503, "stopped")
            assert answer.headers["retry-after"] == "2"
        assert http.get("/sessions/s0/state").status_code == 200
        ready = http.get("../../readyz")
        assert (ready.status_code, ready.json()["ready"]) == (503, False)
        text = http.get("../../metrics").text
        assert 'foldline_service_replica_stopped{partition="1"} 1.0' in text
        here.stopped.clear()
        assert http.get("../../readyz").status_code == 200
        assert http.get("/sessions/s1/state").status_code == 200


def test_the_state_of_nobody_is_kept_for_nobody(log: MemoryLog) -> None:
    """What is remembered of whose a session is never outlives a session that is not."""
    with serving(log) as served, served.http() as http:
        assert http.get("/sessions/later/state").status_code == 404
        LogStory(log, session_id="later").given(created())
        assert http.get("/sessions/later/state").status_code == 200
    assert isinstance(log.state("later"), SessionState)
