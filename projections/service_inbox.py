"""Server-sent events: what waits for a person, as it comes and goes.

1. A stream begins with `pending`: everything that waits now, and so does one that comes
   back. Nothing is missed by that, so there is no id to go on from.
2. Then `requested` for each new request, `settled` for each that waits no more, with what
   became of it.
3. Before each part it is asked whether the token still counts: else the stream ends.
4. All streams of a tenant share one look, at most every LOOK_MS, and a look reads again
   only sessions that have moved.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from functools import partial

from fastapi import APIRouter
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from foldline.errors import FoldlineError
from foldline.processors.log import Log
from foldline.projections.approvals import Inbox, Pending, PendingList, settled
from foldline.projections.service_access import Reader
from foldline.projections.service_node import Node, Serving
from foldline.projections.service_problems import Problem
from foldline.projections.service_stream import HEARTBEAT, RETRY_MS
from foldline.projections.tokens import Caller
from foldline.projections.views import plain

_logger = logging.getLogger("foldline.service")

router = APIRouter(tags=["approvals"])

LOOK_MS = 500
"""How often the inbox of a tenant is looked at, while somebody listens."""

_HEADERS = {"x-accel-buffering": "no"}

Key = tuple[str, str]


@router.get(
    "/approvals/stream",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def stream_approvals(node: Serving, caller: Reader) -> StreamingResponse:
    """Stream what waits for a person, in all sessions of the tenant (server-sent events).

    First `pending` with everything that waits, then `requested` and `settled` as they
    happen. A stream that comes back begins so again.
    """
    node.check_whole()
    node.check_waiters(caller)
    parts = _stream(node, caller, node.inbox(caller.tenant))
    return StreamingResponse(parts, media_type="text/event-stream", headers=_HEADERS)


async def _stream(node: Node, caller: Caller, inbox: Inbox) -> AsyncIterator[bytes]:
    try:
        with node.waiting(caller):
            async for part in _parts(node, inbox):
                if not node.tokens.holds(caller):
                    return
                yield part
    except (FoldlineError, Problem) as error:
        _logger.warning("a stream of approvals ends: %s", error)


async def _parts(node: Node, inbox: Inbox) -> AsyncIterator[bytes]:
    look = partial(inbox.recent, within_ms=LOOK_MS // 2)
    listed = await node.reading.run(look)
    known = _by_key(listed)
    yield f"retry: {RETRY_MS}\n\n".encode() + _event("pending", listed)
    quiet_s = 0.0
    while not node.stopping:
        await asyncio.sleep(LOOK_MS / 1000)
        now = _by_key(await node.reading.run(look))
        for key in now.keys() - known.keys():
            yield _event("requested", now[key])
        for key in known.keys() - now.keys():
            yield await node.reading.run(_settled, node.log, known[key])
        quiet_s = 0.0 if now.keys() != known.keys() else quiet_s + LOOK_MS / 1000
        known = now
        if quiet_s * 1000 >= node.settings.http_heartbeat_ms:
            quiet_s = 0.0
            yield HEARTBEAT


def _by_key(listed: PendingList) -> dict[Key, Pending]:
    return {(each.session_id, each.request_id): each for each in listed.requests}


def _settled(log: Log, pending: Pending) -> bytes:
    found = settled(log, pending.session_id, pending.request_id, seq=pending.seq)
    return _event("settled", plain(found))


def _event(name: str, said: BaseModel | dict[str, object]) -> bytes:
    view = said.model_dump(mode="json") if isinstance(said, BaseModel) else said
    data = json.dumps(view, separators=(",", ":")).encode()
    return b"event: %s\ndata: %s\n\n" % (name.encode(), data)
