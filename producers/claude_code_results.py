"""What a tool result of Claude Code says happened.

A transcript tells denial, abort, time-out and failure apart by text alone, so the texts
are listed here. A denial is no failure; what was interrupted did not time out.
"""

import re
from dataclasses import dataclass

from foldline.producers.claude_code_records import Record
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

DENIED_BY_PERSON = (
    "The user doesn't want to proceed with this tool use",
    "The user doesn't want to take this action right now",
    "User rejected",
)
DENIED_BY_POLICY = re.compile(
    r"Permission to use [\w:.-]{1,200} (?:with command .{1,2000} )?has been "
    r"(?:auto-)?denied"
    r"|Claude requested permissions? to .{1,2000}, but you haven't granted it"
    r"|\w+(?::[\w-]+)? hook error:|.{0,200}hook blocking error",
    re.DOTALL,
)
FEEDBACK = "the user said:"
INTERRUPT_MARKERS = (
    "[Request interrupted by user]",
    "[Request interrupted by user for tool use]",
)
CANCELLED = {
    "Permission prompt was aborted": "the prompt for permission was aborted",
    "[Request interrupted by user": "interrupted by the user",
    "Interrupted by user": "interrupted by the user",
    "<tool_use_error>Sibling tool call errored": "a call of the same message failed",
    "<tool_use_error>Cancelled": "cancelled by the harness",
}
NOT_EXECUTED = (
    "<tool_use_error>InputValidationError",
    "InputValidationError",
    "<tool_use_error>Error: No such tool",
    "<tool_use_error>No such tool",
)
TIMED_OUT = re.compile(r"(?:^|\n)(?:Error: )?Command timed out after ([\dhms. ]{1,40})")
EXIT_CODE = re.compile(r"(?:Error: )?Exit code (\d{1,10})\b")
BACKGROUND = re.compile(
    r"(?:Command (?:is )?running in (?:the )?background with ID: |"
    r"Async agent launched successfully\.?\s+agentId: )([\w-]{1,200})"
)
_AFTER = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s)")
_UNIT_MS = {"h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The events of one result, and the handle under which the call goes on if it does."""

    events: tuple[KnownEvent, ...]
    handle: str = ""


def outcome_of(record: Record, block: Json, call_id: str, output: Blocks) -> Outcome:
    """The events that a tool result stands for."""
    text = text_of(output)
    twin = as_object(record.fields.get("toolUseResult"))
    if _is_denial(record, block, text):
        return Outcome(_denied(call_id, text, output))
    if block.get("is_error") is True:
        return Outcome((_error(call_id, text, output),))
    if handle := _handle(twin, text):
        background = ToolBackgrounded(call_id=call_id, handle=handle, output=output)
        return Outcome((background,), handle)
    if twin.get("interrupted") is True:
        return Outcome((_cancelled(call_id, "interrupted by the user", output),))
    completed = ToolExecutionCompleted(
        call_id=call_id,
        exit_code=_exit_code(twin),
        duration_ms=_duration(twin),
        output=output,
    )
    return Outcome((completed,))


def is_interrupt(text: str) -> bool:
    """Whether a user's text is the harness's mark of an interrupt."""
    return text.strip() in INTERRUPT_MARKERS


def _is_denial(record: Record, block: Json, text: str) -> bool:
    if block.get("is_error") is not True:
        return False
    return (
        text.startswith(DENIED_BY_PERSON)
        or as_text(record.fields.get("toolUseResult")).startswith("User rejected")
        or as_text(record.fields.get("toolDenialKind")) != ""
        or DENIED_BY_POLICY.match(text) is not None
    )


def _denied(call_id: str, text: str, output: Blocks) -> tuple[KnownEvent, ...]:
    """The denial with what the user said, and what the model was shown of it."""
    _, _, feedback = text.partition(FEEDBACK)
    by_policy = DENIED_BY_POLICY.match(text) is not None
    denied = PermissionDenied(
        call_id=call_id,
        decided_by="POLICY" if by_policy else "PERSON",
        policy="harness" if by_policy else None,
        feedback=(text_block(feedback.lstrip()),) if feedback.strip() else (),
    )
    shown = ToolResultProjected(call_id=call_id, form="denied", blocks=output)
    return denied, shown


def _error(call_id: str, text: str, output: Blocks) -> KnownEvent:
    for begin, reason in CANCELLED.items():
        if text.startswith(begin):
            return _cancelled(call_id, reason, output)
    code = EXIT_CODE.match(text)
    if (late := TIMED_OUT.search(text[:4_000])) is not None:
        return ToolExecutionTimedOut(
            call_id=call_id,
            after_ms=_after_ms(late[1]),
            # Only an exit code proves that the command is no longer running.
            stop_confirmed=code is not None,
            blocks=output,
        )
    if text.startswith(NOT_EXECUTED):
        layer, error_type, executed = "MODEL", "InvalidToolCall", "NO"
    elif code is not None:
        layer, error_type, executed = "TOOL", f"ExitCode:{code[1]}", "YES"
    elif text.startswith("<tool_use_error>"):
        layer, error_type, executed = "HARNESS", "ToolUseError", "UNKNOWN"
    else:
        layer, error_type, executed = "TOOL", "ToolError", "UNKNOWN"
    return ToolExecutionFailed(
        call_id=call_id,
        layer=layer,
        error_type=error_type,
        executed=executed,
        blocks=output,
    )


def _cancelled(call_id: str, reason: str, output: Blocks) -> KnownEvent:
    return ToolExecutionCancelled(
        call_id=call_id, reason=reason, stop_confirmed=True, blocks=output
    )


def _handle(twin: Json, text: str) -> str:
    """The handle of what goes on in the background, or an empty string."""
    if twin.get("status") == "async_launched" or twin.get("isAsync") is True:
        named = as_text(twin.get("agentId"))
    else:
        named = as_text(twin.get("backgroundTaskId"))
    if named:
        return named[:200]
    found = BACKGROUND.match(text)
    return found[1] if found else ""


def _exit_code(twin: Json) -> int | None:
    code = twin.get("exitCode", twin.get("exit_code"))
    return as_count(code)


def _duration(twin: Json) -> int | None:
    return as_count(twin.get("durationMs", twin.get("totalDurationMs")))


def _after_ms(text: str) -> int | None:
    parts = _AFTER.findall(text)
    if not parts:
        return None
    return int(sum(float(number) * _UNIT_MS[unit] for number, unit in parts))
