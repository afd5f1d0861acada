"""Who waits for events of which session: many waiters, one thread that looks.

A stream that waited in a thread of its own would cost a thread each. Here all of them
wait in the event loop, and one look goes over the sessions that somebody waits for, as
often as `LOOKS_PER_S` allows: with few sessions every few milliseconds.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from foldline.processors.log import Log
from foldline.projections.service_limits import Lane
from foldline.schemas.recorded import Recorded

LOOK_EVERY_MS = 20
"""How often waiters look for what other processes appended, with few sessions."""

LOOKS_PER_S = 2_000
"""How many sessions are looked at in a second, at most."""

Found = Sequence[Recorded]


@dataclass(eq=False, slots=True)
class _Waiter:
    session_id: str
    after_seq: int
    answer: "asyncio.Future[Found]"


@dataclass(slots=True)
class Hub:
    """The waiters of one service. Everything but the look runs in the event loop."""

    log: Log
    lane: Lane
    waiters: dict[str, set[_Waiter]] = field(default_factory=dict[str, set[_Waiter]])
    poked: asyncio.Event = field(default_factory=asyncio.Event)
    looking: "asyncio.Task[None] | None" = None
    stopping: bool = False

    async def wait(self, session_id: str, *, after_seq: int, timeout_ms: int) -> Found:
        """The next events after a seq; none after the time-out, or when it all stops.

        Raises:
            FoldlineError: whatever the log says instead.
        """
        if self.stopping or timeout_ms <= 0:
            return ()
        waiter = _Waiter(session_id, after_seq, asyncio.get_running_loop().create_future())
        self.waiters.setdefault(session_id, set()).add(waiter)
        if self.looking is None or self.looking.done():
            self.looking = asyncio.create_task(self._look_on())
        try:
            return await asyncio.wait_for(waiter.answer, timeout_ms / 1000)
        except TimeoutError:
            return ()
        finally:
            self._forget(waiter)

    def poke(self) -> None:
        """Look now: something was appended here."""
        self.poked.set()

    def stop(self) -> None:
        """Let everybody go who waits."""
        self.stopping = True
        for session_id in self.waiters:
            for waiter in self.waiters[session_id]:
                _answer(waiter, ())

    def _forget(self, waiter: _Waiter) -> None:
        waiting = self.waiters[waiter.session_id]
        waiting.discard(waiter)
        if not waiting:
            del self.waiters[waiter.session_id]

    async def _look_on(self) -> None:
        """Look as long as somebody waits."""
        while self.waiters:
            self.poked.clear()
            wanted = self._wanted()
            await self.lane.run(self._look, wanted, asyncio.get_running_loop())
            pause_s = max(LOOK_EVERY_MS / 1000, len(wanted) / LOOKS_PER_S)
            with suppress(TimeoutError):
                await asyncio.wait_for(self.poked.wait(), pause_s)

    def _wanted(self) -> dict[str, int]:
        """The sessions that are waited for, with the lowest seq that somebody has."""
        return {
            session_id: min(waiter.after_seq for waiter in waiting)
            for session_id, waiting in self.waiters.items()
        }

    def _look(self, wanted: dict[str, int], loop: asyncio.AbstractEventLoop) -> None:
        """Look at each session, in a thread, and hand over at once what is found."""
        for session_id, after_seq in wanted.items():
            try:
                found = self.log.follow(session_id, after_seq=after_seq, timeout_ms=0)
            except Exception as error:  # noqa: BLE001 - one session's trouble is not all of theirs
                loop.call_soon_threadsafe(self._fail, session_id, error)
            else:
                if found:
                    loop.call_soon_threadsafe(self._hand_over, session_id, after_seq, found)

    def _hand_over(self, session_id: str, after_seq: int, found: Found) -> None:
        """Give each waiter what it has not seen, so that none of it is left out.

        Who came during the look and has seen less than was looked for waits for the
        next one: what was found begins too late for it.
        """
        for waiter in self.waiters.get(session_id, ()):
            if waiter.after_seq < after_seq:
                continue
            new = [recorded for recorded in found if recorded.seq > waiter.after_seq]
            if new:
                _answer(waiter, new)

    def _fail(self, session_id: str, error: Exception) -> None:
        for waiter in self.waiters.get(session_id, ()):
            if not waiter.answer.done():
                waiter.answer.set_exception(error)


def _answer(waiter: _Waiter, found: Found) -> None:
    if not waiter.answer.done():
        waiter.answer.set_result(found)
