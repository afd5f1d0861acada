"""What projections read of a log, at once and in one thread."""

from typing import cast

from foldline.processors.log import Log
from foldline.projections.building import build
from foldline.projections.context import (
    Context,
    Sources,
    base_of,
    missing_steering,
    text_blobs,
)
from foldline.schemas.events import CompactionCompleted, SessionResumed
from foldline.schemas.recorded import Recorded
from foldline.schemas.state import SessionState


def context_of(log: Log, session_id: str) -> Context | None:
    """The context at the head; None where there is no such session."""
    state = log.state(session_id)
    if state is None:
        return None
    base_seq = _base(log, state)
    events = list(log.events(session_id, after_seq=base_seq))
    if base_seq and missing_steering(events):
        base_seq = 0
        events = list(log.events(session_id))
    set_up = _set_up(log, session_id, base_seq)
    texts = {
        sha256: log.blobs.get(sha256).decode("utf-8", "replace")
        for sha256 in text_blobs([*set_up, *events])
    }
    return build(Sources(events, base_seq, set_up, texts))


def event_at(log: Log, session_id: str, seq: int) -> Recorded | None:
    """One event; None where there is none at that seq."""
    return next(iter(log.events(session_id, after_seq=seq - 1, upto_seq=seq)), None)


def _base(log: Log, state: SessionState) -> int:
    if state.compaction is None:
        return base_of(state, None)
    recorded = event_at(log, state.session_id, state.compaction.seq)
    event = recorded.event if recorded else None
    return base_of(state, cast("CompactionCompleted | None", event))


def _set_up(log: Log, session_id: str, base_seq: int) -> list[Recorded]:
    """The events that hold what was in force at a seq."""
    state = log.state(session_id, at_seq=base_seq) if base_seq else None
    if state is None:
        return []
    refs = [state.goal, state.tools]
    refs += [*state.instructions.values(), *state.constraints.values()]
    seqs = sorted({ref.seq for ref in refs if ref is not None})
    found = (event_at(log, session_id, seq) for seq in seqs)
    return [recorded for recorded in found if recorded is not None]


def resumes_of(log: Log, state: SessionState) -> int:
    """How many owners have claimed the session since the open turn began."""
    if state.turn is None:
        return 0
    events = log.structure(state.session_id, after_seq=state.turn.seq)
    return sum(isinstance(recorded.event, SessionResumed) for recorded in events)
