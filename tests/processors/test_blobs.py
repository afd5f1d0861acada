"""The blob stores: what goes in comes out, or an error says why not."""

from pathlib import Path

import pytest

from foldline.errors import BlobError, LogUnavailableError
from foldline.processors.blobs import BlobStore
from foldline.processors.file_blobs import FileBlobs
from foldline.processors.memory_blobs import MemoryBlobs
from foldline.testing.blob_contract import MAX_BYTES, BlobContract


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


def test_a_folder_that_cannot_be_made_is_an_error_of_that_put(tmp_path: Path) -> None:
    (tmp_path / "blobs").write_text("a file is in the way")
    with pytest.raises(LogUnavailableError) as caught:
        FileBlobs(tmp_path / "blobs", max_bytes=MAX_BYTES).put(b"hello")
    assert caught.value.retryable
