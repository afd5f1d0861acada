"""Joining a fork with its ancestors: what writers name is looked at, not believed."""

import hashlib
from collections.abc import Callable, Iterator

import pytest

from foldline.errors import ForkPointError, LineageError, SessionNotFoundError
from foldline.processors import lineage
from foldline.processors.clock import wall_clock
from foldline.processors.lineage import (
    HasSeq,
    children,
    joined_events,
    joined_stored,
    lineage_of,
)
from foldline.processors.memory_log import MemoryLog
from foldline.processors.stored import AuditableLog, StoredEvent
from foldline.processors.verify import verify
from foldline.producers.client import connect
from foldline.projections.trees import tree_of
from foldline.schemas.events import SessionCreated
from foldline.schemas.recorded import Recorded
from foldline.settings import Settings
from foldline.testing import LogStory
from foldline.testing.samples import created, said


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog(settings=Settings(), clock=wall_clock)


def fork_by_hand(
    log: AuditableLog,
    name: str,
    parent_id: str,
    fork_seq: int,
    *,
    tenant: str = "default",
    mode: str = "OWNED",
    prev_hash: bytes = b"\1" * 32,
) -> str:
    """A fork as any writer may append it; its parent is not looked at."""
    story = LogStory(log, session_id=name, tenant=tenant)
    event = SessionCreated(
        agent="a",
        mode=mode,
        relation="FORK",
        parent_session_id=parent_id,
        fork_seq=fork_seq,
    )
    append = story.append(event, known_seq=0)
    envelope = append.envelope.model_copy(update={"prev_hash": prev_hash})
    (verdict,) = log.append([append._replace(envelope=envelope)])
    assert verdict.kind == "ACCEPTED"
    return name


def test_a_session_that_is_no_fork_is_its_whole_history(log: MemoryLog) -> None:
    story = LogStory(log).given(created(), said())
    found = lineage_of(log, story.session_id)
    assert (found.ancestors, found.fork_seq, found.holder(1)) == ((), 0, story.session_id)
    with pytest.raises(SessionNotFoundError):
        lineage_of(log, "nobody")


def test_sessions_that_name_each_other_end_in_an_error(log: MemoryLog) -> None:
    fork_by_hand(log, "a", "b", 5)
    fork_by_hand(log, "b", "a", 5)
    with pytest.raises(LineageError, match="it has events 6 to 6, none at 5"):
        lineage_of(log, "a")
    assert len(tree_of(log, "a").nodes) == 2


def test_a_history_of_too_many_ancestors_is_refused(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lineage, "ANCESTORS_MAX", 3)
    LogStory(log, session_id="s0").given(created())
    for number in range(1, 5):
        fork_by_hand(log, f"s{number}", f"s{number - 1}", number)
    assert len(lineage_of(log, "s3").ancestors) == 3
    with pytest.raises(LineageError, match="more than 3"):
        lineage_of(log, "s4")


def test_another_tenants_session_is_no_ancestor_and_no_child(log: MemoryLog) -> None:
    story = LogStory(log, tenant="one").given(created(), said())
    fork_by_hand(log, "spy", story.session_id, 1, tenant="two")
    with pytest.raises(LineageError, match="no such session here"):
        lineage_of(log, "spy")
    assert children(log, story.session_id, tenant="one") == []
    assert len(tree_of(log, story.session_id).nodes) == 1


async def test_another_tenants_session_is_not_forked(log: MemoryLog) -> None:
    story = LogStory(log, tenant="one").given(created(), said())
    async with connect(log, tenant="two") as client:
        with pytest.raises(ForkPointError, match="another tenant"):
            await client.fork(story.session_id, 1, fork_id="f")
    assert log.state("f") is None


class ShortLog(MemoryLog):
    """A log that has lost all but two events of one session, as a topic may."""

    cut = ""

    def stored_events(
        self, session_id: str, *, after_seq: int = -1, upto_seq: int | None = None
    ) -> Iterator[StoredEvent]:
        found = super().stored_events(session_id, after_seq=after_seq, upto_seq=upto_seq)
        return (e for e in found if session_id != self.cut or e.seq <= 2)

    def events(
        self, session_id: str, *, after_seq: int = 0, upto_seq: int | None = None
    ) -> Iterator[Recorded]:
        found = super().events(session_id, after_seq=after_seq, upto_seq=upto_seq)
        return (e for e in found if session_id != self.cut or e.seq <= 2)


@pytest.mark.parametrize("read", [joined_events, joined_stored])
async def test_a_parent_that_lost_events_is_named_where_it_has_none(
    read: Callable[..., Iterator[HasSeq]],
) -> None:
    log = ShortLog(settings=Settings(), clock=wall_clock)
    async with connect(log) as client:
        parent = await client.create(agent="a")
        for _ in range(4):
            await parent.message("said")
        fork = await parent.fork(5)
    found = lineage_of(log, fork.session_id)
    log.cut = parent.session_id
    events = read(log, found, after_seq=0, upto_seq=None)
    assert [next(events).seq, next(events).seq] == [1, 2]
    with pytest.raises(LineageError, match="at seq 3 is not there"):
        next(events)


async def test_verify_compares_a_fork_with_its_parent(log: MemoryLog) -> None:
    async with connect(log) as client:
        parent = await client.create(agent="a", goal="go")
        child = await parent.fork(2)
        await child.message("said")
        await child.fork(4)
    assert verify(log).ok
    fork_by_hand(log, "wrong", parent.session_id, 2)
    fork_by_hand(log, "beyond", parent.session_id, 3)
    fork_by_hand(log, "orphan", "nobody", 2)
    fork_by_hand(log, "mirror", "nobody", 2, mode="MIRRORED")
    right = hashlib.sha256(next(iter(log.events(parent.session_id))).body).digest()
    fork_by_hand(log, "right", parent.session_id, 1, prev_hash=right)
    found = {problem.session_id: problem.reason for problem in verify(log).problems}
    assert set(found) == {"wrong", "beyond", "orphan"}
    assert parent.session_id in found["wrong"]
    assert "has no event 3" in found["beyond"]
