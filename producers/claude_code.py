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
from foldline.producers.claude_code_detect import first_session
from foldline.producers.claude_code_mapping import Mapping
from foldline.producers.claude_code_records import SYSTEM
from foldline.producers.detect import check_format
from foldline.producers.import_run import OnProgress, Origin, origin_of, run_import
from foldline.producers.importing import ImportReport, read_pieces
from foldline.producers.mirror import Mirror
from foldline.producers.prepare import Redacts
from foldline.settings import Settings


def import_file(
    log: Log,
    path: Path,
    *,
    settings: Settings,
    redactor: Redacts,
    on_progress: OnProgress | None = None,
    check: bool = True,
) -> ImportReport:
    """Import a transcript of Claude Code; what is there already is not added again.

    1. See by its content that it is one.
    2. Read it piece by piece, never more than one line in memory.
    3. Map each record to facts; record those that are new, in batches.
    4. Compare what was imported from this file before with what it holds now.

    With `check` false the file is taken for one: whoever calls knows what it is.

    Raises:
        ImportSourceError: the file cannot be read, or is something else.
        LogUnavailableError: the log gave no answer; import again to go on.
    """
    limit = settings.import_record_max_bytes
    if check:
        check_format(path, SYSTEM, record_max_bytes=limit)
    origin = origin_of(SYSTEM, path, redactor)
    return run_import(
        log,
        origin,
        read_pieces(path, record_max_bytes=limit),
        begin_of(origin, record_max_bytes=limit),
        settings=settings,
        redactor=redactor,
        on_progress=on_progress,
    )


def begin_of(
    origin: Origin, *, record_max_bytes: int
) -> Callable[[Mirror, ImportReport], Mapping]:
    """What makes the mapping of a transcript.

    Raises:
        ImportSourceError: the file cannot be read.
    """
    first = first_session(origin.path, record_max_bytes=record_max_bytes)

    def begin(mirror: Mirror, report: ImportReport) -> Mapping:
        return Mapping(mirror, report, stream=origin.stream, first_session=first)

    return begin
