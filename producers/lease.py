"""The leases that one client holds, renewed by a thread of their own.

A thread and not a task: an event loop that some tool keeps busy is still a live owner.
A process that is frozen or dead renews nothing, and its leases run out.
"""

import threading

from foldline.errors import LogUnavailableError
from foldline.processors.log import Leases


class LeaseKeeper:
    """Renews leases until they are dropped."""

    def __init__(self, leases: Leases, *, ttl_ms: int, renew_ms: int) -> None:
        self._leases = leases
        self._ttl_ms = ttl_ms
        self._renew_ms = renew_ms
        self._held: dict[str, tuple[int, str]] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def hold(self, session_id: str, *, epoch: int, writer: str) -> None:
        """Take a lease now, and renew it from here on. Blocks on the log."""
        with self._lock:
            self._held[session_id] = (epoch, writer)
            self._start()
        self._renew(session_id, epoch, writer)

    def drop(self, session_id: str) -> None:
        """Renew a lease no more; it runs out by itself (another owner has taken over)."""
        with self._lock:
            self._held.pop(session_id, None)

    def release(self, session_id: str) -> None:
        """Give a lease up at once. Blocks on the log."""
        with self._lock:
            held = self._held.pop(session_id, None)
        if held is not None:
            epoch, writer = held
            self._leases.release(session_id, epoch=epoch, writer=writer)

    def close(self) -> None:
        """Give every lease up and end the thread. Blocks on the log."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
        for session_id in list(self._held):
            self.release(session_id)

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name="foldline-leases", daemon=True
            )
            self._thread.start()

    def _run(self) -> None:
        while not self._stopped.wait(self._renew_ms / 1000):
            with self._lock:
                held = list(self._held.items())
            for session_id, (epoch, writer) in held:
                self._renew(session_id, epoch, writer)

    def _renew(self, session_id: str, epoch: int, writer: str) -> None:
        try:
            self._leases.renew(session_id, epoch=epoch, writer=writer, ttl_ms=self._ttl_ms)
        except LogUnavailableError:
            return  # the next tick tries again; a lease that runs out fences nobody
