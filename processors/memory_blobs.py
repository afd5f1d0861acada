"""Blobs in memory, for the log in memory."""

import hashlib

from foldline.errors import BlobError


class MemoryBlobs:
    """Content-addressed bytes that live as long as their object."""

    def __init__(self, *, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._blobs: dict[bytes, bytes] = {}

    def put(self, data: bytes) -> bytes:
        """Keep bytes and give their SHA-256; keeping them again changes nothing."""
        sha256 = hashlib.sha256(data).digest()
        if len(data) > self._max_bytes:
            reason = f"{len(data)} bytes, blob_max_bytes is {self._max_bytes}"
            raise BlobError(sha256.hex(), reason)
        self._blobs[sha256] = data
        return sha256

    def get(self, sha256: bytes) -> bytes:
        """The bytes of a blob."""
        data = self._blobs.get(sha256)
        if data is None:
            raise BlobError(sha256.hex(), "it is not in the store")
        return data
