"""A worker's table: what was flushed is there, with its position, or it is set aside."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldline.errors import LogUnavailableError, TableCorruptError
from foldline.processors.fold import initial
from foldline.processors.partition import Flush, Position, Rules
from foldline.processors.rocks import Batch, Rocks, asides
from foldline.processors.table import Table, open_table, set_aside_table
from foldline.schemas.state import SessionState
from tests.processors.rocksdb_damage import (
    files,
    flip,
    held_by_another_process,
    lose_manifest,
)

RULES = Rules(3, frozenset({7, 9}))
MANY = 2_000


def state(number: int, *, seq: int = 1) -> SessionState:
    made = initial(f"session-{number}")
    made.seq = seq
    made.window = b"".join((number << 16 | n).to_bytes(16) for n in range(20))
    return made


def flush(at: int, *states: SessionState, **more: object) -> Flush:
    position = Position(at, at, RULES)
    return Flush(position, states, more.get("dirty") or {}, more.get("clean") or ())  # pyright: ignore[reportArgumentType]


def opened(folder: Path, *, partition: int = 0, log_id: str = "log") -> Table:
    return open_table(folder, log_id=log_id, partition=partition)


def full(folder: Path) -> Path:
    """A closed table of many states, in a file."""
    table = opened(folder)
    table.write(flush(100, *(state(n) for n in range(MANY))))
    table.close()
    Rocks(folder).close()
    return files(folder, "sst")[0]


def test_an_empty_table_has_no_position(tmp_path: Path) -> None:
    table = opened(tmp_path / "t")
    assert (table.position(), table.sessions, table.dirty()) == (None, 0, {})
    assert table.get("session-1") is None
    table.close()


def test_sessions_are_counted_once_however_many_a_table_remembers(
    tmp_path: Path,
) -> None:
    """Memory does not follow the number of sessions, also if all of them are new."""
    table = open_table(tmp_path / "t", log_id="log", partition=0, known_max=10)
    for _ in range(2):
        for first in range(0, 100, 4):
            table.write(flush(first + 1, *(state(first + n) for n in range(4))))
            assert len(table._known) <= 10  # pyright: ignore[reportPrivateUsage]
    assert table.sessions == 100
    table.check()
    table.close()


def test_what_was_flushed_is_there_after_opening_again(tmp_path: Path) -> None:
    table = opened(tmp_path / "t")
    table.write(flush(10, state(1), state(2)))
    table.write(flush(20, state(2, seq=5), state(3)))
    table.close()
    table = opened(tmp_path / "t")
    assert table.position() == Position(20, 20, RULES)
    assert table.sessions == 3
    assert table.get("session-1") == state(1)
    assert table.get("session-2") == state(2, seq=5)
    table.check()
    table.close()


def test_states_that_it_gives_belong_to_the_caller(tmp_path: Path) -> None:
    table = opened(tmp_path / "t")
    table.write(flush(10, state(1)))
    given_state = table.get("session-1")
    assert given_state is not None
    given_state.counts["x"] = 1
    assert table.get("session-1") == state(1)
    table.close()


def test_the_dirty_come_in_the_order_of_their_offsets(tmp_path: Path) -> None:
    table = opened(tmp_path / "t")
    table.write(flush(10, dirty={"b": 3, "a": 2**40, "c": 1}))
    table.write(flush(11, dirty={"d": 2}, clean=["b", "never"]))
    table.close()
    table = opened(tmp_path / "t")
    assert list(table.dirty().items()) == [("c", 1), ("d", 2), ("a", 2**40)]
    table.close()


def test_one_that_became_dirty_again_in_the_same_flush_is_dirty(tmp_path: Path) -> None:
    table = opened(tmp_path / "t")
    table.write(flush(10, dirty={"a": 1}))
    table.write(flush(11, dirty={"a": 9}, clean=["a"]))
    assert table.dirty() == {"a": 9}
    table.close()


def test_a_loading_that_never_ended_is_begun_again(tmp_path: Path) -> None:
    """States without a position: of a process that died between two batches."""
    table = opened(tmp_path / "t")
    table.load(state(n) for n in range(MANY))
    assert table.sessions == MANY
    assert table.position() is None
    table.close()
    table = opened(tmp_path / "t")
    assert (table.sessions, table.get("session-1")) == (0, None)
    table.load([state(1)])
    table.write(flush(5))
    table.close()
    table = opened(tmp_path / "t")
    assert (table.sessions, table.position()) == (1, Position(5, 5, RULES))
    table.close()
    assert asides(tmp_path / "t") == []


@pytest.mark.parametrize("at", [0.05, 0.5, 0.8])
def test_a_flipped_bit_in_a_file_is_found_when_it_is_read(
    tmp_path: Path, at: float
) -> None:
    flip(full(tmp_path / "t"), at=at)
    table = Table.open(tmp_path / "t", log_id="log", partition=0)
    with pytest.raises(TableCorruptError):
        table.check()
    table = set_aside_table(table, reason="corrupt")
    assert (table.sessions, table.position()) == (0, None)
    table.close()
    assert [path.name for path in asides(tmp_path / "t")] == ["t.aside-corrupt-1"]


def test_a_flipped_bit_in_the_log_takes_states_and_position_back_together(
    tmp_path: Path,
) -> None:
    """RocksDB keeps what was before it: older, and right."""
    table = opened(tmp_path / "t")
    for at in range(1, 101):
        table.write(flush(at, state(1, seq=at)))
    copy = tmp_path / "copy"
    copy_of_running(tmp_path / "t", copy)
    table.close()
    flip(files(copy, "log")[0], at=0.5)
    table = opened(copy)
    position, kept = table.position(), table.get("session-1")
    table.close()
    assert position is not None
    assert kept is not None
    assert 0 < position.event_offset == kept.seq < 100


def copy_of_running(folder: Path, copy: Path) -> None:
    """The files as they are now, as a kill would leave them."""
    copy.mkdir()
    for path in folder.iterdir():
        if path.name != "LOCK":
            (copy / path.name).write_bytes(path.read_bytes())


@given(st.floats(min_value=0, max_value=1))
@settings(max_examples=25, deadline=None)
def test_a_log_cut_anywhere_gives_a_state_of_before(
    tmp_path_factory: pytest.TempPathFactory, cut: float
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    table = opened(folder / "t")
    for at in range(1, 21):
        table.write(flush(at, state(at)))
    copy_of_running(folder / "t", folder / "copy")
    table.close()
    (log,) = files(folder / "copy", "log")
    data = log.read_bytes()
    log.write_bytes(data[: int(len(data) * cut)])
    table = opened(folder / "copy")
    position = table.position()
    assert table.sessions == (position.event_offset if position else 0)
    table.check()
    table.close()


def test_a_lost_manifest_sets_the_table_aside(tmp_path: Path) -> None:
    full(tmp_path / "t")
    lose_manifest(tmp_path / "t")
    table = opened(tmp_path / "t")
    assert table.position() is None
    table.close()
    assert len(asides(tmp_path / "t")) == 1


def test_rows_that_are_missing_are_counted(tmp_path: Path) -> None:
    """Should RocksDB ever end a scan too early, the number of rows tells."""
    table = opened(tmp_path / "t")
    table.write(flush(1, state(1), state(2)))
    table.close()
    rocks = Rocks(tmp_path / "t")
    batch = Batch()
    batch.delete(b"ssession-1")
    rocks.write(batch)
    rocks.close()
    table = opened(tmp_path / "t")
    with pytest.raises(TableCorruptError, match="1 states, 2 were written"):
        table.check()
    table.close()


@pytest.mark.parametrize(
    ("partition", "log_id"), [(1, "log"), (0, "another")], ids=["partition", "log"]
)
def test_a_folder_of_another_place_is_set_aside(
    tmp_path: Path, partition: int, log_id: str
) -> None:
    full(tmp_path / "t")
    table = opened(tmp_path / "t", partition=partition, log_id=log_id)
    assert (table.position(), table.sessions) == (None, 0)
    table.close()
    (aside,) = asides(tmp_path / "t")
    assert "foreign" in aside.name


def test_a_table_of_another_version_is_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full(tmp_path / "t")
    monkeypatch.setattr("foldline.processors.table.LAYOUT", "1.2.other")
    table = opened(tmp_path / "t")
    assert table.position() is None
    table.close()


def test_a_table_that_another_process_has_is_left_alone(tmp_path: Path) -> None:
    full(tmp_path / "t")
    with (
        held_by_another_process(tmp_path / "t"),
        pytest.raises(LogUnavailableError, match="another process"),
    ):
        opened(tmp_path / "t")
    table = opened(tmp_path / "t")
    assert table.sessions == MANY
    table.close()
    assert asides(tmp_path / "t") == []
