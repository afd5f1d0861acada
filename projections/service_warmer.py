"""Keeps the next contexts of live sessions warm, as their events come in.

A thread beside the replica's own. It is told which sessions have new events, and brings
each up to what is in the node's store, without asking a broker:

1. It begins once the node is caught up, with the sessions that were active last: what a
   node had in memory when it was killed is here again before long.
2. Sessions wait in the order of their last change, each once, so a burst of events is
   taken in at once. At most `warm_sessions` wait; those that changed longest ago leave.
3. It works `WORK_SHARE` of the time at the most: reads that somebody waits for come first.

A session that it has not come to yet is read when it is asked for.
"""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable

from foldline.errors import FoldlineError
from foldline.processors.log import Log
from foldline.projections.service_warm import WarmContexts
from foldline.schemas.state import SessionState
from foldline.settings import Settings

WORK_SHARE = 0.2
"""How much of its thread's time it works at the most."""

LOOK_S = 0.2
"""How often it looks whether the node is caught up."""

_logger = logging.getLogger("foldline.service")

AtHand = Callable[[str], SessionState | None]
"""The state of a session as the store has it now; asks nobody."""


class Warmer:
    """The thread of one node. `told` may be called from any other."""

    def __init__(self, contexts: WarmContexts, log: Log, *, settings: Settings) -> None:
        self._contexts = contexts
        self._log = log
        self._most = settings.warm_sessions
        self._due: OrderedDict[str, None] = OrderedDict()
        self._more = threading.Condition()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def told(self, sessions: Iterable[str]) -> None:
        """Say that sessions have new events."""
        with self._more:
            for session_id in sessions:
                self._due[session_id] = None
                self._due.move_to_end(session_id)
            while len(self._due) > self._most:
                self._due.popitem(last=False)
            self._more.notify()

    def start(self, at_hand: AtHand, *, is_ready: Callable[[], bool]) -> None:
        """Begin, as soon as the node is caught up."""
        if self._most:
            self._thread = threading.Thread(
                target=self._run,
                args=(at_hand, is_ready),
                name="foldline-warmer",
                daemon=True,
            )
            self._thread.start()

    def _run(self, at_hand: AtHand, is_ready: Callable[[], bool]) -> None:
        while not is_ready():
            if self._closing.wait(LOOK_S):
                return
        self._remember()
        while (session_id := self._next()) is not None:
            began_s = time.monotonic()
            self._warm(session_id, at_hand)
            worked_s = time.monotonic() - began_s
            self._closing.wait(worked_s / WORK_SHARE - worked_s)

    def _remember(self) -> None:
        """1. Begin with the sessions that were active last."""
        try:
            recent = self._log.sessions(limit=self._most)
        except FoldlineError as error:
            _logger.warning("no session is kept warm before it changes: %s", error)
            return
        with self._more:
            since = list(self._due)
        self.told([*(summary.session_id for summary in reversed(recent)), *since])

    def _next(self) -> str | None:
        """The session that waits longest; None when it is to end."""
        with self._more:
            self._more.wait_for(lambda: self._due or self._closing.is_set())
            if self._closing.is_set():
                return None
            return self._due.popitem(last=False)[0]

    def _warm(self, session_id: str, at_hand: AtHand) -> None:
        try:
            state = at_hand(session_id)
            if state is not None:
                self._contexts.tend(state)
        except FoldlineError as error:  # whoever asks for it will be told
            _logger.debug("session %r is not kept warm: %s", session_id, error)

    def close(self) -> None:
        """End the thread."""
        self._closing.set()
        with self._more:
            self._more.notify()
        if self._thread is not None:
            self._thread.join()
