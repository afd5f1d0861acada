"""The log behind a read service: `https://host` as a log's URL.

The service admits nothing itself: it passes appends on to its log and the verdicts back,
with tenant and actor from this client's token. So a client of it has what every client
of a log has, without a broker, and sees only its tenant.
"""

from collections.abc import Iterator, Sequence

from foldline.errors import DecodeError, LogUnavailableError, UncertainAppendError
from foldline.processors.blobs import BlobStore
from foldline.processors.http_appends import wired
from foldline.processors.http_calls import Calls
from foldline.processors.http_leases import HttpBlobs, HttpLeases
from foldline.processors.http_reads import HttpReads
from foldline.processors.http_wire import (
    APPENDS,
    APPENDS_MAX,
    WireAppend,
    pack_appends,
    unpack_verdicts,
)
from foldline.processors.log import Leases, SessionSummary
from foldline.processors.named_blobs import blobs_in
from foldline.processors.restore import broken
from foldline.processors.stored import (
    Problem,
    StoredEvent,
    StoredSession,
    StoredSnapshot,
)
from foldline.schemas.codec import Codec
from foldline.schemas.recorded import Append, Recorded
from foldline.schemas.state import SessionState
from foldline.schemas.verdicts import Verdict
from foldline.settings import Settings

REQUEST_BYTES = 1_000_000
"""How many bytes of appends one request holds, at least one append: far below what a
service takes at the least (`http_body_max_bytes`)."""

_ID_BYTES = 36
_ID_PREFIX = bytes([_ID_BYTES << 1])


class HttpLog:
    """A log that a read service serves."""

    def __init__(self, url: str, *, settings: Settings) -> None:
        self._calls = Calls(url, settings=settings)
        self._reads = HttpReads(url, settings=settings, calls=self._calls)
        self._leases = HttpLeases(self._calls)
        self._blobs = HttpBlobs(self._calls, max_bytes=settings.blob_max_bytes)

    @property
    def url(self) -> str:
        """The URL that opens this log."""
        return self._calls.url

    @property
    def leases(self) -> Leases:
        """The leases of this log's sessions, by the service's clock."""
        return self._leases

    @property
    def blobs(self) -> BlobStore:
        """Where bodies above the inline limit are kept."""
        return self._blobs

    @property
    def codec(self) -> Codec:
        """What decodes this log's events."""
        return self._reads.codec

    def append(self, appends: Sequence[Append]) -> list[Verdict]:
        """Answer appends, in order; what got no answer is sent again as it was.

        Raises:
            UncertainAppendError: no answer in time: it may or may not be recorded.
            AccessRefusedError: the token may not append this.
        """
        verdicts: list[Verdict] = []
        for part in _in_parts(appends):
            try:
                answer = self._calls.send(
                    "POST", "/appends", body=pack_appends(part), content_type=APPENDS
                )
            except LogUnavailableError as error:
                raise UncertainAppendError(
                    self.url, error.reason, recorded=len(verdicts)
                ) from error
            verdicts.extend(unpack_verdicts(answer.content))
        return verdicts

    def events(
        self, session_id: str, *, after_seq: int = 0, upto_seq: int | None = None
    ) -> Iterator[Recorded]:
        """Whole events with after_seq < seq <= upto_seq, in order.

        Raises:
            LogFormatError: an event that does not decode; those before it were given.
        """
        for stored in self._range(session_id, after_seq, upto_seq):
            yield self._decoded(session_id, stored)

    def _decoded(self, session_id: str, stored: StoredEvent) -> Recorded:
        try:
            recorded = self.codec.decode(stored.schema_id, stored.body)
        except DecodeError as error:
            raise broken(self.url, session_id, stored.seq, error.reason) from error
        for blob in blobs_in(recorded.event):
            self._blobs.note(blob.sha256, session_id, stored.seq)
        return recorded

    def structure(
        self, session_id: str, *, after_seq: int = 0, upto_seq: int | None = None
    ) -> Iterator[Recorded]:
        """The same without content, for folding."""
        for stored in self._range(session_id, after_seq, upto_seq):
            try:
                yield self.codec.decode_structure(stored.schema_id, stored.body)
            except DecodeError as error:
                raise broken(self.url, session_id, stored.seq, error.reason) from error

    def event_ids(self, session_id: str) -> Iterator[str]:
        """Every event id of a session, in order, read off the bodies undecoded."""
        for stored in self._range(session_id, 0, None):
            start = stored.body[: _ID_BYTES + 1]
            if start[:1] != _ID_PREFIX or len(start) != _ID_BYTES + 1:
                raise broken(self.url, session_id, stored.seq, "it has no event id")
            yield start[1:].decode("ascii", "replace")

    def _range(
        self, session_id: str, after_seq: int, upto_seq: int | None
    ) -> Iterator[StoredEvent]:
        return self._reads.stored_events(session_id, after_seq=after_seq, upto_seq=upto_seq)

    def state(self, session_id: str, *, at_seq: int | None = None) -> SessionState | None:
        """The state at the head, or as it was at a seq."""
        return self._reads.state(session_id, at_seq=at_seq)

    def follow(self, session_id: str, *, after_seq: int, timeout_ms: int) -> list[Recorded]:
        """The next events after a seq, waiting for the first; empty after the time-out."""
        found = self._reads.follow(session_id, after_seq=after_seq, timeout_ms=timeout_ms)
        return [self._decoded(session_id, stored) for stored in found]

    def sessions(
        self, *, tenant: str | None = None, status: str | None = None, limit: int = 100
    ) -> list[SessionSummary]:
        """Sessions of the token's tenant, the most recently active first."""
        return self._reads.sessions(tenant=tenant, status=status, limit=limit)

    def warm_up(self) -> None:
        """Connect, and work out how to read what others have read there."""
        self._reads.warm_up()

    def close(self) -> None:
        """Let go of the connections; who follows is let go."""
        self._reads.close()

    # --- as it is stored --------------------------------------------------------------

    def stored_sessions(self) -> Iterator[StoredSession]:
        """The index, in the order of the session ids: the token's tenant."""
        return self._reads.stored_sessions()

    def stored_events(
        self, session_id: str, *, after_seq: int = -1, upto_seq: int | None = None
    ) -> Iterator[StoredEvent]:
        """The rows of a session in the order of their seqs, undecoded."""
        return self._range(session_id, after_seq, upto_seq)

    def stored_snapshots(self, session_id: str) -> Iterator[StoredSnapshot]:
        """The snapshots of a session, the oldest first."""
        return self._reads.stored_snapshots(session_id)

    def inspect(self) -> Iterator[Problem]:
        """What is wrong with the store beneath, where the token may ask."""
        return self._reads.inspect()


def _in_parts(appends: Sequence[Append]) -> Iterator[list[WireAppend]]:
    """Appends as requests take them: bounded in number and in bytes."""
    part: list[WireAppend] = []
    size = 0
    for append in appends:
        wire = wired(append)
        length = len(wire.envelope) + len(wire.content)
        if part and (len(part) == APPENDS_MAX or size + length > REQUEST_BYTES):
            yield part
            part, size = [], 0
        part.append(wire)
        size += length
    if part:
        yield part
