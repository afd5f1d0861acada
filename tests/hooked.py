"""A kit for hooks: a harness that runs them, and a mirror that drains what they leave."""

import json
from pathlib import Path
from typing import Any

import pytest

from foldline.processors.open_log import open_log
from foldline.producers import hook_draining, spool
from foldline.producers.hook import TOLD_MAX_BYTES
from foldline.producers.hook_spooling import keep
from foldline.producers.redaction import Redactor
from foldline.producers.redaction_key import key_of_log
from foldline.producers.spool import make_spool, spool_of
from foldline.schemas.events import HookRan
from tests.mirrors import Follower, append
from tests.transcripts import SESSION, Json, Transcript, line_of, tool_use

TOKEN = "ghp_" + "aB3dE5gH7jK9" * 3
AT_US = 1_800_000_000_000_000
LATER_US = AT_US + 10 * hook_draining.HOLD_MAX_S * 1_000_000


class Harness:
    """A harness that writes a transcript and runs its hooks, in whatever order."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_DATA_HOME", str(folder / "data"))
        self.url = f"sqlite:///{folder}/s.db"
        self.follower = Follower(folder, open_log(self.url), spool_of(self.url))
        self.follower.redactor = Redactor(key_of_log(self.url))
        self.follower.start()
        self.script = Transcript()
        self.at_us = AT_US
        self.monkeypatch = monkeypatch
        self.is_at(AT_US + 1_000_000)

    def is_at(self, now_us: int) -> None:
        """Let the mirror's clock say this."""
        self.monkeypatch.setattr("time.time_ns", lambda: now_us * 1000)

    def hook(self, name: str, **fields: Any) -> None:
        told = {
            "session_id": SESSION,
            "transcript_path": str(self.follower.path()),
            "cwd": "/home/somebody/project",
            "hook_event_name": name,
        } | fields
        self.at_us += 1_000
        keep(
            json.dumps(told).encode(),
            at_us=self.at_us,
            url=self.url,
            told_max_bytes=TOLD_MAX_BYTES,
        )

    def write(self, *records: Json) -> None:
        for record in records:
            append(self.follower.path(), line_of(record))

    @property
    def waiting(self) -> int:
        return len(list(spool.record_ids(spool_of(self.url))))

    def hooks(self) -> list[HookRan]:
        events = self.follower.log.events(SESSION)
        return [one.event for one in events if isinstance(one.event, HookRan)]

    def without_hooks(self) -> list[Any]:
        """What the session holds beside them."""
        return [
            (one.envelope.event_id, one.event)
            for one in self.follower.log.events(SESSION)
            if not isinstance(one.event, HookRan)
        ]


def play(harness: Harness, order: str) -> None:
    """One turn with a tool: hooks first, or the transcript first, or by turns."""
    script = harness.script
    prompt = script.user(f"list it, {TOKEN}")
    call = script.assistant("m1", tool_use("c1", command="ls"))
    result = script.result("c1", "a b c")
    tool = {"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_use_id": "c1"}
    if order == "transcript":
        harness.write(prompt, call, result)
        harness.follower.go()
    harness.hook("SessionStart", source="startup")
    harness.hook("UserPromptSubmit", prompt=f"list it, {TOKEN}")
    if order == "turns":
        harness.follower.go()
        harness.write(prompt)
    harness.hook("PreToolUse", **tool)
    harness.hook("Notification", message="Claude needs your permission to use Bash")
    if order == "turns":
        harness.follower.go()
        harness.write(call)
    harness.hook("PostToolUse", **tool, tool_response={"stdout": "a b c"})
    harness.hook("Stop", stop_hook_active=False)
    if order == "turns":
        harness.follower.go()
        harness.write(result)
    if order == "hooks":
        harness.follower.go()
        assert harness.follower.log.state(SESSION) is None
        harness.write(prompt, call, result)


def odd_record(harness: Harness, name: str, **fields: Any) -> None:
    """A record that no hook of this version writes."""
    whole = {"at_us": AT_US, "hook": "Stop", "session_id": SESSION} | fields
    make_spool(spool_of(harness.url))
    path = spool_of(harness.url) / f"{AT_US:020}-{name}.json"
    path.write_text(json.dumps(whole))
