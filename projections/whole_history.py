"""The whole conversation of a session as one request, as if nothing had made it smaller.

What compacted, pruned, summarised or cleared the context is left out, so the originals
are shown. What was rewound or retracted is not, nor what a subagent said among its own
(a branch).
"""

from typing import Any

from foldline.errors import ExportRefusedError
from foldline.processors.lineage import Lineage
from foldline.processors.log import Log
from foldline.projections.building import build
from foldline.projections.context import Sources, bytes_with_texts, text_blobs
from foldline.projections.model_calls import main_calls
from foldline.projections.render import render
from foldline.projections.render_rules import breaches
from foldline.projections.session_lines import whole_events
from foldline.schemas.events import (
    CompactionCompleted,
    CompactionFailed,
    CompactionStarted,
    ContextCleared,
    ContextPruned,
    SummaryCreated,
)
from foldline.schemas.recorded import Recorded

HISTORY_MAX_BYTES = 256 * 1024 * 1024
"""How much of a session, its texts included, may be one request: it is built in memory."""

BREACHES_SHOWN = 3

NO_MODEL = "unknown"
"""The model of a request where no event says which was asked."""

MADE_SMALLER: frozenset[type] = frozenset(
    {
        CompactionCompleted,
        CompactionFailed,
        CompactionStarted,
        ContextCleared,
        ContextPruned,
        SummaryCreated,
    }
)
"""Events that say what was no longer shown, or what was shown instead."""


def whole_request(
    log: Log,
    lineage: Lineage,
    *,
    upto_seq: int,
    format: str,  # noqa: A002 - the word for it
) -> dict[str, Any]:
    """The whole conversation up to a seq as a request that an API would take.

    Raises:
        ExportRefusedError: it is too large to be one, or the API would refuse it.
        LineageError: an ancestor is not there as it was.
        LogFormatError: an event is missing.
        BlobError: a blob is missing, or not the bytes of its hash.
    """
    events = _bounded(log, lineage, upto_seq, format)
    texts = {
        sha256: log.blobs.get(sha256).decode("utf-8", "replace")
        for sha256 in text_blobs(events)
    }
    calls = [call for call in main_calls(events) if call.model]
    request = render(
        build(Sources(events, texts=texts)),
        format,
        model=calls[-1].model if calls else NO_MODEL,
        provider=calls[-1].provider if calls else "",
        read_blob=log.blobs.get,
    )
    wrong = breaches(request, format)
    if wrong:
        reason = f"the API would refuse it: {'; '.join(wrong[:BREACHES_SHOWN])}"
        raise ExportRefusedError(lineage.session_id, format, reason)
    return request


def _bounded(log: Log, lineage: Lineage, upto_seq: int, format: str) -> list[Recorded]:  # noqa: A002 - the word for it
    """The events of the conversation, as long as they are not too large together."""
    size = 0
    kept: list[Recorded] = []
    for recorded in whole_events(log, lineage, upto_seq=upto_seq):
        if type(recorded.event) in MADE_SMALLER or recorded.envelope.branch is not None:
            continue
        size += bytes_with_texts(recorded)
        if size > HISTORY_MAX_BYTES:
            reason = f"it is more than {HISTORY_MAX_BYTES} bytes; jsonl has no limit"
            raise ExportRefusedError(lineage.session_id, format, reason)
        kept.append(recorded)
    return kept
