"""Leases and blobs behind a service: by the service's clock, in the service's store."""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence

from foldline.errors import BlobError
from foldline.processors.http_calls import Calls
from foldline.processors.http_wire import BYTES, path_part
from foldline.processors.log import Lease, each_lease

JSON = "application/json"

NAMED_MAX = 10_000
"""How many blobs are remembered with the event that names them."""


class HttpLeases:
    """The leases of a service's log."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def renew(self, session_id: str, *, epoch: int, writer: str, ttl_ms: int) -> None:
        """Say that this writer lives. A lease of a lower epoch replaces no higher one."""
        given = {"epoch": epoch, "writer": writer, "ttl_ms": ttl_ms}
        self._calls.send("PUT", _path_of(session_id), json=given)

    def release(self, session_id: str, *, epoch: int, writer: str) -> None:
        """Give the lease up at once; nothing happens if another writer holds it."""
        params = {"epoch": epoch, "writer": writer}
        self._calls.send("DELETE", _path_of(session_id), params=params)

    def get_many(self, session_ids: Sequence[str]) -> dict[str, Lease]:
        """The leases of several sessions, of those that have one."""
        return each_lease(self, session_ids)

    def get(self, session_id: str) -> Lease | None:
        """The lease of a session; None where none was ever taken or it was released."""
        answer = self._calls.get(_path_of(session_id), accept=JSON)
        row = answer.json()["lease"] if answer is not None else None
        if row is None:
            return None
        return Lease(
            session_id=row["session_id"],
            epoch=row["epoch"],
            writer=row["writer"],
            alive=row["alive"],
            expires_in_ms=row["expires_in_ms"],
        )


def _path_of(session_id: str) -> str:
    return f"/sessions/{path_part(session_id)}/lease"


class HttpBlobs:
    """The blobs of a service's log, as far as this token's tenant may read them."""

    def __init__(self, calls: Calls, *, max_bytes: int) -> None:
        self._calls = calls
        self._max_bytes = max_bytes
        self._named: OrderedDict[bytes, tuple[str, int]] = OrderedDict()

    def note(self, sha256: bytes, session_id: str, seq: int) -> None:
        """Remember which event names a blob: the service wants to know."""
        self._named[sha256] = (session_id, seq)
        if len(self._named) > NAMED_MAX:
            self._named.popitem(last=False)

    def put(self, data: bytes) -> bytes:
        """Store bytes and give their SHA-256; storing them again changes nothing."""
        sha256 = hashlib.sha256(data).digest()
        if len(data) > self._max_bytes:
            reason = f"{len(data)} bytes, blob_max_bytes is {self._max_bytes}"
            raise BlobError(sha256.hex(), reason)
        self._calls.send("PUT", f"/blobs/{sha256.hex()}", body=data, content_type=BYTES)
        return sha256

    def get(self, sha256: bytes) -> bytes:
        """The bytes of a blob, checked against their hash."""
        session_id, seq = self._named.get(sha256, ("", 0))
        params: dict[str, str | int] = {}
        if session_id:
            params = {"session_id": path_part(session_id), "seq": seq}
        answer = self._calls.get(f"/blobs/{sha256.hex()}", params, accept=BYTES)
        if answer is None:
            raise BlobError(sha256.hex(), "it is not in the store, or another tenant's")
        if hashlib.sha256(answer.content).digest() != sha256:
            raise BlobError(sha256.hex(), "its bytes are others")
        return answer.content
