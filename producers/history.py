"""The events that a context is built from, read once and then only their tail.

A fork's are read behind those of its ancestors, up to each fork point.
"""

from collections.abc import Sequence
from typing import cast

from foldline.processors.lineage import (
    Lineage,
    ancestral_states,
    joined_events,
    joined_state,
    lineage_from,
)
from foldline.producers.ownership import Ownership
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


class History:
    """The history of one session, as far as its context needs it."""

    def __init__(self, owner: Ownership) -> None:
        self._owner = owner
        self._lineage: Lineage | None = None
        self._ancestral: list[SessionState] = []
        self._base_seq = -1
        self._set_up: list[Recorded] = []
        self._events: list[Recorded] = []
        self._texts: dict[bytes, str] = {}

    async def context(self) -> Context:
        """The context at the head.

        Raises:
            LineageError: it is a fork, and an ancestor is not there as it was.
        """
        state = await self._owner.state()
        if self._lineage is None and state.fork_seq:
            await self._owner.link.read(self._trace, state)
        base_seq = await self._base(state)
        if base_seq != self._base_seq:
            await self._begin(base_seq)
        await self._read_tail()
        if missing_steering(self._events):
            await self._begin(0)
            await self._read_tail()
        return build(
            Sources(self._events, max(self._base_seq, 0), self._set_up, self._texts)
        )

    def _trace(self, state: SessionState) -> None:
        """Find the ancestors of a fork: they are the same for ever."""
        log = self._owner.link.log
        lineage = lineage_from(state, log.state)
        self._ancestral = ancestral_states(log, lineage)
        self._lineage = lineage

    async def _read(self, after_seq: int, upto_seq: int | None = None) -> list[Recorded]:
        """Events of the history, those of its ancestors included."""
        if self._lineage is None:
            return await self._owner.events(after_seq, upto_seq)
        return await self._owner.link.read(
            self._read_joined, self._lineage, after_seq, upto_seq
        )

    def _read_joined(
        self, lineage: Lineage, after_seq: int, upto_seq: int | None
    ) -> list[Recorded]:
        log = self._owner.link.log
        found = joined_events(log, lineage, after_seq=after_seq, upto_seq=upto_seq)
        return list(found)

    async def _state_at(self, seq: int) -> SessionState | None:
        link = self._owner.link
        if self._lineage is None:
            return await link.read(link.log.state, self._owner.session_id, at_seq=seq)
        return await link.read(joined_state, link.log, self._lineage, seq)

    async def _base(self, state: SessionState) -> int:
        one = as_one([*self._ancestral, state])
        if one.compaction is None:
            return base_of(one, None)
        seq = one.compaction.seq
        events = await self._read(seq - 1, seq)
        return base_of(one, cast("CompactionCompleted", events[0].event))

    async def _begin(self, base_seq: int) -> None:
        """Start behind another seq: what was in force there is read by its refs."""
        self._base_seq = base_seq
        self._events = []
        self._set_up = []
        self._texts = {}
        if not base_seq:
            return
        state = await self._state_at(base_seq)
        if state is None:
            return
        for seq in seqs_in_force(state):
            for recorded in await self._read(seq - 1, seq):
                self._set_up.extend(as_set_up(recorded, state))
        await self._read_texts(self._set_up)

    async def _read_tail(self) -> None:
        last = self._events[-1].seq if self._events else max(self._base_seq, 0)
        tail = await self._read(last)
        await self._read_texts(tail)
        self._events.extend(tail)

    async def _read_texts(self, events: Sequence[Recorded]) -> None:
        blobs = self._owner.link.log.blobs
        for sha256 in text_blobs(events):
            if sha256 not in self._texts:
                data = await self._owner.link.read(blobs.get, sha256)
                self._texts[sha256] = data.decode("utf-8", "replace")
