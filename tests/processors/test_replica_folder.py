"""A copy of a node's store that is taken over: whole, or nothing of it is left."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from foldline.errors import ReadUnavailableError
from foldline.kafka import Cluster
from foldline.processors.clock import wall_clock
from foldline.processors.memory_log import MemoryLog
from foldline.processors.replica_folder import ReplicaFolder
from foldline.schemas.topic_records import LogMeta
from foldline.settings import Settings

TOPIC_ID = "topic"


@pytest.fixture
def log() -> Iterator[MemoryLog]:
    log = MemoryLog(settings=Settings(), clock=wall_clock)
    yield log
    log.close()


@pytest.fixture
def folder(log: MemoryLog, tmp_path: Path) -> ReplicaFolder:
    return ReplicaFolder(
        tmp_path / "replica",
        cluster=Cluster("127.0.0.1:9"),
        meta=LogMeta(log_id=str(uuid.UUID(int=1)), partitions=2),
        codec=log.codec,
        settings=Settings(),
    )


@pytest.fixture
def copy(folder: ReplicaFolder, tmp_path: Path) -> Path:
    """A copy of partition 0."""
    store = folder.open(0, topic_id=TOPIC_ID)
    store.close()
    return (tmp_path / "replica" / "0").rename(tmp_path / "copy")


def kept(tmp_path: Path) -> list[str]:
    """What is in the replica's folder."""
    return sorted(path.name for path in (tmp_path / "replica").iterdir())


def test_a_copy_becomes_the_store_of_its_partition(
    folder: ReplicaFolder, copy: Path, tmp_path: Path
) -> None:
    assert folder.adopt(0, copy, topic_id=TOPIC_ID)
    assert not folder.adopt(0, copy, topic_id=TOPIC_ID)
    assert kept(tmp_path) == ["0"]


def test_a_copy_of_another_partition_is_not_used(
    folder: ReplicaFolder, copy: Path, tmp_path: Path
) -> None:
    assert not folder.adopt(1, copy, topic_id=TOPIC_ID)
    assert kept(tmp_path) == []


def test_a_copy_that_cannot_be_copied_is_told_and_leaves_nothing(
    folder: ReplicaFolder, copy: Path, tmp_path: Path
) -> None:
    (copy / "gone.sst").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ReadUnavailableError, match=r"gone\.sst.*No such file"):
        folder.adopt(0, copy, topic_id=TOPIC_ID)
    assert kept(tmp_path) == []


def test_what_was_killed_while_it_copied_is_cleared_away(
    folder: ReplicaFolder, copy: Path, tmp_path: Path
) -> None:
    """Also where the store is there by now."""
    assert folder.adopt(0, copy, topic_id=TOPIC_ID)
    (tmp_path / "replica" / "0.adopting").mkdir()
    assert not folder.adopt(0, copy, topic_id=TOPIC_ID)
    assert kept(tmp_path) == ["0"]
