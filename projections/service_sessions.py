"""Routes that read sessions: lists, states, and what is stored of them."""

import base64
import binascii
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response
from pydantic import BaseModel, Field

from foldline.errors import SessionTruncatedError
from foldline.processors.event_rows import LOST
from foldline.processors.http_wire import (
    INDEX,
    INT64_MAX,
    SNAPSHOTS,
    STATE,
    pack_index,
    pack_snapshots,
)
from foldline.processors.log import Log, SessionSummary
from foldline.processors.stored import summary_of
from foldline.projections.service_access import Reader
from foldline.projections.service_forks import lineage_for
from foldline.projections.service_node import Int64, Node, Serving, SessionId
from foldline.projections.service_problems import Problem, missing_of
from foldline.projections.tokens import Caller
from foldline.projections.views import session_view, state_view
from foldline.schemas.snapshots import encode_snapshot
from foldline.schemas.state import SessionState

router = APIRouter(tags=["sessions"])

PAGE_MAX = 1_000
"""How many sessions one page lists."""

LISTED_MAX = 100_000
"""How far pages reach: the sessions behind are found by tenant and status."""


class Listing(BaseModel):
    """A page of sessions, the most recently active first."""

    sessions: list[dict[str, Any]]
    cursor: str | None = None
    """Give it back for the next page; null: there is none. What becomes active in the
    meantime moves to the first page."""


@router.get("/sessions")
async def list_sessions(
    node: Serving,
    caller: Reader,
    status: Annotated[str | None, Query(max_length=64)] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = 100,
    cursor: Annotated[str | None, Query(max_length=1_024)] = None,
) -> Listing:
    """List the tenant's sessions, the most recently active first."""
    node.check_whole()
    after = _of_cursor(cursor) if cursor else None
    page, more = await node.reading.run(_page, node.log, caller, status, limit, after)
    views = [session_view(summary) for summary in page]
    return Listing(sessions=views, cursor=_cursor_of(page[-1]) if more else None)


def _page(
    log: Log, caller: Caller, status: str | None, limit: int, after: tuple[int, str] | None
) -> tuple[list[SessionSummary], bool]:
    """The sessions behind a place in the list, and whether there are more."""
    wanted = limit + 1
    while True:
        listed = log.sessions(tenant=caller.tenant, status=status, limit=wanted)
        whole = len(listed) < wanted or wanted >= LISTED_MAX
        if after is not None:
            time, session_id = after
            listed = [
                s
                for s in listed
                if s.recorded_at < time
                or (s.recorded_at == time and s.session_id != session_id)
            ]
        if whole or len(listed) > limit:
            return listed[:limit], len(listed) > limit
        wanted = min(wanted * 4, LISTED_MAX)


def _cursor_of(last: SessionSummary) -> str:
    text = f"{last.recorded_at} {last.session_id}"
    return base64.urlsafe_b64encode(text.encode("utf-8", "surrogatepass")).decode()


def _of_cursor(cursor: str) -> tuple[int, str]:
    try:
        text = base64.b64decode(cursor, altchars=b"-_", validate=True).decode(
            "utf-8", "surrogatepass"
        )
        time, _, session_id = text.partition(" ")
        return int(time), session_id
    except (ValueError, binascii.Error) as error:
        raise Problem(400, "bad_cursor", "no cursor of this service") from error


@router.get("/sessions/{session_id}")
async def show_session(
    node: Serving, caller: Reader, session_id: SessionId
) -> dict[str, Any]:
    """Show what a listing shows of one session; of an UNRECOVERABLE one what is missing."""
    try:
        return session_view(summary_of(await node.state(caller, session_id)))
    except SessionTruncatedError as error:
        lost = {"session_id": session_id, "tenant": error.tenant, "status": LOST}
        return lost | {"missing": missing_of(error)}


class StateIn(BaseModel):
    """Which state: now or just after a seq, and how new at the least."""

    at_seq: Int64 | None = None
    min_seq: Annotated[int, Field(ge=0, le=INT64_MAX)] = 0
    joined: bool = False


@router.get(
    "/sessions/{session_id}/state",
    response_model=dict[str, Any],
    responses={200: {"content": {STATE: {"schema": {"format": "binary"}}}}},
)
async def show_state(
    node: Serving,
    caller: Reader,
    session_id: SessionId,
    given: Annotated[StateIn, Query()],
    accept: Annotated[str, Header()] = "",
) -> Any:
    """Show a session's state, now or as it was at a seq.

    `min_seq` waits until the session has come so far: give the seq of your own append
    and you read your own write. It is never older than what was recorded when you asked.
    With `joined`, a seq up to a fork's fork point gives the state of the ancestor that
    has it, as that one's.
    """
    at_seq = given.at_seq
    try:
        state = await node.state(caller, session_id, min_seq=given.min_seq)
    except SessionTruncatedError as error:
        if at_seq is None or at_seq > error.known_seq:
            raise
        state = await _state_at(node, session_id, at_seq)  # from before the hole
    if at_seq is not None:
        holder = session_id
        if given.joined and at_seq <= state.fork_seq:
            holder = (await lineage_for(node, caller, session_id)).holder(at_seq)
        state = await _state_at(node, holder, at_seq)
    if STATE in accept:
        body = await node.reading.run(encode_snapshot, state)
        return Response(body, media_type=STATE)
    return await node.reading.run(state_view, state)


async def _state_at(node: Node, session_id: str, at_seq: int) -> SessionState:
    state = await node.reading.run(node.log.state, session_id, at_seq=at_seq)
    if state is None:
        raise Problem(404, "no_event", f"session {session_id!r} has no event at {at_seq}")
    return state


# --- what `foldline verify` reads ------------------------------------------------------


@router.get(
    "/stored/sessions",
    response_class=Response,
    responses={200: {"content": {INDEX: {"schema": {"format": "binary"}}}}},
)
async def list_stored(node: Serving, caller: Reader) -> Response:
    """List the tenant's rows of the index, as they are stored (MessagePack)."""
    node.check_whole()

    def read() -> bytes:
        rows = node.log.stored_sessions()
        return pack_index(row for row in rows if row.tenant == caller.tenant)

    return Response(await node.reading.run(read), media_type=INDEX)


@router.get(
    "/sessions/{session_id}/snapshots",
    response_class=Response,
    responses={200: {"content": {SNAPSHOTS: {"schema": {"format": "binary"}}}}},
)
async def list_snapshots(node: Serving, caller: Reader, session_id: SessionId) -> Response:
    """List a session's snapshots, the oldest first (frames)."""
    await node.check_visible(caller, session_id)

    def read() -> bytes:
        return pack_snapshots(node.log.stored_snapshots(session_id))

    return Response(await node.reading.run(read), media_type=SNAPSHOTS)
