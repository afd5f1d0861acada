"""Routes about recovery: which sessions stand still, and what would be done about them."""

from dataclasses import asdict
from itertools import islice
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel

from foldline.processors.log import Log
from foldline.projections.planned import plan_of
from foldline.projections.recovery import RecoveryPolicy
from foldline.projections.service_access import Reader
from foldline.projections.service_node import Serving, SessionId
from foldline.projections.stalled import look_at, shown_of
from foldline.projections.tokens import Caller
from foldline.projections.views import plain

router = APIRouter(tags=["recovery"])

LOOKED_AT_MAX = 100_000
"""How many sessions of each status one request looks at."""

SHOWN_MAX = 1_000
"""How many of those that stand still it shows."""


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
    """Such sessions of the tenant, the longest silent first."""

    sessions: list[StalledView]
    more: bool
    """Whether there may be others: look after these, and ask again."""


class PlanView(BaseModel):
    """What a new owner would do, in this order. Nothing is carried out by reading it."""

    seq: int
    epoch: int
    actions: list[dict[str, Any]]


@router.get("/recovery")
async def list_stalled(node: Serving, caller: Reader) -> StalledList:
    """List sessions whose owner is gone in the middle of a turn. Touches nothing."""
    node.check_whole()
    return await node.reading.run(_listed, node.log, caller)


def _listed(log: Log, caller: Caller) -> StalledList:
    look = look_at(log, tenant=caller.tenant, most=LOOKED_AT_MAX)
    found = list(islice(shown_of(log, look), SHOWN_MAX + 1))
    views = [StalledView.model_validate(asdict(one)) for one in found[:SHOWN_MAX]]
    return StalledList(sessions=views, more=len(found) > SHOWN_MAX or not look.whole)


@router.get("/sessions/{session_id}/recovery")
async def show_recovery(node: Serving, caller: Reader, session_id: SessionId) -> PlanView:
    """Plan what a new owner would do about what the last one left open."""
    state = await node.state(caller, session_id)
    actions = await node.reading.run(plan_of, node.log, state, RecoveryPolicy())
    views = [{"action": type(a).__name__} | plain(asdict(a)) for a in actions]
    return PlanView(seq=state.seq, epoch=state.epoch, actions=views)
