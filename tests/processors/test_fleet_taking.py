"""An event is taken in whole or not at all, whatever the log answers, or does not."""

import asyncio
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import pytest

from foldline.errors import AccessRefusedError, WorkerFailedError
from foldline.processors.fleet_taking import Taking, appended
from foldline.processors.memory_log import URL, MemoryLog
from foldline.processors.open_log import open_log
from foldline.projections.fleet_folding import FleetFolding, append_of
from foldline.projections.fleet_loops import DETECTOR
from foldline.projections.fleet_rows import session_key
from foldline.schemas.events import LoopDetected, TurnStarted
from foldline.schemas.recorded import Append, Recorded
from foldline.schemas.state import WINDOW
from foldline.schemas.verdicts import ACCEPTED, DUPLICATE, TOO_OLD, Verdict
from foldline.settings import Settings
from foldline.testing import LogStory
from foldline.testing.samples import created, said
from tests import happenings as h


class Table:
    """Rows in memory."""

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes] = {}

    def row(self, partition: int, key: bytes) -> bytes | None:
        del partition
        return self.rows.get(key)

    def set_row(self, partition: int, key: bytes, value: bytes | None) -> None:
        del partition
        if value is not None:
            self.rows[key] = value


class Guarded(MemoryLog):
    """A log that lets nobody say that a session goes round."""

    def append(self, appends: Sequence[Append]) -> list[Verdict]:
        if any(isinstance(append.event, LoopDetected) for append in appends):
            raise AccessRefusedError(URL, "not you")
        return super().append(appends)


@pytest.fixture
def log() -> MemoryLog:
    opened = open_log("memory:")
    assert isinstance(opened, MemoryLog)
    return opened


def go_round(log: MemoryLog) -> LogStory:
    """A session that has asked for the same three times."""
    story = LogStory(log).given(created(), TurnStarted(trigger="USER"))
    for number in range(3):
        story.given(h.request(f"m:{number}", tool="ls", args_hash="same"))
    return story


def taking(log: MemoryLog, folding: FleetFolding | None = None) -> tuple[Taking, Table]:
    table = Table()
    return Taking(log, log.codec, folding or FleetFolding(Settings()), table), table


async def take_all(one: Taking, log: MemoryLog, session_id: str) -> None:
    for offset, recorded in enumerate([*log.events(session_id)]):
        await one.take(0, offset, recorded)


async def until(looked: Callable[[], bool]) -> None:
    while not looked():  # noqa: ASYNC110 - it has no event to wait for
        await asyncio.sleep(0.01)


def loops_of(log: MemoryLog, session_id: str) -> list[Recorded]:
    return [one for one in log.events(session_id) if one.type == "LoopDetected"]


def test_a_loop_is_appended_before_its_session_is_kept(log: MemoryLog) -> None:
    story = go_round(log)

    async def run() -> None:
        one, table = taking(log)
        await take_all(one, log, story.session_id)
        assert len(loops_of(log, story.session_id)) == 1
        assert not table.rows
        await one.write_out()
        assert session_key(story.session_id) in table.rows
        one.close()

    asyncio.run(run())


def test_an_append_that_is_refused_ends_the_worker_and_keeps_nothing() -> None:
    """A commit that waits for it ends, too: nobody hangs."""
    log = Guarded(settings=Settings(), clock=lambda: time.time_ns() // 1_000)
    story = go_round(log)

    async def run() -> None:
        one, table = taking(log)
        with pytest.raises(AccessRefusedError):
            await take_all(one, log, story.session_id)
        with pytest.raises(WorkerFailedError, match="not taken in whole"):
            await one.write_out()
        assert not table.rows
        one.close()

    asyncio.run(run())


def test_a_fleet_that_ends_while_the_log_is_away_keeps_nothing_of_the_event(
    log: MemoryLog,
) -> None:
    story = go_round(log)
    events = [*log.events(story.session_id)]
    log.close()

    async def run() -> None:
        one, table = taking(log)
        for offset, recorded in enumerate(events[:-1]):
            await one.take(0, offset, recorded)
        last = asyncio.ensure_future(one.take(0, len(events), events[-1]))
        await until(lambda: "append" in one.waits)
        commit = asyncio.ensure_future(one.write_out())
        await asyncio.sleep(0)
        assert not commit.done()  # no row is set while an append lasts
        one.stop()
        await asyncio.gather(last, commit)
        assert one.gave_up
        assert not table.rows
        one.close()

    asyncio.run(run())


def test_a_record_that_is_no_event_is_skipped_and_remembered(log: MemoryLog) -> None:
    async def run() -> None:
        folding = FleetFolding(Settings())
        one, _ = taking(log, folding)
        message = SimpleNamespace(
            topic="events", partition=0, offset=7, key=b"k", value=b"?", headers={}
        )
        assert await one.decoded(message) is None
        assert folding.skips == 1
        one.close()

    asyncio.run(run())


def test_a_session_that_ran_away_gets_its_loop_at_its_head_and_only_once(
    log: MemoryLog,
) -> None:
    story = go_round(log)
    closed_by = [*log.events(story.session_id)][-1]
    loop = LoopDetected(
        kind="SAME_CALL", fingerprint="f", count=3, from_seq=3, to_seq=5,
        detector=DETECTOR, detector_version=1,
    )  # fmt: skip
    append = append_of(closed_by, loop)
    for wanted in (ACCEPTED, DUPLICATE):
        story.given(*(said() for _ in range(WINDOW + 1)))
        [verdict] = log.append([append])
        assert verdict.kind == TOO_OLD
        verdict = appended(log, append)
        [found] = loops_of(log, story.session_id)
        assert (verdict.kind, verdict.seq) == (wanted, found.seq)
