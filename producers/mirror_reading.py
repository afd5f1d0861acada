"""Reading one transcript that grows, and saying what became of it."""

from collections.abc import Callable, Sequence
from pathlib import Path

from foldline.errors import ImportSourceError
from foldline.processors.log import Log
from foldline.producers.followed import Said, Totals
from foldline.producers.growing import Growing, beginning_of
from foldline.producers.import_run import Origin, origin_of
from foldline.producers.importing import Alarm
from foldline.producers.redaction import Redactor
from foldline.settings import Settings

NOT_FOLLOWED = "no transcript of Claude Code or Codex: only these are followed"


class Reading:
    """What all files of a mirror are read with.

    Args:
        log: where they are recorded.
        settings: limits.
        redactor: takes secrets out.
        say: is told what happens.
        stopped: whether to come to an end.
    """

    def __init__(
        self,
        log: Log,
        *,
        settings: Settings,
        redactor: Redactor,
        say: Callable[[Said], None],
        stopped: Callable[[], bool],
    ) -> None:
        self.log = log
        self.settings = settings
        self.redactor = redactor
        self.say = say
        self.stopped = stopped
        self.totals = Totals()

    def opened(self, path: Path, named: Path) -> Growing | None:
        """A transcript that says what it is; `named` is the name it was followed by.

        Raises:
            ImportSourceError: it cannot be read, or is no transcript.
            LogUnavailableError: the log gave no answer.
        """
        limit = self.settings.import_record_max_bytes
        beginning = beginning_of(path, record_max_bytes=limit)
        if beginning.unknown:
            raise ImportSourceError(str(path), NOT_FOLLOWED)
        if not beginning.settled:
            return None
        stream = origin_of(beginning.format, named, self.redactor).stream
        origin = Origin(beginning.format, path, stream)
        return Growing(self.log, origin, settings=self.settings, redactor=self.redactor)

    def record(self, growing: Growing) -> bool:
        """Record what is new, and say what became of it; whether there is more.

        Raises:
            ImportSourceError: the file cannot be read.
            LogUnavailableError: the log gave no answer.
        """
        report = growing.report
        before, alarms = report.events, len(report.alarms)
        try:
            return growing.read(stopped=self.stopped)
        finally:  # also where the log is away by now
            self._tell(growing, report.events - before, report.alarms[alarms:])

    def _tell(self, growing: Growing, added: int, alarms: Sequence[Alarm]) -> None:
        path = growing.report.path
        if added:
            self.totals.events += added
            self.say(Said("recorded", path, "", added, tuple(growing.mirror.heads)))
        for alarm in alarms:
            self.totals.alarms += 1
            detail = f"{alarm.kind} {alarm.session_id}: {alarm.detail}"
            self.say(Said("alarm", path, detail, 0, (alarm.session_id,)))
