"""How far a runner of policies came with each session, in a small file of its own.

A position is written once everything that was wanted up to it is recorded. One that is
lost only has the session judged again: what was wanted has the same ids.
"""

import hashlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from foldline.places import make_private
from foldline.projections.oversight import Policy

_MAKE = """
CREATE TABLE IF NOT EXISTS positions (
    session_id TEXT PRIMARY KEY, seq INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS begun (at INTEGER NOT NULL)
"""


class OversightPositions:
    """The positions of one set of rules in one log. For one thread at a time."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @classmethod
    def open(cls, path: Path) -> Self:
        """The positions in a file, which is made if there is none."""
        make_private(path.parent)
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.executescript(_MAKE)
        return cls(connection)

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

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def positions_path(folder: Path, *, log_url: str, rules: Sequence[Policy]) -> Path:
    """Where the positions of some rules are: one file for each log and set of rules.

    Changed rules have positions of their own: sessions are judged anew by them, and what
    they want as before was recorded before.
    """
    told = "\n".join([log_url, *map(_identity, rules)])
    name = hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return folder / "policies" / f"{name}.db"


def _identity(rule: Policy) -> str:
    """What a rule is, the same in every process."""
    function = getattr(rule, "function", None)
    if function is None:
        return repr(rule)
    module = getattr(function, "__module__", "")
    named = getattr(function, "__qualname__", type(function).__name__)
    made_of = getattr(rule, "made_of", "")
    return f"{rule.name} {rule.version} {rule.content} {module}.{named} {made_of}"
