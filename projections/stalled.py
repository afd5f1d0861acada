"""Sessions that stand still in the middle of a turn: whose owner is gone, or seems stuck.

An IDLE session is not dead: nobody need be alive between turns. One that recovery
suspended is looked at again once its question is answered.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from foldline.processors.log import Lease, Log, SessionSummary
from foldline.schemas.state import (
    MIRRORED,
    RUNNING,
    SUSPENDED,
    WAITING_APPROVAL,
    SessionState,
)

LOOKED_AT_MAX = 10_000
"""How many sessions of each status one look takes in."""

LOOKED_AT = (RUNNING, WAITING_APPROVAL, SUSPENDED)
"""In which statuses a session may need somebody."""

PARKED = "recovery: "
"""What the reason of a suspension by recovery begins with."""

PARK_QUESTION = "recovery:park:"
"""What the request_id of the question begins with that such a session waits for."""

OWNER_GONE = "owner_gone"
PARKED_ONE = "parked"


@dataclass(frozen=True, slots=True)
class Stalled:
    """A session that somebody should look after, and why: OWNER_GONE or PARKED_ONE."""

    session_id: str
    tenant: str
    agent: str
    status: str
    seq: int
    epoch: int
    owner: str
    why: str


def stalled_sessions(log: Log, *, tenant: str | None = None) -> Iterator[Stalled]:
    """Sessions without a living owner, the longest silent first.

    What recovery parked is among them: its state says whether it was answered.
    """
    for status in LOOKED_AT:
        listed = log.sessions(tenant=tenant, status=status, limit=LOOKED_AT_MAX)
        owned = [summary for summary in reversed(listed) if summary.mode != MIRRORED]
        leases = log.leases.get_many([summary.session_id for summary in owned])
        for summary in owned:
            if not _lives(summary, leases.get(summary.session_id)):
                why = PARKED_ONE if status == SUSPENDED else OWNER_GONE
                yield _stalled(summary, why)


def _lives(summary: SessionSummary, lease: Lease | None) -> bool:
    return lease is not None and lease.alive and lease.epoch >= summary.epoch


def _stalled(summary: SessionSummary, why: str) -> Stalled:
    return Stalled(
        session_id=summary.session_id,
        tenant=summary.tenant,
        agent=summary.agent,
        status=summary.status,
        seq=summary.seq,
        epoch=summary.epoch,
        owner=summary.owner,
        why=why,
    )


def park_question(epoch: int) -> str:
    """The request_id of the question with which recovery parks a session in an epoch."""
    return f"{PARK_QUESTION}{epoch}"


def is_answered(state: SessionState) -> bool:
    """Whether recovery parked the session, and a person has answered since."""
    parked = state.phase == SUSPENDED and state.reason.startswith(PARKED)
    waits = any(name.startswith(PARK_QUESTION) for name in state.requests)
    return parked and not waits
