"""Why sessions ended, or where they stand. Pure.

Transcripts of other harnesses rarely say that a session is over: of a mirrored session the
last word is what counts. A model that answered, and asked for no tool with it, has done
what it was asked.
"""

from foldline.schemas.state import (
    CALL_UNKNOWN,
    EXECUTING,
    MIRRORED,
    SUSPENDED,
    SessionState,
)

GOOD = "GOOD"
BAD = "BAD"
OPEN = "OPEN"

ENDINGS: dict[str, tuple[str, str]] = {
    "COMPLETED": (GOOD, "it was completed"),
    "ANSWERED": (GOOD, "the last word is the model's answer"),
    "TURN_DONE": (GOOD, "its last turn is done"),
    "FAILED": (BAD, "it failed"),
    "CANCELLED": (BAD, "somebody cancelled it"),
    "TURN_FAILED": (BAD, "its last turn failed"),
    "TURN_ABORTED": (BAD, "its last turn was aborted"),
    "TURN_LIMIT": (BAD, "its last turn came to a limit"),
    "SUSPENDED": (OPEN, "it is suspended"),
    "WAITS_FOR_PERSON": (OPEN, "it waits for a person's answer"),
    "IN_TOOL": (OPEN, "a tool has no known outcome"),
    "IN_MODEL_CALL": (OPEN, "a model has not answered"),
    "IN_TURN": (OPEN, "a turn is open, between two steps"),
    "NOT_BEGUN": (OPEN, "nothing was asked of a model yet"),
}
"""Every ending with its verdict and a sentence."""

_BY_OUTCOME = {
    "DONE": "TURN_DONE",
    "FAILED": "TURN_FAILED",
    "ABORTED": "TURN_ABORTED",
    "LIMIT": "TURN_LIMIT",
}
_BUSY = EXECUTING | {CALL_UNKNOWN}


def ending_of(state: SessionState, *, last_outcome: str, answered: bool) -> str:
    """Why a session ended, or where it stands; one of ENDINGS.

    Args:
        state: at the end of its log.
        last_outcome: how its last turn ended; empty if none has.
        answered: whether the last thing said was a model's, and asked for no tool.
    """
    if state.ended:
        return state.phase
    if state.phase == SUSPENDED:
        return "SUSPENDED"
    if state.turn is None and last_outcome in _BY_OUTCOME:
        return _BY_OUTCOME[last_outcome]
    if answered and state.mode == MIRRORED:
        return "ANSWERED"
    if state.requests:
        return "WAITS_FOR_PERSON"
    if any(call.status in _BUSY for call in state.calls.values()):
        return "IN_TOOL"
    if state.model_calls:
        return "IN_MODEL_CALL"
    return "IN_TOOL" if state.calls else "IN_TURN" if state.turn else "NOT_BEGUN"


def verdict_of(ending: str) -> str:
    """GOOD, BAD or OPEN."""
    return ENDINGS[ending][0]
