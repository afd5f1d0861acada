"""Suspending a session that goes round in circles, with what a person is asked about it.

Reason and ids are those by which recovery parks a session: its consumer takes the session
up once nothing of it waits any more.
"""

from collections.abc import Iterable

from foldline.producers.ownership import Ownership
from foldline.producers.tools import PendingCall
from foldline.projections.resuming import park_request
from foldline.projections.stalled import PARKED
from foldline.schemas.events import (
    InputRequested,
    PermissionRequested,
    SessionSuspended,
)


class Parking:
    """What people are to be asked once a run of tools is over."""

    def __init__(self, owner: Ownership) -> None:
        self._owner = owner
        self._asked: dict[str, tuple[PermissionRequested | InputRequested, str]] = {}

    def add(
        self, call: PendingCall, asked: PermissionRequested | InputRequested, why: str
    ) -> None:
        """Ask this about a call, and suspend the session."""
        self._asked[call.call_id] = asked, why

    def drop(self, call: PendingCall) -> None:
        """Ask nothing about a call after all."""
        self._asked.pop(call.call_id, None)

    def __bool__(self) -> bool:
        return bool(self._asked)

    def __contains__(self, call: PendingCall) -> bool:
        return call.call_id in self._asked

    async def park(self, *, turn_id: str, batch_id: str) -> str:
        """Suspend the session with what is asked, in one batch; gives the reason."""
        reasons = dict.fromkeys(why for _, why in self._asked.values())
        by_id = {event.request_id: event for event, _ in self._asked.values()}
        why = "; ".join(reasons)
        return await _rest(
            self._owner, by_id.values(), why, turn_id=turn_id, batch_id=batch_id
        )


async def rest_with_question(owner: Ownership, why: str, *, turn_id: str) -> str:
    """Suspend the session with the question whether it is to go on; gives the reason."""
    return await _rest(owner, [park_request(owner.epoch, why)], why, turn_id=turn_id)


async def _rest(
    owner: Ownership,
    questions: Iterable[PermissionRequested | InputRequested],
    why: str,
    *,
    turn_id: str,
    batch_id: str | None = None,
) -> str:
    reason = PARKED + why
    events = *questions, SessionSuspended(reason=reason)
    await owner.decide(
        [owner.draft(event, turn_id=turn_id, batch_id=batch_id) for event in events]
    )
    await owner.rest()
    return reason


def question_of(owner: Ownership, why: str) -> InputRequested:
    """Whether the session is to go on, for a person."""
    return park_request(owner.epoch, f"{why}, and the agent asked again")
