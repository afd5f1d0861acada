"""What projections read of a log, at once and in one thread.

The history of a fork is read with that of its ancestors.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import cast

from foldline.errors import BlobError
from foldline.processors.blobs import BlobStore
from foldline.processors.lineage import (
    Lineage,
    ancestral_states,
    joined,
    joined_events,
    joined_state,
    lineage_from,
)
from foldline.processors.log import Log
from foldline.projections.base import as_one, base_of, reaches_back, without
from foldline.projections.building import build
from foldline.projections.context import (
    Context,
    Sources,
    text_blobs,
)
from foldline.projections.in_force import SETS_UP
from foldline.projections.inheritance import as_set_up, seqs_in_force
from foldline.projections.live import live_of, takes_back
from foldline.projections.model_calls import Asked, is_aside, main_calls
from foldline.projections.request import Rebuilt, rebuilt
from foldline.projections.tales import NAMING
from foldline.projections.warm import BasePoint, base_point
from foldline.schemas.events import (
    AssistantMessage,
    CompactionCompleted,
    ModelCallCompleted,
    ModelCallStarted,
    RequestRef,
    ToolCallRequested,
)
from foldline.schemas.recorded import Recorded
from foldline.schemas.state import SessionState

_Held = tuple[SessionState | None, list[Recorded]]

_logger = logging.getLogger(__name__)

LOOKED_BACK = 512
"""How many events are read first on the way back to the last model call."""


def context_of(log: Log, session_id: str, *, at_seq: int | None = None) -> Context | None:
    """The context at the head, or just after a seq; None where there is none.

    Raises:
        LineageError: it is a fork, and an ancestor is not there as it was.
    """
    sources = sources_of(log, session_id, at_seq=at_seq)
    return None if sources is None else build(sources)


def sources_of(log: Log, session_id: str, *, at_seq: int | None = None) -> Sources | None:
    """What the context at the head, or just after a seq, is built from.

    None where there is no such session, or no event at that seq.

    Raises:
        LineageError: it is a fork, and an ancestor is not there as it was.
    """
    state = _state_at(log, session_id, at_seq)
    if state is None:
        return None
    past = Past(log, state)
    base_seq = past.base(state)
    events = past.events(base_seq, state.seq)
    if reaches_back(events, base_seq):
        base_seq = 0
        events = past.events(0, state.seq)
    return _sources(log, past, base_seq, events)


def sources_between(log: Log, session_id: str, base_seq: int, upto_seq: int) -> Sources:
    """What a context is built from that begins behind one seq and ends at another.

    Raises:
        LineageError: it is a fork, and an ancestor is not there as it was.
    """
    state = log.state(session_id)
    if state is None:
        return Sources((), base_seq)
    past = Past(log, state)
    return _sources(log, past, base_seq, past.events(base_seq, upto_seq))


def _sources(log: Log, past: "Past", base_seq: int, events: list[Recorded]) -> Sources:
    set_up = past.set_up(base_seq)
    texts = read_texts(log.blobs, text_blobs([*set_up, *events]))
    return Sources(events, base_seq, set_up, texts)


def read_texts(blobs: BlobStore, wanted: Iterable[bytes]) -> dict[bytes, str]:
    """The texts of blobs, of those that are there.

    Of one that is gone, or whose bytes are others, a context shows the preview: no session
    ends by that. A warning says so.
    """
    texts: dict[bytes, str] = {}
    for sha256 in wanted:
        try:
            texts[sha256] = blobs.get(sha256).decode("utf-8", "replace")
        except BlobError as error:
            _logger.warning("%s; contexts show what the event has of it", error)
    return texts


def _state_at(log: Log, session_id: str, at_seq: int | None) -> SessionState | None:
    """The state at a seq, of the ancestor that has it where it is before a fork point."""
    state = log.state(session_id)
    if state is None or at_seq is None or at_seq == state.seq:
        return state
    if not 1 <= at_seq < state.seq:
        return None
    return joined_state(log, lineage_from(state, log.state), at_seq)


def request_of(log: Log, session_id: str, model_call_id: str) -> Rebuilt | None:
    """The request of a model call, rebuilt and checked; None where there is no such call.

    Raises:
        LineageError: it is a fork, and an ancestor is not there as it was.
    """
    state = log.state(session_id)
    asked = None if state is None else _asked(Past(log, state), state.seq, model_call_id)
    if asked is None:
        return None
    call = asked.event if isinstance(asked.event, ModelCallStarted) else None
    request = None if call is None else call.request
    if call is None or not isinstance(request, RequestRef) or not request.ranges:
        return rebuilt(model_call_id, call, None, read_blob=log.blobs.get)
    first, last = request.ranges[0].from_seq, request.ranges[-1].to_seq
    sources = sources_between(log, session_id, first - 1, last)
    return rebuilt(model_call_id, call, sources, read_blob=log.blobs.get)


def _asked(past: "Past", upto_seq: int, model_call_id: str) -> Recorded | None:
    """The start of a model call; where it has none, the first event that names it.

    The history is gone through without content, up to the start.
    """
    named = 0
    for recorded in past.structure(0, upto_seq):
        event = recorded.event
        if type(event) not in _OF_CALLS or event.__dict__["model_call_id"] != model_call_id:
            continue
        named = named or recorded.seq
        if isinstance(event, ModelCallStarted):
            named = recorded.seq
            break
    return next(past.each(named - 1, named), None) if named else None


_OF_CALLS = frozenset({AssistantMessage, ModelCallCompleted, ModelCallStarted})


def last_calls(
    log: Log, session_id: str, count: int, *, at_seq: int | None = None
) -> list[Asked]:
    """The conversation's last model calls, its ancestors' before them; fewer for fewer.

    They are looked for from the end on.

    Args:
        log: where the session is.
        session_id: which.
        count: how many calls.
        at_seq: calls that began later do not count.

    Raises:
        LineageError: as above.
    """
    state = log.state(session_id)
    if state is None:
        return []
    past, step = Past(log, state), LOOKED_BACK
    after_seq = state.seq if at_seq is None else min(at_seq, state.seq)
    events: list[Recorded] = []
    while True:
        first = max(after_seq - step, 0)
        events = [*past.events(first, after_seq), *events]
        after_seq, step = first, step * 2
        calls = main_calls(events)
        # What names the first of them may lie before; then it began before.
        if not after_seq or len(calls) > count:
            return calls[-count:]


def last_asked(log: Log, session_id: str, upto_seq: int) -> Asked | None:
    """The conversation's last model call that says which model; None: there is none.

    Raises:
        LineageError: as above.
    """
    state = log.state(session_id)
    past = None if state is None else Past(log, state)
    step = LOOKED_BACK
    while past is not None and upto_seq > 0:
        after_seq = max(upto_seq - step, 0)
        calls = [c for c in main_calls(past.events(after_seq, upto_seq)) if c.model]
        if calls:
            return calls[-1]
        upto_seq, step = after_seq, step * 2
    return None


def is_taken_back(log: Log, session_id: str, seq: int) -> bool:
    """Whether what stands at a seq was retracted, replaced or rewound since.

    Of what lies before it only so much is looked at as says which call it ends.

    Raises:
        LineageError: as above.
    """
    state = log.state(session_id)
    if state is None:
        return False
    past = Past(log, state)
    near = (r for r in past.structure(max(seq - LOOKED_BACK, 1) - 1, seq))
    events = [r for r in near if r.seq == seq or type(r.event) in _OF_TOOLS]
    events += [r for r in past.structure(seq, state.seq) if takes_back(r.event)]
    aside = any(r.seq == seq and is_aside(r) for r in events)
    return not aside and all(recorded.seq != seq for recorded in live_of(events))


_OF_TOOLS = NAMING | {ToolCallRequested}


class Past:
    """The history of a session, those before its fork points included. Blocks on the log.

    Its ancestors are found when they are needed, once: they are the same for ever.

    Raises (each): LineageError where an ancestor is not there as it was.
    """

    def __init__(self, log: Log, state: SessionState) -> None:
        self._log = log
        self._state = state
        self._base: tuple[BasePoint, int] | None = None
        self._held: tuple[int, _Held] | None = None
        """What was in force at a base, from its finding on until somebody asks for it."""

    @cached_property
    def _lineage(self) -> Lineage:
        return lineage_from(self._state, self._log.state)

    @cached_property
    def _ancestral(self) -> list[SessionState]:
        return ancestral_states(self._log, self._lineage)

    def events(self, after_seq: int, upto_seq: int | None = None) -> list[Recorded]:
        """Its events in a range."""
        return list(self.each(after_seq, upto_seq))

    def each(self, after_seq: int, upto_seq: int | None = None) -> Iterator[Recorded]:
        """The same, one by one."""
        if after_seq >= self._state.fork_seq:  # its own
            name = self._state.session_id
            return self._log.events(name, after_seq=after_seq, upto_seq=upto_seq)
        return joined_events(
            self._log, self._lineage, after_seq=after_seq, upto_seq=upto_seq
        )

    def structure(self, after_seq: int, upto_seq: int) -> Iterator[Recorded]:
        """The same without content."""
        read = self._log.structure
        if after_seq >= self._state.fork_seq:
            name = self._state.session_id
            return read(name, after_seq=after_seq, upto_seq=upto_seq)
        return joined(read, self._lineage, after_seq=after_seq, upto_seq=upto_seq)

    def base(self, state: SessionState) -> int:
        """The seq behind which the events are needed, by the session's state now."""
        point = base_point(state)
        if self._base is None or self._base[0] != point:
            self._base = point, self._found_base(state)
        return self._base[1]

    def note_base(self, state: SessionState, base_seq: int) -> None:
        """Say where the context of a state begins, for who knows it from elsewhere."""
        self._base = base_point(state), base_seq

    def _found_base(self, state: SessionState) -> int:
        one = as_one([*self._ancestral, state])
        compacted_seq = one.compaction.seq if one.compaction else 0
        named = [
            recorded
            for seq in (one.cleared_seq, compacted_seq)
            if seq
            for recorded in self.each(seq - 1, seq)
        ]
        one = without(one, {recorded.seq for recorded in named if is_aside(recorded)})
        event = next((r.event for r in named if r.seq == compacted_seq), None)
        base_seq = base_of(one, cast("CompactionCompleted | None", event))
        # Where a branch set something up, only the events tell what was in force before.
        self._held = base_seq, self.held(base_seq)
        set_up = [r for r in self._held[1][1] if type(r.event) in SETS_UP]
        return 0 if any(is_aside(recorded) for recorded in set_up) else base_seq

    def set_up(self, base_seq: int) -> list[Recorded]:
        """The events that hold what was in force at a seq, as what sets up a context."""
        state, held = self.held(base_seq)
        return set_up_of(held, state)

    def held(self, base_seq: int) -> _Held:
        """The state at a seq, and the events that hold what was in force there."""
        if not base_seq:
            return None, []
        known, self._held = self._held, None
        if known is not None and known[0] == base_seq:
            return known[1]
        state = joined_state(self._log, self._lineage, base_seq)
        if state is None:
            return None, []
        seqs = seqs_in_force(state)
        return state, [recorded for seq in seqs for recorded in self.each(seq - 1, seq)]


def set_up_of(held: Sequence[Recorded], state: SessionState | None) -> list[Recorded]:
    """Events that hold what is in force at a state, as what sets up a context."""
    if state is None:
        return list(held)
    return [part for recorded in held for part in as_set_up(recorded, state)]


def event_at(log: Log, session_id: str, seq: int) -> Recorded | None:
    """One event; None where there is none at that seq."""
    return next(iter(log.events(session_id, after_seq=seq - 1, upto_seq=seq)), None)
