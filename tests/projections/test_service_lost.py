"""Whoever comes to a session whose events were deleted is told so, at every door."""

import asyncio
import shutil
from contextlib import closing

import httpx2
import pytest

from foldline.errors import SessionTruncatedError, UnrecoverableError
from foldline.processors.event_rows import LOST
from foldline.processors.http_wire import API
from foldline.producers.client import connect
from foldline.projections.service_problems import MEDIA_TYPE
from foldline.projections.views import plain
from foldline.testing.samples import said
from tests.cluster.fixtures import MakeLog
from tests.cluster.logs import FreshLog, running_worker
from tests.cluster.processes import wait_until
from tests.cluster.served import in_environment
from tests.kafka_checker import check
from tests.kafka_feed import Feed
from tests.processors.cutting import cut_off, published
from tests.projections.test_service_kafka import Service, service

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def test_an_unrecoverable_session_is_shown_as_such_and_its_events_can_be_read(
    make_fresh_log: MakeLog,
) -> None:
    log = make_fresh_log(partitions=1, snapshot_lag_events=40, worker_batch_max=20)
    feed = Feed(log, seed=3, sessions=12)
    feed.tell(160)
    with running_worker(log) as worker:
        feed.settle()
        worker.terminate()
    checked = check(log, feed.answers)
    lost = cut_off(log)
    shutil.rmtree(log.folder / "w1")
    with running_worker(log):
        wait_until(
            lambda: published(log).keys() == lost.keys(),
            timeout_s=30,
            what=lambda: "lost sessions to be published",
        )
        with service(log, "node") as node, in_environment(log):
            rows = node.get("/sessions", status=LOST).json()["sessions"]
            assert {row["session_id"] for row in rows} == lost.keys()
            for session_id in lost:
                session = checked.sessions[session_id]
                assert_told(node, session_id, last_seq=session[-1].seq)
            whole = next(s for s in checked.states if s not in lost)
            assert node.get(f"/sessions/{whole}").json()["status"] != LOST
            assert node.get(f"/sessions/{whole}/state").status_code == 200
            asyncio.run(assert_refused(log.cluster.url, next(iter(lost)), node))


def assert_told(node: Service, session_id: str, *, last_seq: int) -> None:
    """Status and range are there; the state is refused; events behind the hole are read."""
    shown = node.get(f"/sessions/{session_id}").json()
    assert shown["status"] == LOST
    missing = shown["missing"]
    assert missing["unrecoverable"]
    assert missing["from_offset"] < missing["to_offset"]
    refused = node.get(f"/sessions/{session_id}/state")
    assert (refused.status_code, refused.json()["kind"]) == (410, "truncated")
    assert refused.headers["content-type"] == MEDIA_TYPE
    assert node.get(f"/sessions/{session_id}/events").status_code == 410
    if missing["next_seq"]:
        after_seq = missing["next_seq"] - 1
        found = node.get(f"/sessions/{session_id}/events", after_seq=after_seq).json()
        seqs = [event["seq"] for event in found["events"]]
        assert seqs == list(range(missing["next_seq"], last_seq + 1))
    with closing(node.log()) as reading, pytest.raises(SessionTruncatedError) as caught:
        reading.state(session_id)
    assert caught.value.unrecoverable
    assert caught.value.next_seq == missing["next_seq"]
    given = {"type": "UserMessage", "fields": plain(said())}
    url = f"{node.url}{API}/sessions/{session_id}/appends"
    answer = httpx2.post(url, json=given, timeout=30).json()
    assert (answer["kind"], answer["recorded"]) == ("UNRECOVERABLE", False)


async def assert_refused(url: str, session_id: str, node: Service) -> None:
    """Our client: to open it says what is missing, to append says that nothing is taken."""
    for log_url in (url, node.url):
        async with connect(log_url) as client:
            with pytest.raises(SessionTruncatedError, match="UNRECOVERABLE"):
                await client.open(session_id)
            with pytest.raises(UnrecoverableError, match="were deleted"):
                await client.create(agent="coder", session_id=session_id)


def test_whoever_had_read_a_lost_session_whole_goes_on_in_a_fork(
    make_fresh_log: MakeLog,
) -> None:
    log = make_fresh_log(partitions=1, snapshot_lag_events=40, worker_batch_max=20)
    with in_environment(log):
        asyncio.run(assert_goes_on_in_fork(log))


async def assert_goes_on_in_fork(log: FreshLog) -> None:
    feed = Feed(log, seed=4, sessions=12)
    async with connect(log.cluster.url) as client:
        with running_worker(log) as worker:
            feed.tell(120)
            feed.settle()
            worker.terminate()
        sessions = check(log, feed.answers).sessions
        for session_id in sessions:
            await client.open(session_id)
        lost = next(iter(cut_off(log)))
        with running_worker(log, name="w2"):
            view = await client.open(lost)  # of what it had read
            with pytest.raises(UnrecoverableError, match="were deleted"):
                await view.message("still there?")
            last = sessions[lost][-1].seq
            fork = await client.fork(lost, last)
            found = [event.seq async for event in fork.events()]
            assert found[:last] == list(range(1, last + 1))
