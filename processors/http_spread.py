"""Reads through several nodes of the read service, each of which serves some partitions.

A session's partition is computed here as everywhere, and its node is asked at once:

1. Which node serves which partitions is on each one's `/readyz`; it is asked when it is
   needed first, and again when a node says that a session is another one's.
2. Nodes of the same partition are replicas: where one does not answer, the next is asked.
3. What goes over all sessions asks every node, or those without trouble where these have
   it all; while a partition has none that answers, it is refused rather than answered
   without it.
"""

import heapq
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, TypeVar

from foldline.errors import AnotherNodeError, LogUnavailableError, ReadUnavailableError
from foldline.processors.http_reads import HttpReads
from foldline.processors.http_wire import WireSources
from foldline.processors.log import ListPlace, SessionSummary, order_of
from foldline.processors.stored import (
    Problem,
    StoredEvent,
    StoredSession,
    StoredSnapshot,
)
from foldline.schemas.state import SessionState
from foldline.settings import Settings
from foldline.topics import partition_for

_T = TypeVar("_T")


def urls_of(text: str) -> list[str]:
    """The addresses of a setting, which commas separate."""
    return [url.strip() for url in text.split(",") if url.strip()]


class SpreadReads:
    """The reading half of a log whose partitions several nodes serve.

    Raises (each): LogUnavailableError where no node of the partition answers.
    """

    def __init__(self, urls: Sequence[str], *, settings: Settings, partitions: int) -> None:
        self._nodes = [HttpReads(url, settings=settings) for url in urls]
        self._partitions = partitions
        self._lock = threading.Lock()
        self._places: dict[int, list[HttpReads]] = {}
        self._sound: list[HttpReads] = []

    # --- one session -----------------------------------------------------------------

    def stored_events(
        self,
        session_id: str,
        *,
        after_seq: int = 0,
        upto_seq: int | None = None,
        min_seq: int = 0,
    ) -> Iterator[StoredEvent]:
        """Events with after_seq < seq <= upto_seq, undecoded, in order."""

        def begun(node: HttpReads) -> Iterator[StoredEvent]:
            found = node.stored_events(
                session_id, after_seq=after_seq, upto_seq=upto_seq, min_seq=min_seq
            )
            first = next(found, None)  # only now the node is asked
            return iter(()) if first is None else chain((first,), found)

        return self._ask(session_id, begun)

    def state(
        self, session_id: str, *, at_seq: int | None = None, min_seq: int = 0
    ) -> SessionState | None:
        """The state at the head, or as it was at a seq. The caller may keep it."""
        return self._ask(
            session_id,
            lambda node: node.state(session_id, at_seq=at_seq, min_seq=min_seq),
        )

    def sources(self, session_id: str, *, min_seq: int = 0) -> WireSources | None:
        """What the next context is built from, in one piece; None: read it in parts."""
        return self._ask(session_id, lambda node: node.sources(session_id, min_seq=min_seq))

    def follow(
        self, session_id: str, *, after_seq: int, timeout_ms: int
    ) -> list[StoredEvent]:
        """The next events after a seq, at most FOLLOW_MAX_EVENTS, waiting for the first."""
        return self._ask(
            session_id,
            lambda node: node.follow(
                session_id, after_seq=after_seq, timeout_ms=timeout_ms
            ),
        )

    def stored_snapshots(self, session_id: str) -> Iterator[StoredSnapshot]:
        """The snapshots of a session, the oldest first."""
        found = self._ask(session_id, lambda node: list(node.stored_snapshots(session_id)))
        return iter(found)

    def _ask(self, session_id: str, question: Callable[[HttpReads], _T]) -> _T:
        """What a node of the session's partition answers.

        Raises:
            LogUnavailableError: none does.
        """
        partition = partition_for(session_id, self._partitions)
        places = self._places.get(partition) or self._look().get(partition, [])
        try:
            return self._first(partition, places, question)
        except AnotherNodeError:  # nodes were given other partitions meanwhile
            places = self._look().get(partition, [])
            return self._first(partition, places, question)

    def _first(
        self, partition: int, places: list[HttpReads], question: Callable[[HttpReads], _T]
    ) -> _T:
        failure: LogUnavailableError = self._nobody([partition])
        for node in places:
            try:
                return question(node)
            except LogUnavailableError as error:
                failure = error
                with self._lock:
                    self._places.pop(partition, None)  # the next one looks anew
        raise failure

    # --- all sessions ----------------------------------------------------------------

    def sessions(
        self,
        *,
        tenant: str | None = None,
        status: str | None = None,
        limit: int = 100,
        before: ListPlace | None = None,
    ) -> list[SessionSummary]:
        """Sessions of the token's tenant, the most recently active first."""
        newest: dict[str, SessionSummary] = {}
        for node in self._everybody():
            for row in node.sessions(
                tenant=tenant, status=status, limit=limit, before=before
            ):
                held = newest.get(row.session_id)
                if held is None or row.seq > held.seq:
                    newest[row.session_id] = row
        return heapq.nlargest(limit, newest.values(), key=order_of)

    def stored_sessions(
        self, *, after: str = "", parent: str | None = None
    ) -> Iterator[StoredSession]:
        """The index, in the order of the session ids: the token's tenant."""
        rows = [
            node.stored_sessions(after=after, parent=parent) for node in self._everybody()
        ]
        last = ""
        for row in heapq.merge(*rows, key=lambda row: row.session_id):
            if row.session_id != last:  # replicas have the same
                yield row
            last = row.session_id

    def inspect(self) -> Iterator[Problem]:
        """What is wrong with the stores beneath, where the token may ask (scope admin)."""
        for node in self._everybody():
            yield from node.inspect()

    def _everybody(self) -> list[HttpReads]:
        """Nodes that have all partitions together.

        Raises:
            ReadUnavailableError: none that answers serves some of them.
        """
        places = self._look()
        missing = [p for p in range(self._partitions) if p not in places]
        if missing:
            raise self._nobody(missing)
        sound = {p: [n for n in found if n in self._sound] for p, found in places.items()}
        chosen = sound if all(sound.values()) else places
        return [n for n in self._nodes if any(n in found for found in chosen.values())]

    # --- who serves what -------------------------------------------------------------

    def _look(self) -> dict[int, list[HttpReads]]:
        """Ask each node what it serves; those that can answer come first."""
        ready: dict[int, list[HttpReads]] = {}
        behind: dict[int, list[HttpReads]] = {}
        for node in self._nodes:
            try:
                standings = node.calls.standings()
            except LogUnavailableError:
                continue  # another one may serve the same
            for standing in standings or self._whole():
                there = ready if _is_sound(standing) else behind
                there.setdefault(int(standing["partition"]), []).append(node)
        places = {p: ready.get(p, []) + behind.get(p, []) for p in {*ready, *behind}}
        doubtful = [node for found in behind.values() for node in found]
        with self._lock:
            self._places = places
            self._sound = [node for node in self._nodes if node not in doubtful]
        return places

    def _whole(self) -> list[dict[str, Any]]:
        """The standings of a node without partitions of its own: it has all there is."""
        return [{"partition": p, "caught_up": True} for p in range(self._partitions)]

    def _nobody(self, partitions: Sequence[int]) -> ReadUnavailableError:
        listed = ", ".join(str(partition) for partition in partitions)
        urls = ", ".join(node.calls.url for node in self._nodes)
        return ReadUnavailableError(urls, f"no node that answers serves {listed}")

    def warm_up(self) -> None:
        """Connect to each node that answers, and work out how to read what it has."""
        for node in self._everybody():
            node.warm_up()

    def close(self) -> None:
        """Let go of the connections."""
        for node in self._nodes:
            node.close()


def _is_sound(standing: dict[str, Any]) -> bool:
    """Whether a node can answer reads of a partition: it was read, and nothing is wrong."""
    return bool(standing["caught_up"]) and not standing.get("problem")
