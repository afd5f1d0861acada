"""Files whose names are others' by now: what they still get is read for a while."""

import time
from dataclasses import dataclass
from pathlib import Path

from foldline.errors import FoldlineError, LogError
from foldline.producers.followed import Said
from foldline.producers.growing import Growing
from foldline.producers.mirror_reading import Reading
from foldline.producers.positions import Position, moved_to, still_holds

RENAMED_S = 60.0
"""How long a file that was renamed away is read on, and one that is away is looked for."""


@dataclass(slots=True)
class _Renamed:
    """A file under another name: where it is, as far as that is known."""

    growing: Growing | None
    path: Path | None
    named: Path
    until_s: float


class RenamedFiles:
    """The files of one mirror that were renamed away."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._files: list[_Renamed] = []
        self.failed = 0
        """How many could not be read on."""

    def leave(self, growing: Growing, named: Path) -> None:
        """Read an open file on under its own handle."""
        self._add(growing, _where(growing, named.parent), named)

    def look_for(self, position: Position, named: Path) -> None:
        """Read on one that is not open, if it is near and got something since.

        Raises:
            OSError: it is near and cannot be read.
        """
        moved = moved_to(position, named.parent)
        if moved is None or moved == named or not still_holds(position, moved):
            return
        if moved.stat().st_size > position.size:
            self._add(None, moved, named)

    def read(self) -> bool:
        """Record what is new of each, some of it at a time; whether there is more.

        Raises:
            LogError: the log is away, or cannot be used.
        """
        more = False
        for renamed in list(self._files):
            try:
                has_more = self._read_one(renamed)
            except LogError:
                _close(renamed)
                raise
            except (FoldlineError, OSError) as error:
                self._fail(renamed, error)
                continue
            more |= has_more
            if not has_more and time.monotonic() > renamed.until_s:
                self._forget(renamed)
        return more

    def close(self) -> None:
        """Let go of every file."""
        for renamed in self._files:
            _close(renamed)

    def _add(self, growing: Growing | None, path: Path | None, named: Path) -> None:
        until_s = time.monotonic() + RENAMED_S
        self._files.append(_Renamed(growing, path, named, until_s))

    def _read_one(self, renamed: _Renamed) -> bool:
        if renamed.growing is None and renamed.path is not None:
            renamed.growing = self._reading.opened(renamed.path, renamed.named)
        growing = renamed.growing
        if growing is None or not growing.grown or not growing.intact:
            return False
        return self._reading.record(growing)

    def _fail(self, renamed: _Renamed, error: Exception) -> None:
        """What it still held is not recorded: said, and not tried again."""
        self._forget(renamed)
        self.failed += 1
        self._reading.say(Said("failed", str(renamed.path or renamed.named), str(error)))

    def _forget(self, renamed: _Renamed) -> None:
        _close(renamed)
        self._files.remove(renamed)


def _where(growing: Growing, folder: Path) -> Path | None:
    """Where an open file is in its folder by now, as far as anybody can tell."""
    try:
        return moved_to(growing.position(), folder)
    except OSError:
        return None


def _close(renamed: _Renamed) -> None:
    if renamed.growing is not None:
        renamed.growing.close()
        renamed.growing = None
