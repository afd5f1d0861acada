"""A session as JSON lines: a header, then each event, whatever it refers to inline.

    {"foldline": "session", "version": 1, "session_id": "...", "upto_seq": 412, ...}
    {"seq": 1, "type": "SessionCreated", ...}

An event's line is its view, as `foldline events --json` has it; a blob in it also holds
its bytes, as `text` or else as `base64`. One event is in memory at a time.
"""

import base64
from collections.abc import Iterator
from typing import Any, cast

from foldline.processors.lineage import Lineage, joined_events
from foldline.processors.log import Log
from foldline.processors.restore import broken
from foldline.projections.context import is_text
from foldline.projections.views import event_view
from foldline.schemas.blocks import Blob
from foldline.schemas.recorded import Recorded

FORMAT = "session"
VERSION = 1
"""The version of the lines; a reader refuses those that it does not know."""


def session_lines(log: Log, lineage: Lineage, *, upto_seq: int) -> Iterator[dict[str, Any]]:
    """The header, then every event of a history up to a seq.

    Raises (as it goes):
        LineageError: an ancestor is not there as it was.
        LogFormatError: an event is missing.
        BlobError: a blob is missing, or not the bytes of its hash.
    """
    yield {
        "foldline": FORMAT,
        "version": VERSION,
        "session_id": lineage.session_id,
        "upto_seq": upto_seq,
        "lineage": [
            {"session_id": one.session_id, "first_seq": one.first_seq}
            for one in lineage.stretches
            if one.first_seq <= upto_seq
        ],
    }
    for recorded in whole_events(log, lineage, upto_seq=upto_seq):
        yield with_bodies(log, event_view(recorded))


def whole_events(log: Log, lineage: Lineage, *, upto_seq: int) -> Iterator[Recorded]:
    """Every event of a history from its first up to a seq; none may be missing.

    Raises (as it goes):
        LineageError: an ancestor is not there as it was.
        LogFormatError: an event is missing.
    """
    seq = 0
    for recorded in joined_events(log, lineage, upto_seq=upto_seq):
        if recorded.seq != seq + 1:
            break
        seq = recorded.seq
        yield recorded
    if seq != upto_seq:
        raise broken(log.url, lineage.holder(seq + 1), seq + 1, "the event is missing")


def with_bodies(log: Log, view: dict[str, Any]) -> dict[str, Any]:
    """A view of an event with the bytes of its blobs beside what is said of them.

    Raises:
        BlobError: a blob is missing, or not the bytes of its hash.
    """
    return {name: _with_bodies(log, value) for name, value in view.items()}


def _with_bodies(log: Log, value: Any) -> Any:
    if isinstance(value, list):
        return [_with_bodies(log, item) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    fields = cast("dict[str, Any]", value)
    if set(fields) == {"blob"}:
        return {"blob": fields["blob"] | _bytes_of(log, fields["blob"])}
    return with_bodies(log, fields)


def _bytes_of(log: Log, told: dict[str, Any]) -> dict[str, str]:
    """The bytes of a blob: text where they are that, and not encrypted."""
    blob = Blob(
        sha256=bytes.fromhex(told["sha256"]),
        size=told["size"],
        media_type=told["media_type"],
        key_id=told["key_id"],
    )
    data = log.blobs.get(blob.sha256)
    if is_text(blob) and blob.key_id is None:
        try:
            return {"text": data.decode()}
        except UnicodeDecodeError:
            pass
    return {"base64": base64.b64encode(data).decode()}
