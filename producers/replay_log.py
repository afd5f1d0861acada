"""The throw-away log of a replay: it takes every append, and reaches nobody.

Sessions that it does not hold (the ancestors of a fork) are read from the recorded log,
and so are blobs. Nothing is ever written there.
"""

from collections.abc import Iterator, Sequence

from foldline.errors import BlobError
from foldline.processors.blobs import BlobStore
from foldline.processors.clock import Clock
from foldline.processors.log import Leases, ListPlace, Log, SessionSummary
from foldline.processors.memory_blobs import MemoryBlobs
from foldline.processors.memory_log import MemoryLog
from foldline.schemas.recorded import Append, Recorded
from foldline.schemas.state import SessionState
from foldline.schemas.verdicts import Verdict
from foldline.settings import Settings


class BlobsBehind:
    """Blobs in memory, and behind them those of another store, which is only read."""

    def __init__(self, behind: BlobStore, *, max_bytes: int) -> None:
        self._own = MemoryBlobs(max_bytes=max_bytes)
        self._behind = behind

    def put(self, data: bytes) -> bytes:
        """Keep bytes, in memory."""
        return self._own.put(data)

    def get(self, sha256: bytes) -> bytes:
        """The bytes of a blob, from wherever they are."""
        try:
            return self._own.get(sha256)
        except BlobError:
            return self._behind.get(sha256)


class ReplayLog:
    """A log in memory, and behind it another one, which is only read."""

    def __init__(self, behind: Log, *, settings: Settings, clock: Clock) -> None:
        blobs = BlobsBehind(behind.blobs, max_bytes=settings.blob_max_bytes)
        self._own = MemoryLog(settings=settings, clock=clock, blobs=blobs)
        self._behind = behind

    @property
    def url(self) -> str:
        """The URL of the in-memory log."""
        return self._own.url

    @property
    def leases(self) -> Leases:
        """Leases that nobody else sees."""
        return self._own.leases

    @property
    def blobs(self) -> BlobStore:
        """Its blobs, and behind them the recorded ones."""
        return self._own.blobs

    def append(self, appends: Sequence[Append]) -> list[Verdict]:
        """Answer appends, in memory."""
        return self._own.append(appends)

    def _holder(self, session_id: str) -> Log:
        return self._behind if self._own.state(session_id) is None else self._own

    def events(
        self, session_id: str, *, after_seq: int = 0, upto_seq: int | None = None
    ) -> Iterator[Recorded]:
        """Whole events of a session."""
        holder = self._holder(session_id)
        return holder.events(session_id, after_seq=after_seq, upto_seq=upto_seq)

    def structure(
        self, session_id: str, *, after_seq: int = 0, upto_seq: int | None = None
    ) -> Iterator[Recorded]:
        """The same without content."""
        holder = self._holder(session_id)
        return holder.structure(session_id, after_seq=after_seq, upto_seq=upto_seq)

    def event_ids(self, session_id: str) -> Iterator[str]:
        """Every event id of a session, in order."""
        return self._holder(session_id).event_ids(session_id)

    def state(self, session_id: str, *, at_seq: int | None = None) -> SessionState | None:
        """The state at the head, or as it was at a seq."""
        return self._holder(session_id).state(session_id, at_seq=at_seq)

    def follow(self, session_id: str, *, after_seq: int, timeout_ms: int) -> list[Recorded]:
        """The next events of a session of this log."""
        return self._own.follow(session_id, after_seq=after_seq, timeout_ms=timeout_ms)

    def sessions(
        self,
        *,
        tenant: str | None = None,
        status: str | None = None,
        limit: int = 100,
        before: ListPlace | None = None,
    ) -> list[SessionSummary]:
        """The sessions of this log."""
        return self._own.sessions(tenant=tenant, status=status, limit=limit, before=before)

    def warm_up(self) -> None:
        """Do now what the first read would have to."""
        self._own.warm_up()

    def close(self) -> None:
        """Let go of what is in memory; the recorded log stays open."""
        self._own.close()
