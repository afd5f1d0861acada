"""Telling a transcript of Claude Code by what its records look like, never by its name."""

from pathlib import Path

from foldline.producers.claude_code_records import Record
from foldline.producers.importing import read_pieces
from foldline.producers.json_fields import Json, as_object, as_text

_CONVERSATION = frozenset({"user", "assistant"})
_HARNESS: dict[str, tuple[str, ...]] = {
    "system": ("subtype", "uuid"),
    "summary": ("summary", "leafUuid"),
    "file-history-snapshot": ("messageId", "snapshot"),
    "progress": ("data", "uuid"),
    "queue-operation": ("operation", "sessionId"),
    "attachment": ("attachment", "uuid"),
    "permission-mode": ("permissionMode", "sessionId"),
    "ai-title": ("aiTitle", "sessionId"),
    "custom-title": ("customTitle", "sessionId"),
    "agent-name": ("agentName", "sessionId"),
    "last-prompt": ("lastPrompt", "sessionId"),
    "mode": ("mode", "sessionId"),
}


def is_claude_code(fields: Json) -> bool:
    """Whether a record is one that Claude Code writes."""
    kind = as_text(fields.get("type"))
    if kind in _CONVERSATION:
        whole = "content" in as_object(fields.get("message"))
        return whole or all(name in fields for name in ("uuid", "sessionId"))
    wanted = _HARNESS.get(kind)
    return wanted is not None and all(name in fields for name in wanted)


def first_session(path: Path, *, record_max_bytes: int) -> str:
    """The session of records that stand before any that names one.

    It is the first that the file names; where it names none, the SHA-256 of its first
    record.

    Raises:
        ImportSourceError: the file cannot be read.
    """
    first = ""
    for piece in read_pieces(path, record_max_bytes=record_max_bytes):
        if piece.record is None:
            continue
        first = first or piece.sha256.hex()
        if session := Record(piece, piece.record).session:
            return session
    return first
