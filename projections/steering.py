"""When steering is put before the model, by its mode, and what is to stop. Pure.

    INTERRUPT   now: what can be stopped is stopped, the next context shows it; where no
                turn is open it begins one
    NEXT_TURN   in the next turn, whatever begins that one; it begins none itself
    ON_IDLE     once the agent is idle: it begins a turn of its own then

It is pending until a SteeringApplied puts it into the history, or a SteeringExpired says
why it never will be.
"""

from foldline.schemas.events import CancellationRequested
from foldline.schemas.state import Cancellation, SessionState, Steering

INTERRUPT = "INTERRUPT"
NEXT_TURN = "NEXT_TURN"
ON_IDLE = "ON_IDLE"

WAKES = frozenset({INTERRUPT, ON_IDLE})
"""The modes that begin a turn where none is open."""


def pending_steering(state: SessionState) -> list[Steering]:
    """What nobody has put before the model yet, in the order in which it came."""
    return sorted(state.steering.values(), key=lambda steering: steering.seq)


def due_steering(state: SessionState) -> list[Steering]:
    """What the next context of the open turn shows, in the order in which it came.

    INTERRUPT steers what goes on; other steering the turns that begin after it.
    """
    began = state.turn.seq if state.turn else 0
    return [
        steering
        for steering in pending_steering(state)
        if steering.mode == INTERRUPT or steering.seq < began
    ]


def is_interrupted(state: SessionState) -> bool:
    """Whether somebody wants the agent to look up from what it does."""
    return any(steering.mode == INTERRUPT for steering in state.steering.values())


def wants_turn(state: SessionState) -> bool:
    """Whether steering that is pending begins a turn, now that none is open."""
    return state.turn is None and any(s.mode in WAKES for s in state.steering.values())


def asked_to_stop(state: SessionState) -> Cancellation | None:
    """The request to stop that the session, or its open turn, has to heed.

    One for a turn came too late if that turn had ended: it stops no later one.
    """
    asked = state.cancellation
    if asked is None or asked.target == "CALL":
        return None
    if asked.target == "TURN" and (state.turn is None or asked.seq < state.turn.seq):
        return None
    return asked


def reason_of(asked: Cancellation | CancellationRequested) -> str:
    """Why somebody wants a stop."""
    return asked.reason or "cancelled"
