"""The sources of live sessions' next contexts, kept in a node's memory.

    contexts.sources(state)     as of a state that was just read, from memory if they are
                                here, with what came since, else read and kept

What is kept is a copy of what the node's log has, and every answer begins with a state
that was read for it: one that is older grows by the events in between, one that is not
of this history (a store that was built anew) is read again. So nothing of it needs to
survive the node, and no answer is older than the state.

A session is kept while it is live: owned, not ended, and among those that were asked
for or that changed last, as far as `warm_sessions` and `warm_bytes` go. A context that
is larger than `warm_session_bytes`, or names a blob that is not there, is not kept: the
answer holds what there is room for, and whoever asks reads the rest in parts.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from foldline.errors import BlobError
from foldline.processors.log import Log
from foldline.projections.base import reaches_back
from foldline.projections.context import Sources, text_blobs
from foldline.projections.reading import Past, set_up_of, sources_of
from foldline.projections.warm import BasePoint, Warm, base_point, stored_size
from foldline.schemas.blocks import Blob
from foldline.schemas.events import SessionCreated
from foldline.schemas.recorded import Recorded
from foldline.schemas.snapshots import encode_snapshot
from foldline.schemas.state import MIRRORED, SessionState
from foldline.settings import Settings


class How(StrEnum):
    """Where sources came from: memory, memory and the events since, or the log."""

    KEPT = "kept"
    GROWN = "grown"
    READ = "read"


class Found(NamedTuple):
    """The sources of a context, and where they came from."""

    warm: Warm
    how: How


class WarmContexts:
    """What one node keeps. Any thread may ask."""

    def __init__(self, log: Log, settings: Settings) -> None:
        self._log = log
        self._most_sessions = settings.warm_sessions
        self._most_bytes = settings.warm_bytes
        self._session_bytes = min(settings.warm_session_bytes, settings.warm_bytes)
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, Warm] = OrderedDict()
        self._left_out: OrderedDict[str, BasePoint] = OrderedDict()
        self._bytes = 0
        self.schema_ids: set[int] = set()
        """Schemas of events that were kept, for a client that starts."""

    @property
    def kept_sessions(self) -> int:
        """How many sessions' sources are here."""
        return len(self._kept)

    @property
    def kept_bytes(self) -> int:
        """How many stored bytes they are."""
        return self._bytes

    def sources(self, state: SessionState) -> Found:
        """The sources as of a state, or of a later one of the same history.

        Raises:
            LineageError: it is a fork, and an ancestor is not there as it was.
        """
        found = self._found(state)
        with self._lock:
            self._keep(state, found.warm)
        return found

    def read(self, log: Log, session_id: str, *, at_seq: int | None) -> Sources | None:
        """Those at the head from here, where they are whole; else `reading.sources_of`.

        Raises:
            LineageError: as above.
        """
        state = log.state(session_id) if at_seq is None else None
        if state is not None and not self._does_not_fit(state):
            warm = self.sources(state).warm
            if warm.complete:
                return warm.sources
        return sources_of(log, session_id, at_seq=at_seq)

    def tend(self, state: SessionState) -> None:
        """Have them here as of a state, for a session that has changed; or no longer.

        One that did not fit is tried again when its base moves.

        Raises:
            LineageError: as above.
        """
        if not is_live(state):
            with self._lock:
                self._drop(state.session_id)
        elif not self._does_not_fit(state):
            self.sources(state)

    def _does_not_fit(self, state: SessionState) -> bool:
        """Whether it was tried with this base, and was not whole."""
        return self._left_out.get(state.session_id) == base_point(state)

    def _found(self, state: SessionState) -> Found:
        kept = self._kept.get(state.session_id)
        if kept is not None:
            if kept.has(state):
                return Found(kept, How.KEPT)
            grown = self._grown(kept, state)
            if grown is not None:
                return Found(grown, How.GROWN)
        return Found(self._read(state), How.READ)

    def _grown(self, kept: Warm, state: SessionState) -> Warm | None:
        """What is kept, with the events since; None where it is to be read anew."""
        if kept.upto_seq >= state.seq or base_point(state) != kept.point:
            return None
        room = _Room(self._session_bytes - kept.size)
        tail = room.events(Past(self._log, state).each(kept.upto_seq, state.seq))
        texts = room.texts(self._log, text_blobs(tail), known=kept.sources.texts)
        self._note_schemas(tail)
        return kept.grown(state, tail, texts) if room.complete else None

    def _read(self, state: SessionState) -> Warm:
        past = Past(self._log, state)
        base_seq = past.base(state)
        warm = self._read_behind(past, state, base_seq)
        if reaches_back(warm.sources.events, base_seq):
            return self._read_behind(past, state, 0)
        return warm

    def _read_behind(self, past: Past, state: SessionState, base_seq: int) -> Warm:
        at_base, held = past.held(base_seq)
        set_up = set_up_of(held, at_base)
        room = _Room(self._session_bytes)
        events = room.events(past.each(base_seq, state.seq))
        texts = room.texts(self._log, text_blobs([*set_up, *events]))
        self._note_schemas([*held, *events])
        in_parts = any(isinstance(recorded.event, SessionCreated) for recorded in held)
        return Warm(
            base_point(state),
            Sources(events, base_seq, set_up, texts),
            state.seq,
            state.chain_head,
            stored_size(held, {}) + stored_size(events, texts),
            held,
            encode_snapshot(at_base) if at_base and in_parts else b"",
            room.complete,
        )

    def _note_schemas(self, events: Sequence[Recorded]) -> None:
        with self._lock:
            self.schema_ids |= {recorded.schema_id for recorded in events}

    def _keep(self, state: SessionState, warm: Warm) -> None:
        """Keep it as the last that was asked for, unless a later one is here."""
        name = state.session_id
        before = self._drop(name)
        if before is not None and before.upto_seq > warm.upto_seq and before.has(state):
            warm = before
        if not warm.complete:
            self._left_out[name] = warm.point
        elif is_live(state):
            self._kept[name] = warm
            self._bytes += warm.size
        self._evict()

    def _drop(self, name: str) -> Warm | None:
        self._left_out.pop(name, None)
        dropped = self._kept.pop(name, None)
        if dropped is not None:
            self._bytes -= dropped.size
        return dropped

    def _evict(self) -> None:
        """Let those go that nobody asked for, and that did not change, for longest."""
        while len(self._left_out) > self._most_sessions:
            self._left_out.popitem(last=False)
        while len(self._kept) > self._most_sessions or self._bytes > self._most_bytes:
            self._drop(next(iter(self._kept)))


def is_live(state: SessionState) -> bool:
    """Whether somebody may take the session and go on with it."""
    return state.mode != MIRRORED and not state.ended


@dataclass(slots=True)
class _Room:
    """How many bytes there is room for; `complete` until something did not fit."""

    left: int
    complete: bool = True

    def events(self, found: Iterable[Recorded]) -> tuple[Recorded, ...]:
        """Events as far as they fit, in their order."""
        taken: list[Recorded] = []
        for recorded in found:
            if not self._took(len(recorded.body)):
                break
            taken.append(recorded)
        return tuple(taken)

    def texts(
        self, log: Log, wanted: Mapping[bytes, Blob], *, known: Iterable[bytes] = ()
    ) -> dict[bytes, str]:
        """The texts of blobs that fit and are there."""
        found: dict[bytes, str] = {}
        have = set(known)
        for sha256, blob in wanted.items():
            if sha256 in have or not self._has(blob.size):
                continue
            try:
                data = log.blobs.get(sha256)
            except BlobError:  # whoever shows the context will be told
                self.complete = False
                continue
            if self._took(len(data)):
                found[sha256] = data.decode("utf-8", "replace")
        return found

    def _took(self, size: int) -> bool:
        if not self._has(size):
            return False
        self.left -= size
        return True

    def _has(self, size: int) -> bool:
        """Whether there is room for so much; from then on not complete, if not."""
        has = size <= self.left
        self.complete = self.complete and has
        return has
