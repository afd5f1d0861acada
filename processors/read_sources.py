"""What the next context of a session is built from, where a log can say it at once.

A log behind a read service keeps it warm for live sessions, so that the first context
after a wake is one read. Other logs are read in parts: see `projections.waking`.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from foldline.processors.http_wire import WireSources, unpack_events
from foldline.processors.stored import StoredEvent
from foldline.schemas.recorded import Recorded
from foldline.schemas.snapshots import decode_snapshot
from foldline.schemas.state import SessionState


@dataclass(frozen=True, slots=True)
class ReadSources:
    """Sources as they were read, of a session that was at `upto_seq` then.

    `held` are the events that hold what was in force at `base_seq`; `base` is the state
    there, if it is needed to tell which parts of them. `events` may end before
    `upto_seq`, and `texts` has blobs as far as they came along: the rest is to be read.
    """

    base_seq: int
    upto_seq: int
    held: Sequence[Recorded]
    base: SessionState | None
    events: Sequence[Recorded]
    texts: Mapping[bytes, str]


@runtime_checkable
class GivesSources(Protocol):
    """A log that may have the sources of a context in one piece."""

    def sources(self, session_id: str, *, min_seq: int) -> ReadSources | None:
        """Those of a session that has come to a seq; None: read it in parts."""
        ...


def opened_sources(
    wire: WireSources, whole: Callable[[StoredEvent], Recorded]
) -> ReadSources | None:
    """Sources out of an answer; None where its state is of another version's fold.

    Args:
        wire: the answer.
        whole: decodes an event.
    """
    base = decode_snapshot(wire.base) if wire.base else None
    if wire.base and base is None:
        return None
    return ReadSources(
        wire.base_seq,
        wire.upto_seq,
        [whole(stored) for stored in unpack_events(wire.set_up)],
        base,
        [whole(stored) for stored in unpack_events(wire.events)],
        # By the hash of what came: a text that is another one is nobody's.
        {hashlib.sha256(t).digest(): t.decode("utf-8", "replace") for t in wire.texts},
    )
