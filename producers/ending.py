"""Ending a session: by the log's order, with an answer to everybody who spoke before.

1. The state at the head is read. Steering that nobody has put before the model is said to
   have expired, with the reason; where there is no reason to, the end is called off.
2. The end is appended on exactly that state. CONFLICT: somebody was quicker; from 1 again.
   So steering is either in front of the end, and was seen, or behind it, and its sender is
   told CLOSED.
3. The subagents that are still at work are asked to stop: nobody waits for them any more.
"""

from foldline.errors import PendingSteeringError
from foldline.producers.appender import Answers, raise_refused
from foldline.producers.ownership import Ownership
from foldline.producers.stopping import stop_children
from foldline.projections.steering import pending_steering
from foldline.schemas.events import (
    SessionCancelled,
    SessionCompleted,
    SessionFailed,
    SteeringExpired,
)
from foldline.schemas.state import SessionState
from foldline.schemas.verdicts import CONFLICT, Verdict

END_TRIES_MAX = 16
"""How often an end is appended anew because somebody appended in between."""

End = SessionCompleted | SessionFailed | SessionCancelled


async def end_session(
    owner: Ownership, end: End, *, expire: str, event_id: str | None = None
) -> Verdict:
    """End a session; `expire` is why pending steering will not be applied.

    Args:
        owner: who decides for it.
        end: how it ends.
        expire: as said.
        event_id: the end's id, where it is not to be a new one.

    Raises:
        PendingSteeringError: steering is pending, and `expire` is empty.
        ConflictError: somebody appended in between, every time.
        AppendRefusedError: another refusal (`open_work`, CLOSED).
    """
    tries_left = END_TRIES_MAX
    while True:
        state = await expire_steering(owner, expire)
        turn_id = state.turn.turn_id if state.turn else None
        draft = owner.draft(end, turn_id=turn_id, expected_seq=state.seq, event_id=event_id)
        answers: Answers = await owner.attempt([draft])
        tries_left -= 1
        if answers[0].verdict.kind != CONFLICT or not tries_left:
            raise_refused(answers)
            await stop_children(owner.link, owner.actor, state)
            return answers[0].verdict


async def expire_steering(owner: Ownership, reason: str) -> SessionState:
    """Say of pending steering that it will not be applied; gives the state without it."""
    state = await owner.state()
    pending = [steering.event_id for steering in pending_steering(state)]
    if not pending or state.ended:
        return state
    if not reason:
        raise PendingSteeringError(state.session_id, pending)
    expired = [SteeringExpired(steering_event_id=name, reason=reason) for name in pending]
    turn_id = state.turn.turn_id if state.turn else None
    await owner.decide([owner.draft(event, turn_id=turn_id) for event in expired])
    return await owner.state()
