"""The mirror: many transcripts followed at once, until it is told to stop.

1. Now and then the folders are looked through for new files, and links that were named
   for where they point.
2. Every file is asked for its size and time: the only cost of one that rests.
3. Of one that changed, what is new is read and recorded, some of it at a time so that no
   file keeps others waiting. One that was cut, rewritten or replaced is begun anew; what
   the old one still held is read, too.
4. What hooks left in the spool is recorded behind the transcripts that it belongs to.
5. Positions are written behind what the log acknowledged.

A log that is away is waited for. Whatever was under way then is begun anew: facts have
their ids from the file, so that nothing is recorded twice.
"""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from foldline.processors.log import Log
from foldline.producers.folders import files_below
from foldline.producers.followed import Said, Totals
from foldline.producers.mirror_files import Files
from foldline.producers.mirror_hooks import MirrorHooks
from foldline.producers.mirror_reading import Reading
from foldline.producers.positions import (
    borne_out,
    positions_path,
    read_positions,
    write_positions,
)
from foldline.producers.redaction import Redactor
from foldline.settings import Settings

POLL_INTERVAL_MS = 500
"""How often files are asked for their size."""

SCAN_INTERVAL_S = 2.0
"""How often folders are looked through for new files."""

POSITIONS_INTERVAL_S = 5.0
"""How often positions are written while files grow."""

RETRY_MS = (500, 1_000, 2_000, 5_000, 10_000)
"""How long a log that is away is waited for before it is asked again; the last, over and
over."""


class Mirroring:
    """Follows files into one log, round by round."""

    def __init__(
        self,
        log: Log,
        paths: Iterable[Path],
        *,
        settings: Settings,
        redactor: Redactor,
        say: Callable[[Said], None],
        stopped: Callable[[], bool],
        spool: Path | None = None,
    ) -> None:
        """Take note of what is to be followed, and of how far that is recorded.

        Args:
            log: where it is recorded.
            paths: files, and folders in which every `*.jsonl` is followed.
            settings: limits, and where positions lie.
            redactor: takes secrets out.
            say: is told what happens.
            stopped: whether to come to an end.
            spool: what hooks leave; without one they are not looked at.

        Raises:
            LogUnavailableError: the log gave no answer.
        """
        self._stopped = stopped
        named = tuple(paths)
        self._folders = [path for path in named if path.is_dir()]
        self._singles = [path for path in named if path not in self._folders]
        self._positions_path = positions_path(settings.state_dir, log.url)
        self._kept = borne_out(log, read_positions(self._positions_path))
        self._written_at_s = self._scanned_at_s = float("-inf")
        self._named: set[Path] = set()
        reading = Reading(
            log, settings=settings, redactor=redactor, say=say, stopped=stopped
        )
        self._files = Files(reading, self._kept)
        self._hooks = MirrorHooks(spool, self._files, reading) if spool else None
        self.totals: Totals = reading.totals

    @property
    def open_count(self) -> int:
        """How many files are open."""
        return self._files.open_count

    def scan_soon(self) -> None:
        """Look through the folders in the next round, whenever that was done last."""
        self._scanned_at_s = float("-inf")

    def round(self) -> bool:
        """Do everything once; whether there is more to do at once.

        Raises:
            LogError: the log is away (`retryable`), or cannot be used.
        """
        self._look_for_files()
        more = False
        for followed in self._files:
            if self._stopped():
                more = True
                break
            more |= self._files.look_at(followed)
        more |= self._files.renamed.read()
        if self._hooks is not None:
            more |= self._hooks.drain()
        self._files.let_go()
        self._forget_lost()
        self._keep_positions(at_once=False)
        self._files.count()
        return more

    def close(self) -> None:
        """Write the positions, and let go of every file."""
        self._keep_positions(at_once=True)
        self._files.release_all()
        self._files.renamed.close()

    def _look_for_files(self) -> None:
        """Find what is new, and where the links that were named point by now."""
        if time.monotonic() - self._scanned_at_s < SCAN_INTERVAL_S:
            return
        self._files.forget_odd()
        for folder in self._folders:
            for path in files_below(folder, odd=self._files.say_odd):
                self._files.follow(path)
        found = [self._files.follow(path) for path in self._singles]
        self._named = {one.path for one in found if one is not None}
        self._scanned_at_s = time.monotonic()

    def _forget_lost(self) -> None:
        for path in self._files.forget_lost(self._named):
            if self._kept.pop(str(path), None) is not None:
                self._files.changed = True

    def _keep_positions(self, *, at_once: bool) -> None:
        now_s = time.monotonic()
        due = at_once or now_s - self._written_at_s > POSITIONS_INTERVAL_S
        if not self._files.changed or not due:
            return
        for followed in self._files:
            if followed.position is None:
                self._kept.pop(str(followed.path), None)
            else:
                self._kept[str(followed.path)] = followed.position
        with suppress(OSError):  # only a restart will take longer
            write_positions(self._positions_path, self._kept)
        self._files.changed = False
        self._written_at_s = now_s
