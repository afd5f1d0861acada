"""The route for who stops an agent from outside: its session, its turn, or one call.

1. The request to stop is in the log before it is acknowledged; whoever owns the session
   sees it there, in whatever process, and stops what can be stopped.
2. The subagents that it is about are asked as well, and theirs, each in its own log, under
   an id that follows from what it stems from. One that this node does not serve is left to
   the owner of its parent, who hands the request on, too.
"""

from typing import Annotated, Literal

import uuid_utils
from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from foldline.errors import SessionTruncatedError
from foldline.processors.http_wire import INT64_MAX
from foldline.projections.service_access import Appender
from foldline.projections.service_appends import Answer, answer_of, append_prepared
from foldline.projections.service_node import Node, Serving, SessionId
from foldline.projections.service_problems import Problem
from foldline.projections.service_writing import check_resendable, stamped
from foldline.projections.subagents import (
    DEPTH_MAX,
    cause_of,
    cause_of_end,
    children_unseen,
    open_children,
    stops_of,
)
from foldline.projections.tokens import Caller
from foldline.schemas.derived import cancellation_id
from foldline.schemas.envelope import Actor, Envelope
from foldline.schemas.events import CancellationRequested
from foldline.schemas.recorded import Append
from foldline.schemas.state import SessionState
from foldline.schemas.verdicts import CLOSED, Verdict

router = APIRouter(tags=["steering"])


class CancelIn(BaseModel):
    """What is to stop, and why: the session, the turn that is open, or one call."""

    model_config = ConfigDict(extra="forbid")

    target: Literal["SESSION", "TURN", "CALL"] = "SESSION"
    target_id: Annotated[str | None, Field(min_length=1, max_length=512)] = None
    """The call's id, for CALL."""
    reason: Annotated[str, Field(max_length=4_000)] = ""
    event_id: Annotated[str | None, Field(max_length=64)] = None
    """A UUID of your own (v7), for who may send it again: with `known_seq`."""
    known_seq: Annotated[int, Field(ge=0, le=INT64_MAX)] | None = None


@router.post("/sessions/{session_id}/cancel")
async def cancel(
    node: Serving, caller: Appender, session_id: SessionId, given: CancelIn
) -> Answer:
    """Ask the owner of a session to stop it, its turn, or one call; subagents as well.

    A tool that can be stopped is stopped; another one comes to its safe end. A session
    that has ended answers CLOSED.
    """
    check_resendable(given.event_id, given.known_seq)
    if (given.target == "CALL") != (given.target_id is not None):
        raise Problem(422, "bad_target", "target_id goes with CALL, and CALL with it")
    state = await node.state(caller, session_id)
    event = CancellationRequested(
        target=given.target, target_id=given.target_id, reason=given.reason
    )
    node.charge(caller, 1)
    known_seq = state.seq if given.known_seq is None else given.known_seq
    event_id = given.event_id or str(uuid_utils.uuid7())
    verdict = await _ask(
        node, caller, session_id, event, event_id=event_id, known_seq=known_seq
    )
    if verdict.recorded:
        state = await node.state(caller, session_id, min_seq=verdict.seq)
        for stop in stops_of(state):
            cause = (cause_of(state, stop), stop.reason)
            await _stop_tree(node, caller, stop.child_session_id, cause)
    elif verdict.kind == CLOSED and given.target == "SESSION":
        # Who ended it may have died before its subagents were told.
        for child in open_children(await node.state(caller, session_id)):
            cause = (cause_of_end(session_id), given.reason)
            await _stop_tree(node, caller, child.child_session_id, cause)
    return answer_of(verdict)


async def _stop_tree(
    node: Node, caller: Caller, session_id: str, cause: tuple[str, str]
) -> None:
    """2. Ask a session, and all below it; what is not there, or has ended, is left."""
    stems_from, reason = cause
    event = CancellationRequested(target="SESSION", reason=reason)
    level, seen = [session_id], {session_id}
    for _ in range(DEPTH_MAX):
        below: list[str] = []
        for name in level:
            child = await _served(node, caller, name)
            if child is None:
                continue
            below += children_unseen(child, seen)
            event_id = cancellation_id(name, stems_from)
            if not child.ended:
                await _ask(
                    node, caller, name, event, event_id=event_id, known_seq=child.seq
                )
        level = below


async def _served(node: Node, caller: Caller, session_id: str) -> SessionState | None:
    """The state of a session; None where there is none: not yet, lost, or elsewhere."""
    try:
        return await node.state(caller, session_id)
    except (Problem, SessionTruncatedError):
        return None


async def _ask(
    node: Node,
    caller: Caller,
    session_id: str,
    event: CancellationRequested,
    *,
    event_id: str,
    known_seq: int,
) -> Verdict:
    """1. Record one request to stop, as the caller's."""
    envelope = Envelope(
        event_id=event_id.lower(),
        session_id=session_id,
        writer=f"http-{caller.token_id}",
        actor=Actor(kind=caller.kind, id=caller.actor_id),
    )
    append = Append(stamped(caller, envelope), event, b"", known_seq=known_seq)
    return await append_prepared(node, caller, append)
