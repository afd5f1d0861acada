"""Routes of blobs: bodies too large for an event, by the SHA-256 of their bytes.

A hash is not a key. A tenant reads a blob that it has uploaded, or that an event of one
of its sessions names (which only blobs that it has uploaded, or that a trusted writer
put there, can be).
"""

import hashlib
from contextlib import AsyncExitStack
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel
from starlette.types import Receive, Scope, Send

from foldline.errors import BlobError
from foldline.processors.http_wire import BYTES, INT64_MAX
from foldline.processors.named_blobs import blobs_in
from foldline.projections.reading import event_at
from foldline.projections.service_access import Appender, Reader
from foldline.projections.service_node import Node, Serving, session_of
from foldline.projections.service_problems import Problem
from foldline.projections.service_writing import is_uploaded, note_upload
from foldline.projections.tokens import Caller

router = APIRouter(tags=["blobs"])

_DIGITS = 64


class Stored(BaseModel):
    """A blob that was stored."""

    sha256: str
    size: int


@router.put(
    "/blobs/{sha256}",
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {BYTES: {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def store_blob(
    node: Serving, caller: Appender, sha256: str, request: Request
) -> Stored:
    """Store bytes under their SHA-256; storing them again changes nothing."""
    digest = _digest_of(sha256)
    async with node.uploading.turn(caller.tenant):
        data = await request.body()
        size = len(data)
        await node.appending.run(_store, node, caller, digest, data)
    return Stored(sha256=sha256, size=size)


def _store(node: Node, caller: Caller, digest: bytes, data: bytes) -> None:
    if hashlib.sha256(data).digest() != digest:
        raise Problem(422, "other_bytes", "the bytes have another SHA-256")
    node.log.blobs.put(data)
    note_upload(node.uploads(caller.tenant), digest)


@router.get(
    "/blobs/{sha256}",
    response_class=Response,
    responses={200: {"content": {BYTES: {"schema": {"format": "binary"}}}}},
)
async def fetch_blob(
    node: Serving,
    caller: Reader,
    sha256: str,
    session_id: Annotated[str, Query(max_length=2_048)] = "",
    seq: Annotated[int, Query(ge=0, le=INT64_MAX)] = 0,
) -> Response:
    """Fetch a blob: one that the tenant uploaded, or that its event at `seq` names."""
    digest = _digest_of(sha256)
    uploads = node.uploads(caller.tenant)
    allowed = await node.reading.run(is_uploaded, uploads, digest)
    if not allowed and session_id:
        allowed = await _is_named(node, caller, await session_of(session_id), seq, digest)
    if not allowed:
        raise BlobError(sha256, "it is not in the store")
    async with AsyncExitStack() as turn:
        await turn.enter_async_context(node.downloading.turn(caller.tenant))
        data = await node.reading.run(node.log.blobs.get, digest)
        return _InTurn(data, turn.pop_all())


class _InTurn(Response):
    """A body in memory; the turn is another's once its client has read it, or is gone."""

    media_type = BYTES

    def __init__(self, data: bytes, turn: AsyncExitStack) -> None:
        super().__init__(data)
        self._turn = turn

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        async with self._turn:
            await super().__call__(scope, receive, send)


async def _is_named(
    node: Node, caller: Caller, session_id: str, seq: int, digest: bytes
) -> bool:
    node.check_served(session_id)
    if await node.tenant_of(session_id) != caller.tenant:
        return False
    recorded = await node.reading.run(event_at, node.log, session_id, seq)
    named = blobs_in(recorded.event) if recorded else ()
    return any(blob.sha256 == digest for blob in named)


def _digest_of(sha256: str) -> bytes:
    try:
        digest = bytes.fromhex(sha256) if len(sha256) == _DIGITS else b""
    except ValueError:
        digest = b""
    if not digest or sha256 != digest.hex():
        raise Problem(400, "bad_sha256", "a blob's name is 64 hex digits in lower case")
    return digest
