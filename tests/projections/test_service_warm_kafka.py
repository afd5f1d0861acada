"""Next contexts that a node keeps warm from `events`, killed and started again between."""

import asyncio
import re
from contextlib import closing
from pathlib import Path

import httpx2
import pytest

from foldline.processors.http_wire import SOURCES
from foldline.processors.lineage import joined_events, lineage_of
from foldline.processors.log import Log
from foldline.producers.client import connect
from foldline.producers.session import OwnedSession
from foldline.projections.building import build
from foldline.projections.context import Context, Sources, text_blobs
from foldline.schemas.events import ContextCleared
from tests.cluster.processes import wait_until
from tests.cluster.served import served_log
from tests.cluster.shared import Broker
from tests.projections.test_service_kafka import WAIT_S, Service

pytestmark = pytest.mark.kafka

LARGE = "a long message " * 5_000
"""More than an event holds inline."""


def whole(log: Log, session_id: str) -> Context:
    """The context built from the first event on."""
    events = list(joined_events(log, lineage_of(log, session_id)))
    texts = {sha256: log.blobs.get(sha256).decode() for sha256 in text_blobs(events)}
    return build(Sources(events, texts=texts))


def count(service: Service, name: str) -> float:
    """The sum of a metric of the node."""
    text = httpx2.get(f"{service.url}/metrics", timeout=WAIT_S).text
    return sum(float(n) for n in re.findall(rf"(?m)^{name}(?:\{{.*\}})? (\S+)$", text))


def is_kept(service: Service, session_id: str) -> bool:
    """Whether the node had it in memory, as new as it is, when it was asked."""
    before = count(service, r'foldline_service_context_sources_total\{how="kept"\}')
    path = f"/sessions/{session_id}/context/sources"
    answer = httpx2.get(
        f"{service.url}/foldline/v1{path}", headers={"accept": SOURCES}, timeout=WAIT_S
    )
    assert answer.status_code == 200
    return count(service, r'foldline_service_context_sources_total\{how="kept"\}') > before


async def warm(service: Service, sessions: int) -> None:
    """Wait until the node has made that many warm by itself."""
    await asyncio.to_thread(
        wait_until,
        lambda: count(service, "foldline_service_warm_sessions") >= sessions,
        timeout_s=WAIT_S,
        what=lambda: f"{sessions} sessions are warm: {service.process.said()}",
    )


async def woken(service: Service, session_id: str) -> None:
    """A new owner's first context is that of the whole history; then it works on."""
    with closing(service.log()) as log:
        async with connect(log) as client:
            owned = await client.take(session_id)
            async with owned.turn("go on") as turn:
                context = await turn.context(policy="full")
                expected = await asyncio.to_thread(whole, log, session_id)
                assert context.sha256() == expected.sha256()
            await owned.suspend("for now")


async def worked(owned: OwnedSession) -> None:
    """Somebody worked, cleared the context and said something large."""
    await owned.message("old")
    await owned.append(ContextCleared())
    await owned.message(LARGE)


async def test_a_killed_node_has_live_sessions_warm_again_and_shows_all_of_them(
    broker: Broker, tmp_path: Path
) -> None:
    """Without being asked, also of what was said while it was dead."""
    with served_log(broker, tmp_path) as log:
        node = Service(log, "node")
        try:
            node.wait_ready()
            with closing(node.log()) as through:
                async with connect(through) as client:
                    first = await client.create(agent="a", goal="ship it")
                    await worked(first)
                    await warm(node, 1)
                    second = await client.create(agent="b", instructions=LARGE)
                    await worked(second)
                    view = await client.open(second.session_id)
                    fork = await view.fork(at_seq=(await view.state()).seq)
                    owned = (first, second, fork)
                    await warm(node, len(owned))
                    for one in owned:
                        await one.suspend("for now")
            node.process.kill()
            async with connect(log.cluster.url) as client:
                session_id = first.session_id
                taken = await client.take(session_id)
                await worked(taken)
                await taken.suspend("for now")
            node = Service(log, "node")
            node.wait_ready()
            await warm(node, len(owned))
            for one in owned:
                assert await asyncio.to_thread(is_kept, node, one.session_id)
                await woken(node, one.session_id)
        finally:
            node.process.kill()
