"""What projections read of a log, at once and in one thread.

The history of a fork is read with that of its ancestors.
"""

from typing import cast

from foldline.processors.lineage import (
    ancestral_states,
    joined_events,
    joined_state,
    lineage_from,
)
from foldline.processors.log import Log
from foldline.projections.building import build
from foldline.projections.context import (
    Context,
    Sources,
    as_one,
    base_of,
    missing_steering,
    text_blobs,
)
from foldline.projections.inheritance import as_set_up, seqs_in_force
from foldline.schemas.events import CompactionCompleted
from foldline.schemas.recorded import Recorded
from foldline.schemas.state import SessionState


def context_of(log: Log, session_id: str) -> Context | None:
    """The context at the head; None where there is no such session.

    Raises:
        LineageError: it is a fork, and an ancestor is not there as it was.
    """
    state = log.state(session_id)
    if state is None:
        return None
    past = Past(log, state)
    base_seq = past.base(state)
    events = past.events(base_seq)
    if base_seq and missing_steering(events):
        base_seq = 0
        events = past.events(0)
    set_up = past.set_up(base_seq)
    texts = {
        sha256: log.blobs.get(sha256).decode("utf-8", "replace")
        for sha256 in text_blobs([*set_up, *events])
    }
    return build(Sources(events, base_seq, set_up, texts))


class Past:
    """The history of a session, those before its fork points included. Blocks on the log.

    Its ancestors are found once: they are the same for ever.
    """

    def __init__(self, log: Log, state: SessionState) -> None:
        """Find the ancestors of the session of a state.

        Raises:
            LineageError: one is not there as it was.
        """
        self._log = log
        self._lineage = lineage_from(state, log.state)
        self._ancestral = ancestral_states(log, self._lineage)

    def events(self, after_seq: int, upto_seq: int | None = None) -> list[Recorded]:
        """Its events in a range."""
        lineage = self._lineage
        if not lineage.ancestors:
            events = self._log.events
            return list(events(lineage.session_id, after_seq=after_seq, upto_seq=upto_seq))
        found = joined_events(self._log, lineage, after_seq=after_seq, upto_seq=upto_seq)
        return list(found)

    def base(self, state: SessionState) -> int:
        """The seq behind which the events are needed, by the session's state now."""
        one = as_one([*self._ancestral, state])
        if one.compaction is None:
            return base_of(one, None)
        seq = one.compaction.seq
        recorded = next(iter(self.events(seq - 1, seq)), None)
        event = recorded.event if recorded else None
        return base_of(one, cast("CompactionCompleted | None", event))

    def set_up(self, base_seq: int) -> list[Recorded]:
        """The events that hold what was in force at a seq."""
        if not base_seq:
            return []
        state = joined_state(self._log, self._lineage, base_seq)
        if state is None:
            return []
        return [
            part
            for seq in seqs_in_force(state)
            for recorded in self.events(seq - 1, seq)
            for part in as_set_up(recorded, state)
        ]


def event_at(log: Log, session_id: str, seq: int) -> Recorded | None:
    """One event; None where there is none at that seq."""
    return next(iter(log.events(session_id, after_seq=seq - 1, upto_seq=seq)), None)
