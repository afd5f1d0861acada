"""The importer of Claude Code transcripts: what another harness did, as mirrored facts.

A file is known by its content. Every record is exactly one of: mapped to events, a copy
(its uuid was seen with equal content), declared noise, or foreign (kept as it is, in its
place); every other piece of the file is rejected. Nothing is refused, nothing invented:
only SessionCreated, TurnStarted and TurnEnded are inferred.

The same file again adds nothing, a grown one its tail, and a killed import goes on where
it was: ids come from the records, and events depend only on the records before them.
"""

from collections.abc import Callable
from pathlib import Path

from foldline.processors.log import Log
from foldline.producers.claude_code_detect import check_source, first_session
from foldline.producers.claude_code_mapping import Mapping
from foldline.producers.claude_code_records import SYSTEM
from foldline.producers.importing import ImportReport, read_pieces
from foldline.producers.mirror import Mirror
from foldline.producers.prepare import Preparer, Redacts
from foldline.settings import Settings

OnProgress = Callable[[int, int, ImportReport], None]
"""Is told how many bytes of how many are read, and the report so far."""


def import_file(
    log: Log,
    path: Path,
    *,
    settings: Settings,
    redactor: Redacts,
    on_progress: OnProgress | None = None,
) -> ImportReport:
    """Import a transcript of Claude Code; what is there already is not added again.

    1. See by its content that it is one.
    2. Read it piece by piece, never more than one line in memory.
    3. Map each record to facts; record those that are new, in batches.
    4. Compare what was imported from this file before with what it holds now.

    Raises:
        ImportSourceError: the file cannot be read, or is something else.
        LogUnavailableError: the log gave no answer; import again to go on.
    """
    limit = settings.import_record_max_bytes
    check_source(path, record_max_bytes=limit)
    stream = str(path.resolve())
    report = ImportReport(path=str(path), system=SYSTEM)
    size = path.stat().st_size
    read = 0

    def on_batch() -> None:
        if on_progress is not None:
            on_progress(read, size, report)

    mirror = Mirror(
        log,
        Preparer(redactor, log.blobs, settings.inline_max_bytes),
        report=report,
        batch_max=settings.batch_max,
        on_batch=on_batch,
    )
    first = first_session(path, record_max_bytes=limit)
    mapping = Mapping(mirror, report, stream=stream, first_session=first)
    for piece in read_pieces(path, record_max_bytes=limit):
        read = piece.offset + piece.length
        mapping.take(piece)
    mirror.close(system=SYSTEM, stream=stream)
    mapping.close()
    read = size
    on_batch()
    return report
