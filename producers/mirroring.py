"""The mirror: many transcripts followed at once, until it is told to stop.

1. Now and then the folders are looked through for new files.
2. Every file is asked for its size and time: the only cost of one that rests.
3. Of one that changed, what is new is read and recorded, some of it at a time so that no
   file keeps others waiting. One that was cut, rewritten or replaced is begun anew; what
   the old one still held is read first.
4. What hooks left in the spool is recorded behind the transcripts that it belongs to.
5. Positions are written behind what the log acknowledged.

A log that is away is waited for. Whatever was under way then is begun anew: facts have
their ids from the file, so that nothing is recorded twice.
"""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from foldline.errors import FoldlineError, ImportSourceError, LogError
from foldline.processors.log import Log
from foldline.producers.folders import files_below
from foldline.producers.followed import Followed, Renamed, Said, Totals
from foldline.producers.growing import Growing, beginning_of
from foldline.producers.hook_draining import NOT_YET, Found, HookSpool
from foldline.producers.import_run import Origin, origin_of
from foldline.producers.positions import (
    Position,
    borne_out,
    moved_to,
    positions_path,
    read_positions,
    still_holds,
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

OPEN_MAX = 64
"""How many files are held open with what their records told; of more that grow at the same
time, the one that rested longest is read from its beginning when it grows again."""

CATCHING_UP_MAX = 8
"""How many files that were just opened are read towards their ends by turns; more wait."""

RESTED_S = 900.0
"""After how long without growth a file is let go."""

RENAMED_S = 60.0
"""How long a file that was renamed away is read on, and one that is away is looked for."""

RETRY_MS = (500, 1_000, 2_000, 5_000, 10_000)
"""How long a log that is away is waited for before it is asked again; the last, over and
over."""

NOT_FOLLOWED = "no transcript of Claude Code or Codex: only these are followed"


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
        self._log = log
        self._settings = settings
        self._redactor = redactor
        self._say = say
        self._stopped = stopped
        self._folders = [path for path in paths if path.is_dir()]
        self._files: dict[Path, Followed] = {}
        self._renamed: list[Renamed] = []
        self._odd: dict[str, str] = {}
        self._odd_said: set[tuple[str, str]] = set()
        self._hooks = (
            HookSpool(spool, settings=settings, redactor=redactor) if spool else None
        )
        self._positions_path = positions_path(settings.state_dir, log.url)
        self._kept = borne_out(log, read_positions(self._positions_path))
        self._dirty = False
        self._written_at_s = self._scanned_at_s = float("-inf")
        self.totals = Totals()
        self._named: set[Path] = set()
        for path in paths:
            if not path.is_dir() and (followed := self._follow(path)) is not None:
                self._named.add(followed.path)

    @property
    def open_count(self) -> int:
        """How many files are open."""
        return sum(one.growing is not None for one in self._files.values())

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
        for followed in list(self._files.values()):
            if self._stopped():
                more = True
                break
            more |= self._look_at(followed)
        self._read_renamed()
        more |= self._drain_hooks()
        self._let_go()
        self._forget_lost()
        self._keep_positions(at_once=False)
        self._count()
        return more

    def close(self) -> None:
        """Write the positions, and let go of every file."""
        self._keep_positions(at_once=True)
        for followed in self._files.values():
            self._release(followed)
        for renamed in self._renamed:
            if renamed.growing is not None:
                renamed.growing.close()

    # --- which files -----------------------------------------------------------------

    def _look_for_files(self) -> None:
        if time.monotonic() - self._scanned_at_s < SCAN_INTERVAL_S:
            return
        self._odd.clear()
        for folder in self._folders:
            for path in files_below(folder, odd=self._is_odd):
                self._follow(path)
        self._scanned_at_s = time.monotonic()

    def _follow(self, path: Path) -> Followed | None:
        """Take note of a file; None, and said, if it can be none."""
        try:
            path = path.resolve()
        except (OSError, ValueError, RuntimeError) as error:
            self._is_odd(str(path), error)
            return None
        followed = self._files.get(path)
        if followed is None:
            position = self._kept.get(str(path))
            followed = self._files[path] = Followed(path, position=position)
        return followed

    def _is_odd(self, path: str, error: Exception) -> None:
        """A path that cannot even be looked at: said once."""
        self._odd[path] = str(error)
        if (path, str(error)) not in self._odd_said:
            self._odd_said.add((path, str(error)))
            self._say(Said("failed", path, str(error)))

    # --- one file --------------------------------------------------------------------

    def _catching_up(self) -> int:
        return sum(one.catching_up for one in self._files.values())

    def _look_at(self, followed: Followed) -> bool:
        """Record what is new of a file; whether there is more of it."""
        try:
            status = followed.path.stat()
        except OSError:
            self._is_away(followed)
            return False
        followed.away_since_s = None
        signature = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        if signature == followed.signature:
            return False
        too_many = self._catching_up() >= CATCHING_UP_MAX
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

    def _is_away(self, followed: Followed) -> None:
        """It was removed or renamed: what is open of it is read on for a while."""
        if followed.growing is not None:
            self._leave(followed)
        followed.signature = ()
        followed.in_line = False
        if followed.away_since_s is None:
            followed.away_since_s = time.monotonic()

    def _forget_lost(self) -> None:
        """Forget files that are away for long, but those that somebody named."""
        now_s = time.monotonic()
        for path, followed in list(self._files.items()):
            since_s = followed.away_since_s
            if since_s is None or now_s - since_s < RENAMED_S or path in self._named:
                continue
            del self._files[path]
            if self._kept.pop(str(path), None) is not None:
                self._dirty = True

    def _fail(self, followed: Followed, error: Exception) -> None:
        """It cannot be followed as it is: said once, and tried again when it changes."""
        self._release(followed)
        if followed.failed != str(error):
            followed.failed = str(error)
            self._say(Said("failed", str(followed.path), str(error)))

    def _read(self, followed: Followed) -> bool:
        if followed.growing is not None:
            if not followed.growing.is_at(followed.path):
                self._leave(followed)
            elif not followed.growing.intact:
                self._release(followed)
        if followed.growing is None and not self._open(followed):
            return False
        return followed.growing is not None and self._read_on(followed, followed.growing)

    def _open(self, followed: Followed) -> bool:
        """Open a file that has something new; whether it is open."""
        if (position := followed.position) is not None:
            status = followed.path.stat()
            same = (status.st_dev, status.st_ino) == (position.device, position.inode)
            if not same:
                self._read_moved(followed, position)
            elif status.st_size == position.size and still_holds(position, followed.path):
                return False
        found = self._opened(followed.path, followed.path)
        followed.growing = found
        followed.catching_up = found is not None
        return followed.catching_up

    def _opened(self, path: Path, named: Path) -> Growing | None:
        """A transcript that says what it is; `named` is the name it was followed by."""
        limit = self._settings.import_record_max_bytes
        beginning = beginning_of(path, record_max_bytes=limit)
        if beginning.unknown:
            raise ImportSourceError(str(path), NOT_FOLLOWED)
        if not beginning.settled:
            return None
        stream = origin_of(beginning.format, named, self._redactor).stream
        origin = Origin(beginning.format, path, stream)
        return Growing(self._log, origin, settings=self._settings, redactor=self._redactor)

    def _read_on(self, followed: Followed, growing: Growing) -> bool:
        followed.failed = ""
        followed.grown_at_s = time.monotonic()
        more = self._record(growing)
        if not more:
            followed.catching_up = False
            followed.position = growing.position()
            self._dirty = True
        return more

    def _record(self, growing: Growing) -> bool:
        """Read what is new, and say what became of it."""
        report = growing.report
        before, alarms = report.events, len(report.alarms)
        more = growing.read(stopped=self._stopped)
        if added := report.events - before:
            self.totals.events += added
            names = tuple(growing.mirror.heads)
            self._say(Said("recorded", report.path, "", added, names))
        for alarm in report.alarms[alarms:]:
            self.totals.alarms += 1
            detail = f"{alarm.kind} {alarm.session_id}: {alarm.detail}"
            self._say(Said("alarm", report.path, detail, 0, (alarm.session_id,)))
        return more

    # --- renamed, and let go ---------------------------------------------------------

    def _leave(self, followed: Followed) -> None:
        """The name is another file's by now: read this one on under its own handle."""
        if (growing := followed.growing) is not None:
            path = moved_to(growing.position(), followed.path.parent)
            self._read_on_renamed(growing, path, followed.path)
        followed.growing = followed.position = None
        followed.catching_up = False

    def _read_moved(self, followed: Followed, position: Position) -> None:
        """The same for one that is not open: what it got since is read, if it is near."""
        followed.position = None
        moved = moved_to(position, followed.path.parent)
        if moved is None or moved == followed.path or not still_holds(position, moved):
            return
        if moved.stat().st_size > position.size:
            self._read_on_renamed(None, moved, followed.path)

    def _read_on_renamed(
        self, growing: Growing | None, path: Path | None, named: Path
    ) -> None:
        until_s = time.monotonic() + RENAMED_S
        self._renamed.append(Renamed(growing, path, named, until_s))

    def _read_renamed(self) -> None:
        for renamed in list(self._renamed):
            try:
                self._read_one_renamed(renamed)
            except LogError:
                if renamed.growing is not None:
                    renamed.growing.close()
                renamed.growing = None
                raise
            except (FoldlineError, OSError):
                renamed.until_s = 0.0
            if time.monotonic() > renamed.until_s:
                if renamed.growing is not None:
                    renamed.growing.close()
                self._renamed.remove(renamed)

    def _read_one_renamed(self, renamed: Renamed) -> None:
        if renamed.growing is None and renamed.path is not None:
            renamed.growing = self._opened(renamed.path, renamed.named)
        growing = renamed.growing
        while growing is not None and growing.grown and growing.intact:
            if not self._record(growing) or self._stopped():
                break

    def _let_go(self) -> None:
        """Close what rested long, and of too many the ones that rested longest."""
        now_s = time.monotonic()
        is_open = [one for one in self._files.values() if one.growing is not None]
        is_open.sort(key=lambda one: one.grown_at_s, reverse=True)
        for place, followed in enumerate(is_open):
            rested = now_s - followed.grown_at_s > RESTED_S
            if not followed.catching_up and (place >= OPEN_MAX or rested):
                self._release(followed)

    def _release(self, followed: Followed) -> None:
        if followed.growing is not None:
            followed.growing.close()
            followed.growing = None
        followed.catching_up = False

    # --- hooks -----------------------------------------------------------------------

    def _drain_hooks(self) -> bool:
        """Record what hooks told, behind their transcripts; whether these hold more."""
        if self._hooks is None:
            return False
        more = False
        for path in self._hooks.look():
            if self._is_file(path) and (followed := self._follow(path)) is not None:
                more |= self._look_at(followed)
        try:
            drained = self._hooks.drain(
                self._log, self._told_by, now_us=time.time_ns() // 1000
            )
        except LogError:
            for followed in self._files.values():
                self._release(followed)  # any of them may have been under way
            raise
        self.totals.hooks += drained.recorded
        self.totals.hooks_waiting = drained.held
        if drained.recorded:
            self._say(Said("hooks", events=drained.recorded))
        for refused in drained.refused:
            self._say(Said("failed", str(refused.path), refused.reason))
        return more

    def _is_file(self, path: Path) -> bool:
        """Whether there is such a file; where nobody can tell there is none."""
        try:
            return path.is_file()
        except (OSError, ValueError) as error:
            self._is_odd(str(path), error)
            return False

    def _told_by(self, path: Path) -> Found:
        """The transcript of a hook, as far as it is read by now."""
        if not self._is_file(path) or (followed := self._follow(path)) is None:
            return None
        if followed.growing is None and followed.position is not None:
            followed.position = None
            followed.signature = ()
            self._look_at(followed)
        growing = followed.growing
        if growing is None:
            return NOT_YET if followed.in_line else None
        return NOT_YET if growing.grown or followed.catching_up else growing

    # --- positions -------------------------------------------------------------------

    def _keep_positions(self, *, at_once: bool) -> None:
        now_s = time.monotonic()
        due = at_once or now_s - self._written_at_s > POSITIONS_INTERVAL_S
        if not self._dirty or not due:
            return
        for followed in self._files.values():
            if followed.position is None:
                self._kept.pop(str(followed.path), None)
            else:
                self._kept[str(followed.path)] = followed.position
        with suppress(OSError):  # only a restart will take longer
            write_positions(self._positions_path, self._kept)
        self._dirty = False
        self._written_at_s = now_s

    def _count(self) -> None:
        self.totals.files = len(self._files)
        failed = sum(bool(one.failed) for one in self._files.values())
        self.totals.failed = failed + len(self._odd)
        self.totals.held = sum(one.held for one in self._files.values())
