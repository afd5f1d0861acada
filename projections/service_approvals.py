"""Routes for the person who is asked: what waits for an answer, and the answer.

An answer is bound to the request and to the arguments that the person saw: it names
their hash. It is recorded as that person's, through the log like everything else, so
admission refuses one that comes too late, or whose arguments are others by now.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import uuid_utils
from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from foldline.processors.http_wire import INT64_MAX
from foldline.projections.answering import (
    answer_problem,
    answered,
    denied,
    edit_problem,
    granted,
    verb_problem,
)
from foldline.projections.approvals import (
    LOOKED_AT_MAX,
    PendingList,
    pending_under,
)
from foldline.projections.service_access import Approver, Reader
from foldline.projections.service_appends import Answer, answer_of, append_prepared
from foldline.projections.service_approvers import check_may_answer, check_person
from foldline.projections.service_node import Node, Serving, SessionId
from foldline.projections.service_problems import Problem
from foldline.projections.service_writing import check_resendable
from foldline.projections.tokens import Caller
from foldline.schemas.blocks import text_block
from foldline.schemas.envelope import Actor, Envelope
from foldline.schemas.events import (
    KnownEvent,
)
from foldline.schemas.recorded import Append
from foldline.schemas.state import PendingRequest, SessionState
from foldline.schemas.verdicts import DUPLICATE, Verdict

router = APIRouter(tags=["approvals"])


@router.get("/approvals")
async def list_approvals(
    node: Serving,
    caller: Reader,
    limit: Annotated[int, Query(ge=1, le=LOOKED_AT_MAX)] = 100,
) -> PendingList:
    """List what waits for a person, in all sessions of the tenant.

    A subagent's request stands with those of the session at the root of its tree
    (`root_session_id`); it is answered at its own `session_id`.
    """
    node.check_whole()
    inbox = node.inbox(caller.tenant)
    return await node.reading.run(lambda: inbox.look(limit=limit))


@router.get("/sessions/{session_id}/approvals")
async def show_approvals(
    node: Serving, caller: Reader, session_id: SessionId
) -> PendingList:
    """List what waits for a person in one session, and in the subagents below it."""
    state = await node.state(caller, session_id)
    found = await node.reading.run(pending_under, node.log, state)
    return PendingList(requests=found, more=False)


# --- answers ---------------------------------------------------------------------------

Text = Annotated[str, Field(max_length=64_000)]
Uuid = Annotated[str, Field(max_length=64)]


class GrantIn(BaseModel):
    """A person's yes to exactly these arguments."""

    model_config = ConfigDict(extra="forbid")

    args_hash: Annotated[str, Field(max_length=512)] = ""
    """The hash of the arguments that you saw; needed where the request has one."""
    scope: Annotated[str, Field(pattern="^(CALL|TURN|SESSION)$")] = "CALL"
    edited_arguments: dict[str, Any] | None = None
    """Run the call with these arguments instead, and only this call (scope CALL)."""
    event_id: Uuid | None = None
    """A UUID of your own (v7), for who may send the answer again: with `known_seq`."""
    known_seq: Annotated[int, Field(ge=0, le=INT64_MAX)] | None = None


class DenyIn(BaseModel):
    """A person's no."""

    model_config = ConfigDict(extra="forbid")

    feedback: Text = ""
    may_request_again: bool = False
    event_id: Uuid | None = None
    """A UUID of your own (v7), for who may send the answer again: with `known_seq`."""
    known_seq: Annotated[int, Field(ge=0, le=INT64_MAX)] | None = None


class InputIn(BaseModel):
    """A person's answer to a question."""

    model_config = ConfigDict(extra="forbid")

    text: Text
    event_id: Uuid | None = None
    """A UUID of your own (v7), for who may send the answer again: with `known_seq`."""
    known_seq: Annotated[int, Field(ge=0, le=INT64_MAX)] | None = None


@router.post("/sessions/{session_id}/approvals/{request_id}/grant")
async def grant(
    node: Serving, caller: Approver, session_id: SessionId, request_id: str, given: GrantIn
) -> Answer:
    """Grant a request for permission, as the person whose token this is.

    The arguments must still be those that `args_hash` names (409 otherwise).
    """

    def made(request: PendingRequest) -> KnownEvent:
        _check_asks(request, permission=True)
        if given.args_hash != request.args_hash:
            detail = f"the request is for arguments {request.args_hash!r}: look again"
            raise Problem(409, "other_arguments", detail)
        edited = given.edited_arguments
        text = None if edited is None else json.dumps(edited, ensure_ascii=False)
        if text is not None and (
            problem := edit_problem(text, scope=given.scope, request=request)
        ):
            raise Problem(422, "bad_edit", problem)
        return granted(
            request, grant_id=str(uuid_utils.uuid7()), scope=given.scope, edited=text
        )

    return await _Answering(node, caller, session_id, request_id, given).by(made)


@router.post("/sessions/{session_id}/approvals/{request_id}/deny")
async def deny(
    node: Serving, caller: Approver, session_id: SessionId, request_id: str, given: DenyIn
) -> Answer:
    """Deny a request for permission, as the person whose token this is."""

    def made(request: PendingRequest) -> KnownEvent:
        _check_asks(request, permission=True)
        feedback = (text_block(given.feedback),) if given.feedback else ()
        return denied(request, feedback=feedback, may_request_again=given.may_request_again)

    return await _Answering(node, caller, session_id, request_id, given).by(made)


@router.post("/sessions/{session_id}/approvals/{request_id}/input")
async def provide_input(
    node: Serving, caller: Approver, session_id: SessionId, request_id: str, given: InputIn
) -> Answer:
    """Answer a request for input, as the person whose token this is.

    Recovery's question how a call ended is answered by COMPLETED, FAILED or NOT_EXECUTED,
    which closes the call.
    """

    def provided(request: PendingRequest) -> KnownEvent:
        _check_asks(request, permission=False)
        said = (text_block(given.text),)
        if problem := answer_problem(request, said):
            raise Problem(422, "bad_answer", problem)
        return answered(request, said, person=caller.actor_id)

    return await _Answering(node, caller, session_id, request_id, given).by(provided)


def _check_asks(request: PendingRequest, *, permission: bool) -> None:
    problem = verb_problem(request, permission=permission)
    if problem:
        raise Problem(409, "other_request", problem)


@dataclass(frozen=True, slots=True)
class _Answering:
    """One answer of a person to one request."""

    node: Node
    caller: Caller
    session_id: str
    request_id: str
    given: GrantIn | DenyIn | InputIn

    async def by(self, make: Callable[[PendingRequest], KnownEvent]) -> Answer:
        """Record what is made of the request, as the person's.

        Raises:
            Problem: 403 for who is no person, has none of the roles that the request
                names, or asked it; 404 where nothing waits any more; 422 for an event_id
                without known_seq.
        """
        check_resendable(self.given.event_id, self.given.known_seq)
        check_person(self.caller)
        state = await self.node.state(self.caller, self.session_id)
        event_id = (self.given.event_id or str(uuid_utils.uuid7())).lower()
        recorded_seq = state.seq_of(event_id)
        if recorded_seq is not None:
            return answer_of(_sent_before(state, event_id, recorded_seq))
        request = state.requests.get(self.request_id)
        if request is None:
            detail = f"no request {self.request_id!r} waits: answered, or expired"
            raise Problem(404, "no_request", detail)
        event = make(request)
        await self.node.reading.run(
            check_may_answer, self.node.log, self.caller, state, request
        )
        self.node.charge(self.caller, 1)
        envelope = Envelope(
            event_id=event_id,
            session_id=state.session_id,
            tenant=self.caller.tenant,
            writer=f"http-{self.caller.token_id}",
            actor=Actor(kind="PERSON", id=self.caller.actor_id),
        )
        known_seq = state.seq if self.given.known_seq is None else self.given.known_seq
        append = Append(envelope, event, b"", known_seq=known_seq)
        return answer_of(await append_prepared(self.node, self.caller, append))


def _sent_before(state: SessionState, event_id: str, seq: int) -> Verdict:
    """The verdict of an answer that was recorded already, and is sent again."""
    return Verdict(
        kind=DUPLICATE,
        session_id=state.session_id,
        event_id=event_id,
        seq=seq,
        current_seq=state.seq,
        epoch=state.epoch,
        recorded_at=state.recorded_at,
    )
