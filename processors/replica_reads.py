"""Reads over a replica: each head read first waits for what is committed by then.

A verdict can be quicker than the markers of its transaction, so who has one says
`min_seq`: the read waits for that seq of the session, too. What cannot change any more
(a range or a state below the head) is read without asking anybody.
"""

import heapq
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from itertools import islice
from operator import attrgetter
from typing import TypeVar

from foldline.errors import (
    LogUnavailableError,
    ReadUnavailableError,
    TableCorruptError,
)
from foldline.processors.event_rows import Listing
from foldline.processors.event_store import EventStore
from foldline.processors.log import FOLLOW_MAX_EVENTS, ListPlace, SessionSummary, order_of
from foldline.processors.replica import Replica
from foldline.processors.replica_part import Progress
from foldline.processors.stored import (
    Problem,
    StoredEvent,
    StoredSession,
    StoredSnapshot,
)
from foldline.schemas.state import SessionState
from foldline.settings import Settings

_Row = TypeVar("_Row")


class ReplicaReads:
    """`foldline.processors.reads.Reads` of a replica, which it closes with itself."""

    def __init__(self, replica: Replica, *, settings: Settings) -> None:
        self._replica = replica
        self._timeout_ms = settings.read_wait_ms

    @property
    def replica(self) -> Replica:
        """The replica beneath."""
        return self._replica

    def progress(self) -> list[Progress]:
        """How far each partition is."""
        return self._replica.progress()

    def stored_events(
        self,
        session_id: str,
        *,
        after_seq: int = 0,
        upto_seq: int | None = None,
        min_seq: int = 0,
    ) -> Iterator[StoredEvent]:
        """Events with after_seq < seq <= upto_seq, undecoded, in order."""
        partition = self._partition(session_id)
        if partition is None:
            return iter(())
        store = self._current(partition, session_id, upto_seq, min_seq)
        found = store.stored_events(session_id, after_seq=after_seq, upto_seq=upto_seq)
        return self._sheltered(store, found)

    def state(
        self, session_id: str, *, at_seq: int | None = None, min_seq: int = 0
    ) -> SessionState | None:
        """The state at the head, or as it was at a seq. The caller may keep it."""
        partition = self._partition(session_id)
        if partition is None:
            return None
        store = self._current(partition, session_id, at_seq, min_seq)
        with self._shelter(store):
            return store.state(session_id, at_seq=at_seq)

    def sources(self, session_id: str, *, min_seq: int = 0) -> None:  # noqa: ARG002 - the port's
        """None: everything is here, and its parts are read as quickly."""
        return

    def follow(
        self, session_id: str, *, after_seq: int, timeout_ms: int
    ) -> list[StoredEvent]:
        """The next events after a seq, at most FOLLOW_MAX_EVENTS, waiting for the first.

        Where the partition was never read to its end, "none" would only mean that it is
        not read yet: then the end is waited for, too, as for any other read.
        """
        partition = self._partition(session_id)
        if partition is None:
            return []
        seq = max(after_seq, 0) + 1
        store = self._replica.store(partition)
        with self._shelter(store):
            if not self._replica.wait(session_id, seq=seq, timeout_ms=timeout_ms):
                if self._replica.synced(partition):
                    return []
                self._replica.sync(partition, timeout_ms=self._timeout_ms)
            store = self._replica.store(partition)
            found = store.stored_events(session_id, after_seq=after_seq)
            return list(islice(found, FOLLOW_MAX_EVENTS))

    def sessions(
        self,
        *,
        tenant: str | None = None,
        status: str | None = None,
        limit: int = 100,
        before: ListPlace | None = None,
    ) -> list[SessionSummary]:
        """Sessions, the most recently active first."""
        return self.listing(
            Listing(tenant=tenant, status=status, limit=limit, before=before)
        )

    def listing(self, listing: Listing) -> list[SessionSummary]:
        """Sessions that are asked for, the most recently active first."""
        found: list[SessionSummary] = []
        for store in self._all():
            with self._shelter(store):
                found += store.sessions(listing)
        return sorted(found, key=order_of, reverse=True)[: listing.limit]

    def stored_sessions(
        self, *, after: str = "", parent: str | None = None
    ) -> Iterator[StoredSession]:
        """The index, in the order of the session ids."""
        ways = [
            self._sheltered(store, store.stored_sessions(after=after, parent=parent))
            for store in self._all()
        ]
        return heapq.merge(*ways, key=attrgetter("session_id"))

    def stored_snapshots(self, session_id: str) -> Iterator[StoredSnapshot]:
        """The snapshots of a session, the oldest first."""
        partition = self._partition(session_id)
        if partition is None:
            return iter(())
        store = self._replica.sync(partition, timeout_ms=self._timeout_ms)
        return self._sheltered(store, store.stored_snapshots(session_id))

    def inspect(self) -> Iterator[Problem]:
        """What is wrong with the stores, and which partitions are read no further."""
        for progress in self._replica.progress():
            if progress.problem:
                where = f"partition {progress.partition}"
                yield Problem("", 0, f"{where}: {progress.problem}")
        for store in self._replica.begun():
            yield from store.inspect()

    def warm_up(self) -> None:
        """Connect to the brokers that lead the partitions."""
        self._replica.connect()

    def close(self) -> None:
        """Let go of the replica."""
        self._replica.close()

    def _partition(self, session_id: str) -> int | None:
        """The partition of a session; None for what is no session's id."""
        try:
            return self._replica.partition_of(session_id)
        except ValueError:  # empty, or no UTF-8
            return None

    def _current(
        self, partition: int, session_id: str, upto_seq: int | None, min_seq: int
    ) -> EventStore:
        """The store of a partition, as new as a read up to a seq needs it."""
        replica = self._replica
        store = replica.store(partition)
        with self._shelter(store):
            if upto_seq is not None:
                head = store.head(session_id)
                if head is not None and head.seq >= max(upto_seq, min_seq):
                    return store
            store = replica.sync(partition, timeout_ms=self._timeout_ms)
            if min_seq and not replica.wait(
                session_id, seq=min_seq, timeout_ms=self._timeout_ms
            ):
                reason = f"session {session_id!r} has not come to seq {min_seq}"
                raise ReadUnavailableError(replica.url, reason)
            return store

    def _all(self) -> list[EventStore]:
        return self._replica.sync_all(timeout_ms=self._timeout_ms)

    def _sheltered(self, store: EventStore, found: Iterator[_Row]) -> Iterator[_Row]:
        with self._shelter(store):
            yield from found

    @contextmanager
    def _shelter(self, store: EventStore) -> Generator[None]:
        """Set a store aside that turns out to be damaged while it is read."""
        try:
            yield
        except ReadUnavailableError:
            raise
        except LogUnavailableError as error:  # closed meanwhile, to be built anew
            raise ReadUnavailableError(self._replica.url, error.reason) from error
        except TableCorruptError as error:
            self._replica.set_aside(store, error)
            reason = f"{error}; it is built anew"
            raise ReadUnavailableError(self._replica.url, reason) from error
