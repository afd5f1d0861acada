"""The original events behind a compaction, and the texts of their blobs. Blocks on the log.

Both are bounded: of a history that is longer, its beginning is read and its newest part;
of larger texts what the event itself shows of them is taken.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from foldline.processors.blobs import BlobStore
from foldline.processors.log import Log
from foldline.projections.context import text_blobs
from foldline.projections.live import live_of
from foldline.projections.reading import Past
from foldline.projections.summarising import Originals
from foldline.schemas.recorded import Recorded
from foldline.schemas.state import SessionState

FIRST_EVENTS = 200
"""How many events are read from the beginning: they say what the task is."""

NEWEST_EVENTS = 10_000
"""How many are read before the head."""

TEXTS_MAX_BYTES = 64 * 1024 * 1024
"""How much text of blobs is read, that of the newest events first."""


@dataclass(frozen=True, slots=True)
class Origins:
    """Events of a session and its ancestors, as they were recorded, and their texts."""

    events: Sequence[Recorded]
    texts: dict[bytes, str]

    def upto(self, to_seq: int) -> Originals:
        """What a summary of the events up to a seq is made from."""
        return Originals(live_of(self.events), to_seq, self.texts)


def read_origins(log: Log, state: SessionState, upto_seq: int) -> Origins:
    """The events up to a seq.

    Raises:
        LineageError: it is a fork, and an ancestor is not there as it was.
    """
    past = Past(log, state)
    first_newest = max(upto_seq - NEWEST_EVENTS, FIRST_EVENTS)
    events = past.events(0, min(FIRST_EVENTS, upto_seq))
    if upto_seq > FIRST_EVENTS:
        events += past.events(first_newest, upto_seq)
    return Origins(events, _texts_of(events, log.blobs))


def _texts_of(events: Sequence[Recorded], blobs: BlobStore) -> dict[bytes, str]:
    texts: dict[bytes, str] = {}
    left = TEXTS_MAX_BYTES
    for sha256, blob in reversed(text_blobs(events).items()):
        left -= blob.size
        if left < 0:
            break
        texts[sha256] = blobs.get(sha256).decode("utf-8", "replace")
    return texts
