"""Folders for one process's rebuildable files, removed also after it was killed.

A folder's owner holds a lock on a file in it, which the kernel drops at whatever death.
Whoever makes the next folder beside it removes those that nobody holds.
"""

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from foldline.errors import LogUnavailableError
from foldline.places import make_private

LOCK = "owner.lock"


class Scratch:
    """A new folder below `parent`, until it is closed.

    Raises:
        LogUnavailableError: it cannot be made.
    """

    def __init__(self, parent: Path) -> None:
        try:
            make_private(parent)
            _sweep(parent)
            self.folder = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=parent))
            # Under its name only once it is held: nobody may find it free before that.
            new = self.folder / f"{LOCK}.new"
            self._lock = os.open(new, os.O_CREAT | os.O_RDWR, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            new.rename(self.folder / LOCK)
        except OSError as error:
            raise LogUnavailableError(str(parent), str(error)) from error

    def close(self) -> None:
        """Remove the folder with all that is in it."""
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)


def _sweep(parent: Path) -> None:
    """Remove the folders of those who died.

    One that has no lock file yet is just being made, by somebody else.
    """
    for folder in parent.iterdir():
        try:
            lock = os.open(folder / LOCK, os.O_RDWR)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:
            continue
        finally:
            os.close(lock)
