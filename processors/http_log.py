"""The log behind a read service: `https://host` as a log's URL.

The service admits nothing itself: it passes appends on to its log and the verdicts back,
with tenant and actor from this client's token. So a client of it has what every client
of a log has, without a broker, and sees only its tenant.
"""

from collections.abc import Iterator, Sequence

from foldline.errors import LogUnavailableError, UncertainAppendError
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
from foldline.processors.log import Leases
from foldline.processors.named_blobs import blobs_in
from foldline.processors.reading_log import ReadingLog
from foldline.processors.reads import Reads
from foldline.processors.stored import (
    StoredEvent,
)
from foldline.schemas.codec import Codec
from foldline.schemas.recorded import Append, Recorded
from foldline.schemas.verdicts import Verdict
from foldline.settings import Settings

REQUEST_BYTES = 1_000_000
"""How many bytes of appends one request holds, at least one append: far below what a
service takes at the least (`http_body_max_bytes`)."""


class HttpLog(ReadingLog):
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
            RefusedRequestError: the service will not have it as it is.

        What takes several requests may be recorded in part: each of these says how many
        appends, the first ones, were answered before (`recorded`).
        """
        verdicts: list[Verdict] = []
        for part in _in_parts(appends):
            try:
                answer = self._calls.send(
                    "POST",
                    "/appends",
                    body=pack_appends(part),
                    content_type=APPENDS,
                    recorded=len(verdicts),
                )
            except LogUnavailableError as error:
                raise UncertainAppendError(
                    self.url, error.reason, recorded=len(verdicts)
                ) from error
            verdicts.extend(unpack_verdicts(answer.content))
        return verdicts

    def _open_reads(self) -> Reads:
        return self._reads

    def _whole(self, session_id: str, stored: StoredEvent) -> Recorded:
        recorded = super()._whole(session_id, stored)
        for blob in blobs_in(recorded.event):
            # A fork's ancestor's event is that one's, whoever's history it was read in.
            holder = recorded.envelope.session_id
            self._blobs.note(blob.sha256, holder, stored.seq)
        return recorded

    def warm_up(self) -> None:
        """Connect, and work out how to read what others have read there."""
        self._reads.warm_up()

    def close(self) -> None:
        """Let go of the connections; who follows is let go."""
        self._reads.close()


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
