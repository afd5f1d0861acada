"""A small file of its own that says how far a reader came with each session of a log.

A position is written after what it stands for is done. One that is lost only has that
done once more, under the same ids: so the file need not survive a power cut, and may be
deleted.
"""

import hashlib
import sqlite3
from pathlib import Path
from typing import ClassVar, Self

from foldline.places import make_private


class PositionsFile:
    """The positions of one reader of one log. For one thread at a time."""

    MAKE: ClassVar[str]
    """The statements that make the tables, where there are none yet."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @classmethod
    def open(cls, path: Path) -> Self:
        """The positions in a file, which is made if there is none."""
        make_private(path.parent)
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.executescript(cls.MAKE)
        return cls(connection)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def path_in(folder: Path, *reader: str) -> Path:
    """The file in a folder for one reader: each log, and each way to read it, has one.

    Args:
        folder: of the files of such readers.
        reader: the log's URL, and all that makes another reader.
    """
    told = "\n".join(reader).encode("utf-8", "surrogatepass")
    return folder / f"{hashlib.sha256(told).hexdigest()[:32]}.db"
