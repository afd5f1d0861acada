"""What the logs of one machine do alike: whole events; in files also batches, waiting."""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from foldline.errors import LogUnavailableError, UncertainAppendError
from foldline.processors.batch import Ways
from foldline.processors.blobs import BlobStore
from foldline.processors.clock import Clock
from foldline.processors.log import FOLLOW_MAX_EVENTS, Leases
from foldline.processors.open_blobs import blobs_beside, open_blobs
from foldline.processors.restore import decoded
from foldline.processors.state_cache import StateCache
from foldline.processors.stored import StoredEvent
from foldline.schemas.codec import Codec
from foldline.schemas.recorded import Append, Recorded
from foldline.schemas.registry import LocalRegistry, SchemaStore
from foldline.schemas.state import SessionState
from foldline.schemas.verdicts import Verdict
from foldline.settings import Settings

FOLLOW_POLL_MS = 20
"""How often `follow` looks for what other processes appended."""


class LocalLog(ABC):
    """A log that this process admits and folds: its parts, and whole events of rows."""

    def __init__(
        self,
        url: str,
        *,
        settings: Settings,
        clock: Clock,
        leases: Leases,
        blobs: BlobStore,
        schemas: SchemaStore,
    ) -> None:
        self._url = url
        self._leases = leases
        self._blobs = blobs
        self._schema_rows = schemas
        self.schemas = LocalRegistry(schemas)
        self._codec = Codec(self.schemas)
        self._ways = Ways(
            load=self._load,
            schemas=self.schemas,
            clock=clock,
            snapshot_every=settings.snapshot_every_events,
        )
        self._changed = threading.Condition()
        self._closed = False

    @property
    def url(self) -> str:
        """The URL that opens this log."""
        return self._url

    @property
    def leases(self) -> Leases:
        """The leases of this log's sessions."""
        return self._leases

    @property
    def blobs(self) -> BlobStore:
        """Where bodies above the inline limit are kept."""
        return self._blobs

    @property
    def codec(self) -> Codec:
        """What decodes this log's events."""
        return self._codec

    @abstractmethod
    def _load(self, session_id: str) -> SessionState | None:
        """The state that the next append is admitted on; to be copied only."""

    @abstractmethod
    def _range(
        self, session_id: str, after_seq: int, upto_seq: int | None
    ) -> Iterable[StoredEvent]:
        """Rows with after_seq < seq <= upto_seq, in order."""

    def events(
        self, session_id: str, *, after_seq: int = 0, upto_seq: int | None = None
    ) -> Iterator[Recorded]:
        """Whole events with after_seq < seq <= upto_seq, in order.

        Raises:
            LogFormatError: an event that does not decode; those before it were given.
        """
        for stored in self._range(session_id, after_seq, upto_seq):
            yield decoded(self._codec.decode, stored, url=self._url, session_id=session_id)

    def structure(
        self, session_id: str, *, after_seq: int = 0, upto_seq: int | None = None
    ) -> Iterator[Recorded]:
        """The same without content, for folding."""
        decode = self._codec.decode_structure
        for stored in self._range(session_id, after_seq, upto_seq):
            yield decoded(decode, stored, url=self._url, session_id=session_id)

    def warm_up(self) -> None:
        """Work out now how to read every schema that this log holds."""
        self._codec.warm_up(row.schema_id for row in self._schema_rows.rows())


class MachineLog(LocalLog):
    """A log in a file, for several processes at once: all but how the file is used."""

    def __init__(
        self,
        path: Path,
        *,
        url: str,
        settings: Settings,
        clock: Clock,
        leases: Leases,
        schemas: SchemaStore,
    ) -> None:
        super().__init__(
            url,
            settings=settings,
            clock=clock,
            leases=leases,
            blobs=open_blobs(settings, beside=blobs_beside(path)),
            schemas=schemas,
        )
        self._batch_max = settings.batch_max
        self._lock = threading.Lock()
        self._cache = StateCache()

    def append(self, appends: Sequence[Append]) -> list[Verdict]:
        """Answer appends, in order; up to `batch_max` of them in one transaction.

        Raises:
            LogUnavailableError: none of these appends is recorded, or, of more than
                `batch_max`, only those of the transactions before.
            UncertainAppendError: the same, but the last transaction may be recorded.
            LogFormatError: the stored session is not as it was recorded.
        """
        verdicts: list[Verdict] = []
        for start in range(0, len(appends), self._batch_max):
            try:
                verdicts.extend(self._transaction(appends[start : start + self._batch_max]))
            except UncertainAppendError:
                raise
            except LogUnavailableError as error:
                raise LogUnavailableError(
                    self._url, error.reason, recorded=start
                ) from error
        return verdicts

    @abstractmethod
    def _transaction(self, appends: Sequence[Append]) -> list[Verdict]:
        """Admit and record one batch: all of it or nothing."""

    def follow(self, session_id: str, *, after_seq: int, timeout_ms: int) -> list[Recorded]:
        """The next events after a seq, waiting for the first; empty after the time-out."""
        until_s = time.monotonic() + timeout_ms / 1000
        while True:
            events = self.events(session_id, after_seq=after_seq)
            found = list(islice(events, FOLLOW_MAX_EVENTS))
            left_s = until_s - time.monotonic()
            if found or left_s <= 0 or self._closed:
                return found
            with self._changed:
                self._changed.wait(min(left_s, FOLLOW_POLL_MS / 1000))

    def _wake_followers(self) -> None:
        with self._changed:
            self._changed.notify_all()
