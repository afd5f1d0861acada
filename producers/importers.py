"""Every importer by its format, and the one for a file."""

from pathlib import Path
from typing import Protocol

from foldline.processors.log import Log
from foldline.producers import claude_code, codex, openai_agents
from foldline.producers.detect import (
    CLAUDE_CODE,
    CODEX,
    OPENAI_AGENTS,
    check_readable,
    detect,
)
from foldline.producers.import_run import OnProgress
from foldline.producers.importing import ImportReport
from foldline.producers.prepare import Redacts
from foldline.settings import Settings


class Imports(Protocol):
    """Imports a file of one format."""

    def __call__(
        self,
        log: Log,
        path: Path,
        *,
        settings: Settings,
        redactor: Redacts,
        on_progress: OnProgress | None = None,
        check: bool = True,
    ) -> ImportReport:
        """Import a file."""
        ...


IMPORTERS: dict[str, Imports] = {
    CLAUDE_CODE: claude_code.import_file,
    CODEX: codex.import_file,
    OPENAI_AGENTS: openai_agents.import_file,
}
"""The importers by the names of their formats."""


def import_file(
    log: Log,
    path: Path,
    *,
    settings: Settings,
    redactor: Redacts,
    on_progress: OnProgress | None = None,
    format_: str | None = None,
) -> ImportReport:
    """Import a file of whatever format; what is there already is not added again.

    Args:
        log: where to record it.
        path: the file.
        settings: limits.
        redactor: takes secrets out.
        on_progress: is told how far it is.
        format_: takes the file for one of this format instead of looking.

    Raises:
        ImportSourceError: the file cannot be read, or is of no format that is known.
        LogUnavailableError: the log gave no answer; import again to go on.
    """
    check_readable(path)
    found = format_ or detect(path, record_max_bytes=settings.import_record_max_bytes)
    return IMPORTERS[found](
        log,
        path,
        settings=settings,
        redactor=redactor,
        on_progress=on_progress,
        check=False,
    )
