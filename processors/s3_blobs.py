"""Blobs as objects of an S3-compatible bucket: `prefix/ab/cd/abcd...`.

Endpoint, region and credentials come from the environment as the library reads it
(AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID, ..., a role of the machine). A put is
one request: the bucket has the whole object when it answers, or has none.
"""

import hashlib
import os
from datetime import timedelta
from typing import TYPE_CHECKING, Self

from foldline.errors import BlobError, LogUnavailableError, SettingsError

if TYPE_CHECKING:
    from obstore.store import S3Store


INSTALL = "pip install 'foldline[s3]'"

CONNECT_TIMEOUT_MS = 5_000
"""How long a connection may take."""
REQUEST_TIMEOUT_MS = 120_000
"""How long one request may take; a blob goes in one."""
RETRIES = 4
"""How often the library repeats a request that failed on the way."""
RETRY_FOR_MS = 15_000
"""How long after the first try it begins another."""


class S3Blobs:
    """Content-addressed bytes in a bucket, shared by any number of machines."""

    def __init__(self, store: "S3Store", *, url: str, max_bytes: int) -> None:
        self._store = store
        self._url = url
        self._max_bytes = max_bytes

    @classmethod
    def open(cls, url: str, *, max_bytes: int) -> Self:
        """The store of `s3://bucket/prefix`. Nothing is asked of the bucket yet.

        Raises:
            SettingsError: a URL without a bucket, or the library is not installed.
        """
        try:
            from obstore.store import S3Store  # late: few need it, and it is an extra
        except ImportError as error:
            wanted = f"a bucket needs the S3 library: {INSTALL}"
            raise SettingsError("FOLDLINE_BLOBS", url, wanted) from error
        if not url.removeprefix("s3://").partition("/")[0]:
            raise SettingsError("FOLDLINE_BLOBS", url, "s3://bucket or s3://bucket/prefix")
        store = S3Store.from_url(
            url.rstrip("/"),
            client_options={
                "allow_http": _plain_http(),
                "connect_timeout": timedelta(milliseconds=CONNECT_TIMEOUT_MS),
                "timeout": timedelta(milliseconds=REQUEST_TIMEOUT_MS),
            },
            retry_config={
                "max_retries": RETRIES,
                "retry_timeout": timedelta(milliseconds=RETRY_FOR_MS),
            },
        )
        return cls(store, url=url, max_bytes=max_bytes)

    def put(self, data: bytes) -> bytes:
        """Store bytes and give their SHA-256; storing them again changes nothing.

        1. Create the object, unless it exists: nothing is rewritten.
        2. Where it exists, its bytes are looked at: a damaged one is replaced.

        Raises:
            LogUnavailableError: the bytes are not stored (unreachable, denied).
            BlobError: more than blob_max_bytes.
        """
        from obstore.exceptions import AlreadyExistsError, BaseError

        sha256 = hashlib.sha256(data).digest()
        if len(data) > self._max_bytes:
            reason = f"{len(data)} bytes, blob_max_bytes is {self._max_bytes}"
            raise BlobError(sha256.hex(), reason)
        path = _path(sha256)
        try:
            try:
                self._store.put(path, data, mode="create", use_multipart=False)
            except AlreadyExistsError:
                if not self._holds(path, data):
                    self._store.put(path, data, use_multipart=False)
        except (BaseError, OSError) as error:
            raise LogUnavailableError(self._url, _first_line(error)) from error
        return sha256

    def get(self, sha256: bytes) -> bytes:
        """The bytes of a blob, checked against their hash.

        Raises:
            BlobError: missing, or not the bytes of this hash.
            LogUnavailableError: the bucket does not answer, or denies it.
        """
        from obstore.exceptions import BaseError

        try:
            found = self._store.get(_path(sha256))
            size = found.meta["size"]
            if size > self._max_bytes:
                reason = f"{size} bytes, blob_max_bytes is {self._max_bytes}"
                raise BlobError(sha256.hex(), reason)
            data = found.bytes().to_bytes()
        except FileNotFoundError as error:
            raise BlobError(sha256.hex(), f"it is not in {self._url}") from error
        except (BaseError, OSError) as error:
            raise LogUnavailableError(self._url, _first_line(error)) from error
        if hashlib.sha256(data).digest() != sha256:
            raise BlobError(sha256.hex(), "its bytes do not match its hash")
        return data

    def _holds(self, path: str, data: bytes) -> bool:
        found = self._store.get(path)
        return found.meta["size"] == len(data) and found.bytes().to_bytes() == data


def _path(sha256: bytes) -> str:
    name = sha256.hex()
    return f"{name[:2]}/{name[2:4]}/{name}"


def _plain_http() -> bool:
    """Whether an endpoint without TLS was asked for by its URL."""
    named = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    return any(os.environ.get(name, "").startswith("http://") for name in named)


def _first_line(error: BaseException) -> str:
    """What the library says, without its debug output."""
    return str(error).partition("\n")[0].strip()
