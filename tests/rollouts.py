"""A kit for Codex rollouts and OpenAI Agents documents: made by hand after the grammar."""

import json
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from foldline.producers import codex, openai_agents
from foldline.producers.importing import ImportReport
from tests.transcripts import Import, line_of

ROLLOUT = "01900000-0000-7000-8000-000000000001"
"""Made, as the id says, at 0x01900000_0000 milliseconds."""

MODEL = "gpt-test-1"
EXITED = "Chunk ID: 1\nWall time: 0.5 seconds\nProcess exited with code {}\nOutput:\nx"
DONE = EXITED.format(0)
RUNNING = (
    "Chunk ID: 1\nWall time: 1.0 seconds\nProcess running with session ID {}\nOutput:\n"
)

Json = dict[str, Any]


def input_text(said: str) -> Json:
    return {"type": "input_text", "text": said}


def tokens(total: int, last: int) -> Json:
    """What a token count says: a total, and the last call; half of it is output."""
    return {
        "total_token_usage": {"input_tokens": total, "output_tokens": total // 2},
        "last_token_usage": {"input_tokens": last, "output_tokens": last // 2},
    }


@dataclass
class Rollout:
    """Records of one session, in the current form or, with `bare`, in that of 2025."""

    session_id: str = ROLLOUT
    bare: bool = False
    start: int = 0
    """The minute of the first record."""
    records: list[Json] = field(default_factory=list[Json])

    def __post_init__(self) -> None:
        self.total = 0

    def add(self, kind: str, payload: Json) -> Json:
        """Add a record; of the bare form only items are kept."""
        if self.bare:
            record = payload
        else:
            number = len(self.records)
            when = f"2026-01-02T{self.start:02}:{number // 60:02}:{number % 60:02}.000Z"
            record = {"timestamp": when, "type": kind, "payload": payload}
        self.records.append(record)
        return record

    def meta(self, **fields: Any) -> Json:
        """The record about the session."""
        about: Json = {"id": self.session_id, "timestamp": "2026-01-02T00:00:00.000Z"}
        if self.bare:
            about |= {"instructions": "Be brief.", "git": {}}
        else:
            about |= {"cwd": "/w", "cli_version": "0.142.0", "source": "cli"}
        return self.add("session_meta", about | fields)

    def context(self, **fields: Any) -> Json:
        told = {
            "turn_id": "t",
            "cwd": "/w",
            "model": MODEL,
            "approval_policy": "on-request",
            "sandbox_policy": {"type": "read-only"},
        }
        return self.add("turn_context", told | fields)

    def item(self, kind: str, **fields: Any) -> Json:
        return self.add("response_item", {"type": kind, **fields})

    def event(self, kind: str, **fields: Any) -> Json:
        return self.add("event_msg", {"type": kind, **fields})

    def message(self, role: str, *content: Any) -> Json:
        kind = "output_text" if role == "assistant" else "input_text"
        pieces = [{"type": kind, "text": c} if isinstance(c, str) else c for c in content]
        return self.item("message", role=role, content=pieces)

    def call(self, call_id: str, name: str = "exec_command", **arguments: Any) -> Json:
        text = json.dumps(arguments)
        return self.item("function_call", call_id=call_id, name=name, arguments=text)

    def output(self, call_id: str, output: Any = DONE) -> Json:
        return self.item("function_call_output", call_id=call_id, output=output)

    def used(self, last: int) -> Json:
        """Count tokens."""
        self.total += last
        return self.event("token_count", info=tokens(self.total, last))

    def turn(self, number: int) -> None:
        """A whole turn: a prompt, reasoning, two calls, their outputs, and an answer."""
        if not self.bare:
            self.event("task_started", turn_id=f"turn-{number}")
            self.context(turn_id=f"turn-{number}")
        self.message("user", f"do {number}")
        self.item(
            "reasoning", summary=[], encrypted_content=f"gAAAA{number}", id=f"r{number}"
        )
        self.call(f"a{number}", cmd="ls")
        self.call(f"b{number}", cmd="grüße 世界")
        self.output(f"b{number}")
        self.output(f"a{number}", EXITED.format(1))
        if not self.bare:
            self.used(100 + number)
        self.message("assistant", f"done {number}")
        if not self.bare:
            self.used(10 + number)
            self.event("task_complete", turn_id=f"turn-{number}")

    @property
    def data(self) -> bytes:
        """The file."""
        return b"".join(line_of(record) for record in self.records)


@dataclass
class _Into(Import):
    """Imports into one log with another importer."""

    importer: Any = None

    def file(self, path: Path) -> ImportReport:
        """Import a file, and see that every record was accounted for once."""
        report: ImportReport = self.importer(
            self.log, path, settings=self.settings, redactor=self.redactor
        )
        kept = sum(report.foreign.values()) + sum(report.noise.values())
        assert report.records == report.mapped + report.copies + kept
        return report


into_codex = partial(_Into, importer=codex.import_file)
into_agents = partial(_Into, importer=openai_agents.import_file)
