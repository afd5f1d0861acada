"""What a batch writes into a log of JSON lines: its new schemas, then its events."""

import base64
import hashlib
from collections.abc import Iterable
from typing import Any

from foldline.errors import FoldlineError
from foldline.processors.batch import Change
from foldline.processors.jsonl_index import JsonlIndex, index_of
from foldline.processors.jsonl_line import (
    EventLine,
    SchemaLine,
    event_line,
    schema_line,
    view_of,
)
from foldline.processors.stored import StoredEvent
from foldline.schemas.codec import Codec
from foldline.schemas.registry import StoredSchema


class JsonlSchemas:
    """The schemas of the file, and those that the batch under way brings along."""

    def __init__(self, index: JsonlIndex) -> None:
        self._index = index
        self.new: list[StoredSchema] = []

    def rows(self) -> Iterable[StoredSchema]:
        """Every schema, in the order of the ids."""
        rows = [*self._index.schemas.values(), *self.new]
        return sorted(rows, key=lambda row: row.schema_id)

    def add(self, name: str, version: int, fingerprint: bytes, text: str) -> int:
        """The id of a schema: the one it has, or a new one, written with the next batch."""
        last = 0
        for row in self.rows():
            if row.fingerprint == fingerprint:
                return row.schema_id
            last = row.schema_id
        self.new.append(StoredSchema(last + 1, name, version, fingerprint, text))
        return last + 1


def lines_of(
    schemas: Iterable[StoredSchema], changes: Iterable[Change], *, codec: Codec
) -> bytes:
    """The lines of a batch; each says how many follow it."""
    new = list(schemas)
    events = [(change, row) for change in changes for row in change.events]
    left = len(new) + len(events)
    lines: list[bytes] = []
    for row in new:
        left -= 1
        lines.append(schema_line(SchemaLine(left, row)))
    for change, row in events:
        left -= 1
        lines.append(_event(change, row, left, codec))
    return b"".join(lines)


def _event(change: Change, row: StoredEvent, left: int, codec: Codec) -> bytes:
    state = change.state
    line = EventLine(
        left,
        state.session_id,
        row.seq,
        row.schema_id,
        hashlib.sha256(row.body).digest(),
        index_of(state) if row is change.events[-1] else b"",
        base64.b64encode(row.body),
    )
    return event_line(line, _view(row, codec))


def _view(row: StoredEvent, codec: Codec) -> dict[str, Any]:
    try:
        return view_of(codec.decode(row.schema_id, row.body))
    except (FoldlineError, OverflowError, ValueError):
        return {}  # of a newer foldline: its bytes are kept, and it is not shown
