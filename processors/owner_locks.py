"""One locked file per living writer: the kernel says who is dead.

The lock (`flock`) belongs to the open file, so it must not be shared with a child: the
file is closed on exec by default, and in a forked child by a hook. A lock file of a
dead writer is removed by whoever opens the log next.
"""

import contextlib
import fcntl
import hashlib
import os
import threading
import time
from pathlib import Path

from foldline.places import OWN_FILE, make_private
from foldline.processors.file_lock import forget_when_forked, is_at, try_lock

HOLD_TRIES = 50
HOLD_WAIT_S = 0.01
"""Who looks whether a writer lives holds its lock for a moment: try again."""


class OwnerLocks:
    """The lock files of one log, as this process holds and sees them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._held: dict[str, int] = {}
        self._swept = False
        forget_when_forked(self)

    def hold(self, writer: str) -> bool:
        """Hold a writer's lock until `close`; False where files cannot be locked."""
        with self._lock:
            if writer in self._held:
                return True
            try:
                make_private(self._folder)
                self._sweep()
                descriptor = self._acquire(self._path(writer))
            except OSError:
                return False  # no locks here: the time to live alone decides
            if descriptor is None:
                return False
            self._held[writer] = descriptor
            return True

    def lives(self, writer: str) -> bool:
        """Whether some process holds this writer's lock."""
        with self._lock:
            if writer in self._held:
                return True
        try:
            descriptor = os.open(self._path(writer), os.O_RDWR)
        except FileNotFoundError:
            return False
        except OSError:
            return True  # it cannot be told: the time to live decides
        try:
            return not try_lock(descriptor, fcntl.LOCK_SH)
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Let every lock go, and remove its file."""
        with self._lock:
            for writer, descriptor in self._held.items():
                self._path(writer).unlink(missing_ok=True)
                os.close(descriptor)
            self._held.clear()

    def forget(self) -> None:
        """In a forked child: the locks are the parent's. Close, but do not unlock."""
        self._lock = threading.Lock()
        for descriptor in self._held.values():
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._held.clear()

    def _path(self, writer: str) -> Path:
        return self._folder / f"{hashlib.sha256(writer.encode()).hexdigest()[:32]}.lock"

    def _acquire(self, path: Path) -> int | None:
        """Lock a file that is still at its path once it is locked."""
        for _ in range(HOLD_TRIES):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, OWN_FILE)
            if try_lock(descriptor, fcntl.LOCK_EX) and is_at(descriptor, path):
                return descriptor
            os.close(descriptor)
            time.sleep(HOLD_WAIT_S)
        return None

    def _sweep(self) -> None:
        """Remove the files of dead writers, once."""
        if self._swept:
            return
        self._swept = True
        for path in self._folder.glob("*.lock"):
            with contextlib.suppress(OSError):
                descriptor = os.open(path, os.O_RDWR)
                try:
                    if try_lock(descriptor, fcntl.LOCK_EX):
                        path.unlink(missing_ok=True)
                finally:
                    os.close(descriptor)
