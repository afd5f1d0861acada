"""Telling what wrote a file by what its records look like, never by its name."""

import json
from collections.abc import Callable
from pathlib import Path

from foldline.errors import ImportSourceError
from foldline.producers import claude_code_records, codex_records, openai_agents_state
from foldline.producers.claude_code_detect import is_claude_code
from foldline.producers.importing import read_pieces
from foldline.producers.json_fields import Json, as_list, as_object

LOOKED_AT_MAX = 1_000
"""How many pieces of a file are looked at before it counts as unknown."""

CLAUDE_CODE = claude_code_records.SYSTEM
CODEX = codex_records.SYSTEM
OPENAI_AGENTS = openai_agents_state.SYSTEM

FORMATS: dict[str, str] = {
    CLAUDE_CODE: "a Claude Code transcript",
    CODEX: "a Codex CLI rollout",
    OPENAI_AGENTS: "an OpenAI Agents run state or item list",
}
"""What can be imported, by the names that `--format` takes."""

LINES: dict[str, Callable[[Json], bool]] = {
    CLAUDE_CODE: is_claude_code,
    CODEX: codex_records.is_codex,
}
"""Whether a record is of a format of JSON lines."""

OTHERS: dict[str, Callable[[Json], bool]] = {
    "a Codex CLI log of its screen": lambda r: "dir" in r and "kind" in r and "ts" in r,
    "a Copilot CLI event log": lambda r: "data" in r and "." in str(r.get("type")),
    "a pi session": lambda r: r.get("type") == "session" and "cwd" in r,
    "a Gemini CLI session": lambda r: "sessionId" in r and "projectHash" in r,
    "a SWE-agent trajectory": lambda r: "trajectory" in r and "history" in r,
    "an OpenHands run": lambda r: "history" in r or ("kind" in r and "source" in r),
    "an Inspect AI log": lambda r: "samples" in r and "eval" in r,
    "an ADK session": lambda r: "events" in r and "current_agent_name" in r,
    "a Cline session": lambda r: "messages" in r and "system_prompt" in r,
    "a Kimi CLI wire log": lambda r: "protocol_version" in r or "turn.prompt" in str(r),
    "an ATIF trajectory": lambda r: "steps" in r and "schema_version" in r,
    "a chat of messages": lambda r: "role" in r and ("content" in r or "message" in r),
}
"""What a record of something else looks like, for the message that says so."""

UNKNOWN = "no transcript that is known"


def detect(path: Path, *, record_max_bytes: int) -> str:
    """The format of a file.

    Raises:
        ImportSourceError: it cannot be read, or is of none that is known; says what.
    """
    check_readable(path)
    if openai_agents_state.looks_like_one(path, record_max_bytes=record_max_bytes):
        return OPENAI_AGENTS
    guess = ""
    looked_at = records = 0
    for piece in read_pieces(path, record_max_bytes=record_max_bytes):
        looked_at += 1
        if piece.record is not None:
            records += 1
            if found := _format_of(piece.record):
                return found
            guess = guess or _guess(piece.record)
        if looked_at >= LOOKED_AT_MAX:
            break
    reason = "" if records else _document(path, record_max_bytes)
    raise ImportSourceError(str(path), reason or _instead(looked_at, records, guess))


def check_format(path: Path, wanted: str, *, record_max_bytes: int) -> None:
    """See that a file is of one format.

    Raises:
        ImportSourceError: it cannot be read, or is something else; says what.
    """
    found = detect(path, record_max_bytes=record_max_bytes)
    if found != wanted:
        no_such = f"no {FORMATS[wanted].partition(' ')[2]}"
        raise ImportSourceError(str(path), f"{no_such}; it looks like {FORMATS[found]}")


def check_readable(path: Path) -> None:
    """See that a path is a file that can be read again and again.

    Raises:
        ImportSourceError: it is a folder, a pipe, or the like.
    """
    if path.is_dir():
        raise ImportSourceError(str(path), "a folder; name a file in it")
    if path.exists() and not path.is_file():
        reason = "no regular file: an import reads a file again and again; make one of it"
        raise ImportSourceError(str(path), reason)


def _format_of(fields: Json) -> str:
    return next((name for name, is_one in LINES.items() if is_one(fields)), "")


def _guess(fields: Json) -> str:
    return next((name for name, matches in OTHERS.items() if matches(fields)), "")


def _instead(looked_at: int, records: int, guess: str) -> str:
    if not looked_at:
        return "the file is empty"
    if not records:
        return f"{UNKNOWN}; no line of it is a JSON object"
    return f"{UNKNOWN}; {_looks(guess)}"


def _looks(guess: str) -> str:
    return f"it looks like {guess}" if guess else "its records are of no known kind"


def _document(path: Path, record_max_bytes: int) -> str:
    """What is wrong with a file that is one JSON document; empty where it is none."""
    try:
        if path.stat().st_size > record_max_bytes:
            return ""
        text = path.read_text(encoding="utf-8-sig", errors="surrogateescape").strip()
    except OSError as error:
        return error.strerror or str(error)
    return _looked_into(text) if text.startswith(("{", "[")) else ""


def _looked_into(text: str) -> str:
    try:
        document: object = json.loads(text)
    except json.JSONDecodeError as error:
        return f"{UNKNOWN}; {_cut_or_broken(error, text)}"
    except (ValueError, RecursionError):
        return f"{UNKNOWN}; a JSON document with a number too long, or nested too deeply"
    if not document:
        return "an empty list" if isinstance(document, list) else "an empty JSON object"
    first = next(iter(as_list(document)), document)
    return f"{UNKNOWN}; {_looks(_guess(as_object(first)))}"


def _cut_or_broken(error: json.JSONDecodeError, text: str) -> str:
    """A document ends with a bracket, and not within a text."""
    within = error.pos >= len(text) or error.msg.startswith("Unterminated")
    if within or not text.endswith(("}", "]")):
        return "a JSON document that does not end"
    return f"a JSON document that is broken in line {error.lineno}: {error.msg}"
