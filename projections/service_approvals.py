"""Routes for the person who is asked: what waits for an answer, and the answer.

An answer is bound to the request and to the arguments that the person saw: it names
their hash. It is recorded as that person's, through the log like everything else, so
admission refuses one that comes too late, or whose arguments are others by now.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import uuid_utils
from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from foldline.processors.http_wire import INT64_MAX
from foldline.processors.log import Log
from foldline.projections.reading import event_at
from foldline.projections.service_access import Approver, Reader
from foldline.projections.service_appends import Answer, answer_of, append_prepared
from foldline.projections.service_node import Node, Serving, SessionId
from foldline.projections.service_problems import Problem
from foldline.projections.service_writing import check_resendable
from foldline.projections.tokens import SPEAKS_FOR, Caller
from foldline.projections.views import iso_time, plain
from foldline.schemas.blocks import text_block
from foldline.schemas.envelope import Actor, Envelope
from foldline.schemas.events import (
    InputProvided,
    InputRequested,
    KnownEvent,
    PermissionDenied,
    PermissionGranted,
    PermissionRequested,
    ToolCallRequested,
)
from foldline.schemas.recorded import Append
from foldline.schemas.state import (
    RUNNING,
    SUSPENDED,
    WAITING_APPROVAL,
    PendingRequest,
    SessionState,
)
from foldline.schemas.verdicts import DUPLICATE, Verdict

router = APIRouter(tags=["approvals"])

INPUT = "INPUT"
"""The kind of a request for an answer, not for permission."""

LOOKED_AT_MAX = 1_000
"""How many sessions of each status are looked at for requests."""

ASKING = (WAITING_APPROVAL, RUNNING, SUSPENDED)
"""The statuses in which a session may have a request."""


class Pending(BaseModel):
    """A request, and what a person needs to see to answer it."""

    session_id: str
    agent: str
    request_id: str
    kind: str
    seq: int
    requested_at: str | None
    expires_at: str | None
    call_id: str
    tool: str = ""
    namespace: str = ""
    args_hash: str
    """Give it back with the answer: it says which arguments you saw."""
    arguments: list[Any] = Field(default_factory=list[Any])
    display: list[Any] = Field(default_factory=list[Any])
    options: list[str] = Field(default_factory=list[str])
    answer_schema_json: str | None = None


class PendingList(BaseModel):
    """What waits for an answer, the longest waiting first."""

    requests: list[Pending]
    more: bool
    """Whether there may be more than were looked for."""


@router.get("/approvals")
async def list_approvals(
    node: Serving,
    caller: Reader,
    limit: Annotated[int, Query(ge=1, le=LOOKED_AT_MAX)] = 100,
) -> PendingList:
    """List what waits for a person, in all sessions of the tenant."""
    node.check_whole()
    return await node.reading.run(_listed, node.log, caller, limit)


def _listed(log: Log, caller: Caller, limit: int) -> PendingList:
    found: list[Pending] = []
    more = False
    for status in ASKING:
        listed = log.sessions(tenant=caller.tenant, status=status, limit=LOOKED_AT_MAX)
        more = more or len(listed) == LOOKED_AT_MAX
        for summary in listed:
            state = log.state(summary.session_id)
            if state is not None:
                found.extend(_pending_of(log, state))
    found.sort(key=lambda pending: pending.requested_at or "")
    return PendingList(requests=found[:limit], more=more or len(found) > limit)


@router.get("/sessions/{session_id}/approvals")
async def show_approvals(
    node: Serving, caller: Reader, session_id: SessionId
) -> PendingList:
    """List what waits for a person in one session."""
    state = await node.state(caller, session_id)
    found = await node.reading.run(lambda: list(_pending_of(node.log, state)))
    return PendingList(requests=found, more=False)


def _pending_of(log: Log, state: SessionState) -> Iterator[Pending]:
    for request in state.requests.values():
        recorded = event_at(log, state.session_id, request.seq)
        pending = Pending(
            session_id=state.session_id,
            agent=state.agent,
            request_id=request.request_id,
            kind=request.kind,
            seq=request.seq,
            requested_at=iso_time(recorded.envelope.recorded_at) if recorded else None,
            expires_at=iso_time(request.expires_at),
            call_id=request.call_id,
            args_hash=request.args_hash,
        )
        match recorded.event if recorded else None:
            case PermissionRequested(display=display, options=options):
                pending.display = plain(display)
                pending.options = list(options)
            case InputRequested(prompt=prompt, answer_schema_json=schema):
                pending.display = plain(prompt)
                pending.answer_schema_json = schema
            case _:
                pass
        _add_call(log, state, request, pending)
        yield pending


def _add_call(
    log: Log, state: SessionState, request: PendingRequest, pending: Pending
) -> None:
    call = state.calls.get(request.call_id) or state.finished.get(request.call_id)
    if call is None:
        return
    pending.tool, pending.namespace = call.tool, call.namespace
    recorded = event_at(log, state.session_id, call.requested_seq)
    if recorded is not None and isinstance(recorded.event, ToolCallRequested):
        pending.arguments = plain(recorded.event.arguments)


# --- answers ---------------------------------------------------------------------------

Text = Annotated[str, Field(max_length=64_000)]
Uuid = Annotated[str, Field(max_length=64)]


class GrantIn(BaseModel):
    """A person's yes to exactly these arguments."""

    model_config = ConfigDict(extra="forbid")

    args_hash: Annotated[str, Field(max_length=512)] = ""
    """The hash of the arguments that you saw; needed where the request has one."""
    scope: Annotated[str, Field(pattern="^(CALL|TURN|SESSION)$")] = "CALL"
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

    def granted(request: PendingRequest) -> KnownEvent:
        _check_asks(request, permission=True)
        if given.args_hash != request.args_hash:
            detail = f"the request is for arguments {request.args_hash!r}: look again"
            raise Problem(409, "other_arguments", detail)
        return PermissionGranted(
            request_id=request.request_id,
            call_id=request.call_id or None,
            args_hash=request.args_hash or None,
            scope=given.scope,
            decided_by="PERSON",
            grant_id=str(uuid_utils.uuid7()),
        )

    return await _Answering(node, caller, session_id, request_id, given).by(granted)


@router.post("/sessions/{session_id}/approvals/{request_id}/deny")
async def deny(
    node: Serving, caller: Approver, session_id: SessionId, request_id: str, given: DenyIn
) -> Answer:
    """Deny a request for permission, as the person whose token this is."""

    def denied(request: PendingRequest) -> KnownEvent:
        _check_asks(request, permission=True)
        return PermissionDenied(
            request_id=request.request_id,
            call_id=request.call_id or None,
            decided_by="PERSON",
            may_request_again=given.may_request_again,
            feedback=(text_block(given.feedback),) if given.feedback else (),
        )

    return await _Answering(node, caller, session_id, request_id, given).by(denied)


@router.post("/sessions/{session_id}/approvals/{request_id}/input")
async def provide_input(
    node: Serving, caller: Approver, session_id: SessionId, request_id: str, given: InputIn
) -> Answer:
    """Answer a request for input, as the person whose token this is."""

    def provided(request: PendingRequest) -> KnownEvent:
        _check_asks(request, permission=False)
        return InputProvided(
            request_id=request.request_id, blocks=(text_block(given.text),)
        )

    return await _Answering(node, caller, session_id, request_id, given).by(provided)


def _check_asks(request: PendingRequest, *, permission: bool) -> None:
    if (request.kind == INPUT) == permission:
        wanted = "an answer (input)" if permission else "permission (grant or deny)"
        raise Problem(409, "other_request", f"the request asks for {wanted}")


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
            Problem: 403 for who is no person, 404 where nothing waits any more, 422 for
                an event_id without known_seq.
        """
        check_resendable(self.given.event_id, self.given.known_seq)
        if "PERSON" not in SPEAKS_FOR[self.caller.kind]:
            raise Problem(403, "no_person", "only a person's token answers for a person")
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
