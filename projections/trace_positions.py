"""How far an exporter came with each session: a position is written once it was sent."""

from dataclasses import dataclass
from typing import ClassVar

from foldline.projections.positions_file import PositionsFile


@dataclass(frozen=True, slots=True)
class Position:
    """Up to which seq a session's spans were sent; `whole`: those still open, too."""

    seq: int = 0
    whole: bool = False


class TracePositions(PositionsFile):
    """The positions of one exporter: of one log, for one receiver."""

    MAKE: ClassVar[str] = """
        CREATE TABLE IF NOT EXISTS positions (
            session_id TEXT PRIMARY KEY, seq INTEGER NOT NULL, whole INTEGER NOT NULL
        ) WITHOUT ROWID
    """

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
