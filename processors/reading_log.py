"""The half of a log that reads, for logs whose reads come from a `Reads`.

What is stored comes from there; decoding it, and saying which event is not as it was
recorded, is the same for all of them.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import partial

from foldline.processors.log import ListPlace, SessionSummary
from foldline.processors.read_sources import ReadSources, opened_sources
from foldline.processors.reads import Reads
from foldline.processors.restore import decoded
from foldline.processors.stored import (
    Problem,
    StoredEvent,
    StoredSession,
    StoredSnapshot,
)
from foldline.schemas.codec import Codec, event_id_of
from foldline.schemas.recorded import Recorded
from foldline.schemas.state import SessionState


class ReadingLog(ABC):
    """What `foldline.processors.stored.AuditableLog` reads; appending is the heir's."""

    @property
    @abstractmethod
    def url(self) -> str:
        """The URL that opens this log."""

    @property
    @abstractmethod
    def codec(self) -> Codec:
        """What decodes this log's events."""

    @abstractmethod
    def _open_reads(self) -> Reads:
        """Where reads come from, opened if it was not yet."""

    def _known(self, session_id: str) -> int:  # noqa: ARG002 - for heirs that know more
        """The seq of a session that no read may be older than."""
        return 0

    def _whole(self, session_id: str, stored: StoredEvent) -> Recorded:
        return decoded(self.codec.decode, stored, url=self.url, session_id=session_id)

    def _structure(self, session_id: str, stored: StoredEvent) -> Recorded:
        decode = self.codec.decode_structure
        return decoded(decode, stored, url=self.url, session_id=session_id)

    def _range(
        self, session_id: str, after_seq: int, upto_seq: int | None
    ) -> Iterator[StoredEvent]:
        return self._open_reads().stored_events(
            session_id,
            after_seq=after_seq,
            upto_seq=upto_seq,
            min_seq=self._known(session_id),
        )

    def events(
        self, session_id: str, *, after_seq: int = 0, upto_seq: int | None = None
    ) -> Iterator[Recorded]:
        """Whole events with after_seq < seq <= upto_seq, in order.

        Raises:
            LogFormatError: an event that does not decode; those before it were given.
            LogUnavailableError: the read did not come so far in time.
        """
        for stored in self._range(session_id, after_seq, upto_seq):
            yield self._whole(session_id, stored)

    def structure(
        self, session_id: str, *, after_seq: int = 0, upto_seq: int | None = None
    ) -> Iterator[Recorded]:
        """The same without content, for folding."""
        for stored in self._range(session_id, after_seq, upto_seq):
            yield self._structure(session_id, stored)

    def event_ids(self, session_id: str) -> Iterator[str]:
        """Every event id of a session, in order, read off the bodies undecoded."""
        for stored in self._range(session_id, 0, None):
            yield decoded(_event_id, stored, url=self.url, session_id=session_id)

    def state(self, session_id: str, *, at_seq: int | None = None) -> SessionState | None:
        """The state at the head, or as it was at a seq."""
        known = self._known(session_id)
        return self._open_reads().state(session_id, at_seq=at_seq, min_seq=known)

    def sources(self, session_id: str, *, min_seq: int) -> ReadSources | None:
        """What the next context is built from, in one piece; None: read it in parts."""
        known = max(self._known(session_id), min_seq)
        found = self._open_reads().sources(session_id, min_seq=known)
        if found is None:
            return None
        return opened_sources(found, partial(self._whole, session_id))

    def follow(self, session_id: str, *, after_seq: int, timeout_ms: int) -> list[Recorded]:
        """The next events after a seq, waiting for the first; empty after the time-out."""
        found = self._open_reads().follow(
            session_id, after_seq=after_seq, timeout_ms=timeout_ms
        )
        return [self._whole(session_id, stored) for stored in found]

    def sessions(
        self,
        *,
        tenant: str | None = None,
        status: str | None = None,
        limit: int = 100,
        before: ListPlace | None = None,
    ) -> list[SessionSummary]:
        """Sessions that this client may see, the most recently active first."""
        return self._open_reads().sessions(
            tenant=tenant, status=status, limit=limit, before=before
        )

    # --- as it is stored --------------------------------------------------------------

    def stored_sessions(
        self, *, after: str = "", parent: str | None = None
    ) -> Iterator[StoredSession]:
        """The index, in the order of the session ids: those that this client may see."""
        return self._open_reads().stored_sessions(after=after, parent=parent)

    def stored_events(
        self, session_id: str, *, after_seq: int = -1, upto_seq: int | None = None
    ) -> Iterator[StoredEvent]:
        """The rows of a session in the order of their seqs, undecoded."""
        return self._range(session_id, after_seq, upto_seq)

    def stored_snapshots(self, session_id: str) -> Iterator[StoredSnapshot]:
        """The snapshots of a session, the oldest first."""
        return self._open_reads().stored_snapshots(session_id)

    def inspect(self) -> Iterator[Problem]:
        """What is wrong with what the reads come from, where this client may ask."""
        return self._open_reads().inspect()


def _event_id(_schema_id: int, body: bytes) -> str:
    return event_id_of(body)
