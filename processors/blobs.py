"""The blob store: bodies too large for an event, by the SHA-256 of their bytes."""

from typing import Protocol


class BlobStore(Protocol):
    """Content-addressed bytes, written (and durable) before the event that names them."""

    def put(self, data: bytes) -> bytes:
        """Store bytes and give their SHA-256; storing them again changes nothing.

        Raises:
            LogUnavailableError: the bytes are not stored (disk full, no permission).
        """
        ...

    def get(self, sha256: bytes) -> bytes:
        """The bytes of a blob, checked against their hash.

        Raises:
            BlobError: missing, or not the bytes of this hash.
            LogUnavailableError: the store does not answer, so nobody knows.
        """
        ...
