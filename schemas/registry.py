"""The local registry: the schemas of one log, by ids that are stored with it.

An id is given at the first event that needs it and never changes. The same schema text
has one id, whoever writes it; a process of another version of foldline that shares the
log writes its own text under an id of its own. Ids differ between logs: bytes that go
from one log to another take their schema along, not its id.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, cast

from foldline.schemas.avsc import event_schema, without_docs
from foldline.schemas.events import EVENT_TYPES


@dataclass(frozen=True, slots=True)
class StoredSchema:
    """One row of a registry. `fingerprint` is the SHA-256 of `text`.

    What a damaged file holds in their place may be anything: look at `intact` first.
    """

    schema_id: int
    name: str
    version: int
    fingerprint: bytes
    text: str

    @property
    def intact(self) -> bool:
        """Whether the text is the one that was stored."""
        text = cast("object", self.text)
        return isinstance(text, str) and fingerprint_of(text) == self.fingerprint

    @property
    def fits(self) -> bool:
        """Whether name and version are those that the text says."""
        try:
            schema = json.loads(self.text)
            said = (schema["name"], schema.get("foldline_schema_version", 1))
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return False  # no schema at all
        return said == (self.name, self.version)


class SchemaStore(Protocol):
    """Where a registry keeps its rows; `SchemaTable` is the one in memory."""

    def rows(self) -> Iterable[StoredSchema]:
        """Every schema, in the order of the ids."""
        ...

    def add(self, name: str, version: int, fingerprint: bytes, text: str) -> int:
        """The id of a schema: the one it has, or a new one."""
        ...


class SchemaTable:
    """Schemas in memory."""

    def __init__(self) -> None:
        self._rows: list[StoredSchema] = []

    def rows(self) -> Iterable[StoredSchema]:
        """Every schema, in the order of the ids."""
        return tuple(self._rows)

    def add(self, name: str, version: int, fingerprint: bytes, text: str) -> int:
        """The id of a schema: the one it has, or a new one."""
        for row in self._rows:
            if row.fingerprint == fingerprint:
                return row.schema_id
        schema_id = len(self._rows) + 1
        self._rows.append(StoredSchema(schema_id, name, version, fingerprint, text))
        return schema_id


class LocalRegistry:
    """Schema ids for writing, schema texts for reading."""

    def __init__(self, store: SchemaStore) -> None:
        self._store = store
        self._ids: dict[tuple[str, int], int] = {}
        self._texts: dict[int, str] = {}

    def id_of(self, name: str, *, version: int = 1) -> int:
        """The id under which events of a record name are written.

        Raises:
            KeyError: neither foldline nor this log knows a schema of that name.
        """
        schema_id = self._ids.get((name, version))
        if schema_id is None:
            schema_id = self._ids[name, version] = self._find(name, version)
        return schema_id

    def schema_of(self, schema_id: int) -> str:
        """The schema as JSON text; KeyError where the id is unknown."""
        text = self._texts.get(schema_id)
        if text is None:
            # Another process may have added it since. A damaged text is none.
            texts = {row.schema_id: row.text for row in self._store.rows() if row.intact}
            self._texts = texts
            text = texts[schema_id]
        return text

    def add(self, text: str) -> int:
        """Take in a schema that this foldline has no model for, and give its id."""
        schema = cast("dict[str, Any]", json.loads(text))
        version = cast("int", schema.get("foldline_schema_version", 1))
        return self._store.add(schema["name"], version, fingerprint_of(text), text)

    def forget(self) -> None:
        """Drop what was remembered: ids given in a transaction that did not commit."""
        self._ids.clear()
        self._texts.clear()

    def _find(self, name: str, version: int) -> int:
        if name in EVENT_TYPES:
            text = published_text(name)
            return self._store.add(name, version, fingerprint_of(text), text)
        known = [
            row.schema_id
            for row in self._store.rows()
            if (row.name, row.version) == (name, version)
        ]
        if not known:
            raise KeyError(name)
        return known[-1]


def fingerprint_of(text: str) -> bytes:
    """SHA-256 of a schema's text."""
    return hashlib.sha256(text.encode()).digest()


@cache
def published_text(name: str) -> str:
    """The schema of an event type as a log stores it: compact, without its docs."""
    schema = event_schema(EVENT_TYPES[name])
    return json.dumps(without_docs(schema), separators=(",", ":"))
