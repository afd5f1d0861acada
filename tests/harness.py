"""A small harness for tests: a log that fails on demand, a model with one answer."""

import asyncio
import threading
from collections.abc import Iterator, Sequence

from foldline.errors import LogUnavailableError, UncertainAppendError
from foldline.processors.blobs import BlobStore
from foldline.processors.log import Leases, ListPlace, Log, SessionSummary
from foldline.processors.memory_log import MemoryLog
from foldline.producers.client import Client, connect
from foldline.producers.identity import Clock, wall_clock
from foldline.producers.model import ModelResponse, ToolRequest
from foldline.producers.session import OwnedSession
from foldline.producers.tools import PendingCall, Toolbox, ToolResult
from foldline.producers.turn import Turn
from foldline.schemas.recorded import Append, Recorded
from foldline.schemas.state import SessionState
from foldline.schemas.verdicts import Verdict
from foldline.settings import Settings

HANGS_AFTER_S = 120
QUICK = Settings(lease_ttl_ms=60_000, resend_max=3)
"""Settings for a test: few resends, a lease that does not run out meanwhile."""


class FaultyLog:
    """A log that is a real one, but for the answers that it is told to lose."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._lock = threading.Lock()
        self.batches: list[list[Append]] = []
        self.lose_before = 0
        """How many of the next appends are not recorded and not answered."""
        self.uncertain = False
        """Whether it does not even say that they are not recorded."""
        self.lose_after = 0
        """How many of the next appends are recorded and not answered."""
        self.lose_types: frozenset[str] = frozenset()
        """Batches that hold one of these types are not recorded, as long as this says."""

    @property
    def url(self) -> str:
        return self._log.url

    @property
    def leases(self) -> Leases:
        return self._log.leases

    @property
    def blobs(self) -> BlobStore:
        return self._log.blobs

    def append(self, appends: Sequence[Append]) -> list[Verdict]:
        with self._lock:
            self.batches.append(list(appends))
            lost = bool(self.lose_types & {append.schema_name for append in appends})
            if lost or self.lose_before:
                self.lose_before = max(self.lose_before - 1, 0)
                kind = UncertainAppendError if self.uncertain else LogUnavailableError
                raise kind(self.url, "told to lose it before")
            verdicts = self._log.append(appends)
            if self.lose_after:
                self.lose_after -= 1
                raise UncertainAppendError(self.url, "told to lose the answer")
            return verdicts

    def events(
        self, session_id: str, *, after_seq: int = 0, upto_seq: int | None = None
    ) -> Iterator[Recorded]:
        return self._log.events(session_id, after_seq=after_seq, upto_seq=upto_seq)

    def structure(
        self, session_id: str, *, after_seq: int = 0, upto_seq: int | None = None
    ) -> Iterator[Recorded]:
        return self._log.structure(session_id, after_seq=after_seq, upto_seq=upto_seq)

    def event_ids(self, session_id: str) -> Iterator[str]:
        return self._log.event_ids(session_id)

    def state(self, session_id: str, *, at_seq: int | None = None) -> SessionState | None:
        return self._log.state(session_id, at_seq=at_seq)

    def follow(self, session_id: str, *, after_seq: int, timeout_ms: int) -> list[Recorded]:
        return self._log.follow(session_id, after_seq=after_seq, timeout_ms=timeout_ms)

    def sessions(
        self,
        *,
        tenant: str | None = None,
        status: str | None = None,
        limit: int = 100,
        before: ListPlace | None = None,
    ) -> list[SessionSummary]:
        return self._log.sessions(tenant=tenant, status=status, limit=limit, before=before)

    def warm_up(self) -> None:
        self._log.warm_up()

    def close(self) -> None:
        self._log.close()


def memory(clock: Clock = wall_clock) -> FaultyLog:
    """A log in memory that loses nothing until it is told to."""
    return FaultyLog(MemoryLog(settings=QUICK, clock=clock))


def client(log: Log, settings: Settings = QUICK) -> Client:
    """A client of a log; enter it."""
    return connect(log, settings=settings)


async def model_says(
    turn: Turn, *requests: ToolRequest, words: str = ""
) -> list[PendingCall]:
    """One model call with this answer; gives the calls it asks for."""
    async with turn.model_call(await turn.context(), model="x", provider="p") as call:
        return await call.complete(ModelResponse.of(words, *requests))


async def one_turn(
    owned: OwnedSession, toolbox: Toolbox, *requests: ToolRequest
) -> list[ToolResult]:
    """A whole turn with one model call."""
    async with owned.turn("go") as turn:
        return await turn.run_tools(await model_says(turn, *requests), toolbox)


async def types_in(owned: OwnedSession) -> list[str]:
    """The types of all events, in order."""
    return [recorded.type async for recorded in owned.events()]


async def count(owned: OwnedSession, event_type: str) -> int:
    """How many events of a type there are."""
    return (await types_in(owned)).count(event_type)


async def until(owned: OwnedSession, event_type: str, times: int = 1) -> None:
    """Wait until so many events of a type are in the log; a test must not hang."""
    async with asyncio.timeout(HANGS_AFTER_S):
        async for recorded in owned.follow():
            times -= recorded.type == event_type
            if not times:
                return
