"""The sources of one session's next context, kept up with its events. Pure.

What a context is built from changes in two ways only. An event behind the others is one
more source. An event that compacts, clears or rewinds moves the base, and the sources
are others: then they are read anew, as after a start. `base_point` tells the two apart,
and the chain of hashes that what is kept is the history that the log has now.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from foldline.projections.base import reaches_back
from foldline.projections.context import Sources
from foldline.schemas.recorded import Recorded
from foldline.schemas.state import SessionState


class BasePoint(NamedTuple):
    """What of a session's state decides where its context begins.

    A fork's ancestors decide it, too, but they are the same for ever.
    """

    cleared_seq: int
    compacted_seq: int
    rewound_seq: int
    rewound_to: int
    has_rewound: bool


def base_point(state: SessionState) -> BasePoint:
    """The base point of a state; equal points have the same context base."""
    compaction = state.compaction
    return BasePoint(
        state.cleared_seq,
        compaction.seq if compaction else 0,
        state.rewound_seq,
        state.rewound_to,
        bool(state.counts.get("HistoryRewound")),
    )


@dataclass(frozen=True, slots=True)
class Warm:
    """What the next context is built from, as of `upto_seq`, with the hash of that event.

    `held` are the events that `sources.set_up` was made of, and `base` the state at its
    base (a Snapshot) where a fork's creation is among them. `complete`: every event and
    text is here; else only so much as there was room for. `size` is in bytes of what is
    stored of them.
    """

    point: BasePoint
    sources: Sources
    upto_seq: int
    head: bytes
    size: int
    held: Sequence[Recorded] = ()
    base: bytes = b""
    complete: bool = True

    def has(self, state: SessionState) -> bool:
        """Whether the event that a state ends with is the one that is here at its seq."""
        if state.seq >= self.upto_seq:
            return state.seq == self.upto_seq and state.chain_head == self.head
        place = state.seq - self.sources.base_seq - 1
        if not 0 <= place < len(self.sources.events):
            return False
        body = self.sources.events[place].body
        return state.chain_head == hashlib.sha256(body).digest()

    def grown(
        self, state: SessionState, tail: Sequence[Recorded], texts: Mapping[bytes, str]
    ) -> "Warm | None":
        """The same with the events behind it; None where the sources are to be read anew.

        Args:
            state: just after the last of them.
            tail: all events from the next one on.
            texts: of the blobs in them.
        """
        if base_point(state) != self.point or not self._goes_on(tail, state.seq):
            return None
        sources = self.sources
        events = (*sources.events, *tail)
        if reaches_back(events, sources.base_seq):
            return None
        new = {
            sha256: text for sha256, text in texts.items() if sha256 not in sources.texts
        }
        grown = Sources(events, sources.base_seq, sources.set_up, {**sources.texts, **new})
        size = self.size + stored_size(tail, new)
        return Warm(
            self.point, grown, state.seq, state.chain_head, size, self.held, self.base
        )

    def _goes_on(self, tail: Sequence[Recorded], seq: int) -> bool:
        if not self.complete or not tail or tail[-1].seq != seq:
            return False
        first = tail[0]
        return first.seq == self.upto_seq + 1 and first.envelope.prev_hash == self.head


def stored_size(events: Sequence[Recorded], texts: Mapping[bytes, str]) -> int:
    """Bytes of events and of texts, as a log stores them."""
    bodies = sum(len(recorded.body) for recorded in events)
    return bodies + sum(map(_stored, texts.values()))


def _stored(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())
