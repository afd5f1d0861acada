"""The log behind a service passes the contract, in front of two kinds of log."""

import select
import socket
import socketserver
import threading
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from foldline import connect
from foldline.errors import (
    AccessRefusedError,
    LogUnavailableError,
    UncertainAppendError,
)
from foldline.processors import http_log, http_reads
from foldline.processors.clock import Clock, wall_clock
from foldline.processors.http_log import HttpLog
from foldline.processors.memory_log import MemoryLog
from foldline.processors.open_log import open_log
from foldline.processors.stored import AuditableLog
from foldline.processors.verify import verify
from foldline.schemas.verdicts import DUPLICATE
from foldline.settings import Settings
from foldline.testing import LogContract, LogStory, SharedLogContract, make_append
from foldline.testing.samples import created, said, started, told
from foldline.testing.verdict_contract import MakeLog
from tests.serving import TokenBook, serving

UNLIMITED = Settings(token_rate_per_s=10_000_000, tenant_rate_per_s=10_000_000)


class _Served(LogContract):
    """The contract of a log behind a service."""

    one_shot_writers = 1_000

    def open_behind(self, folder: Path, clock: Clock) -> AuditableLog:
        raise NotImplementedError

    @pytest.fixture
    def tenant(self) -> str:
        """The token's: a client behind a service has no other."""
        return "default"

    @pytest.fixture
    def make_log(self, tmp_path: Path) -> Iterator[MakeLog]:
        with ExitStack() as stack:

            def make(*, clock: Clock = wall_clock) -> HttpLog:
                behind = self.open_behind(tmp_path, clock)
                stack.callback(behind.close)
                served = stack.enter_context(serving(behind, settings=UNLIMITED))
                return served.log()

            yield make


class TestHttpLogBeforeMemory(_Served):
    def open_behind(self, folder: Path, clock: Clock) -> AuditableLog:  # noqa: ARG002 - in memory
        return MemoryLog(settings=Settings(), clock=clock)


class TestHttpLogBeforeSqlite(_Served):
    def open_behind(self, folder: Path, clock: Clock) -> AuditableLog:
        return open_log(f"sqlite:///{folder}/sessions.db", clock=clock)


class TestSharedHttpLog(SharedLogContract):
    """Processes that open the same service share its log."""

    races = 100

    @pytest.fixture
    def url(self, tmp_path: Path) -> Iterator[str]:
        behind = open_log(f"sqlite:///{tmp_path}/sessions.db")
        with serving(behind, settings=UNLIMITED) as served:
            yield served.url
        behind.close()


@pytest.fixture
def behind() -> Iterator[MemoryLog]:
    log = MemoryLog(settings=Settings(), clock=wall_clock)
    yield log
    log.close()


IMPATIENT = Settings(resend_max=2, resend_after_ms=20)


def test_an_append_whose_answer_was_lost_is_sent_again_and_recorded_once(
    behind: MemoryLog,
) -> None:
    """A middleman hands the request on, and loses the first answer."""
    story = LogStory(behind).given(created())
    with serving(behind) as served, losing(served.url, answers=1) as url:
        client = HttpLog(url, settings=IMPATIENT)
        append = story.append(said())
        (verdict,) = client.append([append])
        client.close()
    assert verdict.kind == DUPLICATE
    assert (verdict.seq, story.seq) == (2, 2)


def test_an_append_that_is_never_answered_may_or_may_not_be_recorded(
    behind: MemoryLog,
) -> None:
    story = LogStory(behind).given(created())
    with serving(behind) as served, losing(served.url, answers=99) as url:
        client = HttpLog(url, settings=IMPATIENT)
        with pytest.raises(UncertainAppendError, match="may or may not"):
            client.append([story.append(said())])
        with pytest.raises(LogUnavailableError):
            client.state(story.session_id)
        client.close()
    assert story.seq == 2


def test_a_service_that_is_not_there_is_unavailable() -> None:
    client = HttpLog("http://127.0.0.1:9", settings=IMPATIENT)
    with pytest.raises(LogUnavailableError):
        client.state("s")
    with pytest.raises(UncertainAppendError):
        client.append([make_append("s", created(), known_seq=0)])
    client.close()


def test_a_token_that_is_not_taken_is_told_so(behind: MemoryLog, tmp_path: Path) -> None:
    book = TokenBook(tmp_path / "tokens.json")
    book.add("reader", "read")
    with serving(behind, tokens=book.open()) as served:
        for secret, reason in (
            ("", "missing"),
            ("fl_x", "unknown"),
            ("fl_reader", "append"),
        ):
            client = served.log(secret)
            with pytest.raises(AccessRefusedError, match=reason):
                client.append([make_append("s", created(), known_seq=0)])
            client.close()


def test_a_refusal_says_how_many_appends_were_answered_before(
    behind: MemoryLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What takes several requests is refused one by one."""
    monkeypatch.setattr(http_log, "APPENDS_MAX", 2)
    story = LogStory(behind).given(created())
    book = TokenBook(tmp_path / "tokens.json")
    book.add("harness", "append")
    with serving(behind, tokens=book.open()) as served:
        client = served.log("fl_harness")
        external = [
            make_append(story.session_id, said(), known_seq=1, epoch=0) for _ in range(3)
        ]
        decision = make_append(story.session_id, started(), known_seq=1, epoch=0)
        with pytest.raises(AccessRefusedError, match="first 2 appends") as refused:
            client.append([*external, decision])
        client.close()
    assert refused.value.recorded == 2
    assert story.seq == 3


def test_a_busy_service_is_asked_again_when_it_says(behind: MemoryLog) -> None:
    slow = Settings(token_rate_per_s=3)
    with serving(behind, settings=slow) as served:
        client = served.log()
        assert [client.state("s") for _ in range(9)] == [None] * 9
        client.close()


def test_who_follows_is_let_go_when_the_log_is_closed(behind: MemoryLog) -> None:
    story = LogStory(behind).given(created())
    with serving(behind) as served:
        client = served.log(resend_max=0)
        closing = threading.Timer(0.2, client.close)
        closing.start()
        assert client.follow(story.session_id, after_seq=1, timeout_ms=60_000) == []
        closing.join()


def test_a_client_whose_fold_is_another_folds_for_itself(
    behind: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = LogStory(behind).given(created(), started(), said())
    with serving(behind) as served:
        client = served.log()
        monkeypatch.setattr(http_reads, "decode_snapshot", _of_another_version)
        assert client.state(story.session_id) == story.state
        assert client.state(story.session_id, at_seq=2) == behind.state(
            story.session_id, at_seq=2
        )
        assert client.state("nobody") is None
        client.close()


def test_what_verify_reads_comes_through_the_service(tmp_path: Path) -> None:
    log = open_log(f"sqlite:///{tmp_path}/sessions.db")
    story = LogStory(log).given(created(), started())
    told(story, 300)
    with serving(log, settings=UNLIMITED) as served:
        client = served.log()
        report = verify(client)
        assert report.ok, report
        assert list(client.stored_sessions()) == list(log.stored_sessions())
        assert list(client.stored_snapshots(story.session_id)) == list(
            log.stored_snapshots(story.session_id)
        )
        assert list(client.inspect()) == []
        client.close()
    log.close()


async def test_a_session_is_owned_through_the_service(behind: MemoryLog) -> None:
    with serving(behind, settings=UNLIMITED) as served:
        async with connect(served.url) as first:
            owned = await first.create(agent="coder", goal="fix it")
            session_id = owned.session_id
        async with connect(served.url) as second:
            taken = await second.take(session_id)
            assert taken.session_id == session_id
    state = behind.state(session_id)
    assert state is not None
    assert (state.epoch, state.agent) == (2, "coder")


def _of_another_version(_: bytes) -> None:
    """What decoding gives where another version of the fold made the snapshot."""


@contextmanager
def losing(url: str, *, answers: int) -> Generator[str]:
    """A middleman that hands requests on, and closes instead of the first answers."""
    host, port = url.removeprefix("http://").split(":")
    left = [answers]

    class Losing(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.create_connection((host, int(port))) as service:
                while True:
                    ready, _, _ = select.select([self.request, service], [], [], 30)
                    for end in ready:
                        data = end.recv(1 << 20)
                        if not data:
                            return
                        if end is service and left[0]:
                            left[0] -= 1
                            return
                        (service if end is self.request else self.request).sendall(data)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Losing) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()
