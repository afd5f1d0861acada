"""Following a session while tools of it run: what comes in may stop them."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from foldline.errors import LogUnavailableError
from foldline.producers.link import FOLLOW_MS
from foldline.producers.ownership import Ownership
from foldline.projections.steering import reason_of
from foldline.schemas.events import (
    CancellationRequested,
    SessionResumed,
    SteeringReceived,
)
from foldline.schemas.recorded import Recorded

STEERED = "interrupted by steering"
TAKEN_OVER = "another owner has taken the session over"

Notice = Callable[[Recorded], None]


@asynccontextmanager
async def watched(owner: Ownership, after_seq: int, notice: Notice) -> AsyncGenerator[None]:
    """Tell every event behind a seq as it comes, while this is entered.

    A log that is away is waited for; what else keeps from following is raised at the end.
    """
    watching = asyncio.create_task(_watch(owner, after_seq, notice))
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.wait({watching})
    if not watching.cancelled() and (error := watching.exception()) is not None:
        raise error


async def _watch(owner: Ownership, after_seq: int, notice: Notice) -> None:
    while True:
        try:
            events = await owner.link.follow(owner.session_id, after_seq=after_seq)
        except LogUnavailableError:
            await asyncio.sleep(FOLLOW_MS / 1000)
            continue
        for recorded in events:
            after_seq = recorded.seq
            notice(recorded)


def stop_of(recorded: Recorded, *, call_id: str, epoch: int) -> str:
    """Why an event stops a call that runs under an epoch; empty where it does not."""
    match recorded.event:
        case CancellationRequested(target="CALL", target_id=name) if name != call_id:
            return ""
        case CancellationRequested() as request:
            return reason_of(request)
        case SteeringReceived(mode="INTERRUPT"):
            return STEERED
        case SessionResumed() if recorded.envelope.epoch > epoch:
            return TAKEN_OVER
        case _:
            return ""
