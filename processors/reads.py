"""The reading half of a log, where appends go another way (Kafka, the service).

Every read of a session's head is at least as new as what was committed when it was
asked for: a replica waits until it has come so far. `min_seq` is for who knows more
(its own write): the read waits for that seq of the session too.
"""

from collections.abc import Iterator
from typing import Protocol

from foldline.processors.http_wire import WireSources
from foldline.processors.log import ListPlace, SessionSummary
from foldline.processors.stored import (
    Problem,
    StoredEvent,
    StoredSession,
    StoredSnapshot,
)
from foldline.schemas.state import SessionState


class Reads(Protocol):
    """What a log reads: see `foldline.processors.log.Log` for what each means.

    Every method may be called from any thread.

    Raises (each): LogUnavailableError where the read did not come so far in time.
    """

    def stored_events(
        self,
        session_id: str,
        *,
        after_seq: int = 0,
        upto_seq: int | None = None,
        min_seq: int = 0,
    ) -> Iterator[StoredEvent]:
        """Events with after_seq < seq <= upto_seq, undecoded, in order."""
        ...

    def state(
        self, session_id: str, *, at_seq: int | None = None, min_seq: int = 0
    ) -> SessionState | None:
        """The state at the head, or as it was at a seq. The caller may keep it."""
        ...

    def sources(self, session_id: str, *, min_seq: int = 0) -> WireSources | None:
        """What the next context is built from, in one piece; None: read it in parts."""
        ...

    def follow(
        self, session_id: str, *, after_seq: int, timeout_ms: int
    ) -> list[StoredEvent]:
        """The next events after a seq, at most FOLLOW_MAX_EVENTS, waiting for the first."""
        ...

    def sessions(
        self,
        *,
        tenant: str | None = None,
        status: str | None = None,
        limit: int = 100,
        before: ListPlace | None = None,
    ) -> list[SessionSummary]:
        """Sessions, the most recently active first."""
        ...

    def stored_sessions(
        self, *, after: str = "", parent: str | None = None
    ) -> Iterator[StoredSession]:
        """The index behind a session id, in their order; with `parent`, its children."""
        ...

    def stored_snapshots(self, session_id: str) -> Iterator[StoredSnapshot]:
        """The snapshots of a session, the oldest first."""
        ...

    def inspect(self) -> Iterator[Problem]:
        """What is wrong with the store beneath."""
        ...

    def warm_up(self) -> None:
        """Do now what the first read would have to."""
        ...

    def close(self) -> None:
        """Let go of files and threads."""
        ...
