"""The route for who steers an agent from outside: a web page, a chat, another program.

The steering is in the log before it is acknowledged, and pending until the agent's next
context shows it, in whatever process that is built, or until it is said to have expired.
An `idempotency_key` is the same one over HTTP, in the command and in a client: the same
key again is one steering, however often, and however long after, it is sent.
"""

from typing import Annotated, Literal

import uuid_utils
from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from foldline.processors.log import Log
from foldline.projections.service_access import Appender
from foldline.projections.service_appends import Answer, answer_of, append_prepared
from foldline.projections.service_node import Serving, SessionId
from foldline.projections.service_writing import stamped
from foldline.schemas.blocks import text_block
from foldline.schemas.derived import steering_id
from foldline.schemas.envelope import Actor, Envelope
from foldline.schemas.events import SteeringReceived
from foldline.schemas.recorded import Append
from foldline.schemas.state import WINDOW, SessionState
from foldline.schemas.verdicts import DUPLICATE, Verdict

router = APIRouter(tags=["steering"])


class SteeringIn(BaseModel):
    """What the agent is told, and when: now, in its next turn, or once it is idle."""

    model_config = ConfigDict(extra="forbid")

    text: Annotated[str, Field(min_length=1, max_length=64_000)]
    mode: Literal["INTERRUPT", "NEXT_TURN", "ON_IDLE"] = "INTERRUPT"
    idempotency_key: Annotated[str | None, Field(min_length=1, max_length=512)] = None
    """For who may send it again: the same key in a session is the same steering."""


@router.post("/sessions/{session_id}/steering")
async def steer(
    node: Serving, caller: Appender, session_id: SessionId, given: SteeringIn
) -> Answer:
    """Steer the agent of a session. `recorded` says whether it will be delivered.

    A session that has ended answers CLOSED. One that was steered too often, without its
    agent taking any of it in, answers LIMIT.
    """
    state = await node.state(caller, session_id)
    key = given.idempotency_key
    event_id = str(uuid_utils.uuid7()) if key is None else steering_id(session_id, key)
    if key is not None:
        seq = await node.reading.run(_place_of, node.log, state, event_id)
        if seq is not None:
            return answer_of(_sent_before(state, event_id, seq))
    node.charge(caller, 1)
    envelope = Envelope(
        event_id=event_id,
        session_id=session_id,
        writer=f"http-{caller.token_id}",
        actor=Actor(kind=caller.kind, id=caller.actor_id),
    )
    event = SteeringReceived(
        mode=given.mode, idempotency_key=key, blocks=(text_block(given.text),)
    )
    append = Append(stamped(caller, envelope), event, b"", known_seq=state.seq)
    return answer_of(await append_prepared(node, caller, append))


def _place_of(log: Log, state: SessionState, event_id: str) -> int | None:
    """Where the steering stands already: pending, recent, or far back in the log.

    The log is read as far as there is steering that is not pending: for most sessions,
    not at all.
    """
    pending = state.steering.get(event_id)
    if pending is not None:
        return pending.seq
    seq = state.seq_of(event_id)
    if seq is not None or state.seq <= WINDOW:
        return seq
    left = state.counts.get("SteeringReceived", 0) - len(state.steering)
    waiting = {one.seq for one in state.steering.values()}
    events = log.structure(state.session_id) if left > 0 else ()
    for recorded in events:
        if recorded.envelope.event_id == event_id:
            return recorded.seq
        left -= recorded.type == "SteeringReceived" and recorded.seq not in waiting
        if left <= 0:
            break
    return None


def _sent_before(state: SessionState, event_id: str, seq: int) -> Verdict:
    """The verdict of steering that was recorded already, and is sent again."""
    return Verdict(
        kind=DUPLICATE,
        session_id=state.session_id,
        event_id=event_id,
        seq=seq,
        current_seq=state.seq,
        epoch=state.epoch,
        recorded_at=state.recorded_at,
    )
