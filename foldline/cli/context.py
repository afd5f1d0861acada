"""What every command gets: the log it works on, and where its answer goes.

Whatever is heavy (pydantic, SQLite, Avro) is loaded here when a command needs it, so
that `foldline --help` does not wait for it.
"""

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from foldline.cli.failures import AmbiguousSessionError, NoLogError, UsageError
from foldline.cli.output import Output
from foldline.errors import SessionNotFoundError

if TYPE_CHECKING:
    from foldline.processors.log import Log
    from foldline.processors.stored import AuditableLog
    from foldline.producers.redaction import Redactor
    from foldline.schemas.registry_client import RegistryClient
    from foldline.settings import Settings

SESSIONS_SEARCHED_MAX = 100_000
"""Among how many sessions, the most recently active ones, a prefix is looked for."""

CANDIDATES_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Context:
    """The options that every command has. `url` is None where --log was not given."""

    url: str | None
    out: Output

    def settings(self) -> "Settings":
        """The settings of the environment, with --log in the place of its URL.

        Raises:
            SettingsError: a FOLDLINE_ variable that means nothing.
        """
        from foldline.settings import Settings  # late: see above

        settings = Settings()
        if self.url is None:
            return settings
        return settings.model_copy(update={"url": self.url})

    def settings_for(self, registry: str | None) -> "Settings":
        """The settings, with --registry in the place of FOLDLINE_REGISTRY_URL."""
        settings = self.settings()
        if registry is None:
            return settings
        return settings.model_copy(update={"registry_url": registry})

    @contextmanager
    def registry(self, url: str | None) -> Generator["RegistryClient"]:
        """The registry of the log, which answers; says so while it waits for it."""
        from foldline.schemas.registry_client import registry_of  # late: see above

        settings = self.settings_for(url)
        registry = registry_of(settings)
        try:
            registry.wait_ready(settings.registry_wait_ms, say=self.out.remark)
            yield registry
        finally:
            registry.close()

    @contextmanager
    def writing(self) -> Generator["AuditableLog"]:
        """The log, made if it does not exist."""
        from foldline.processors.open_log import open_log  # late: see above

        settings = self.settings()
        log = open_log(settings.url, settings=settings)
        try:
            yield log
        finally:
            log.close()

    @contextmanager
    def reading(self) -> Generator["AuditableLog"]:
        """The log as it is; none is made.

        Raises:
            NoLogError: there is none.
        """
        must_exist(self.settings().url)
        with self.writing() as log:
            yield log


def must_be_there(paths: Iterable[Path]) -> None:
    """Refuse a file or a folder that is not there.

    Raises:
        FileNotFoundError: which one.
    """
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(2, "no such file or folder", str(path))


def must_exist(url: str) -> None:
    """Refuse an URL that names a log that is not there.

    Raises:
        NoLogError: no file, an empty file, or a memory that nobody has filled.
        SettingsError: a path in the home of nobody.
    """
    from foldline.processors.open_log import path_of  # late: see above

    if url == "memory:":
        raise NoLogError(url, "memory: lasts only as long as one process")
    path = path_of(url)
    if path is None:
        return  # open_log says what is wrong with it
    if path.with_name(f"{path.name}-wal").exists():
        return  # there was one; open_log says what became of it
    if not path.exists():
        raise NoLogError(url, f"{path} does not exist")
    if path.is_file() and path.stat().st_size == 0:
        raise NoLogError(url, f"{path} is empty")


def redactor_of(log: "Log", settings: "Settings") -> "Redactor":
    """What takes secrets out of all that this command records in a log."""
    from foldline.producers.redaction_file import redactor_for  # late: see above

    return redactor_for(log.url, settings.redaction_rules)


def find_session(log: "Log", wanted: str) -> str:
    """The session of this id, or the only one whose id begins with it.

    Raises:
        SessionNotFoundError: none.
        AmbiguousSessionError: several begin with it, and none is it.
    """
    if wanted and log.state(wanted) is not None:
        return wanted
    listed = log.sessions(limit=SESSIONS_SEARCHED_MAX)
    return one_of((s.session_id for s in listed), wanted, url=log.url)


def chosen(log: "AuditableLog", wanted: Iterable[str]) -> list[str]:
    """The ids of these sessions; every session of the log where none is wanted.

    The index tells them: a state may be what is broken.

    Raises:
        UsageError, SessionNotFoundError, AmbiguousSessionError: as `one_of`.
    """
    session_ids = [row.session_id for row in log.stored_sessions()]
    found = [one_of(session_ids, name, url=log.url) for name in wanted]
    return found or session_ids


def one_of(session_ids: Iterable[str], wanted: str, *, url: str) -> str:
    """The id that is this one, or the only one that begins with it.

    Raises:
        UsageError: nothing was given.
        SessionNotFoundError: none.
        AmbiguousSessionError: several begin with it, and none is it.
    """
    if not wanted:
        raise UsageError("SESSION", "an id or the beginning of one; it is empty")
    fitting = [name for name in session_ids if name.startswith(wanted)]
    if wanted in fitting:
        return wanted
    if not fitting:
        raise SessionNotFoundError(wanted, url)
    if len(fitting) > 1:
        raise AmbiguousSessionError(wanted, fitting[:CANDIDATES_SHOWN])
    return fitting[0]
