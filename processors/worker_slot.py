"""A worker's slot: its stable name, and the private folder that nobody else may use.

The name makes the transactional.id, so that who takes the slot again aborts what its
predecessor left open; safety does not come from it but from the group. The folder holds
the tables of one log; a lock file in it is held as long as the process lives.
"""

import fcntl
import os
import re
import socket
from pathlib import Path
from typing import Self

from foldline.errors import SlotTakenError
from foldline.settings import Settings

SLOTS_MAX = 1_000
"""How many workers of one machine may share a folder."""

LOCK = "lock"

_UNFIT = re.compile(r"[^a-zA-Z0-9._-]")


class Slot:
    """A name, a folder, and the lock on it."""

    def __init__(self, name: str, folder: Path, descriptor: int) -> None:
        self.name = name
        self.folder = folder
        self._descriptor = descriptor

    @classmethod
    def take(cls, settings: Settings, *, log_id: str) -> Self:
        """The slot that the settings name, or the first free one of this host.

        Raises:
            SlotTakenError: another process on this machine has it.
            OSError: the folder cannot be made or written.
        """
        below = settings.state_dir / "workers" / log_id
        if settings.worker_slot:
            slot = cls._try(settings.worker_slot, below)
            if slot is None:
                raise SlotTakenError(settings.worker_slot, str(below))
            return slot
        host = _UNFIT.sub("_", socket.gethostname())[:48]
        for number in range(SLOTS_MAX):
            slot = cls._try(f"{host}-{number}", below)
            if slot is not None:
                return slot
        raise SlotTakenError(f"{host}-0 to {host}-{SLOTS_MAX - 1}", str(below))

    @classmethod
    def _try(cls, name: str, below: Path) -> Self | None:
        folder = below / name
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return cls(name, folder, descriptor)

    def release(self) -> None:
        """Let the slot go; its tables stay for who takes it next."""
        os.close(self._descriptor)
