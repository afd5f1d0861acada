"""The events that a context is built from, read once and then only their tail.

A fork's are read behind those of its ancestors, up to each fork point. The first time
they come in one piece, where the log keeps them warm.
"""

from collections.abc import Sequence

from foldline.producers.ownership import Ownership
from foldline.projections.base import reaches_back
from foldline.projections.building import build
from foldline.projections.context import Context, Sources, text_blobs
from foldline.projections.reading import Past, read_texts
from foldline.projections.waking import begun
from foldline.schemas.recorded import Recorded
from foldline.schemas.state import SessionState


class History:
    """The history of one session, as far as its context needs it."""

    def __init__(self, owner: Ownership) -> None:
        self._owner = owner
        self._past: Past | None = None
        self._base_seq = -1
        self._set_up: list[Recorded] = []
        self._events: list[Recorded] = []
        self._texts: dict[bytes, str] = {}

    async def context(self) -> Context:
        """The context at the head.

        Raises:
            LineageError: it is a fork, and an ancestor is not there as it was.
        """
        link, state = self._owner.link, await self._owner.state()
        past = self._past or await self._wake(state)
        base_seq = await link.read(past.base, state)
        if base_seq != self._base_seq:
            await self._begin(past, base_seq)
        await self._read_tail(past, state.seq)
        if reaches_back(self._events, base_seq):
            past.note_base(state, 0)
            await self._begin(past, 0)
            await self._read_tail(past, state.seq)
        return build(
            Sources(self._events, max(self._base_seq, 0), self._set_up, self._texts)
        )

    async def _wake(self, state: SessionState) -> Past:
        """Find the history, and have at once what the log says of it at once."""
        link = self._owner.link
        past, kept = await link.read(begun, link.log, state)
        if kept is not None:
            self._texts = dict(kept.texts)
            await self._read_texts([*kept.set_up, *kept.events])
            self._base_seq, self._set_up = kept.base_seq, list(kept.set_up)
            self._events = list(kept.events)
        self._past = past
        return past

    async def _begin(self, past: Past, base_seq: int) -> None:
        """Start behind another seq: what was in force there is read by its refs."""
        set_up = await self._owner.link.read(past.set_up, base_seq)
        self._base_seq, self._events, self._texts = -1, [], {}
        await self._read_texts(set_up)
        self._base_seq, self._set_up = base_seq, set_up

    async def _read_tail(self, past: Past, head_seq: int) -> None:
        last = self._events[-1].seq if self._events else max(self._base_seq, 0)
        if last >= head_seq:
            return
        tail = await self._owner.link.read(past.events, last)
        await self._read_texts(tail)
        self._events.extend(tail)

    async def _read_texts(self, events: Sequence[Recorded]) -> None:
        wanted = [one for one in text_blobs(events) if one not in self._texts]
        if wanted:
            link = self._owner.link
            self._texts |= await link.read(read_texts, link.log.blobs, wanted)
