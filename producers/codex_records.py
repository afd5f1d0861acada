"""One record of a Codex rollout, read without trust, in either of its two forms.

The current form wraps each record: `{timestamp, type, payload}`. That of 2025 is bare: a
first line about the session, then the items themselves, and lines of state between them.
"""

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property

from foldline.producers.importing import Piece
from foldline.producers.json_fields import (
    ID_MAX,
    Json,
    as_count,
    as_id,
    as_list,
    as_object,
    as_session_id,
    as_text,
    canonical_json,
    micros_of,
)
from foldline.producers.openai_items import CALLS, OUTPUTS, SERVER_TOOLS, kind_of
from foldline.schemas.events import Usage

SYSTEM = "codex"

WRAPPED: frozenset[str] = frozenset(
    {
        *("session_meta", "turn_context", "response_item", "event_msg", "compacted"),
        *("world_state", "inter_agent_communication_metadata"),
    }
)
"""Types of wrapped records."""

COUNTED_BY = "counted by "
"""Begins the reason why a fork's count of tokens is none of its own."""

NOT_CONTENT: frozenset[str] = frozenset({"timestamp", "ordinal"})
"""Fields of a record that a copy of it may have otherwise."""

_HEADER = ("id", "timestamp", "instructions")
_BARE: frozenset[str] = frozenset({"reasoning", *CALLS, *OUTPUTS, *SERVER_TOOLS})
_CONTENT: frozenset[str] = frozenset({"input_text", "output_text", "input_image"})

_USAGE: dict[str, str] = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cached_input_tokens": "cache_read_input_tokens",
    "cache_write_input_tokens": "cache_write_input_tokens",
    "reasoning_output_tokens": "reasoning_output_tokens",
}


def is_codex(fields: Json) -> bool:
    """Whether a record is one that Codex writes."""
    if isinstance(fields.get("payload"), dict):
        return as_text(fields.get("type")) in WRAPPED
    return bool(_bare_kind(fields))


def _bare_kind(fields: Json) -> str:
    """What a record of the bare form is, or an empty string."""
    if fields.get("record_type") == "state":
        return "state"
    if "type" not in fields:
        return "session_meta" if all(name in fields for name in _HEADER) else ""
    kind = kind_of(fields)
    if kind in _BARE:
        return "response_item"
    if kind != "message" or "role" not in fields:
        return ""
    pieces = [as_object(piece) for piece in as_list(fields.get("content"))]
    known = any(piece.get("type") in _CONTENT for piece in pieces)
    return "response_item" if known else ""


def counts_of(value: object) -> dict[str, int]:
    """The tokens that a usage names."""
    usage = as_object(value)
    counts = {name: as_count(usage.get(name)) for name in (*_USAGE, "total_tokens")}
    return {name: count for name, count in counts.items() if count is not None}


def usage_of(counts: dict[str, int]) -> Usage:
    """Tokens as the provider counts them: cached ones are among those of the input."""
    extra = {name: count for name, count in counts.items() if name not in _USAGE}
    return Usage(
        **{name: counts.get(key) for key, name in _USAGE.items()},
        extra_json=canonical_json(extra) if extra else None,
    )


@dataclass(frozen=True)
class Record:
    """A record and where it stands in its file."""

    piece: Piece
    fields: Json

    @cached_property
    def wrapped(self) -> bool:
        """Whether it is of the current form."""
        return isinstance(self.fields.get("payload"), dict)

    @cached_property
    def kind(self) -> str:
        """session_meta, turn_context, response_item, event_msg and so on."""
        if self.wrapped:
            return as_text(self.fields.get("type"))
        return _bare_kind(self.fields)

    @cached_property
    def payload(self) -> Json:
        """What it says: in the bare form the record itself."""
        return as_object(self.fields.get("payload")) if self.wrapped else self.fields

    @cached_property
    def subtype(self) -> str:
        """What an item or an event is about."""
        if self.kind == "response_item":
            return kind_of(self.payload)
        return as_text(self.payload.get("type")) if self.wrapped else ""

    @property
    def label(self) -> str:
        """Type and subtype, as reports count them."""
        kind = self.kind or as_text(self.fields.get("type"))
        named = f"{kind}/{self.subtype}" if kind and self.subtype else kind
        return (named or "untyped")[:ID_MAX]

    @cached_property
    def session(self) -> str:
        """The session's id, where the record is about the session."""
        return session_named(self.payload) if self.kind == "session_meta" else ""

    @cached_property
    def occurred_at(self) -> int | None:
        """Microseconds since 1970 by the harness's clock."""
        return micros_of(self.fields.get("timestamp"))

    def digest(self) -> str:
        """A digest of what the record says: equal for a copy of it at another time."""
        said = {name: v for name, v in self.fields.items() if name not in NOT_CONTENT}
        try:
            data = json.dumps(said, sort_keys=True).encode()
        except RecursionError:
            data = self.piece.sha256
        return hashlib.blake2b(data, digest_size=16).hexdigest()


def session_named(head: Json) -> str:
    """The session that a record about one names, or an empty string."""
    named, other = as_id(head.get("id")), as_id(head.get("session_id"))
    return as_session_id(named) or as_session_id(other)
