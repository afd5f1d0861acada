"""How far an exporter came with each session, in a small file that can be made again.

A position is written after the receiver had the spans. One that is lost only has them
sent once more, under the same ids.
"""

import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from foldline.places import make_private

_MAKE = """
CREATE TABLE IF NOT EXISTS positions (
    session_id TEXT PRIMARY KEY, seq INTEGER NOT NULL, whole INTEGER NOT NULL
) WITHOUT ROWID
"""


@dataclass(frozen=True, slots=True)
class Position:
    """Up to which seq a session's spans were sent; `whole`: those still open, too."""

    seq: int = 0
    whole: bool = False


class TracePositions:
    """The positions of one exporter: of one log, for one receiver."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @classmethod
    def open(cls, path: Path) -> Self:
        """The positions in a file, which is made if there is none."""
        make_private(path.parent)
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute(_MAKE)
        return cls(connection)

    def get(self, session_id: str) -> Position:
        """How far the exporter came with a session."""
        found = self._connection.execute(
            "SELECT seq, whole FROM positions WHERE session_id = ?", (session_id,)
        ).fetchone()
        return Position(found[0], bool(found[1])) if found else Position()

    def put(self, session_id: str, position: Position) -> None:
        """Remember how far it came."""
        self._connection.execute(
            "INSERT OR REPLACE INTO positions VALUES (?, ?, ?)",
            (session_id, position.seq, int(position.whole)),
        )

    def close(self) -> None:
        """Close the file."""
        self._connection.close()
