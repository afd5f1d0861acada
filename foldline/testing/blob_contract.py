"""The contract of blob stores: what goes in comes out, or an error says why not."""

import hashlib

import pytest

from foldline.errors import BlobError
from foldline.processors.blobs import BlobStore

MAX_BYTES = 1_000
"""The limit that a store under this contract is opened with."""


class BlobContract:
    """Inherit it and give a fixture `blobs`: an empty store of MAX_BYTES."""

    @pytest.mark.parametrize("data", [b"", b"x", b"\x00" * MAX_BYTES])
    def test_a_blob_comes_back_by_its_hash(self, blobs: BlobStore, data: bytes) -> None:
        sha256 = blobs.put(data)
        assert sha256 == hashlib.sha256(data).digest()
        assert blobs.put(data) == sha256
        assert blobs.get(sha256) == data

    def test_a_missing_blob_is_named(self, blobs: BlobStore) -> None:
        with pytest.raises(BlobError, match="abab") as caught:
            blobs.get(b"\xab" * 32)
        assert not caught.value.retryable

    def test_a_blob_above_the_limit_is_not_stored(self, blobs: BlobStore) -> None:
        data = bytes(MAX_BYTES + 1)
        with pytest.raises(BlobError, match="blob_max_bytes is 1000"):
            blobs.put(data)
        with pytest.raises(BlobError):
            blobs.get(hashlib.sha256(data).digest())
