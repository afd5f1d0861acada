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
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from foldline.errors import FoldlineError, ImportSourceError, LogError
from foldline.processors.log import Log
from foldline.producers.growing import Growing, beginning_of
from foldline.producers.hook_draining import HookSpool
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
"""How long a file that was renamed away is read on."""

RETRY_MS = (500, 1_000, 2_000, 5_000, 10_000)
"""How long a log that is away is waited for before it is asked again; the last, over and
over."""

NOT_FOLLOWED = "no transcript of Claude Code or Codex: only these are followed"

PATTERN = "*.jsonl"
"""What is followed in folders, and in the folders below them."""

Kind = Literal["recorded", "alarm", "failed", "waiting", "back", "hooks"]


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

    `catching_up`: it was not read to its end since it was opened. `failed`: why it cannot
    be followed as it is.
    """

    path: Path
    signature: tuple[int, ...] = ()
    position: Position | None = None
    growing: Growing | None = None
    catching_up: bool = False
    grown_at_s: float = 0.0
    failed: str = ""


@dataclass(slots=True)
class Totals:
    """What a mirror did so far. `held` files do not say yet of which session they are."""

    files: int = 0
    held: int = 0
    events: int = 0
    hooks: int = 0
    hooks_waiting: int = 0
    alarms: int = 0
    failed: int = 0


@dataclass(slots=True)
class _Renamed:
    """A file whose name is another's by now: where it is, as far as that is known."""

    growing: Growing | None
    path: Path | None
    named: Path
    until_s: float


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
            paths: files, and folders in which every `PATTERN` is followed.
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
        self._renamed: list[_Renamed] = []
        self._hooks = (
            HookSpool(spool, settings=settings, redactor=redactor) if spool else None
        )
        self._positions_path = positions_path(settings.state_dir, log.url)
        self._kept = borne_out(log, read_positions(self._positions_path))
        self._dirty = False
        self._written_at_s = self._scanned_at_s = float("-inf")
        self.totals = Totals()
        for path in paths:
            if not path.is_dir():
                self._follow(path)

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
                break
            more |= self._look_at(followed)
        self._read_renamed()
        self._drain_hooks()
        self._let_go()
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
        for folder in self._folders:
            for path in sorted(folder.rglob(PATTERN)):
                self._follow(path)
        self._scanned_at_s = time.monotonic()

    def _follow(self, path: Path) -> Followed:
        path = path.resolve()
        followed = self._files.get(path)
        if followed is None:
            position = self._kept.get(str(path))
            followed = self._files[path] = Followed(path, position=position)
        return followed

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
        signature = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        if signature == followed.signature:
            return False
        if followed.growing is None and self._catching_up() >= CATCHING_UP_MAX:
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
        self._renamed.append(_Renamed(growing, path, named, until_s))

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

    def _read_one_renamed(self, renamed: _Renamed) -> None:
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

    def _drain_hooks(self) -> None:
        """Record what hooks told, behind the transcripts that it belongs to."""
        if self._hooks is None:
            return
        for path in self._hooks.look():
            if path.is_file():
                self._look_at(self._follow(path))
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
            self._say(Said("failed", str(refused), "a hook that names no session"))

    def _told_by(self, path: Path) -> Growing | None:
        """The transcript of a hook, read to its end by now."""
        followed = self._files.get(path.resolve())
        if followed is None:
            return None
        if followed.growing is None and followed.position is not None:
            followed.position = None
            followed.signature = ()
            while self._look_at(followed) and not self._stopped():
                pass  # a part at a time
        growing = followed.growing
        return growing if growing is not None and not growing.grown else None

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
        self.totals.failed = sum(bool(one.failed) for one in self._files.values())
        self.totals.held = sum(
            one.position is None and one.growing is None and not one.failed
            for one in self._files.values()
        )
