"""Routes about recovery: which sessions stand still, and what would be done about them."""

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel

from foldline.processors.log import Log
from foldline.projections.planned import planned_of
from foldline.projections.recovery import RecoveryPolicy
from foldline.projections.service_access import Reader
from foldline.projections.service_node import Serving, SessionId
from foldline.projections.stalled import (
    PARKED_ONE,
    Stalled,
    is_answered,
    stalled_sessions,
)
from foldline.projections.tokens import Caller

router = APIRouter(tags=["recovery"])

ANSWERED = "answered"
"""Why a parked session is listed once a person has answered: it can go on."""


class StalledView(BaseModel):
    """A session that stands still in the middle of a turn, and why."""

    session_id: str
    agent: str
    status: str
    seq: int
    epoch: int
    owner: str
    why: str
    """`owner_gone`, `parked` (a person is asked) or `answered` (it can go on)."""
    open_calls: int
    requests: list[str]


class StalledList(BaseModel):
    """Every such session of the tenant, the longest silent first."""

    sessions: list[StalledView]


class Plan(BaseModel):
    """What recovery would do about a session as it is, step by step."""

    session_id: str
    seq: int
    actions: list[dict[str, Any]]
    """Each has its name in `action`, and its own fields."""


@router.get("/recovery")
async def list_stalled(node: Serving, caller: Reader) -> StalledList:
    """List sessions whose owner is gone in the middle of a turn. Touches nothing."""
    node.check_whole()
    return await node.reading.run(_listed, node.log, caller)


def _listed(log: Log, caller: Caller) -> StalledList:
    found = (_view(log, one) for one in stalled_sessions(log, tenant=caller.tenant))
    return StalledList(sessions=[view for view in found if view is not None])


def _view(log: Log, stalled: Stalled) -> StalledView | None:
    state = log.state(stalled.session_id)
    if state is None:
        return None
    answered = is_answered(state)
    if stalled.why == PARKED_ONE and not answered and not state.requests:
        return None  # suspended by somebody, who knows why
    return StalledView(
        session_id=stalled.session_id,
        agent=stalled.agent,
        status=stalled.status,
        seq=stalled.seq,
        epoch=stalled.epoch,
        owner=stalled.owner,
        why=ANSWERED if answered else stalled.why,
        open_calls=len(state.calls),
        requests=sorted(state.requests),
    )


@router.get("/sessions/{session_id}/recovery")
async def show_plan(node: Serving, caller: Reader, session_id: SessionId) -> Plan:
    """Show what recovery would do about a session. Touches nothing."""
    state = await node.state(caller, session_id)
    actions = await node.reading.run(planned_of, node.log, state, RecoveryPolicy())
    return Plan(
        session_id=session_id,
        seq=state.seq,
        actions=[{"action": type(one).__name__} | asdict(one) for one in actions],
    )
