"""The importer of OpenAI Agents run states and item lists, as mirrored facts.

A run state is what a run was stopped with: what it was given, what the model answered,
what became of the calls, and what waits for permission. An item list is what
`to_input_list()` gives. The same run later adds what it did since. What a state says
beside the history is kept as it is, once for each state. Only SessionCreated, turns and,
where items have no answer that they are of, its end are inferred.
"""

from pathlib import Path

from foldline.processors.log import Log
from foldline.producers.detect import check_format
from foldline.producers.import_run import OnProgress, origin_of, run_import
from foldline.producers.importing import ImportReport
from foldline.producers.mirror import Mirror
from foldline.producers.openai_agents_mapping import Mapping, pieces_of
from foldline.producers.openai_agents_state import SYSTEM, read_document
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
    """Import a run state or an item list; what is there already is not added again.

    With `check` false the file is taken for one: whoever calls knows what it is.

    Raises:
        ImportSourceError: the file cannot be read, is something else, or is a run state
            of a version that is not known.
        LogUnavailableError: the log gave no answer; import again to go on.
    """
    limit = settings.import_record_max_bytes
    if check:
        check_format(path, SYSTEM, record_max_bytes=limit)
    document = read_document(path, record_max_bytes=limit)
    origin = origin_of(SYSTEM, path, redactor)

    def begin(mirror: Mirror, report: ImportReport) -> Mapping:
        return Mapping(mirror, report, stream=origin.stream, document=document)

    return run_import(
        log,
        origin,
        pieces_of(document),
        begin,
        settings=settings,
        redactor=redactor,
        on_progress=on_progress,
    )
