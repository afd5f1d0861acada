"""The edge to RocksDB: ranges, damage that is seen, locks, full disks, set-asides."""

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldline.errors import LogUnavailableError, TableCorruptError
from foldline.processors.event_rows import text_key, text_of
from foldline.processors.rocks import (
    ASIDE_KEPT,
    PAGE_ROWS,
    Batch,
    Rocks,
    asides,
    set_aside,
)
from tests.processors.rocksdb_damage import (
    files,
    fill,
    flip,
    held_by_another_process,
    lose_manifest,
    small_disk,
)
from tests.strategies import WELL_FORMED

MANY = 3 * PAGE_ROWS


def filled(folder: Path, *, rows: int = MANY, size: int = 100) -> Rocks:
    """A database with rows 0, 1, 2, ..."""
    rocks = Rocks(folder)
    batch = Batch()
    for number in range(rows):
        batch.put(number.to_bytes(4), number.to_bytes(4) * (size // 4))
    rocks.write(batch)
    return rocks


def flushed(folder: Path) -> Path:
    """A database whose rows lie in a file: opening it again writes the log out."""
    filled(folder).close()
    Rocks(folder).close()
    (table,) = files(folder, "sst")
    return table


def numbers(rocks: Rocks, first: int, end: int, *, reverse: bool = False) -> list[int]:
    found = rocks.scan(first.to_bytes(4), end.to_bytes(4), reverse=reverse)
    return [int.from_bytes(key) for key, _ in found]


def test_a_scan_gives_its_range_in_order_over_any_number_of_pages(tmp_path: Path) -> None:
    rocks = filled(tmp_path / "db")
    assert numbers(rocks, 0, MANY) == list(range(MANY))
    assert numbers(rocks, 7, MANY - 7) == list(range(7, MANY - 7))
    assert numbers(rocks, 5, 5) == []
    assert numbers(rocks, MANY, MANY + 5) == []
    rocks.close()


def test_a_scan_goes_backwards_too(tmp_path: Path) -> None:
    rocks = filled(tmp_path / "db")
    assert numbers(rocks, 7, MANY + 9, reverse=True) == list(range(MANY - 1, 6, -1))
    assert numbers(rocks, 0, 3, reverse=True) == [2, 1, 0]
    rocks.close()


def test_a_scan_that_is_not_read_to_its_end_holds_nothing_open(tmp_path: Path) -> None:
    """Rocksdict keeps a database open, and its lock, while an iterator lives."""
    rocks = filled(tmp_path / "db")
    scan = rocks.scan(b"", b"\xff")
    next(scan)
    rocks.close()
    again = Rocks(tmp_path / "db")
    again.close()
    with pytest.raises(LogUnavailableError, match="closed"):
        list(scan)


def test_a_flipped_bit_in_a_file_is_seen_by_scan_and_get(tmp_path: Path) -> None:
    flip(flushed(tmp_path / "db"), at=0.3)
    rocks = Rocks(tmp_path / "db")
    with pytest.raises(TableCorruptError, match="checksum"):
        numbers(rocks, 0, MANY)
    with pytest.raises(TableCorruptError, match="checksum"):
        assert [rocks.get(number.to_bytes(4)) for number in range(MANY)]
    rocks.close()


@pytest.mark.parametrize("at", [0.0, 0.3, 0.6, 0.99, 1.0])
def test_a_flipped_bit_is_never_a_shorter_scan(tmp_path: Path, at: float) -> None:
    """Anywhere in the file: blocks, index, filter, footer."""
    flip(flushed(tmp_path / "db"), at=at)
    try:
        rocks = Rocks(tmp_path / "db")
    except TableCorruptError:
        return
    try:
        found = numbers(rocks, 0, MANY)
    except TableCorruptError:
        return
    finally:
        rocks.close()
    assert found == list(range(MANY)), "the bit was of no block that counts"


def test_a_lost_manifest_is_damage(tmp_path: Path) -> None:
    flushed(tmp_path / "db")
    lose_manifest(tmp_path / "db")
    with pytest.raises(TableCorruptError):
        Rocks(tmp_path / "db")


def test_a_lost_file_is_damage(tmp_path: Path) -> None:
    flushed(tmp_path / "db").unlink()
    with pytest.raises(TableCorruptError):
        numbers(Rocks(tmp_path / "db"), 0, MANY)


def test_another_process_has_it_and_that_is_no_damage(tmp_path: Path) -> None:
    filled(tmp_path / "db").close()
    with (
        held_by_another_process(tmp_path / "db"),
        pytest.raises(LogUnavailableError, match="another process"),
    ):
        Rocks(tmp_path / "db")
    Rocks(tmp_path / "db").close()


def test_what_is_closed_says_so(tmp_path: Path) -> None:
    rocks = filled(tmp_path / "db", rows=1)
    rocks.close()
    rocks.close()
    with pytest.raises(LogUnavailableError, match="closed"):
        rocks.get(b"key")
    with pytest.raises(LogUnavailableError, match="closed"):
        rocks.write(Batch())


def test_a_checkpoint_is_a_database_of_its_own(tmp_path: Path) -> None:
    rocks = filled(tmp_path / "db")
    rocks.checkpoint(tmp_path / "copies" / "db")
    batch = Batch()
    batch.put((0).to_bytes(4), b"changed")
    rocks.write(batch)
    copy = Rocks(tmp_path / "copies" / "db", make=False)
    assert numbers(copy, 0, MANY) == list(range(MANY))
    assert copy.get((0).to_bytes(4)) == bytes(100)
    copy.close()
    rocks.close()


def test_a_batch_happens_whole_and_can_delete(tmp_path: Path) -> None:
    rocks = filled(tmp_path / "db", rows=3)
    batch = Batch()
    batch.delete((0).to_bytes(4))
    batch.put((9).to_bytes(4), b"")
    rocks.write(batch)
    assert numbers(rocks, 0, 100) == [1, 2, 9]
    rocks.close()


def test_only_the_newest_of_what_is_set_aside_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "7"
    for number in range(1, ASIDE_KEPT + 3):
        folder.mkdir()
        aside = set_aside(folder, reason="Corruption: block checksum!")
        assert aside.name == f"7.aside-corruption-block-checksum-{number}"
    kept = [path.name.rpartition("-")[2] for path in asides(folder)]
    assert kept == [str(n) for n in range(3, ASIDE_KEPT + 3)]


def test_a_full_disk_is_an_error_and_passes_when_there_is_space(tmp_path: Path) -> None:
    """Nothing of a refused batch is there; reads go on; nobody has to mend anything."""
    with small_disk(tmp_path / "disk", size_mb=32) as disk:
        rocks = filled(disk / "db")
        filler = fill(disk)
        written = write_until_refused(rocks)
        assert rocks.get((7).to_bytes(4)) is not None
        assert rocks.get(b"big" + written.to_bytes(4)) is None
        filler.unlink()
        wait_until_written(rocks, written)
        assert rocks.get(b"big" + written.to_bytes(4)) is not None
        rocks.close()


def write_until_refused(rocks: Rocks) -> int:
    """The number of the batch for which there was no space."""
    for number in range(1_000):
        try:
            rocks.write(big_batch(number))
        except LogUnavailableError as error:
            if "space" not in error.reason:
                raise
            return number
    raise AssertionError("the disk was never full")


def big_batch(number: int) -> Batch:
    batch = Batch()
    batch.put(b"big" + number.to_bytes(4), bytes(1 << 18))
    return batch


def wait_until_written(rocks: Rocks, number: int) -> None:
    """RocksDB looks every few seconds whether there is space again."""
    for _ in range(300):
        try:
            rocks.write(big_batch(number))
        except LogUnavailableError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError("it never recovered")


TEXTS = st.text(WELL_FORMED | st.just("\x00"), max_size=6)


@given(st.lists(TEXTS, min_size=2, max_size=2))
@settings(max_examples=300)
def test_text_keys_sort_as_texts_and_none_begins_another(texts: list[str]) -> None:
    one, other = (text_key(text) for text in texts)
    assert (one < other) == (texts[0] < texts[1])
    assert one == other or not one.startswith(other)
    assert text_of(one + b"rest") == (texts[0], b"rest")
