"""The bounded lists of a state: what is full is counted, never forgotten in silence.

In an owned session admission answers LIMIT before a list is full. In a mirrored one
nothing is refused, so the fold itself keeps the bound and counts what it left out. Pure.
"""

from operator import attrgetter
from typing import TypeVar

from foldline.schemas.state import FINISHED_KEPT, Call, Handle, SessionState

LIMITS: dict[str, int] = {
    "open_calls": 256,
    "steering": 64,
    "requests": 64,
    "handles": 64,
    "grants": 128,
    "model_calls": 64,
    "constraints": 64,
    "instructions": 16,
    "harness_state": 64,
    "subagents": 256,
    "retries": 64,
    "attempts": 60,
}
"""How many of each a session may have open at once (attempts: of one call)."""

MAX_COUNTED_TYPES = 256
"""How many names a counter may hold (types that only a newer writer knows)."""

Listed = TypeVar("Listed")


def put(
    state: SessionState, limit: str, listed: dict[str, Listed], key: str, thing: Listed
) -> None:
    """List something; beyond the limit count it as dropped."""
    if key not in listed and len(listed) >= LIMITS[limit]:
        bump(state.dropped, limit)
        return
    listed[key] = thing


def bump(counts: dict[str, int], name: str) -> None:
    """Count one more of a name."""
    known = counts.get(name)
    if known is None and len(counts) >= MAX_COUNTED_TYPES:
        name = "other"
        known = counts.get(name)
    counts[name] = (known or 0) + 1


_AGE = attrgetter("closed_seq", "call_id")


def remember(state: SessionState, call: Call, seq: int) -> None:
    """Move an open call to the finished ones; the oldest of these is forgotten."""
    call.closed_seq = seq
    state.calls.pop(call.call_id, None)
    state.finished[call.call_id] = call
    if len(state.finished) > FINISHED_KEPT:
        oldest = min(state.finished.values(), key=_AGE)
        del state.finished[oldest.call_id]


def running_under(state: SessionState, handle: str) -> Handle | None:
    """What runs under a handle, or is believed to have ended and never said so itself."""
    listed = state.handles.get(handle)
    if listed is not None or not handle:
        return listed
    for call in state.finished.values():
        if call.resolved and call.handle == handle:
            at = call.started_seq
            return Handle(handle, call.call_id, call.attempt, at, call.epoch, call.writer)
    return None
