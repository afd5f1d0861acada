"""What the output of a tool says happened, in Codex rollouts and Agents SDK items.

Neither has a status beside the output that can be relied on: the exit code, an abort and
a process that goes on stand in the text, so the texts are listed here. What a command
printed is no word of its harness: that is told in the lines before it, or by how the text
begins.
"""

import json
import re
from dataclasses import dataclass

from foldline.producers.json_fields import Json, as_count, as_object, as_text
from foldline.schemas.blocks import Blocks, text_block, text_of
from foldline.schemas.events import (
    KnownEvent,
    PermissionDenied,
    ToolBackgrounded,
    ToolExecutionCancelled,
    ToolExecutionCompleted,
    ToolExecutionFailed,
    ToolExecutionTimedOut,
    ToolResultProjected,
)

LOOKED_AT = 4_000
"""How many characters of an output are searched for what it says happened."""

HEADER = ("Chunk ID:", "Wall time:", "Exit code:", "Process exited with", "Process running")
"""How the lines begin that a harness writes before what a command printed."""

OUTPUT = "Output:"
"""The line between these and what was printed."""

TIMED_OUT_CODE = 124
"""The exit code of a command that its harness stopped because of the time."""

RUNNING = re.compile(r"(?:^|\n)Process running with session ID (\d{1,40})")
EXITED = re.compile(r"(?:^|\n)(?:Process exited with code|Exit code:) (-?\d{1,10})\b")
WALL = re.compile(r"(?:^|\n)Wall time: (\d{1,9}(?:\.\d{1,9})?) seconds")
ABORTED = re.compile(r"aborted(?: by user)?(?: after (\d{1,9}(?:\.\d{1,3})?)s)?\s*$")
TIMED_OUT = re.compile(r"command timed out after (\d{1,12}) (?:ms|milliseconds)\b")
DENIED = (
    "exec command rejected by user",
    "patch rejected by user",
    "user rejected MCP tool call",
    "rejected by user",
    "Tool execution was not approved",
)
NOT_EXECUTED = (
    "unsupported call:",
    "unsupported custom tool call:",
    "failed to parse function arguments",
    "Invalid JSON input for tool",
)
FAILED = (
    "apply_patch verification failed",
    "exec_command failed",
    "execution error:",
    "failed in sandbox:",
    "An error occurred while running the tool",
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The events of one output; `handle` is of what goes on, `exit_code` of what ended."""

    events: tuple[KnownEvent, ...]
    handle: str = ""
    exit_code: int | None = None


def outcome_of(call_id: str, raw: object, output: Blocks, *, polled: str = "") -> Outcome:
    """The events that an output stands for.

    Args:
        call_id: our id of the call.
        raw: the output as the record holds it.
        output: the same as blocks.
        polled: the handle that the call asks about, else empty. That such a call finds
            the process still running is its result.
    """
    text, told = _told(raw, output)
    begin = text[:LOOKED_AT]
    if begin.startswith(DENIED):
        return Outcome(_denied(call_id, output))
    if (aborted := ABORTED.match(begin)) is not None:
        return Outcome((_cancelled(call_id, aborted[0].strip(), output),))
    header, printed = _divided(begin)
    code = as_exit_code(told.get("exit_code"))
    if code is None and (exited := EXITED.search(header)) is not None:
        code = int(exited[1])
    running = RUNNING.search(header) if code is None else None
    if running is not None and running[1] != polled:
        background = ToolBackgrounded(call_id=call_id, handle=running[1], output=output)
        return Outcome((background,), handle=running[1])
    late = TIMED_OUT.match(printed)
    if late is not None and code in (None, TIMED_OUT_CODE):
        return Outcome((_timed_out(call_id, int(late[1]), code, output),), exit_code=code)
    error = _error(call_id, begin, code, output, failed=told.get("success") is False)
    if error is not None:
        return Outcome((error,), exit_code=code)
    completed = ToolExecutionCompleted(
        call_id=call_id,
        exit_code=code,
        duration_ms=_duration_ms(told, header),
        output=output,
    )
    return Outcome((completed,), exit_code=code)


def _divided(begin: str) -> tuple[str, str]:
    """What the harness says before an output, and the output itself."""
    if not begin.startswith(HEADER):
        return "", begin
    header, _, printed = begin.partition(f"\n{OUTPUT}\n")
    return header, printed


def as_exit_code(value: object) -> int | None:
    """The value if it is a whole number, also a negative one."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value


def _told(raw: object, output: Blocks) -> tuple[str, Json]:
    """The text of an output and what it says about itself, in any of its forms."""
    if isinstance(raw, str) and raw.startswith('{"output"'):
        try:
            inner = as_object(json.loads(raw))
        except (ValueError, RecursionError):
            inner = {}
        if inner:
            return as_text(inner.get("output")), as_object(inner.get("metadata"))
    told = as_object(raw)
    content = told.get("content")
    return (content if isinstance(content, str) else text_of(output)), told


def _denied(call_id: str, output: Blocks) -> tuple[KnownEvent, ...]:
    denied = PermissionDenied(call_id=call_id, decided_by="PERSON")
    shown = ToolResultProjected(call_id=call_id, form="denied", blocks=output)
    return denied, shown


def _cancelled(call_id: str, reason: str, output: Blocks) -> KnownEvent:
    return ToolExecutionCancelled(
        call_id=call_id, reason=reason, stop_confirmed=True, blocks=output
    )


def _timed_out(call_id: str, after_ms: int, code: int | None, output: Blocks) -> KnownEvent:
    # Only an exit code proves that the command is no longer running.
    return ToolExecutionTimedOut(
        call_id=call_id,
        after_ms=as_count(after_ms),
        stop_confirmed=code is not None,
        blocks=output,
    )


def _error(
    call_id: str, begin: str, code: int | None, output: Blocks, *, failed: bool
) -> KnownEvent | None:
    if begin.startswith(NOT_EXECUTED):
        layer, error_type, executed = "MODEL", "InvalidToolCall", "NO"
    elif code:
        layer, error_type, executed = "TOOL", f"ExitCode:{code}", "YES"
    elif failed or (code is None and begin.startswith(FAILED)):
        layer, error_type, executed = "TOOL", "ToolError", "UNKNOWN"
    else:
        return None
    return ToolExecutionFailed(
        call_id=call_id,
        layer=layer,
        error_type=error_type,
        executed=executed,
        blocks=output or (text_block(begin),),
    )


def _duration_ms(told: Json, header: str) -> int | None:
    seconds: object = told.get("duration_seconds")
    if seconds is None and (wall := WALL.search(header)) is not None:
        seconds = float(wall[1])
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return None
    return as_count(seconds * 1000)
