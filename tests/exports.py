"""A kit for exports: one written, imported into a log of its own, and told as text.

What is compared here shares no code with the comparison that an export makes itself.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foldline.errors import ExportRefusedError
from foldline.processors.log import Log
from foldline.processors.open_log import open_log
from foldline.producers.importers import import_file
from foldline.producers.source_check import NotRedacting
from foldline.producers.source_export import Exported, export_source, source_of
from foldline.schemas.events import RedactionApplied
from foldline.schemas.recorded import Recorded
from foldline.settings import Settings
from tests.transcripts import (
    DENIAL,
    INTERRUPT,
    LAUNCHED,
    Transcript,
    text,
    tool_result,
    tool_use,
)

_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_NAMED_ANEW = ("parent_event_id", "session_id", "turn_id", "branch")


def exported(log: Log, session_id: str, folder: Path) -> tuple[Exported, Path]:
    """Export a session into a folder."""
    state = log.state(session_id)
    assert state is not None
    path = folder / "exported"
    system = source_of(log, state)
    return export_source(log, session_id, path, system=system, upto_seq=state.seq), path


def exported_at_every_seq(log: Log, session_id: str, folder: Path) -> list[int]:
    """Up to where each export tells a session; each calls itself lossless."""
    state = log.state(session_id)
    assert state is not None
    reached: list[int] = []
    for seq in range(1, state.seq + 1):
        try:
            found = export_source(
                log, session_id, folder / "x", system=source_of(log, state), upto_seq=seq
            )
        except ExportRefusedError:
            assert not reached
            continue
        assert found.lost == {}, (seq, found.examples)
        reached.append(found.upto_seq)
    assert reached == sorted(reached)
    assert reached[-1] == state.seq
    return reached


def back(log: Log, session_id: str, folder: Path) -> tuple[list[Any], list[Any]]:
    """What a session tells, and what its export tells; it must call itself lossless."""
    found, path = exported(log, session_id, folder)
    assert found.lost == {}, found.examples
    again = open_log("memory:")
    import_file(
        again, path, settings=Settings(), redactor=NotRedacting(), format_=found.system
    )
    (row,) = again.sessions(limit=10)
    return told(log, session_id), told(again, row.session_id)


def told(log: Log, session_id: str) -> list[Any]:
    """What happened in a session, without the names that importers make."""
    return [
        _told(recorded)
        for recorded in log.events(session_id)
        if not isinstance(recorded.event, RedactionApplied)
    ]


def _told(recorded: Recorded) -> tuple[Any, ...]:
    envelope = recorded.envelope
    names = [getattr(envelope, name) is None for name in _NAMED_ANEW]
    said = _ID.sub("#", json.dumps(recorded.event.__dict__, default=str))
    actor = f"{envelope.actor.kind} {envelope.actor.id}"
    return recorded.type, said, actor, envelope.occurred_at, envelope.certainty, *names


# --- transcripts of anything ---------------------------------------------------------


@dataclass
class Telling:
    """A transcript in the making, by steps that take a number each."""

    script: Transcript

    def call(self, number: int) -> str:
        """An id of a call: some repeat."""
        return f"c{number % 4}"


def _prompt(told: Telling, n: int) -> None:
    if n % 5 == 0:
        told.script.user([text(f"see {n}"), _image(n)])
    else:
        told.script.user(f"do {n}", **({"permissionMode": "plan"} if n % 7 == 0 else {}))


def _image(n: int) -> Any:
    data = "aGVsbG8=" if n % 2 else "d29ybGQ="
    source = {"type": "base64", "media_type": "image/png", "data": data}
    return {"type": "image", "source": source}


def _answer(told: Telling, n: int) -> None:
    usage = {"input_tokens": n, "output_tokens": n // 2, "service_tier": "standard"}
    thinking = {"type": "thinking", "thinking": f"hm {n}", "signature": "c2ln"}
    hidden = {"type": "redacted_thinking", "data": "eA=="}
    blocks = [text(f"I say {n}"), thinking, hidden, text("\ud800 broken")]
    more: Any = {"requestId": f"req{n}"} if n % 2 else {}
    more |= {"cwd": f"/elsewhere/{n % 3}"} if n % 6 == 0 else {}
    told.script.assistant(f"m{n % 5}", *blocks[n % 4 :], usage=usage, **more)


def _ask(told: Telling, n: int) -> None:
    tool = "mcp__files__read" if n % 3 == 0 else "Bash"
    told.script.assistant(f"m{n % 5}", tool_use(told.call(n), tool, command=f"ls {n}"))
    if n % 4 == 0:
        broken = tool_use(told.call(n + 1)) | {"input": "{not json"}
        told.script.assistant(f"m{n % 5}", broken)


RESULTS: tuple[dict[str, Any], ...] = (
    {"content": "ok"},
    {"content": "ok", "toolUseResult": {"exitCode": 0, "durationMs": 7}},
    {"content": [text("a"), _image(1)], "toolUseResult": "words"},
    {"content": None},
    {"content": {"a": 1.5}},
    {"content": ["bare", 5, {"b": None}]},
    {"content": DENIAL, "is_error": True},
    {"content": "no", "is_error": True, "toolUseResult": "User rejected tool use"},
    {"content": "[Request interrupted by user for tool use]", "is_error": True},
    {"content": "half", "toolUseResult": {"interrupted": True}},
    {"content": "Exit code 3\nbad", "is_error": True},
    {"content": "Exit code 1\nCommand timed out after 2m 3s", "is_error": True},
    {"content": "<tool_use_error>InputValidationError: x", "is_error": True},
    {"content": "odd", "is_error": True},
    {"content": LAUNCHED},
    {"content": "bg", "toolUseResult": {"backgroundTaskId": "b1"}},
    {
        "content": "look",
        "toolUseResult": {"task": {"task_id": "b1", "status": "completed"}},
    },
)


def _result(told: Telling, n: int) -> None:
    fields = dict(RESULTS[n % len(RESULTS)])
    told.script.result(told.call(n), fields.pop("content"), **fields)


def _results_and_words(told: Telling, n: int) -> None:
    results = [tool_result(told.call(n)), tool_result(told.call(n + 1), "b")]
    told.script.user([*results, text("and mind this")])


MARKS: tuple[dict[str, Any], ...] = (
    {"content": INTERRUPT},
    {"content": "so far ...", "isCompactSummary": True},
    {"content": "meta", "isMeta": True},
    {"content": "<local-command-stdout>x</local-command-stdout>"},
    {"content": "<command-name>/clear</command-name>"},
    {"content": "from afar", "origin": {"kind": "channel"}},
    {"content": "<task-notification><task-id>b1</task-id><status>done</status>"},
)


def _mark(told: Telling, n: int) -> None:
    fields = dict(MARKS[n % len(MARKS)])
    told.script.user(fields.pop("content"), **fields)


SYSTEM: tuple[dict[str, Any], ...] = (
    {"subtype": "compact_boundary", "compactMetadata": {"trigger": "auto", "preTokens": 9}},
    {"subtype": "compact_boundary", "parentUuid": None, "logicalParentUuid": "r1"},
    {
        "subtype": "microcompact_boundary",
        "microcompactMetadata": {"tokensSaved": 5, "compactedToolIds": ["c1", "nobody"]},
    },
    {"subtype": "api_error", "error": {"status": 529}, "retryAttempt": 1, "maxRetries": 3},
    {"subtype": "api_error", "error": {"type": "overloaded"}},
    {"subtype": "stop_hook_summary", "hookInfos": ["x"], "preventedContinuation": True},
    {"subtype": "stop_hook_summary"},
    {"subtype": "turn_duration", "durationMs": 5},
    {"subtype": "local_command", "content": "<command-name>/cost</command-name>"},
    {"subtype": "of-tomorrow"},
)


def _system(told: Telling, n: int) -> None:
    told.script.add("system", **SYSTEM[n % len(SYSTEM)])


def _synthetic(told: Telling, n: int) -> None:
    record = told.script.assistant(f"e{n}", text("API Error: 500"))
    record["message"]["model"] = "<synthetic>"
    if n % 2:
        record["isApiErrorMessage"] = True
        record["error"] = "rate_limit" if n % 3 else None


NOTICE = "<agent-notification><agent-id>a77</agent-id><status>completed</status>"


def _queue(told: Telling, n: int) -> None:
    operations = ("enqueue", "enqueue", "enqueue", "dequeue", "remove", "popAll")
    operation = operations[n % len(operations)]
    said = {"content": NOTICE if n % 4 == 0 else f"hurry {n % 3}"}
    more = said if operation == "enqueue" else {}
    told.script.bare("queue-operation", operation=operation, **more)


ATTACHMENTS: tuple[dict[str, Any], ...] = (
    {"type": "queued_command", "prompt": "hurry 1"},
    {"type": "queued_command", "prompt": [text("and this")]},
    {"type": "queued_command", "prompt": NOTICE},
    {"type": "hook_success", "hookName": "PreToolUse:Bash", "toolUseID": "c1", "x": 1},
    {"type": "hook_blocking_error", "hookEvent": "Stop"},
    {"type": "todo_reminder", "content": [], "itemCount": 0},
    {"type": "of-tomorrow"},
)


def _attachment(told: Telling, n: int) -> None:
    told.script.add("attachment", attachment=ATTACHMENTS[n % len(ATTACHMENTS)])


def _noise(told: Telling, n: int) -> None:
    if n % 3 == 0:
        told.script.add("progress", data={"type": "agent_progress", "agentId": "a77"})
    else:
        told.script.add("progress", data={"type": "hook_progress"})


def _odd(told: Telling, n: int) -> None:
    script = told.script
    match n % 6:
        case 0:
            script.last = f"nobody{n}"
        case 1:
            script.bare("permission-mode", permissionMode=("plan", "default")[n % 2])
        case 2 if script.records:
            script.records.append(dict(script.records[-1]))
        case 3:
            script.user("no uuid", uuid=...)
        case 4 if script.records:
            again = {**script.records[0], "message": {"content": f"other {n}"}}
            script.records.append(again)
        case _:
            script.add("canvas", value=n, ü="ü")


def _sidechain(told: Telling, n: int) -> None:
    script = told.script
    main = script.last
    first = None if n % 3 else ...
    script.last = None if first is None else script.last
    if n % 4 == 0:
        script.add("progress", data={"type": "hook_progress"}, isSidechain=True)
    script.user("look for it", isSidechain=True)
    script.assistant(f"s{n}", tool_use(f"s{n}"), isSidechain=True)
    script.result(f"s{n}", isSidechain=True)
    script.last = main


STEPS: tuple[Callable[[Telling, int], None], ...] = (
    *(_prompt, _answer, _ask, _ask, _result, _result, _results_and_words, _mark),
    *(_system, _synthetic, _queue, _attachment, _noise, _odd, _sidechain),
)


def transcript(steps: list[tuple[int, int]]) -> Transcript:
    """A transcript of these steps: which one, and a number for it."""
    telling = Telling(Transcript())
    telling.script.user("begin")
    for step, number in steps:
        STEPS[step % len(STEPS)](telling, number)
    return telling.script
