"""A file that is there whole or not at all, whatever becomes of the process."""

import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from foldline.faults import crash_point

FILE_MODE = 0o600
"""Whoever wrote it may read it, nobody else: it says what a session says."""


@contextmanager
def whole_file(path: Path) -> Generator[BinaryIO]:
    """A file to write into, which gets its name when all is written.

    1. Write beside, readable for nobody else, under a name that is nobody's.
    2. Sync, and give it its name; sync the folder.
    3. Where writing fails, what was written goes away.

    Raises:
        OSError: it cannot be written.
    """
    descriptor, beside = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), FILE_MODE)
            yield file
            file.flush()
            os.fsync(file.fileno())
        crash_point("CP_EXPORT_BEFORE_NAME")
        Path(beside).replace(path)
    except BaseException:
        with suppress(FileNotFoundError):
            Path(beside).unlink()
        raise
    _sync(path.parent)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
