"""The importer of Codex rollouts: what another harness did, as mirrored facts.

A file is one session, whatever ids its copied records name. Items are what the model saw
and said; events of the interface that say the same again are noise. Every record is
exactly one of: mapped to events, a copy, declared noise, or foreign (kept as it is, in
its place); every other piece of the file is rejected. Only SessionCreated, the end of
each answer of the model (rollouts do not say it), and turns of the older form are
inferred.
"""

from pathlib import Path

from foldline.processors.log import Log
from foldline.producers.codex_forks import copied_from
from foldline.producers.codex_mapping import Mapping
from foldline.producers.codex_records import SYSTEM, Record
from foldline.producers.detect import LOOKED_AT_MAX, check_format
from foldline.producers.import_run import Begin, OnProgress, Origin, origin_of, run_import
from foldline.producers.importing import ImportReport, read_pieces
from foldline.producers.json_fields import Json
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
    """Import a rollout of Codex; what is there already is not added again.

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
        begin_of(log, origin, record_max_bytes=limit),
        settings=settings,
        redactor=redactor,
        on_progress=on_progress,
    )


def begin_of(log: Log, origin: Origin, *, record_max_bytes: int) -> Begin:
    """What makes the mapping of a rollout.

    Raises:
        ImportSourceError: the file cannot be read.
        LogUnavailableError: the log gave no answer.
    """
    session_id, head = _session(origin.path, record_max_bytes)
    copied = copied_from(log, origin.path, head, record_max_bytes=record_max_bytes)

    def begin(mirror: Mirror, report: ImportReport) -> Mapping:
        return Mapping(
            mirror,
            report,
            stream=origin.stream,
            session_id=session_id,
            head=head,
            copied=copied,
        )

    return begin


def _session(path: Path, record_max_bytes: int) -> tuple[str, Json]:
    """The session's id, and the record about it.

    It is the first that names one; where none does, the SHA-256 of the first record is
    the id.
    """
    first = ""
    pieces = read_pieces(path, record_max_bytes=record_max_bytes)
    for _, piece in zip(range(LOOKED_AT_MAX), pieces, strict=False):
        if piece.record is None:
            continue
        first = first or piece.sha256.hex()
        record = Record(piece, piece.record)
        if record.session:
            return record.session, record.payload
    return first, {}
