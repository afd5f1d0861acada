"""A kit for transcripts of Claude Code: records made by hand after the grammar.

A `Transcript` hands out uuids and times and chains each record to the one before; its
lines are what a file would hold.
"""

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from foldline.processors.stored import AuditableLog
from foldline.producers.claude_code import import_file
from foldline.producers.importing import ImportReport
from foldline.producers.prepare import Redacts
from foldline.producers.redaction import Redactor
from foldline.schemas.events import KnownEvent
from foldline.schemas.recorded import Recorded
from foldline.schemas.snapshots import state_hash
from foldline.settings import Settings

SESSION = "11111111-2222-4333-8444-555555555555"
KEY = b"k" * 32
MODEL = "claude-test-1"

DENIAL = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected "
    "(eg. if it was a file edit, the new_string was NOT written to the file)."
)
INTERRUPT = "[Request interrupted by user for tool use]"
LAUNCHED = "Async agent launched successfully.\nagentId: a77 (internal)"

Json = dict[str, Any]
Wanted = TypeVar("Wanted", bound=KnownEvent)


def text(said: str) -> Json:
    return {"type": "text", "text": said}


def tool_use(call: str, tool: str = "Bash", **arguments: Any) -> Json:
    return {"type": "tool_use", "id": call, "name": tool, "input": arguments}


def tool_result(call: str, content: Any = "ok", **more: Any) -> Json:
    return {"type": "tool_result", "tool_use_id": call, "content": content, **more}


@dataclass
class Transcript:
    """Records of one session, each the child of the one before unless it says else."""

    session_id: str | None = SESSION
    prefix: str = "r"
    records: list[Json] = field(default_factory=list[Json])
    last: str | None = None

    def add(self, kind: str, **fields: Any) -> Json:
        """Add a record; a field given as `...` is left out."""
        number = len(self.records) + 1
        record: Json = {
            "parentUuid": self.last,
            "isSidechain": False,
            "userType": "external",
            "cwd": "/home/somebody/project",
            "sessionId": self.session_id,
            "version": "2.1.0",
            "gitBranch": "main",
            "type": kind,
            "uuid": f"{self.prefix}{number}",
            "timestamp": f"2026-01-02T03:{number // 60:02}:{number % 60:02}.000Z",
        } | fields
        record = {name: value for name, value in record.items() if value is not ...}
        if record["sessionId"] is None:
            record.pop("sessionId", None)
        self.records.append(record)
        self.last = record.get("uuid", self.last)
        return record

    def bare(self, kind: str, **fields: Any) -> Json:
        """Add a record that is not part of the chain."""
        record = {"type": kind, "sessionId": self.session_id, **fields}
        self.records.append(record)
        return record

    def user(self, content: Any, **fields: Any) -> Json:
        """A user record: a prompt, or blocks."""
        message = {"role": "user", "content": content}
        return self.add("user", message=message, **fields)

    def assistant(
        self,
        message_id: str | None,
        *blocks: Json,
        usage: Json | None = None,
        **fields: Any,
    ) -> Json:
        """One record of a message of the model."""
        message: Json = {
            "id": message_id,
            "type": "message",
            "role": "assistant",
            "model": MODEL,
            "content": list(blocks),
            "stop_reason": None,
            "usage": usage or {"input_tokens": 10, "output_tokens": 1},
        }
        if message_id is None:
            del message["id"]
        return self.add("assistant", message=message, **fields)

    def result(self, call: str, content: Any = "ok", **fields: Any) -> Json:
        """A user record that holds the result of one call."""
        is_error = fields.pop("is_error", None)
        more = {} if is_error is None else {"is_error": is_error}
        return self.user([tool_result(call, content, **more)], **fields)

    @property
    def data(self) -> bytes:
        """The file."""
        return b"".join(line_of(record) for record in self.records)


def line_of(record: Json) -> bytes:
    return json.dumps(record, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"


def called(script: Transcript) -> Transcript:
    """A prompt, and one call of a tool."""
    script.user("do it")
    script.assistant("m1", tool_use("c1", command="ls"))
    return script


@dataclass
class Import:
    """Imports files into one log, and looks at what is there then."""

    log: AuditableLog
    folder: Path
    settings: Settings = field(default_factory=Settings)
    redactor: Redacts = field(default_factory=lambda: Redactor(KEY))

    def take(self, data: bytes | Transcript, name: str = "session.jsonl") -> ImportReport:
        """Import a file that holds this."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.data if isinstance(data, Transcript) else data)
        return self.file(path)

    def file(self, path: Path) -> ImportReport:
        """Import a file, and see that every record was accounted for once."""
        report = import_file(self.log, path, settings=self.settings, redactor=self.redactor)
        kept = sum(report.foreign.values()) + sum(report.noise.values())
        assert report.records == report.mapped + report.copies + kept
        return report

    def events(self, session_id: str = SESSION) -> list[Recorded]:
        return list(self.log.events(session_id))

    def of(self, kind: type[Wanted], session_id: str = SESSION) -> list[Wanted]:
        """The events of one type, in order."""
        found = self.events(session_id)
        return [one.event for one in found if isinstance(one.event, kind)]

    def types(self, session_id: str = SESSION) -> Counter[str]:
        return Counter(one.type for one in self.events(session_id))

    def order(self, session_id: str = SESSION) -> list[str]:
        """The types of the events, in order."""
        return [one.type for one in self.events(session_id)]

    def image(self) -> dict[str, Any]:
        """All that is in the log but log times and what hangs on them."""
        sessions: dict[str, Any] = {}
        for summary in self.log.sessions(limit=10_000):
            state = self.log.state(summary.session_id)
            assert state is not None
            sessions[summary.session_id] = (
                [
                    (
                        one.envelope.model_copy(
                            update={"recorded_at": 0, "prev_hash": None}
                        ),
                        one.event,
                    )
                    for one in self.events(summary.session_id)
                ],
                state_hash(state),
            )
        return sessions
