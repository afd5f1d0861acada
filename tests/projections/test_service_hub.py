"""Who waits in the hub is given everything behind what it has seen."""

import asyncio
import threading

from foldline.processors.clock import wall_clock
from foldline.processors.memory_log import MemoryLog
from foldline.projections.service_hub import Hub
from foldline.projections.service_limits import Lane
from foldline.settings import Settings
from foldline.testing import LogStory
from foldline.testing.samples import created, said

WAIT_MS = 20_000


async def seqs(hub: Hub, session_id: str, *, after_seq: int) -> list[int]:
    found = await hub.wait(session_id, after_seq=after_seq, timeout_ms=WAIT_MS)
    return [recorded.seq for recorded in found]


async def test_who_comes_during_a_look_that_begins_behind_it_misses_nothing() -> None:
    """It has seen 1, and what the look finds begins behind 3."""
    log = MemoryLog(settings=Settings(), clock=wall_clock)
    story = LogStory(log).given(created(), said(), said())
    hub = Hub(log, Lane("look", threads=1, waiting_max=2))
    go_on = threading.Event()
    held = asyncio.create_task(hub.lane.run(go_on.wait, WAIT_MS / 1000))
    first = asyncio.create_task(seqs(hub, story.session_id, after_seq=3))
    while hub.lane.under_way < 2:  # noqa: ASYNC110 - another thread counts
        await asyncio.sleep(0)
    second = asyncio.create_task(seqs(hub, story.session_id, after_seq=1))
    await asyncio.sleep(0)
    story.given(said())
    go_on.set()
    assert await held
    assert await first == [4]
    assert await second == [2, 3, 4]
    hub.lane.close()
    log.close()
