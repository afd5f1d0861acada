"""One import from its first piece to its last, whatever the format."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from foldline.processors.log import Log
from foldline.producers.importing import ImportReport, Piece
from foldline.producers.mirror import Mirror
from foldline.producers.prepare import Preparer, Redacts
from foldline.schemas.blocks import text_block, text_of
from foldline.schemas.events import UserMessage
from foldline.settings import Settings

OnProgress = Callable[[int, int, ImportReport], None]
"""Is told how many bytes of how many are read, and the report so far."""


class Maps(Protocol):
    """What makes facts of the pieces of one file."""

    def take(self, piece: Piece) -> None:
        """Take the next piece."""
        ...

    def close(self) -> None:
        """Write the counts of the whole file into the report."""
        ...


Begin = Callable[[Mirror, ImportReport], Maps]
"""Makes the mapping of one file."""


@dataclass(frozen=True, slots=True)
class Origin:
    """What is imported: a format, and the file that everything of it is read from.

    `stream` names the source in every fact: the path, without the secrets in it.
    """

    system: str
    path: Path
    stream: str


def origin_of(system: str, path: Path, redactor: Redacts) -> Origin:
    """The origin of a file.

    Raises:
        RedactionError: the redactor cannot tell whether a secret is in the path.
    """
    said = UserMessage(message_id="", blocks=(text_block(str(path.resolve())),))
    redacted, _ = redactor.redact_event(said)
    return Origin(system, path, text_of(cast("UserMessage", redacted).blocks))


def run_import(
    log: Log,
    origin: Origin,
    pieces: Iterable[Piece],
    begin: Begin,
    *,
    settings: Settings,
    redactor: Redacts,
    on_progress: OnProgress | None = None,
) -> ImportReport:
    """Map every piece to facts and record those that are new.

    Raises:
        ImportSourceError: the file cannot be read.
        LogUnavailableError: the log gave no answer; import again to go on.
    """
    report = ImportReport(path=str(origin.path), system=origin.system)
    size = origin.path.stat().st_size
    read = 0

    def on_batch() -> None:
        if on_progress is not None:
            on_progress(min(read, size), size, report)

    mirror = mirror_for(
        log, report, settings=settings, redactor=redactor, on_batch=on_batch
    )
    mapping = begin(mirror, report)
    for piece in pieces:
        read = piece.offset + piece.length
        mapping.take(piece)
    mirror.close(system=origin.system, stream=origin.stream)
    mapping.close()
    read = size
    on_batch()
    return report


def mirror_for(
    log: Log,
    report: ImportReport,
    *,
    settings: Settings,
    redactor: Redacts,
    on_batch: Callable[[], None] = lambda: None,
) -> Mirror:
    """What records the facts of one source in a log, and counts in a report."""
    return Mirror(
        log,
        Preparer(redactor, log.blobs, settings.inline_max_bytes),
        report=report,
        batch_max=settings.batch_max,
        on_batch=on_batch,
    )
