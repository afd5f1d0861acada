"""Locks of files (`flock`): waited for, and never kept by a forked child.

The lock belongs to the open file. A child that was forked has the same open file, and
would keep the lock of a parent that was killed: in a child, every such file is closed.
"""

import fcntl
import os
import time
import weakref
from pathlib import Path
from typing import Protocol

FIRST_WAIT_S = 0.000_5
LONGEST_WAIT_S = 0.02
"""How long is waited between two tries: the kernel's own wait knows no time-out."""


class Forgets(Protocol):
    """What holds open files with locks."""

    def forget(self) -> None:
        """In a forked child: the locks are the parent's. Close, but do not unlock."""
        ...


_living: weakref.WeakSet[Forgets] = weakref.WeakSet()


def forget_when_forked(holder: Forgets) -> None:
    """Have `forget` called in every child that is forked from here on."""
    _living.add(holder)


def try_lock(descriptor: int, kind: int) -> bool:
    """Take a lock (LOCK_SH, LOCK_EX) at once, or not at all."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock_within(descriptor: int, timeout_ms: int) -> bool:
    """Take the exclusive lock; False where others held it all the time."""
    until_s = time.monotonic() + timeout_ms / 1000
    wait_s = FIRST_WAIT_S
    while not try_lock(descriptor, fcntl.LOCK_EX):
        if time.monotonic() >= until_s:
            return False
        time.sleep(wait_s)
        wait_s = min(wait_s * 2, LONGEST_WAIT_S)
    return True


def unlock(descriptor: int) -> None:
    """Let a lock go."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)


def is_at(descriptor: int, path: Path) -> bool:
    """Whether the open file is the one at the path: somebody may have replaced it."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _forget_all() -> None:
    for holder in list(_living):
        holder.forget()


os.register_at_fork(after_in_child=_forget_all)
