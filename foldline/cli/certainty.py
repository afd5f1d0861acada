"""What is certain about an open call, and what nobody knows. Pure.

This is the question that is asked after a crash: did it happen? The log knows what was
recorded before an effect began and what came after; the rest is said to be unknown.
"""

from foldline.processors.log import Lease
from foldline.schemas.state import (
    CALL_BACKGROUND,
    CALL_CANCELLING,
    CALL_NOT_EXECUTED,
    CALL_RUNNING,
    CALL_TIMED_OUT,
    CALL_UNKNOWN,
    CALL_WAITING,
    MIRRORED,
    Call,
    SessionState,
)

REPEAT: dict[str, str] = {
    "READ_ONLY": "it only reads and may be repeated",
    "IDEMPOTENT": "it may be repeated with the same operation id",
    "RECONCILABLE": "ask the tool by operation id before repeating it",
    "UNSAFE": "it is not repeated blindly: a policy or a person decides",
}

_SINCE: dict[str, str] = {
    CALL_NOT_EXECUTED: ", and was found not to have happened",
    CALL_TIMED_OUT: "; nobody waits for it any longer",
    CALL_CANCELLING: ", and was told to stop",
    CALL_BACKGROUND: ", and goes on in the background",
}

_HAPPENED = "whether its effect happened"
_RUNS_STILL = "whether it still runs: its stop is not confirmed"


_NO_STARTS = "whether it began: the source does not record when effects begin"


def certain_of(state: SessionState, call: Call) -> str:
    """What the log proves about an open call."""
    if not call.started_seq and state.mode == MIRRORED:
        return "it was requested, and no result is recorded"
    if not call.started_seq:
        waits = ", and waits for permission" if call.status == CALL_WAITING else ""
        return f"its effect has not begun{waits}"
    since = _SINCE.get(call.status, "")
    return f"attempt {call.attempt} was let begin at seq {call.started_seq}{since}"


def unknown_of(state: SessionState, call: Call, lease: Lease | None) -> str:
    """What nobody knows about an open call; empty where all is known."""
    if not call.started_seq and state.mode == MIRRORED:
        return _NO_STARTS
    if not call.started_seq or call.status == CALL_NOT_EXECUTED:
        return ""
    if call.status == CALL_BACKGROUND:
        return "how it will end"
    if call.status == CALL_RUNNING and _runs(state, call, lease):
        return "how it will end: its owner is alive and may be running it now"
    unknown = {
        CALL_RUNNING: f"{_HAPPENED}: no end is recorded",
        CALL_UNKNOWN: f"{_HAPPENED}: its end was looked for and not found",
        CALL_TIMED_OUT: _RUNS_STILL,
        CALL_CANCELLING: _RUNS_STILL,
    }.get(call.status, "")
    repeat = REPEAT.get(call.effect, "")
    return f"{unknown}; {repeat}" if unknown and repeat else unknown


def _runs(state: SessionState, call: Call, lease: Lease | None) -> bool:
    """Whether whoever began this attempt still owns the session and lives."""
    return (
        lease is not None
        and lease.alive
        and lease.epoch == state.epoch == call.epoch
        and lease.writer == call.writer
    )
