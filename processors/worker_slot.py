"""A worker's slot: its stable name, and the private folder that nobody else may use.

The name makes the transactional.id, so that who takes the slot again aborts what its
predecessor left open; safety does not come from it but from the group. The folder holds
the tables of one log; a lock file in it is held as long as the process lives.

Locks keep the workers of one state folder apart. Those of two state folders, on one
machine or on two of one name, are kept apart by the name: where the settings give none,
it begins with what the folder was called at random when it was made.
"""

import fcntl
import os
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Self

from foldline.errors import SlotTakenError
from foldline.places import make_private
from foldline.settings import Settings

SLOTS_MAX = 1_000
"""How many workers of one machine may share a folder."""

LOCK = "lock"

FOLDER_NAME = "name"
"""The file that holds the random name of a folder of slots."""


class Slot:
    """A name, a folder, and the lock on it."""

    def __init__(self, name: str, folder: Path, descriptor: int) -> None:
        self.name = name
        self.folder = folder
        self._descriptor = descriptor

    @classmethod
    def take(cls, settings: Settings, *, log_id: str) -> Self:
        """The slot that the settings name, or the first free one of the state folder.

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
        common = _name_of(below)
        for number in range(SLOTS_MAX):
            slot = cls._try(f"{common}-{number}", below)
            if slot is not None:
                return slot
        raise SlotTakenError(f"{common}-0 to {common}-{SLOTS_MAX - 1}", str(below))

    @classmethod
    def _try(cls, name: str, below: Path) -> Self | None:
        folder = below / name
        make_private(folder)
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


def _name_of(folder: Path) -> str:
    """What a folder of slots is called: made with it, by whoever comes first."""
    make_private(folder)
    path = folder / FOLDER_NAME
    if not path.exists():
        own = uuid.uuid4().hex[:12]
        draft = folder / f"{FOLDER_NAME}.{own}"
        draft.write_text(own)
        with suppress(FileExistsError):
            path.hardlink_to(draft)  # whole, or not at all
        draft.unlink()
    return path.read_text()
