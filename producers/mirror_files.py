"""The files that a mirror follows: which are open, and what is done when one changed.

1. A file is asked for its size and time. One that rests costs nothing else.
2. Of one that changed, what is new is recorded. One that was cut or rewritten is begun
   anew; where the name is another file's, the old one is read on beside it.
3. Of those that are open, the ones that rested longest are let go first.
"""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from foldline.errors import FoldlineError, LogError
from foldline.producers import mirror_renamed
from foldline.producers.followed import Followed, Said
from foldline.producers.growing import Growing
from foldline.producers.mirror_reading import Reading
from foldline.producers.mirror_renamed import RenamedFiles
from foldline.producers.positions import Position, still_holds

OPEN_MAX = 64
"""How many files are held open with what their records told; of more that grow at the same
time, the one that rested longest is read from its beginning when it grows again."""

CATCHING_UP_MAX = 8
"""How many files that were just opened are read towards their ends by turns; more wait."""

RESTED_S = 900.0
"""How long a file may not grow before it is let go."""


class Files:
    """The files of one mirror, by their paths without links."""

    def __init__(self, reading: Reading, kept: Mapping[str, Position]) -> None:
        self._reading = reading
        self._kept = kept
        self._all: dict[Path, Followed] = {}
        self._open: dict[Path, Followed] = {}  # what grew longest ago comes first
        self._behind: set[Path] = set()  # open, and not read to their ends
        self._odd: dict[str, str] = {}
        self._odd_said: set[tuple[str, str]] = set()
        self.renamed = RenamedFiles(reading)
        self.changed = False
        """Whether positions are others than those that were kept last."""

    def __iter__(self) -> Iterator[Followed]:
        """Every file, also those that are added meanwhile no more."""
        return iter(list(self._all.values()))

    @property
    def open_count(self) -> int:
        """How many files are open."""
        return len(self._open)

    def follow(self, path: Path) -> Followed | None:
        """Take note of a file; None, and said, if it can be none."""
        try:
            path = path.resolve()
        except (OSError, ValueError, RuntimeError) as error:
            self.say_odd(str(path), error)
            return None
        followed = self._all.get(path)
        if followed is None:
            position = self._kept.get(str(path))
            followed = self._all[path] = Followed(path, position=position)
        return followed

    def follow_there(self, path: Path) -> Followed | None:
        """Take note of a file where there is one; where nobody can tell there is none."""
        return self.follow(path) if self._is_file(path) else None

    def _is_file(self, path: Path) -> bool:
        try:
            return path.is_file()
        except (OSError, ValueError) as error:
            self.say_odd(str(path), error)
            return False

    def say_odd(self, path: str, error: object) -> None:
        """Note what cannot even be looked at, and say so once."""
        self._odd[path] = str(error)
        if (path, str(error)) not in self._odd_said:
            self._odd_said.add((path, str(error)))
            self._reading.say(Said("failed", path, str(error)))

    def forget_odd(self) -> None:
        """Begin to look anew at what could not be looked at."""
        self._odd.clear()

    # --- one file --------------------------------------------------------------------

    def look_at(self, followed: Followed) -> bool:
        """Record what is new of a file; whether there is more of it.

        Raises:
            LogError: the log is away, or cannot be used.
        """
        try:
            status = followed.path.stat()
        except OSError:
            self._is_away(followed)
            return False
        followed.away_since_s = None
        signature = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        if signature == followed.signature:
            return False
        too_many = len(self._behind) >= CATCHING_UP_MAX
        followed.in_line = followed.growing is None and too_many
        if followed.in_line:
            return True
        try:
            more = self._read(followed)
        except LogError:
            self._release(followed)
            raise
        except (FoldlineError, OSError) as error:
            self._fail(followed, error)
            more = False
        if not more:
            followed.signature = signature
        return more

    def look_again(self, followed: Followed) -> bool:
        """Read one that rests and is not open from its beginning; whether there is more.

        Raises:
            LogError: the log is away, or cannot be used.
        """
        followed.position = None
        followed.signature = ()
        return self.look_at(followed)

    def is_read(self, followed: Followed) -> bool:
        """Whether one that is open was read to where it ends by now."""
        growing = followed.growing
        is_behind = followed.path in self._behind
        return growing is not None and not growing.grown and not is_behind

    def _is_away(self, followed: Followed) -> None:
        """It was removed or renamed: what is open of it is read on for a while."""
        self._leave(followed)
        followed.signature = ()
        followed.in_line = False
        if followed.away_since_s is None:
            followed.away_since_s = time.monotonic()

    def _fail(self, followed: Followed, error: Exception) -> None:
        """It cannot be followed as it is: said once, and tried again when it changes."""
        self._release(followed)
        if followed.failed != str(error):
            followed.failed = str(error)
            self._reading.say(Said("failed", str(followed.path), str(error)))

    def _read(self, followed: Followed) -> bool:
        if followed.growing is not None:
            if not followed.growing.is_at(followed.path):
                self._leave(followed)
            elif not followed.growing.intact:
                self._release(followed)
        growing = followed.growing or self._opened(followed)
        return growing is not None and self._read_on(followed, growing)

    def _opened(self, followed: Followed) -> Growing | None:
        """Open a file that has something new; None if it rests, or does not say of whom."""
        if (position := followed.position) is not None:
            status = followed.path.stat()
            same = (status.st_dev, status.st_ino) == (position.device, position.inode)
            if not same:
                followed.position = None
                self.renamed.look_for(position, followed.path)
            elif status.st_size == position.size and still_holds(position, followed.path):
                return None
        followed.growing = self._reading.opened(followed.path, followed.path)
        return followed.growing

    def _read_on(self, followed: Followed, growing: Growing) -> bool:
        followed.failed = ""
        followed.grown_at_s = time.monotonic()
        self._open.pop(followed.path, None)
        self._open[followed.path] = followed  # the last one to be let go
        more = self._reading.record(growing)
        if more:
            self._behind.add(followed.path)
            return True
        self._behind.discard(followed.path)
        followed.position = growing.position()
        self.changed = True
        if len(self._open) > OPEN_MAX:
            self.let_go()
        return False

    # --- let go ----------------------------------------------------------------------

    def let_go(self) -> None:
        """Close what rested long, and of too many the ones that rested longest."""
        now_s = time.monotonic()
        for followed in list(self._open.values()):
            rested = now_s - followed.grown_at_s > RESTED_S
            if not rested and len(self._open) <= OPEN_MAX:
                break
            if followed.path not in self._behind:
                self._release(followed)

    def release_all(self) -> None:
        """Close every file: any of them may have been under way."""
        for followed in list(self._open.values()):
            self._release(followed)

    def forget_lost(self, named: set[Path]) -> list[Path]:
        """Forget files that are away for long, but those that somebody named; which."""
        until_s = time.monotonic() - mirror_renamed.RENAMED_S
        lost = [
            path
            for path, followed in self._all.items()
            if followed.away_since_s is not None
            and followed.away_since_s <= until_s
            and path not in named
        ]
        for path in lost:
            del self._all[path]
        return lost

    def _leave(self, followed: Followed) -> None:
        """The name is another file's by now: read this one on under its own handle."""
        if (growing := followed.growing) is not None:
            self.renamed.leave(growing, followed.path)
            followed.growing = followed.position = None
            self._release(followed)

    def _release(self, followed: Followed) -> None:
        if followed.growing is not None:
            followed.growing.close()
            followed.growing = None
        self._open.pop(followed.path, None)
        self._behind.discard(followed.path)

    # --- counts ----------------------------------------------------------------------

    def count(self) -> None:
        """Write into the totals how many there are, and how many cannot be followed."""
        totals = self._reading.totals
        totals.files = len(self._all)
        totals.held = sum(one.held for one in self._all.values())
        failed = sum(bool(one.failed) for one in self._all.values())
        totals.failed = failed + len(self._odd) + self.renamed.failed + totals.hooks_refused
