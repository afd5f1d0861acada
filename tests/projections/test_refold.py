"""State replay: every event folded again, and compared wherever something was kept."""

import sqlite3
from collections.abc import Generator
from pathlib import Path

import pytest

from foldline.errors import DecodeError, SessionNotFoundError
from foldline.processors.open_log import open_log
from foldline.processors.stored import AuditableLog
from foldline.producers.client import connect
from foldline.projections.refold import (
    CHECKPOINT,
    HEAD,
    SNAPSHOT,
    Refold,
    refold_all,
    refolded,
    stored_session,
)
from foldline.schemas.events import CheckpointCreated
from foldline.schemas.snapshots import state_hash
from foldline.schemas.state import FOLD_VERSION
from foldline.settings import Settings
from foldline.testing.log_story import LogStory
from foldline.testing.samples import created, said, started, told

SOON = Settings(snapshot_every_events=10)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


@pytest.fixture
def log(path: Path) -> Generator[AuditableLog]:
    opened = open_log(f"sqlite:///{path}", settings=SOON)
    yield opened
    opened.close()


def story_of(log: AuditableLog, count: int = 25) -> LogStory:
    """A session with a checkpoint in the middle."""
    story = LogStory(log).given(created(), started())
    told(story, count)
    return story.given(checkpoint(story), said("and on"))


def checkpoint(story: LogStory, *, fold_version: int = FOLD_VERSION) -> CheckpointCreated:
    state = story.state
    return CheckpointCreated(
        upto_seq=state.seq, state_hash=state_hash(state), fold_version=fold_version
    )


def test_a_refold_is_compared_at_checkpoints_snapshots_and_the_head(
    log: AuditableLog,
) -> None:
    story = story_of(log)
    refold = Refold(log, stored_session(log, story.session_id))
    points = list(refold.points())
    assert [point.seq for point in points] == list(range(1, story.seq + 1))
    compared = [name for point in points for name in point.compared]
    assert compared.count(CHECKPOINT) == 1
    assert compared.count(HEAD) == 1
    assert SNAPSHOT in compared
    assert not any(point.problems for point in points)
    assert refold.state == story.state


def test_the_state_at_any_seq_is_folded_from_the_events_alone(log: AuditableLog) -> None:
    story = story_of(log)
    for seq in range(1, story.seq + 1):
        state = refolded(log, story.session_id, at_seq=seq)
        assert state == log.state(story.session_id, at_seq=seq)
    assert refolded(log, story.session_id, at_seq=story.seq + 1) is None
    assert refolded(log, story.session_id, at_seq=0) is None
    with pytest.raises(SessionNotFoundError):
        refolded(log, "nobody's", at_seq=1)


async def test_up_to_its_fork_point_a_fork_has_the_states_of_its_ancestors(
    log: AuditableLog,
) -> None:
    story = story_of(log)
    async with connect(log) as client:
        fork = await client.fork(story.session_id, 5)
        fork = await client.fork(fork.session_id, 6)
    for seq, holder in ((1, story.session_id), (5, story.session_id), (7, fork.session_id)):
        state = refolded(log, fork.session_id, at_seq=seq)
        assert state == log.state(holder, at_seq=seq)
        assert state is not None
    assert refolded(log, fork.session_id, at_seq=8) is None


def test_what_another_fold_version_made_is_skipped_and_counted(log: AuditableLog) -> None:
    story = LogStory(log).given(created(), started())
    story.given(checkpoint(story, fold_version=FOLD_VERSION + 1))
    corpus = refold_all(log)
    assert (corpus.ok, corpus.skipped, corpus.compared) == (True, 1, 2)


def test_a_checkpoint_of_another_state_is_a_mismatch_with_its_seq(
    log: AuditableLog,
) -> None:
    story = LogStory(log).given(created(), started())
    wrong = checkpoint(story).model_copy(update={"state_hash": bytes(32)})
    story.given(wrong)
    corpus = refold_all(log)
    assert [(m.session_id, m.seq) for m in corpus.mismatches] == [(story.session_id, 3)]


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM events WHERE position & 0xFFFFFFFF > 20",
        "DELETE FROM events WHERE position & 0xFFFFFFFF = 12",
        "UPDATE events SET body = substr(body, 1, 30) WHERE position & 0xFFFFFFFF = 12",
        "UPDATE events SET body = 'text' WHERE position & 0xFFFFFFFF = 12",
        "UPDATE sessions SET status = 'COMPLETED'",
    ],
)
def test_a_damaged_session_is_named_and_the_others_are_replayed(
    path: Path, damage: str
) -> None:
    """Truncated, with a hole, torn, of another kind, or with an index that lies."""
    log = open_log(f"sqlite:///{path}", settings=SOON)
    story = story_of(log)
    last_seq = story.seq
    log.close()
    with sqlite3.connect(path) as database:
        database.execute(damage)
    database.close()
    log = open_log(f"sqlite:///{path}", settings=SOON)
    good = story_of(log)
    seen: list[tuple[int, int]] = []
    corpus = refold_all(log, on_progress=lambda done, total: seen.append((done, total)))
    assert not corpus.ok
    assert {m.session_id for m in corpus.mismatches} == {story.session_id}
    assert corpus.sessions == 2
    assert seen == [(1, 2), (2, 2)]
    assert refold_all(log, frozenset([good.session_id])).ok
    if "sessions" not in damage:
        with pytest.raises(DecodeError):
            refolded(log, story.session_id, at_seq=last_seq)
    log.close()
