"""What one client shares among its sessions: the log, its threads, who writes."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ParamSpec, TypeVar

from foldline.processors.log import Log
from foldline.producers.appender import Appender, Limits
from foldline.producers.identity import Clock, fresh_id
from foldline.producers.kept_blobs import KeptBlobs
from foldline.producers.lease import LeaseKeeper
from foldline.producers.prepare import Draft, Preparer
from foldline.schemas.envelope import Actor, Envelope
from foldline.schemas.events import KnownEvent
from foldline.schemas.recorded import Recorded
from foldline.settings import Settings

P = ParamSpec("P")
T = TypeVar("T")

READERS_MAX = 8
"""How many reads of one client go on at once."""

FOLLOWERS_MAX = 16
"""How many sessions one client looks at for new events at once; others wait their turn."""

FOLLOW_MS = 250
"""How long one look for new events waits; then it is asked again, or given up."""


class Threads(ThreadPoolExecutor):
    """Threads of a client; who asks after its end is told what has ended."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run something in one of the threads."""
        try:
            return super().submit(fn, *args, **kwargs)
        except RuntimeError as error:
            msg = "the client is closed; connect again, and open or take the session"
            raise RuntimeError(msg) from error


@dataclass(frozen=True, slots=True)
class Stamp:
    """Who appends something, in which epoch, and what it belongs to."""

    actor: Actor
    epoch: int = 0
    turn_id: str | None = None
    batch_id: str | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """A client's way to its log. `writer` is new for each process and client."""

    log: Log
    writer: str
    tenant: str
    actor: Actor
    settings: Settings
    preparer: Preparer
    keeper: LeaseKeeper
    clock: Clock
    lane: Threads
    readers: Threads
    followers: Threads
    images: KeptBlobs = field(default_factory=KeptBlobs)

    def of(self, tenant: str) -> "Link":
        """The same way, to a tenant's sessions: what is appended there is that tenant's."""
        return self if tenant == self.tenant else replace(self, tenant=tenant)

    def appender(self, session_id: str, known_seq: int) -> Appender:
        """A way of appends to one session."""
        settings = self.settings
        return Appender(
            session_id,
            log=self.log,
            lane=self.lane,
            preparer=self.preparer,
            limits=Limits(settings.inflight_max, settings.resend_max),
            known_seq=known_seq,
        )

    async def read(
        self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run something that blocks on the log in a thread for reads."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.readers, partial(function, *args, **kwargs))

    async def follow(self, session_id: str, *, after_seq: int) -> list[Recorded]:
        """The next events of a session; none where none comes for a moment.

        In threads of their own: who waits here keeps nobody from reading.
        """
        wait = partial(
            self.log.follow, session_id, after_seq=after_seq, timeout_ms=FOLLOW_MS
        )
        return await asyncio.get_running_loop().run_in_executor(self.followers, wait)

    def draft(
        self,
        session_id: str,
        event: KnownEvent,
        stamp: Stamp,
        *,
        event_id: str | None = None,
        expected_seq: int | None = None,
        requires: tuple[str, ...] = (),
    ) -> Draft:
        """An event as this writer appends it, under a fresh id unless one is given."""
        envelope = Envelope(
            event_id=event_id or fresh_id(),
            session_id=session_id,
            tenant=self.tenant,
            occurred_at=self.clock(),
            writer=self.writer,
            epoch=stamp.epoch,
            actor=stamp.actor,
            turn_id=stamp.turn_id,
            batch_id=stamp.batch_id,
        )
        return Draft(
            envelope, event, expected_seq, requires, sent_before=event_id is not None
        )
