"""Routes of leases: who says that it owns a session, by the log's clock."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from foldline.processors.http_wire import INT64_MAX
from foldline.projections.service_access import Owner, Reader
from foldline.projections.service_node import Node, Serving, SessionId
from foldline.projections.service_problems import no_session
from foldline.projections.tokens import Caller
from foldline.projections.views import lease_view
from foldline.settings import DAY_MS

router = APIRouter(tags=["leases"])

Epoch = Annotated[int, Field(ge=0, le=INT64_MAX)]
Writer = Annotated[str, Field(min_length=1, max_length=512)]


class RenewIn(BaseModel):
    """A writer says that it lives."""

    model_config = ConfigDict(extra="forbid")

    epoch: Epoch
    writer: Writer
    ttl_ms: Annotated[int, Field(ge=0, le=DAY_MS)]


class LeaseAnswer(BaseModel):
    """The lease as it is now; null where none was taken, or it was given up."""

    lease: dict[str, Any] | None


@router.get("/sessions/{session_id}/lease")
async def show_lease(node: Serving, caller: Reader, session_id: SessionId) -> LeaseAnswer:
    """Show who holds a session's lease, and whether it lives, by the log's clock."""
    await _check_own(node, caller, session_id)
    lease = await node.reading.run(node.log.leases.get, session_id)
    return LeaseAnswer(lease=lease_view(lease))


@router.put("/sessions/{session_id}/lease", status_code=204)
async def renew_lease(
    node: Serving, caller: Owner, session_id: SessionId, given: RenewIn
) -> None:
    """Say that a writer lives. A lower epoch replaces no higher one."""
    await _check_own(node, caller, session_id)
    await node.appending.run(
        node.log.leases.renew,
        session_id,
        epoch=given.epoch,
        writer=given.writer,
        ttl_ms=given.ttl_ms,
    )


@router.delete("/sessions/{session_id}/lease", status_code=204)
async def release_lease(
    node: Serving,
    caller: Owner,
    session_id: SessionId,
    epoch: Annotated[int, Query(ge=0, le=INT64_MAX)],
    writer: Annotated[str, Query(min_length=1, max_length=512)],
) -> None:
    """Give a lease up; nothing happens if another writer holds it."""
    await _check_own(node, caller, session_id)
    await node.appending.run(
        node.log.leases.release, session_id, epoch=epoch, writer=writer
    )


async def _check_own(node: Node, caller: Caller, session_id: str) -> None:
    """Refuse another tenant's session. One that is yet to come is nobody's."""
    node.check_served(session_id)
    if await node.tenant_of(session_id) not in (caller.tenant, None):
        raise no_session(session_id)
