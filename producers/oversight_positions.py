"""How far a runner of policies came with each session, in a small file of its own.

A position is written once everything that was wanted up to it is recorded.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from foldline.projections.oversight import Policy
from foldline.projections.positions_file import PositionsFile, path_in


class OversightPositions(PositionsFile):
    """The positions of one set of rules in one log."""

    MAKE: ClassVar[str] = """
        CREATE TABLE IF NOT EXISTS positions (
            session_id TEXT PRIMARY KEY, seq INTEGER NOT NULL
        ) WITHOUT ROWID;
        CREATE TABLE IF NOT EXISTS begun (at INTEGER NOT NULL)
    """

    def begun_at(self, now: int) -> int:
        """The log time at which these rules were first in force; `now` if that is now."""
        found = self._connection.execute("SELECT min(at) FROM begun").fetchone()[0]
        if found is None:
            self._connection.execute("INSERT INTO begun VALUES (?)", (now,))
            return now
        return int(found)

    def all(self) -> dict[str, int]:
        """The seq of each session up to which it was judged."""
        return dict(self._connection.execute("SELECT session_id, seq FROM positions"))

    def put(self, session_id: str, seq: int) -> None:
        """Remember how far a session was judged."""
        self._connection.execute(
            "INSERT OR REPLACE INTO positions VALUES (?, ?)", (session_id, seq)
        )


def positions_path(folder: Path, *, log_url: str, rules: Sequence[Policy]) -> Path:
    """Where the positions of some rules are: one file for each log and set of rules.

    Changed rules have positions of their own: sessions are judged anew by them, and what
    they want as before was recorded before.
    """
    return path_in(folder / "policies", log_url, *map(_identity, rules))


def _identity(rule: Policy) -> str:
    """What a rule is, the same in every process."""
    function = getattr(rule, "function", None)
    if function is None:
        return repr(rule)
    module = getattr(function, "__module__", "")
    named = getattr(function, "__qualname__", type(function).__name__)
    made_of = getattr(rule, "made_of", "")
    return f"{rule.name} {rule.version} {rule.content} {module}.{named} {made_of}"
