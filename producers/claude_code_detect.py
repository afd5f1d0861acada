"""Telling a transcript of Claude Code by what its records look like, never by its name."""

from collections.abc import Callable
from pathlib import Path

from foldline.errors import ImportSourceError
from foldline.producers.claude_code_records import SYSTEM, Record
from foldline.producers.importing import read_pieces
from foldline.producers.json_fields import Json, as_object, as_text

LOOKED_AT_MAX = 1_000
"""How many pieces of a file are looked at before it counts as unknown."""

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

OTHERS: dict[str, Callable[[Json], bool]] = {
    "a Codex CLI rollout": lambda r: "payload" in r and "type" in r,
    "a Copilot CLI event log": lambda r: "data" in r and "." in str(r.get("type")),
    "a pi session": lambda r: r.get("type") == "session" and "cwd" in r,
    "a Gemini CLI session": lambda r: "sessionId" in r and "projectHash" in r,
    "an OpenHands run": lambda r: "history" in r or ("kind" in r and "source" in r),
    "an Inspect AI log": lambda r: "samples" in r and "eval" in r,
    "a SWE-agent trajectory": lambda r: "trajectory" in r and "history" in r,
    "an OpenAI Agents run state": lambda r: "$schemaVersion" in r,
    "an ADK session": lambda r: "events" in r and "current_agent_name" in r,
    "a Cline session": lambda r: "messages" in r and "system_prompt" in r,
    "a Kimi CLI wire log": lambda r: "protocol_version" in r or "turn.prompt" in str(r),
    "an ATIF trajectory": lambda r: "steps" in r and "schema_version" in r,
    "a chat of messages": lambda r: "role" in r and ("content" in r or "message" in r),
}
"""What a record of something else looks like, for the message that says so."""


def is_claude_code(fields: Json) -> bool:
    """Whether a record is one that Claude Code writes."""
    kind = as_text(fields.get("type"))
    if kind in _CONVERSATION:
        whole = "content" in as_object(fields.get("message"))
        return whole or all(name in fields for name in ("uuid", "sessionId"))
    wanted = _HARNESS.get(kind)
    return wanted is not None and all(name in fields for name in wanted)


def detect(path: Path, *, record_max_bytes: int) -> str | None:
    """The system that wrote a file: "claude-code"; None for any other.

    Raises:
        ImportSourceError: the file cannot be read.
    """
    return SYSTEM if _seen(path, record_max_bytes) is None else None


def check_source(path: Path, *, record_max_bytes: int) -> None:
    """See that a file is a transcript of Claude Code.

    Raises:
        ImportSourceError: it cannot be read, or is something else; says what.
    """
    instead = _seen(path, record_max_bytes)
    if instead is not None:
        raise ImportSourceError(str(path), instead)


def _seen(path: Path, record_max_bytes: int) -> str | None:
    """None for a transcript of Claude Code, else what the file is instead."""
    if path.is_dir():
        return "a folder; name a file in it"
    if path.exists() and not path.is_file():
        return "no regular file: an import reads a file again and again; make one of it"
    guess = ""
    looked_at = records = 0
    for piece in read_pieces(path, record_max_bytes=record_max_bytes):
        looked_at += 1
        if piece.record is not None:
            records += 1
            if is_claude_code(piece.record):
                return None
            guess = guess or _guess(piece.record)
        if looked_at >= LOOKED_AT_MAX:
            break
    if not looked_at:
        return "the file is empty"
    if not records:
        return "no Claude Code transcript; no line of it is a JSON object"
    looks = f"it looks like {guess}" if guess else "its records are of no known kind"
    return f"no Claude Code transcript; {looks}"


def _guess(fields: Json) -> str:
    for name, matches in OTHERS.items():
        if matches(fields):
            return name
    return ""


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
