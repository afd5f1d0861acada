"""One record of a Claude Code transcript, read without trust: any field may be anything."""

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
from foldline.schemas.events import Usage

SYSTEM = "claude-code"

NOT_CONTENT: frozenset[str] = frozenset(
    {
        *("cwd", "version", "gitBranch", "slug", "entrypoint", "userType"),
        *("sessionId", "session_id", "timestamp", "parentUuid", "logicalParentUuid"),
        *("requestId", "promptId", "permissionMode", "isSidechain"),
    }
)
"""Fields of a record that a copy of it may have otherwise."""


def usage_of(value: object) -> Usage | None:
    """The tokens of a message as its provider counts them; null if it names none."""
    usage = as_object(value)
    if not usage:
        return None
    known = {
        "input_tokens": "input_tokens",
        "output_tokens": "output_tokens",
        "cache_read_input_tokens": "cache_read_input_tokens",
        "cache_creation_input_tokens": "cache_write_input_tokens",
    }
    extra = {key: item for key, item in usage.items() if key not in known and item}
    details = as_object(usage.get("output_tokens_details"))
    return Usage(
        **{name: as_count(usage.get(key)) for key, name in known.items()},
        reasoning_output_tokens=as_count(details.get("thinking_tokens")),
        extra_json=canonical_json(extra) if extra else None,
    )


@dataclass(frozen=True)
class Record:
    """A record and where it stands in its file."""

    piece: Piece
    fields: Json

    @cached_property
    def type(self) -> str:
        """user, assistant, system and so on."""
        return as_text(self.fields.get("type"))

    @cached_property
    def subtype(self) -> str:
        """What a system record, progress or attachment is about."""
        match self.type:
            case "system":
                return as_text(self.fields.get("subtype"))
            case "progress":
                return as_text(as_object(self.fields.get("data")).get("type"))
            case "attachment":
                return as_text(self.attachment.get("type"))
            case "queue-operation":
                return as_text(self.fields.get("operation"))
            case _:
                return ""

    @property
    def label(self) -> str:
        """Type and subtype, as reports count them."""
        kind = f"{self.type}/{self.subtype}" if self.subtype else self.type
        return (kind or "untyped")[:ID_MAX]

    @cached_property
    def uuid(self) -> str:
        """The record's id, or an empty string."""
        return as_id(self.fields.get("uuid"))

    @cached_property
    def parent(self) -> str:
        """The parent's id; a compaction's boundary names the last record before it."""
        parent = self.fields.get("parentUuid") or self.fields.get("logicalParentUuid")
        return as_id(parent)

    @cached_property
    def session(self) -> str:
        """The session's id, verbatim, or an empty string."""
        return as_session_id(self.fields.get("sessionId"))

    @cached_property
    def agent(self) -> str:
        """The subagent that this record is of, or an empty string."""
        return as_session_id(as_id(self.fields.get("agentId")))

    @property
    def sidechain(self) -> bool:
        """Whether the record is of a subagent that is kept in its parent's file."""
        return self.fields.get("isSidechain") is True

    @cached_property
    def occurred_at(self) -> int | None:
        """Microseconds since 1970 by the harness's clock."""
        return micros_of(self.fields.get("timestamp"))

    @cached_property
    def message(self) -> Json:
        """The API's message."""
        return as_object(self.fields.get("message"))

    @cached_property
    def attachment(self) -> Json:
        """What an attachment record holds."""
        return as_object(self.fields.get("attachment"))

    @cached_property
    def blocks(self) -> list[Json]:
        """The message's content as blocks: a bare string is a text, null is none."""
        content = self.message.get("content")
        items = [content] if isinstance(content, str) else as_list(content)
        texts = ({"type": "text", "text": i} if isinstance(i, str) else i for i in items)
        return [as_object(block) for block in texts if as_object(block)]

    @cached_property
    def text(self) -> str:
        """What the text blocks of its message say."""
        return "".join(as_text(block.get("text")) for block in self.blocks)

    @property
    def has_only_blocks(self) -> bool:
        """Whether `blocks` leaves nothing of the message's content out."""
        content = self.message.get("content")
        if content is None or isinstance(content, str):
            return True
        items = as_list(content)
        return items == content and all(isinstance(i, dict | str | None) for i in items)

    def flag(self, name: str) -> bool:
        """Whether a field is true."""
        return self.fields.get(name) is True

    def content_digest(self) -> bytes:
        """A digest of what the record says: equal for a copy of it."""
        said: Json = {}
        for key, value in self.fields.items():
            if key not in NOT_CONTENT and value is not None:
                message = as_object(value) if key == "message" else {}
                # A newer harness copies a message with fields that it adds as null.
                said[key] = {k: v for k, v in message.items() if v is not None} or value
        try:
            data = json.dumps(said, sort_keys=True).encode()
        except RecursionError:
            data = self.piece.sha256
        return hashlib.blake2b(data, digest_size=16).digest()
