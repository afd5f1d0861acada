"""The events that a context is built from, read once and then only their tail."""

from collections.abc import Sequence
from typing import cast

from foldline.producers.ownership import Ownership
from foldline.projections.building import build
from foldline.projections.context import (
    Context,
    Sources,
    base_of,
    missing_steering,
    text_blobs,
)
from foldline.schemas.events import CompactionCompleted
from foldline.schemas.recorded import Recorded
from foldline.schemas.state import SessionState


class History:
    """The history of one session, as far as its context needs it."""

    def __init__(self, owner: Ownership) -> None:
        self._owner = owner
        self._base_seq = -1
        self._set_up: list[Recorded] = []
        self._events: list[Recorded] = []
        self._texts: dict[bytes, str] = {}

    async def context(self) -> Context:
        """The context at the head."""
        state = await self._owner.state()
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

    async def _base(self, state: SessionState) -> int:
        if state.compaction is None:
            return base_of(state, None)
        seq = state.compaction.seq
        events = await self._owner.events(seq - 1, seq)
        return base_of(state, cast("CompactionCompleted", events[0].event))

    async def _begin(self, base_seq: int) -> None:
        """Start behind another seq: what was in force there is read by its refs."""
        self._base_seq = base_seq
        self._events = []
        self._set_up = []
        self._texts = {}
        if not base_seq:
            return
        log = self._owner.link.log
        state = await self._owner.link.read(
            log.state, self._owner.session_id, at_seq=base_seq
        )
        if state is None:
            return
        refs = [state.goal, state.tools]
        refs += [*state.instructions.values(), *state.constraints.values()]
        for seq in sorted({ref.seq for ref in refs if ref is not None}):
            self._set_up.extend(await self._owner.events(seq - 1, seq))
        await self._read_texts(self._set_up)

    async def _read_tail(self) -> None:
        last = self._events[-1].seq if self._events else max(self._base_seq, 0)
        tail = await self._owner.events(last)
        await self._read_texts(tail)
        self._events.extend(tail)

    async def _read_texts(self, events: Sequence[Recorded]) -> None:
        blobs = self._owner.link.log.blobs
        for sha256 in text_blobs(events):
            if sha256 not in self._texts:
                data = await self._owner.link.read(blobs.get, sha256)
                self._texts[sha256] = data.decode("utf-8", "replace")
