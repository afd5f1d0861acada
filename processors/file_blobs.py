"""Blobs as files: `ab/cd/abcd...` below one folder, each durable before it has a name.

A blob is written under a temporary name and renamed. So whoever finds a name finds
whole bytes, whatever was killed in between; what a killed writer leaves behind has a
name that no hash has.
"""

import hashlib
import os
import uuid
from pathlib import Path

from foldline.errors import BlobError, LogUnavailableError
from foldline.faults import crash_point
from foldline.places import OWN_FILE, OWN_FOLDER, sync_folder


class FileBlobs:
    """Content-addressed bytes in a folder, shared by any number of processes."""

    def __init__(self, folder: Path, *, max_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes

    @property
    def folder(self) -> Path:
        """Where the files are; it is made when the first is."""
        return self._folder

    def put(self, data: bytes) -> bytes:
        """Store bytes and give their SHA-256; storing them again changes nothing.

        A file that is there but damaged is replaced.

        Raises:
            LogUnavailableError: the bytes are not stored (disk full, no permission).
            BlobError: more than blob_max_bytes.
        """
        sha256 = hashlib.sha256(data).digest()
        if len(data) > self._max_bytes:
            reason = f"{len(data)} bytes, blob_max_bytes is {self._max_bytes}"
            raise BlobError(sha256.hex(), reason)
        path = self._path(sha256)
        try:
            if not _holds(path, data):
                self._write(path, data)
        except OSError as error:
            raise LogUnavailableError(str(self._folder), str(error)) from error
        return sha256

    def get(self, sha256: bytes) -> bytes:
        """The bytes of a blob, checked against their hash.

        Raises:
            BlobError: missing, or not the bytes of this hash.
            LogUnavailableError: the folder cannot be read.
        """
        try:
            data = self._path(sha256).read_bytes()
        except FileNotFoundError as error:
            raise BlobError(sha256.hex(), f"it is not in {self._folder}") from error
        except OSError as error:
            raise LogUnavailableError(str(self._folder), str(error)) from error
        if hashlib.sha256(data).digest() != sha256:
            raise BlobError(sha256.hex(), "its bytes do not match its hash")
        return data

    def _path(self, sha256: bytes) -> Path:
        name = sha256.hex()
        return self._folder / name[:2] / name[2:4] / name

    def _write(self, path: Path, data: bytes) -> None:
        """Write, sync, rename, sync the folder: in this order, or it is not durable."""
        _make_folder(path.parent)
        draft = path.with_name(f".{uuid.uuid4().hex}.part")
        try:
            made = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWN_FILE)
            with os.fdopen(made, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            crash_point("CP_BLOB_BEFORE_RENAME")
            draft.replace(path)
            crash_point("CP_BLOB_AFTER_RENAME")
        except OSError:
            draft.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


def _holds(path: Path, data: bytes) -> bool:
    try:
        return path.stat().st_size == len(data) and path.read_bytes() == data
    except FileNotFoundError:
        return False


def _make_folder(folder: Path) -> None:
    """Make a folder and those above it, each durable in its parent."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(mode=OWN_FOLDER, exist_ok=True)
    sync_folder(folder.parent)
