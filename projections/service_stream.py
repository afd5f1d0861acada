"""Server-sent events: a session as it happens, without a hole and without a repetition.

1. A stream reads what is there behind `Last-Event-ID` (or `after_seq`), in bounded parts.
2. Once nothing is left it waits with all others in the hub; what comes there goes on
   right behind what it has.
3. Every event's `id:` is its seq, so a client that comes back, to this node or to
   another, goes on behind the last one that it saw.

Where the log does not answer the stream ends: the client comes back by itself. Before each
part it is asked whether the token still counts: one that was removed, that has ended or
may do something else by now ends the stream.
"""

import json
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Annotated

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse

from foldline.errors import FoldlineError
from foldline.processors.http_wire import INT64_MAX
from foldline.processors.log import FOLLOW_MAX_EVENTS
from foldline.projections.service_access import Reader
from foldline.projections.service_events import Types, read_some
from foldline.projections.service_node import Node, Serving, SessionId
from foldline.projections.service_problems import Problem
from foldline.projections.tokens import Caller
from foldline.projections.views import event_view
from foldline.schemas.recorded import Recorded

_logger = logging.getLogger("foldline.service")

router = APIRouter(tags=["events"])

RETRY_MS = 1_000
"""When a client whose stream has ended comes back."""

SEQ_DIGITS = 19
"""How many digits a seq has at the most."""

HEARTBEAT = b": alive\n\n"

_HEADERS = {"x-accel-buffering": "no"}


@router.get(
    "/sessions/{session_id}/events/stream",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def stream_events(
    node: Serving,
    caller: Reader,
    session_id: SessionId,
    after_seq: Annotated[int, Query(ge=0, le=INT64_MAX)] = 0,
    types: Types = "",
    last_event_id: Annotated[str, Header()] = "",
) -> StreamingResponse:
    """Stream a session's events as they are recorded (server-sent events).

    Each has its seq as `id:`; with `Last-Event-ID` the stream goes on behind it. A
    comment every few seconds says that the stream lives.
    """
    await node.check_visible(caller, session_id)
    if last_event_id:
        after_seq = _seq_of(last_event_id)
    node.check_waiters(caller)
    names = frozenset(name for name in types.split(",") if name)
    parts = _stream(node, caller, session_id, after_seq, names)
    return StreamingResponse(parts, media_type="text/event-stream", headers=_HEADERS)


def _seq_of(last_event_id: str) -> int:
    digits = last_event_id.isascii() and last_event_id.isdigit()
    if not digits or len(last_event_id) > SEQ_DIGITS or int(last_event_id) > INT64_MAX:
        raise Problem(400, "bad_last_event_id", "Last-Event-ID is no seq")
    return int(last_event_id)


async def _stream(
    node: Node, caller: Caller, session_id: str, after_seq: int, names: frozenset[str]
) -> AsyncIterator[bytes]:
    seq = after_seq
    try:
        with node.waiting(caller):
            yield f"retry: {RETRY_MS}\n\n".encode()
            async for found in _parts(node, session_id, after_seq):
                if not node.tokens.holds(caller):
                    return
                if not found:
                    yield HEARTBEAT
                for recorded in found:
                    seq = recorded.seq
                    if not names or recorded.type in names:
                        yield event_of(recorded)
    except (FoldlineError, Problem) as error:
        _logger.warning("the stream of %s ends behind seq %d: %s", session_id, seq, error)


async def _parts(
    node: Node, session_id: str, seq: int
) -> AsyncIterator[Sequence[Recorded]]:
    """What is there behind a seq, then what comes; an empty part while nothing does."""
    behind = True
    while not node.stopping:
        if behind:
            found = await node.reading.run(read_some, node, session_id, seq)
            behind = bool(found)
            if not found:
                continue
        else:
            found = await node.hub.wait(
                session_id, after_seq=seq, timeout_ms=node.settings.http_heartbeat_ms
            )
            behind = len(found) >= FOLLOW_MAX_EVENTS
        seq = found[-1].seq if found else seq
        yield found


def event_of(recorded: Recorded) -> bytes:
    """An event on the stream: its seq, and its view as one line of ASCII.

    Many clients split lines at every character that Unicode calls a line's end.
    """
    data = json.dumps(event_view(recorded), separators=(",", ":")).encode()
    return b"id: %d\ndata: %s\n\n" % (recorded.seq, data)
