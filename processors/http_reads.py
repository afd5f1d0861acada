"""Reads through the read service: what a log reads whose appends go another way."""

import threading
import time
from collections.abc import Iterator
from typing import Any, cast

import httpx2

from foldline.errors import (
    AnotherNodeError,
    LogUnavailableError,
    RefusedRequestError,
    SessionTruncatedError,
)
from foldline.processors.fold import initial, replay
from foldline.processors.http_calls import Calls, Params
from foldline.processors.http_wire import (
    EVENTS,
    INDEX,
    INT64_MAX,
    MORE,
    SNAPSHOTS,
    SOURCES,
    STATE,
    WireSources,
    list_cursor,
    path_part,
    unpack_events,
    unpack_index,
    unpack_snapshots,
    unpack_sources,
)
from foldline.processors.log import FOLLOW_MAX_EVENTS, ListPlace, SessionSummary
from foldline.processors.stored import (
    Problem,
    StoredEvent,
    StoredSession,
    StoredSnapshot,
)
from foldline.schemas.codec import Codec
from foldline.schemas.snapshots import decode_snapshot
from foldline.schemas.state import SessionState
from foldline.settings import Settings

JSON = "application/json"

PAGE_EVENTS = 1_000
"""How many events one page holds; the service may end it before."""

POLL_MS = 3_000
"""How long one request waits for the next event; then it is made again. Closing the log
is heard in between."""

LISTED_MAX = 1_000
"""How many sessions one page lists."""


class HttpSchemas:
    """The schemas of a service's log, by its ids; what was fetched once is kept."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._texts: dict[int, str] = {}
        self._lock = threading.Lock()

    def schema_of(self, schema_id: int) -> str:
        """The schema as JSON text; KeyError where the id is unknown."""
        text = self._texts.get(schema_id)
        if text is None:
            answer = self._calls.get(f"/schemas/{schema_id}", accept=JSON)
            if answer is None:
                raise KeyError(schema_id)
            text = answer.text
            with self._lock:
                self._texts[schema_id] = text
        return text

    def fetch_all(self) -> list[int]:
        """Fetch what was asked for at the service before; gives the ids."""
        answer = self._calls.get("/schemas", accept=JSON)
        found = cast("dict[str, str]", answer.json()) if answer is not None else {}
        with self._lock:
            self._texts |= {int(number): text for number, text in found.items()}
            return sorted(self._texts)


class HttpReads:
    """The reading half of a log behind a service.

    The service's own reads are as new as what was recorded when it was asked, so are
    these. `min_seq` goes to the service as it is.
    """

    def __init__(self, url: str, *, settings: Settings, calls: Calls | None = None) -> None:
        self.calls = calls or Calls(url, settings=settings)
        self.schemas = HttpSchemas(self.calls)
        self.codec = Codec(self.schemas)
        self._read_ms = settings.read_wait_ms

    def stored_events(
        self,
        session_id: str,
        *,
        after_seq: int = 0,
        upto_seq: int | None = None,
        min_seq: int = 0,
    ) -> Iterator[StoredEvent]:
        """Events with after_seq < seq <= upto_seq, undecoded, in order, page by page."""
        more = after_seq < INT64_MAX
        while more:
            params: dict[str, str | int] = {"after_seq": after_seq, "limit": PAGE_EVENTS}
            if upto_seq is not None:
                params["upto_seq"] = max(min(upto_seq, INT64_MAX), -1)
            if min_seq:  # the first page only: what was there once stays
                params["min_seq"] = min_seq
            wait_ms = self._read_ms if min_seq else 0
            answer = self._events(session_id, params, wait_ms=wait_ms)
            if answer is None:
                return
            min_seq = 0
            more = MORE in answer.headers
            for event in unpack_events(answer.content):
                yield event
                after_seq = event.seq

    def _events(
        self, session_id: str, params: Params, *, wait_ms: int = 0
    ) -> httpx2.Response | None:
        path = f"/sessions/{path_part(session_id)}/events"
        return self.calls.get(path, params, accept=EVENTS, wait_ms=wait_ms)

    def state(
        self, session_id: str, *, at_seq: int | None = None, min_seq: int = 0
    ) -> SessionState | None:
        """The state at the head, or as it was at a seq. The caller may keep it."""
        params: dict[str, str | int] = {"min_seq": min_seq} if min_seq else {}
        if at_seq is not None:
            if not 0 < at_seq <= INT64_MAX:
                return None
            params["at_seq"] = at_seq
        path = f"/sessions/{path_part(session_id)}/state"
        wait_ms = self._read_ms if min_seq else 0
        answer = self.calls.get(path, params, accept=STATE, wait_ms=wait_ms)
        if answer is None:
            return None
        state = decode_snapshot(answer.content)
        # A service whose fold is of another version: this one folds for itself.
        return state or self._folded(session_id, at_seq)

    def sources(self, session_id: str, *, min_seq: int = 0) -> WireSources | None:
        """What the next context is built from, in one piece; None: read it in parts.

        So it is also where the service will not, or cannot, say it at once: one of
        before, or an ancestor at another node. The parts then say what is the matter.
        """
        path = f"/sessions/{path_part(session_id)}/context/sources"
        params = {"min_seq": min_seq}
        try:
            answer = self.calls.get(path, params, accept=SOURCES, wait_ms=self._read_ms)
        except (AnotherNodeError, RefusedRequestError, SessionTruncatedError):
            return None
        return None if answer is None else unpack_sources(answer.content)

    def _folded(self, session_id: str, at_seq: int | None) -> SessionState | None:
        events = self.stored_events(session_id, upto_seq=at_seq)
        decode = self.codec.decode_structure
        state = replay(
            initial(session_id), (decode(event.schema_id, event.body) for event in events)
        )
        return state if state.seq else None

    def follow(
        self, session_id: str, *, after_seq: int, timeout_ms: int
    ) -> list[StoredEvent]:
        """The next events after a seq, at most FOLLOW_MAX_EVENTS, waiting for the first."""
        until_s = time.monotonic() + timeout_ms / 1000
        after_seq = min(after_seq, INT64_MAX)
        while True:
            left_ms = max(int((until_s - time.monotonic()) * 1000), 0)
            wait_ms = min(left_ms, POLL_MS)
            params = {
                "after_seq": after_seq,
                "limit": FOLLOW_MAX_EVENTS,
                "wait_ms": wait_ms,
            }
            try:
                answer = self._events(session_id, params, wait_ms=wait_ms)
            except LogUnavailableError:
                if self.calls.closed:
                    return []  # who follows is let go when its log is closed
                raise
            found = list(unpack_events(answer.content)) if answer is not None else []
            if found or left_ms == 0 or self.calls.closed:
                return found

    def sessions(
        self,
        *,
        tenant: str | None = None,
        status: str | None = None,
        limit: int = 100,
        before: ListPlace | None = None,
    ) -> list[SessionSummary]:
        """Sessions of the token's tenant, the most recently active first."""
        listed: list[SessionSummary] = []
        cursor = list_cursor(before) if before else ""
        while len(listed) < limit:
            params: dict[str, str | int] = {"limit": min(limit - len(listed), LISTED_MAX)}
            params |= {"cursor": cursor} if cursor else {}
            params |= {"status": status} if status is not None else {}
            answer = self.calls.get("/sessions", params, accept=JSON)
            page = cast("dict[str, Any]", answer.json()) if answer is not None else {}
            listed.extend(_summary_of(row) for row in page.get("sessions", ()))
            cursor = page.get("cursor") or ""
            if not cursor:
                break
        return [row for row in listed if tenant in (None, row.tenant)]

    def stored_sessions(
        self, *, after: str = "", parent: str | None = None
    ) -> Iterator[StoredSession]:
        """The index, in the order of the session ids: the token's tenant."""
        more = True
        while more:
            params = {"after": after} | ({} if parent is None else {"parent": parent})
            answer = self.calls.get("/stored/sessions", params, accept=INDEX)
            if answer is None:
                return
            rows = unpack_index(answer.content)
            yield from rows
            more = bool(rows) and MORE in answer.headers
            after = rows[-1].session_id if rows else ""

    def stored_snapshots(self, session_id: str) -> Iterator[StoredSnapshot]:
        """The snapshots of a session, the oldest first."""
        path = f"/sessions/{path_part(session_id)}/snapshots"
        answer = self.calls.get(path, accept=SNAPSHOTS)
        yield from unpack_snapshots(answer.content) if answer is not None else ()

    def inspect(self) -> Iterator[Problem]:
        """What is wrong with the store beneath, where the token may ask (scope admin)."""
        answer = self.calls.get("/admin/problems", accept=JSON)
        found = cast("list[dict[str, Any]]", answer.json()) if answer is not None else []
        for row in found:
            yield Problem(row["session_id"], row["seq"], row["reason"])

    def warm_up(self) -> None:
        """Connect, and work out how to read what others have read there."""
        self.codec.warm_up(self.schemas.fetch_all())

    def close(self) -> None:
        """Let go of the connections."""
        self.calls.close()


def _summary_of(row: dict[str, Any]) -> SessionSummary:
    return SessionSummary(
        session_id=row["session_id"],
        tenant=row["tenant"],
        agent=row["agent"],
        mode=row["mode"],
        status=row["status"],
        seq=row["seq"],
        epoch=row["epoch"],
        owner=row["owner"],
        parent_session_id=row["parent_session_id"],
        created_at=row["created_at_us"] or 0,
        recorded_at=row["recorded_at_us"] or 0,
    )
