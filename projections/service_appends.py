"""Routes that append: an event as JSON for everybody, batches of Avro for our client.

**Every verdict is status 200**: it is the answer that was asked for, a batch has many,
and what sits between client and service must not retry or hide it. `recorded` says
whether the event is in the log. Other statuses mean that there is no verdict: 4xx never
will be, 503 and 504 may be: send the same append again, `event_id` and `known_seq`
unchanged, and it is recorded once, however often it was sent.
"""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import uuid_utils
from fastapi import APIRouter, Header, Request, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from foldline.errors import SessionTruncatedError
from foldline.processors.http_appends import appended
from foldline.processors.http_wire import (
    APPENDS,
    APPENDS_MAX,
    INT64_MAX,
    VERDICTS,
    WireAppend,
    pack_verdicts,
    unpack_appends,
)
from foldline.projections.answering import answered_request
from foldline.projections.service_access import Appender
from foldline.projections.service_approvers import check_answer
from foldline.projections.service_node import Node, Serving, SessionId
from foldline.projections.service_problems import Problem
from foldline.projections.service_writing import (
    check_blobs,
    check_named,
    check_resendable,
    check_role,
    record,
    stamped,
)
from foldline.projections.tokens import Caller
from foldline.projections.views import verdict_view
from foldline.schemas.blocks import Blocks, text_block
from foldline.schemas.envelope import Actor, Envelope
from foldline.schemas.events import EVENT_TYPES, KnownEvent
from foldline.schemas.recorded import Append
from foldline.schemas.verdicts import Verdict

router = APIRouter(tags=["appends"])

Seq = Annotated[int, Field(ge=0, le=INT64_MAX)]
Text = Annotated[str, Field(min_length=1, max_length=512)]


class EventIn(BaseModel):
    """An event to record, and how it is to be admitted.

    Blocks may be given as plain text. `event_id` is a UUID of your own (v7): keep it,
    and `known_seq`, when you send the append again. `turn_id`, `epoch` and `writer` are
    for who owns the session (scope `own`).
    """

    model_config = ConfigDict(extra="forbid")

    type: Annotated[str, Field(max_length=128)]
    fields: dict[str, Any] = Field(default_factory=dict[str, Any])
    event_id: Text | None = None
    known_seq: Seq | None = None
    """The session's seq that you know; without it, the one that the service reads now.
    An `event_id` needs it (422): with another one each time, a resend behind more than
    128 other events would be a second event."""
    expected_seq: Seq | None = None
    """Refuse (CONFLICT) unless this is the session's last seq."""
    requires: Annotated[tuple[Text, ...], Field(max_length=32)] = ()
    turn_id: Text | None = None
    epoch: Annotated[int, Field(ge=0, le=INT64_MAX)] = 0
    writer: Text | None = None
    occurred_at: Annotated[int, Field(ge=0, le=INT64_MAX)] | None = None
    """The writer's clock, in microseconds since 1970 UTC."""
    correlation_id: Text | None = None
    traceparent: Text | None = None


class Answer(BaseModel):
    """Admission's answer: `recorded` says whether the event is in the log."""

    model_config = ConfigDict(extra="allow")

    kind: str
    recorded: bool
    session_id: str
    event_id: str
    seq: int
    current_seq: int
    rule: str
    detail: str


@router.post("/sessions/{session_id}/appends")
async def append_event(
    node: Serving, caller: Appender, session_id: SessionId, given: EventIn
) -> Answer:
    """Append one event. Every verdict is status 200; `recorded` tells.

    Tenant and actor come from the token. Without scope `own` only external events are
    taken (messages, steering, goals, labels, cancellations, a new session). The same
    `event_id` again is answered DUPLICATE, with the seq that it has.
    """
    check_resendable(given.event_id, given.known_seq)
    node.check_served(session_id)
    node.charge(caller, 1)
    event = event_of(given.type, given.fields)
    known_seq = given.known_seq
    if known_seq is None:
        known_seq = await _known_seq(node, caller, session_id)
    envelope = stamped(
        caller,
        Envelope(
            event_id=(given.event_id or str(uuid_utils.uuid7())).lower(),
            session_id=session_id,
            writer=given.writer or f"http-{caller.token_id}",
            epoch=given.epoch,
            occurred_at=given.occurred_at,
            actor=Actor(kind=caller.kind, id=caller.actor_id),
            turn_id=given.turn_id,
            correlation_id=given.correlation_id,
            traceparent=given.traceparent,
        ),
    )
    append = Append(
        envelope,
        event,
        b"",
        known_seq=known_seq,
        expected_seq=given.expected_seq,
        requires=given.requires,
    )
    return answer_of(await append_prepared(node, caller, append))


async def _known_seq(node: Node, caller: Caller, session_id: str) -> int:
    """The session's last seq, for who does not say what it knows."""
    try:
        state = await node.reading.run(node.log.state, session_id)
    except SessionTruncatedError:
        return 0  # the verdict says what is wrong with it
    return state.seq if state and state.tenant == caller.tenant else 0


async def append_prepared(node: Node, caller: Caller, append: Append) -> Verdict:
    """Hold an append that came as JSON to its role, redact it, record it."""
    check_role(caller, append.envelope, append.event)
    check_named(append.envelope, append.event)
    if answered_request(append.event) is not None:
        session_id = append.envelope.session_id
        await node.reading.run(check_answer, node.log, caller, session_id, append.event)
    await node.reading.run(check_blobs, node, caller, append.event)
    appends = await node.appending.run(node.prepare, append)
    return (await record(node, appends))[0]


def answer_of(verdict: Verdict) -> Answer:
    """A verdict, as it is answered."""
    return Answer.model_validate(verdict_view(verdict))


def event_of(name: str, fields: dict[str, Any]) -> KnownEvent:
    """The event of a type and its fields; blocks may be text.

    Raises:
        Problem: 422, which names what is wrong.
    """
    model = EVENT_TYPES.get(name)
    if model is None:
        raise Problem(422, "unknown_type", f"no event type {name!r}")
    given = dict(fields)
    for field, info in model.model_fields.items():
        if info.annotation == Blocks and isinstance(given.get(field), str):
            given[field] = (text_block(given[field]),)
    try:
        return model.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise Problem(422, "bad_event", f"{name}.{where}: {first['msg']}") from error


# --- batches ---------------------------------------------------------------------------


@router.post(
    "/appends",
    response_class=Response,
    responses={200: {"content": {VERDICTS: {"schema": {"format": "binary"}}}}},
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {APPENDS: {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def append_batch(
    node: Serving,
    caller: Appender,
    request: Request,
    content_type: Annotated[str, Header()] = "",
) -> Response:
    """Append up to 500 events as foldline's client sends them: one verdict for each.

    MessagePack of maps with `fingerprint` (SHA-256 of the published schema's text),
    `envelope` and `content` (Avro), `known_seq`, `expected_seq`, `requires`.
    """
    if content_type.partition(";")[0].strip() != APPENDS:
        raise Problem(415, "bad_media_type", f"the body is {APPENDS}")
    batch = unpack_appends(await request.body())
    if len(batch) > APPENDS_MAX:
        raise Problem(413, "too_many_appends", f"at most {APPENDS_MAX} at once")
    node.charge(caller, max(len(batch), 1))
    verdicts = await node.appending.run(_decoded, node, caller, batch)
    good = [found for found in verdicts if isinstance(found, Append)]
    for session_id in {append.envelope.session_id for append in good}:
        node.check_served(session_id)
    answers = iter(await record(node, good) if good else ())
    whole = [next(answers) if isinstance(f, Append) else f for f in verdicts]
    return Response(pack_verdicts(whole), media_type=VERDICTS)


def _decoded(
    node: Node, caller: Caller, batch: Sequence[WireAppend]
) -> list[Append | Verdict]:
    """Each append, stamped and held to its role; a verdict where it is none.

    Raises:
        Problem: 403, 422: nothing of the batch is recorded.
    """
    found: list[Append | Verdict] = []
    for wire in batch:
        append = appended(wire, stamp=partial(stamped, caller))
        if isinstance(append, Append):
            check_role(caller, append.envelope, append.event)
            check_named(append.envelope, append.event)
            check_answer(node.log, caller, append.envelope.session_id, append.event)
            check_blobs(node, caller, append.event)
        found.append(append)
    return found
