"""What a mirror knows of each file that it follows, and what it says of it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from foldline.producers.growing import Growing
from foldline.producers.positions import Position

Kind = Literal["recorded", "alarm", "failed", "hooks"]


@dataclass(frozen=True, slots=True)
class Said:
    """Something that a mirror has to say: `events` were recorded of a file, and so on."""

    kind: Kind
    path: str = ""
    detail: str = ""
    events: int = 0
    session_ids: tuple[str, ...] = ()


@dataclass(slots=True)
class Followed:
    """A file: what it looked like last, how far it is recorded, and itself if it is open.

    `in_line`: it waits to be opened. `failed`: why it cannot be followed as it is.
    `away_since_s`: since when there is no such file.
    """

    path: Path
    signature: tuple[int, ...] = ()
    position: Position | None = None
    growing: Growing | None = None
    in_line: bool = False
    grown_at_s: float = 0.0
    failed: str = ""
    away_since_s: float | None = None

    @property
    def held(self) -> bool:
        """Whether it is there and does not say yet of which session it is."""
        unknown = self.position is None and self.growing is None and not self.failed
        return unknown and self.away_since_s is None


@dataclass(slots=True)
class Totals:
    """What a mirror did so far.

    `held` files do not say yet of which session they are. `failed` are files and folders
    that cannot be followed as they are, and hooks that cannot be recorded: of these,
    `hooks_refused` were set aside.
    """

    files: int = 0
    held: int = 0
    events: int = 0
    hooks: int = 0
    hooks_waiting: int = 0
    hooks_refused: int = 0
    alarms: int = 0
    failed: int = 0
