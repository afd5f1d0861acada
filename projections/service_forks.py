"""Routes about forks: making one, and the sessions that name another as their parent.

A fork made here is owned by nobody until somebody takes it. Nothing of its parent is
copied or changed; tokens see neither ancestors nor children of another tenant.
"""

from functools import partial
from typing import Annotated, Any

import uuid_utils
from fastapi import APIRouter, Query, Security
from pydantic import BaseModel, ConfigDict, Field

from foldline.processors.http_wire import list_cursor
from foldline.processors.lineage import Lineage, children, lineage_from
from foldline.processors.log import ListPlace
from foldline.processors.naming import check_session_id
from foldline.processors.stored import StoredSession
from foldline.projections.forking import ForkPoint, fork_point
from foldline.projections.service_access import Reader, caller
from foldline.projections.service_appends import Answer, Text
from foldline.projections.service_node import (
    Cursor,
    Int64,
    Node,
    Serving,
    SessionId,
    place_of,
)
from foldline.projections.service_writing import check_role, record, stamped
from foldline.projections.tokens import Caller
from foldline.projections.views import plain, verdict_view
from foldline.schemas.envelope import Actor, Envelope
from foldline.schemas.events import Label
from foldline.schemas.recorded import Append
from foldline.schemas.state import SessionState

router = APIRouter(tags=["forks"])

CHILDREN_MAX = 1_000
"""How many children one page lists."""

LABELS_MAX = 64
"""How many labels a fork made here begins with."""

Forker = Annotated[Caller, Security(caller, scopes=["append", "read"])]


class ForkIn(BaseModel):
    """Where a session is forked, and what the fork is called.

    Keep `session_id` and `event_id` when you send the request again: it is then answered
    DUPLICATE, and one fork was made.
    """

    model_config = ConfigDict(extra="forbid")

    at_seq: Int64
    """The seq of the last event that both have; never a place in a list."""
    session_id: Text | None = None
    event_id: Text | None = None
    agent: Text | None = None
    """The fork's agent; its parent's where not given."""
    labels: Annotated[dict[str, str], Field(max_length=LABELS_MAX)] = Field(
        default_factory=dict[str, str]
    )


class ForkAnswer(Answer):
    """Admission's answer to the fork's first event, and where it forks."""

    parent_session_id: str
    """The session that has the event at the fork point: the one that was named, or an
    ancestor of it."""
    fork_seq: int


@router.post("/sessions/{session_id}/fork")
async def fork_session(
    node: Serving, caller: Forker, session_id: SessionId, given: ForkIn
) -> ForkAnswer:
    """Make a session that goes on from any event of this one's history.

    It begins with what was in force there (goal, plan, constraints, budget,
    instructions, tools), without grants and open work. Nobody owns it until somebody
    takes it. Needs scopes `append` and `read`.
    """
    if given.session_id is not None:
        check_session_id(given.session_id)
    node.charge(caller, 1)
    await lineage_for(node, caller, session_id)
    labels = [Label(key=key, value=given.labels[key]) for key in sorted(given.labels)]
    read = partial(fork_point, tenant=caller.tenant, agent=given.agent, labels=labels)
    point = await node.reading.run(read, node.log, session_id, given.at_seq)
    append = _append(caller, given, point)
    check_role(caller, append.envelope, append.event)
    appends = await node.appending.run(node.prepare, append)
    verdict = (await record(node, appends))[0]
    where = {
        "parent_session_id": point.parent.session_id,
        "fork_seq": point.fork_seq,
    }
    return ForkAnswer.model_validate(verdict_view(verdict) | where)


def _append(caller: Caller, given: ForkIn, point: ForkPoint) -> Append:
    envelope = Envelope(
        event_id=(given.event_id or str(uuid_utils.uuid7())).lower(),
        session_id=given.session_id or str(uuid_utils.uuid7()),
        writer=f"http-{caller.token_id}",
        actor=Actor(kind=caller.kind, id=caller.actor_id),
        prev_hash=point.prev_hash,
    )
    return Append(stamped(caller, envelope), point.created, b"", known_seq=0)


class Children(BaseModel):
    """A page of the sessions that name one as their parent, the oldest first."""

    children: list[dict[str, Any]]
    cursor: str | None = None
    """Give it back for the next page; null: there is none."""


@router.get("/sessions/{session_id}/children")
async def list_children(
    node: Serving,
    caller: Reader,
    session_id: SessionId,
    limit: Annotated[int, Query(ge=1, le=CHILDREN_MAX)] = CHILDREN_MAX,
    cursor: Cursor = None,
) -> Children:
    """List forks, subagents and continuations of a session: those that name it."""
    node.check_whole()
    await node.check_visible(caller, session_id)
    behind = place_of(cursor) if cursor else None
    read = partial(children, tenant=caller.tenant)
    rows = await node.reading.run(read, node.log, session_id)
    left = [row for row in rows if behind is None or _age_of(row) > behind]
    page = left[:limit]
    following = list_cursor(_age_of(page[-1])) if len(left) > limit else None
    return Children(children=[plain(row) for row in page], cursor=following)


def _age_of(row: StoredSession) -> ListPlace:
    return row.created_at, row.session_id


async def lineage_for(node: Node, caller: Caller, session_id: str) -> Lineage:
    """The lineage of a session of the caller's, all of it served by this node.

    Raises:
        Problem: 404; 421, which names the partition of an ancestor; 503.
        LineageError: an ancestor is missing, too short, or of another tenant.
    """
    state = await node.state(caller, session_id)

    def state_of(ancestor_id: str) -> SessionState | None:
        node.check_served(ancestor_id)
        return node.log.state(ancestor_id)

    return await node.reading.run(lineage_from, state, state_of)
