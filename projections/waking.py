"""What a first context is read from: in one piece, where the log has it so, else in parts.

    past, kept = begun(log, state)  # kept: the sources, or None

What came in one piece is trusted as far as it fits: no event is missing before its end,
and it has the event that the caller's state ends with. Else the parts are read.
"""

import hashlib

from foldline.processors.log import Log
from foldline.processors.read_sources import GivesSources, ReadSources
from foldline.projections.context import Sources
from foldline.projections.reading import Past, set_up_of
from foldline.schemas.state import SessionState


def begun(log: Log, state: SessionState) -> tuple[Past, Sources | None]:
    """The history of a session at a state, and the beginning of what its context needs.

    The sources may end before the state does, and lack texts of blobs. None: nothing of
    them was read.
    """
    past = Past(log, state)
    found = _given(log, state)
    if found is None or not _fits(found, state):
        return past, None
    if found.upto_seq == state.seq:  # else the base may have moved since
        past.note_base(state, found.base_seq)
    set_up = set_up_of(found.held, found.base)
    return past, Sources(list(found.events), found.base_seq, set_up, found.texts)


def _given(log: Log, state: SessionState) -> ReadSources | None:
    if not isinstance(log, GivesSources):
        return None
    return log.sources(state.session_id, min_seq=state.seq)


def _fits(found: ReadSources, state: SessionState) -> bool:
    """Whether nothing is missing up to its end, and nothing is of another history."""
    seq = found.base_seq
    for recorded in found.events:
        seq += 1
        if recorded.seq != seq:
            return False
    if found.upto_seq < state.seq:
        return False
    place = state.seq - found.base_seq - 1
    if not 0 <= place < len(found.events):
        return True  # they end before it
    return hashlib.sha256(found.events[place].body).digest() == state.chain_head
