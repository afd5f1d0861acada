"""The blob stores: what goes in comes out, or an error says why not."""

from pathlib import Path

import pytest

from foldline.errors import BlobError, LogUnavailableError
from foldline.processors.blobs import BlobStore
from foldline.processors.file_blobs import FileBlobs
from foldline.processors.memory_blobs import MemoryBlobs
from foldline.processors.open_log import open_log
from foldline.settings import Settings
from foldline.testing import LogStory
from foldline.testing.blob_contract import MAX_BYTES, BlobContract
from foldline.testing.samples import created, said
from tests.processors.rocksdb_damage import fill, small_disk


class TestMemoryBlobs(BlobContract):
    @pytest.fixture
    def blobs(self) -> BlobStore:
        return MemoryBlobs(max_bytes=MAX_BYTES)


class TestFileBlobs(BlobContract):
    @pytest.fixture
    def blobs(self, tmp_path: Path) -> BlobStore:
        return FileBlobs(tmp_path / "a" / "blobs", max_bytes=MAX_BYTES)


@pytest.fixture
def files(tmp_path: Path) -> FileBlobs:
    return FileBlobs(tmp_path / "blobs", max_bytes=MAX_BYTES)


def the_file(tmp_path: Path) -> Path:
    (path,) = (p for p in (tmp_path / "blobs").rglob("*") if p.is_file())
    return path


@pytest.mark.parametrize("damage", [b"", b"hell", b"jello", b"hello\x00"])
def test_a_damaged_file_is_told_and_the_next_put_mends_it(
    files: FileBlobs, tmp_path: Path, damage: bytes
) -> None:
    sha256 = files.put(b"hello")
    the_file(tmp_path).write_bytes(damage)
    with pytest.raises(BlobError, match="do not match"):
        files.get(sha256)
    files.put(b"hello")
    assert files.get(sha256) == b"hello"


def test_a_folder_that_cannot_be_read_does_not_say_that_a_blob_is_missing(
    tmp_path: Path,
) -> None:
    (tmp_path / "blobs").write_text("a file is in the way")
    with pytest.raises(LogUnavailableError) as caught:
        FileBlobs(tmp_path / "blobs", max_bytes=MAX_BYTES).get(b"\xab" * 32)
    assert caught.value.retryable


def test_a_folder_that_cannot_be_made_is_an_error_of_that_put(tmp_path: Path) -> None:
    (tmp_path / "blobs").write_text("a file is in the way")
    with pytest.raises(LogUnavailableError) as caught:
        FileBlobs(tmp_path / "blobs", max_bytes=MAX_BYTES).put(b"hello")
    assert caught.value.retryable


def test_a_full_disk_acknowledges_nothing_and_space_is_all_that_it_takes(
    tmp_path: Path,
) -> None:
    """Row 9: the blobs of a log are on a disk of their own, which fills up."""
    with small_disk(tmp_path / "small", size_mb=4) as disk:
        settings = Settings(blobs=str(disk / "blobs"))
        log = open_log(f"sqlite:///{tmp_path}/sessions.db", settings=settings)
        kept = log.blobs.put(b"kept")
        filler = fill(disk)
        for _ in range(3):  # one that fails leaves nothing behind to fail the next
            with pytest.raises(LogUnavailableError, match="No space left") as caught:
                log.blobs.put(b"b" * 600_000)
            assert caught.value.retryable
        assert log.blobs.get(kept) == b"kept"
        LogStory(log, session_id="s").given(created(), said("its own disk has room"))
        filler.unlink()
        sha256 = log.blobs.put(b"b" * 600_000)
        assert log.blobs.get(sha256) == b"b" * 600_000
        files = [path for path in (disk / "blobs").rglob("*") if path.is_file()]
        assert {path.name for path in files} == {kept.hex(), sha256.hex()}
        log.close()
