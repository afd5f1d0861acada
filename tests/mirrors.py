"""A kit for mirrors: a folder of transcripts, and a log that they are followed into."""

import os
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from foldline.faults import arm
from foldline.processors.open_log import open_log
from foldline.processors.stored import AuditableLog
from foldline.producers.followed import Said, Totals
from foldline.producers.importers import import_file
from foldline.producers.mirroring import Mirroring
from foldline.producers.redaction import Redactor
from foldline.producers.redaction_key import key_of_log
from foldline.settings import Settings
from tests.transcripts import KEY, Import, Json

NOTHING: Mapping[str, str] = {}


@dataclass
class Follower:
    """Follows what is in a folder, a round at a time."""

    folder: Path
    log: AuditableLog = field(default_factory=lambda: open_log("memory:"))
    spool: Path | None = None
    said: list[Said] = field(default_factory=list[Said])
    stop: bool = False

    def __post_init__(self) -> None:
        self.transcripts = self.folder / "transcripts"
        self.transcripts.mkdir(exist_ok=True)
        self.settings = Settings(state_dir=self.folder / "state")
        self.redactor = Redactor(KEY)
        self.mirroring = self.start()

    def start(self, *paths: Path) -> Mirroring:
        """Begin, as a process does that knows nothing but its positions."""
        self.mirroring = Mirroring(
            self.log,
            paths or [self.transcripts],
            settings=self.settings,
            redactor=self.redactor,
            say=self.said.append,
            stopped=lambda: self.stop,
            spool=self.spool,
        )
        return self.mirroring

    def go(self) -> Totals:
        """Go round until there is nothing more to do."""
        self.mirroring.scan_soon()
        while self.mirroring.round():
            pass
        return self.mirroring.totals

    def restart(self) -> None:
        """End in order, and begin again."""
        self.mirroring.close()
        self.start()

    def path(self, name: str = "session.jsonl") -> Path:
        return self.transcripts / name

    def kinds(self) -> list[str]:
        return [one.kind for one in self.said]

    def image(self) -> Json:
        return Import(self.log, self.folder).image()


def imported(folder: Path, *files: Path, redactor: Redactor | None = None) -> Json:
    """What one import of finished files gives, into a log of its own."""
    into = Import(open_log("memory:"), folder)
    for file in files:
        import_file(into.log, file, settings=Settings(), redactor=redactor or Redactor(KEY))
    return into.image()


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def foldline(
    *arguments: str, told: bytes = b"", environment: Mapping[str, str] = NOTHING
) -> subprocess.CompletedProcess[bytes]:
    """Run the command as a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", RUN, *arguments],
        env=os.environ | dict(environment),
        input=told,
        capture_output=True,
        check=False,
        timeout=60,
    )


def live(run: Callable[[], object], *, crash_at: str = "") -> int:
    """Do something in a child of this process; the signal that ended it, or 0.

    It needs no new interpreter, so that a process may die often.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # other threads of the test run do no harm
        child = os.fork()
    if child == 0:
        try:
            arm({"FOLDLINE_CRASH_AT": crash_at})
            run()
        except BaseException:  # noqa: BLE001 - a child never comes back to the test
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def follow_once(folder: Path, url: str, spool: Path | None = None) -> None:
    """What `foldline mirror --once` does."""
    follower = Follower(folder, open_log(url), spool)
    follower.settings = follower.settings.model_copy(update={"batch_max": 5})
    follower.redactor = Redactor(key_of_log(url))
    follower.start()
    follower.go()
    follower.mirroring.close()


RUN = "import sys; from foldline.cli import main; sys.exit(main())"
