"""Routes that read sessions: lists, states, and what is stored of them."""

from itertools import islice
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response
from pydantic import BaseModel, Field

from foldline.errors import SessionTruncatedError
from foldline.processors.event_rows import LOST
from foldline.processors.http_wire import (
    INDEX,
    INT64_MAX,
    MORE,
    SNAPSHOTS,
    STATE,
    list_cursor,
    pack_index,
    pack_snapshots,
)
from foldline.processors.log import order_of
from foldline.processors.stored import StoredSession, summary_of
from foldline.projections.service_access import Reader
from foldline.projections.service_forks import lineage_for
from foldline.projections.service_node import (
    Cursor,
    Int64,
    Node,
    Serving,
    SessionId,
    place_of,
)
from foldline.projections.service_problems import Problem, missing_of
from foldline.projections.views import session_view, state_view
from foldline.schemas.snapshots import encode_snapshot
from foldline.schemas.state import SessionState

router = APIRouter(tags=["sessions"])

PAGE_MAX = 1_000
"""How many sessions one page lists."""

INDEX_MAX = 5_000
"""How many rows of the index one answer holds."""

ID_MAX = 2_048
"""How long a session's id in a query may be."""


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
    cursor: Cursor = None,
) -> Listing:
    """List the tenant's sessions, the most recently active first."""
    node.check_whole()
    listed = await node.reading.run(
        node.log.sessions,
        tenant=caller.tenant,
        status=status,
        limit=limit + 1,  # one more tells whether there is a next page
        before=place_of(cursor) if cursor else None,
    )
    page = listed[:limit]
    following = list_cursor(order_of(page[-1])) if len(listed) > limit else None
    return Listing(sessions=[session_view(row) for row in page], cursor=following)


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
async def list_stored(
    node: Serving,
    caller: Reader,
    after: Annotated[str, Query(max_length=ID_MAX)] = "",
    parent: Annotated[str | None, Query(max_length=ID_MAX)] = None,
) -> Response:
    """List the tenant's rows of the index, as they are stored (MessagePack).

    In the order of the session ids, those behind `after`; with `parent`, of its children.
    The header `foldline-more` says that there are more behind the last one.
    """
    node.check_whole()

    def read() -> list[StoredSession]:
        rows = node.log.stored_sessions(after=after, parent=parent)
        own = (row for row in rows if row.tenant == caller.tenant)
        return list(islice(own, INDEX_MAX + 1))

    rows = await node.reading.run(read)
    headers = {MORE: "1"} if len(rows) > INDEX_MAX else {}
    return Response(pack_index(rows[:INDEX_MAX]), media_type=INDEX, headers=headers)


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
