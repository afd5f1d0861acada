"""One line of what an event says: its own fields first, then what somebody said.

`PARTS` has an entry per event type. A part whose field is empty is left out, so a line
holds what is known and nothing else. All of it comes out clean.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

from foldline.cli.clean import LINE_MAX_CHARS, clean_line, size_of
from foldline.schemas.blocks import Blob, Block, Body, Sealed
from foldline.schemas.events import (
    AnyEvent,
    Constraint,
    Cost,
    Inherited,
    Instruction,
    Label,
    PlanItem,
    RuleCount,
    ToolDeclaration,
    UnknownEvent,
    Usage,
)

BLOCKS_SHOWN = 8
ITEMS_SHOWN = 12

PARTS: dict[str, tuple[str, ...]] = {
    "UserMessage": ("(replaces {replaces})", "{blocks}"),
    "AssistantMessage": ("{blocks}",),
    "SystemObservation": ("{origin}:", "{blocks}"),
    "UserFeedback": ("score {score}", "on {target}:", "{blocks}"),
    "MessageRetracted": ("{message_ids}",),
    "HistoryRewound": ("to seq {to_seq}",),
    "ContextCleared": ("{reason}",),
    "SteeringReceived": ("{mode}:", "{blocks}"),
    "SteeringApplied": ("{steering_event_id}",),
    "SteeringExpired": ("{steering_event_id}", "{reason}"),
    "GoalSet": ("{blocks}",),
    "PlanUpdated": ("{items}",),
    "ConstraintSet": ("{constraint_id}:", "{blocks}"),
    "ConstraintLifted": ("{constraint_id}",),
    "BudgetSet": ("{limits_json}",),
    "TurnStarted": ("{trigger}",),
    "TurnEnded": ("{outcome}", "{reason}"),
    "ModelCallStarted": ("{provider}/{model}", "{purpose}", "attempt {attempt}"),
    "ModelCallCompleted": ("{model}", "{finish_reason}", "{usage}", "{cost}"),
    "ModelCallFailed": ("{error_type}", "retryable {retryable}", "{blocks}", "{usage}"),
    "ModelCallCancelled": ("{reason}", "{usage}"),
    "UsageCorrected": ("{usage}",),
    "InstructionsSet": ("{role}:", "{blocks}"),
    "ToolsDeclared": ("{tools}",),
    "ConfigChanged": ("{model}", "{permission_mode}", "{cwd}", "{parameters_json}"),
    "LabelsSet": ("{labels}",),
    "ToolCallRequested": ("{tool}", "{arguments}"),
    "ToolCallValidated": ("valid {valid}", "{problem}"),
    "ToolExecutionStarted": ("{effect}", "attempt {attempt}", "op {operation_id}"),
    "ToolExecutionCompleted": ("exit {exit_code}", "in {duration_ms} ms", "{output}"),
    "ToolExecutionFailed": (
        "{layer}",
        "{error_type}",
        "executed {executed}",
        "{blocks}",
    ),
    "ToolExecutionCancelled": (
        "stop confirmed {stop_confirmed}",
        "{reason}",
        "{blocks}",
    ),
    "ToolExecutionTimedOut": (
        "after {after_ms} ms",
        "stop confirmed {stop_confirmed}",
        "{blocks}",
    ),
    "ToolBackgrounded": ("handle {handle}", "{output}"),
    "BackgroundEnded": ("handle {handle}", "{outcome}", "{output}"),
    "ToolOutcomeUnknown": ("attempt {attempt}", "{reason}"),
    "ToolOutcomeResolved": ("{outcome}", "by {resolver}", "{evidence}", "{output}"),
    "ToolResultProjected": ("{form}", "{tokens} tokens", "{blocks}"),
    "PermissionRequested": ("{kind}", "{request_id}", "{options}", "{display}"),
    "PermissionGranted": ("{scope}", "by {decided_by}", "{policy}", "{request_id}"),
    "PermissionDenied": ("by {decided_by}", "{policy}", "{request_id}", "{feedback}"),
    "PermissionExpired": ("{request_id}",),
    "InputRequested": ("{request_id}:", "{prompt}"),
    "InputProvided": ("{request_id}:", "{blocks}"),
    "CompactionStarted": ("{reason}", "{token_before} tokens"),
    "CompactionCompleted": (
        "seq {from_seq}-{to_seq}",
        "{strategy}",
        "{token_before} tokens before",
        "{token_after} after",
        "{blocks}",
    ),
    "CompactionFailed": ("{reason}",),
    "ContextPruned": ("{rule}", "{tokens_saved} tokens saved", "{targets}"),
    "SummaryCreated": ("seq {from_seq}-{to_seq}:", "{blocks}"),
    "SessionCreated": (
        "{agent}",
        "{mode}",
        "{relation}",
        "of {parent_session_id}",
        "at seq {fork_seq}",
        "{labels}",
        "{inherited}",
    ),
    "SessionSuspended": ("{reason}",),
    "SessionResumed": ("{reason}",),
    "CheckpointCreated": ("up to seq {upto_seq}",),
    "SessionCompleted": ("{outcome}", "{blocks}"),
    "SessionFailed": ("{error_type}", "{blocks}"),
    "SessionCancelled": ("{reason}",),
    "SessionReopened": ("{reason}",),
    "SubagentStarted": ("{child_session_id}",),
    "SubagentEnded": ("{child_session_id}", "{outcome}"),
    "HandedOff": ("{from_agent}", "to {to_agent}", "{blocks}"),
    "RetryScheduled": ("{target}", "attempt {attempt}", "{reason}"),
    "CancellationRequested": ("{target}", "{target_id}", "{reason}"),
    "LoopDetected": (
        "{kind}",
        "{count} times",
        "of {tool}",
        "seq {from_seq}-{to_seq}",
        "by {detector}",
    ),
    "PolicyViolation": (
        "{severity}",
        "{policy}",
        "rule {rule}",
        "at seq {subject_seq}",
        "action {action}:",
        "{blocks}",
    ),
    "HookRan": ("{hook}", "{decision}", "{changes_json}", "{blocks}"),
    "HarnessStateSet": ("{state_namespace}/{key}", "removed {removed}", "{blocks}"),
    "RedactionApplied": ("{rules}", "in {target_event_id}"),
    "ForeignRecord": ("{system}", "{record_type}", "({reason})", "{blocks}"),
}
"""What a line shows of each type, in this order."""

_FIELD = re.compile(r"\{(\w+)\}")


def line_of(event: AnyEvent, *, max_chars: int = LINE_MAX_CHARS) -> str:
    """One clean line of what an event says."""
    if isinstance(event, UnknownEvent):
        return clean_line(json.dumps(event.fields, default=repr), max_chars=max_chars)
    fields = event.__dict__
    parts = (_filled(part, fields) for part in PARTS[type(event).__name__])
    return clean_line(" ".join(part for part in parts if part), max_chars=max_chars)


def line_of_blocks(blocks: Iterable[Block], *, max_chars: int = LINE_MAX_CHARS) -> str:
    """One clean line of what somebody said."""
    return clean_line(_text_of_blocks(tuple(blocks)), max_chars=max_chars)


def _filled(part: str, fields: Mapping[str, Any]) -> str:
    """A part with its fields in place; empty where one of them is."""
    texts = [text_of_value(fields[name]) for name in _FIELD.findall(part)]
    if not all(texts):
        return ""
    filling = iter(texts)
    return _FIELD.sub(lambda _: next(filling), part)


def text_of_value(value: Any) -> str:
    """A field's value in words; empty for nothing. Not clean yet."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case str() | Sealed() | Blob():
            return _text_of_body(value)
        case int() | float():
            return f"{value:,}"
        case tuple():
            return _text_of_items(cast("tuple[Any, ...]", value))
        case Usage():
            return text_of_usage(value)
        case Cost():
            return f"{value.amount_micros / 1e6:.4f} {value.currency}"
        case Inherited():
            return f"goal: {_text_of_blocks(value.goal)}" if value.goal else ""
        case _:
            return _text_of_part(value)


def _text_of_items(items: tuple[Any, ...]) -> str:
    if items and isinstance(items[0], Block):
        return _text_of_blocks(items)
    shown = ", ".join(text_of_value(item) for item in items[:ITEMS_SHOWN])
    left = len(items) - ITEMS_SHOWN
    return f"{shown}, and {left} more" if left > 0 else shown


def _text_of_part(value: Any) -> str:
    match value:
        case PlanItem():
            return f"[{value.status}] {_text_of_blocks(value.blocks)}"
        case Label():
            return f"{value.key}={value.value}"
        case ToolDeclaration():
            return f"{value.name} ({value.effect})"
        case RuleCount():
            return f"{value.rule} {value.count} times"
        case Instruction():
            return f"{value.role}: {_text_of_blocks(value.blocks)}"
        case Constraint():
            return f"{value.constraint_id}: {_text_of_blocks(value.blocks)}"
        case _:
            return str(value)


def text_of_usage(usage: Usage) -> str:
    """Tokens in and out, of which cached and thought."""
    parts = (
        ("in", usage.input_tokens),
        ("cached", usage.cache_read_input_tokens),
        ("cache written", usage.cache_write_input_tokens),
        ("out", usage.output_tokens),
        ("reasoning", usage.reasoning_output_tokens),
    )
    return " ".join(f"{name} {count:,}" for name, count in parts if count)


def _text_of_blocks(blocks: tuple[Block, ...]) -> str:
    shown = " ".join(_text_of_block(block) for block in blocks[:BLOCKS_SHOWN])
    left = len(blocks) - BLOCKS_SHOWN
    return f"{shown} [{left} more blocks]" if left > 0 else shown


def _text_of_block(block: Block) -> str:
    body = _text_of_body(block.body)
    if block.kind in ("text", "json", "tool_result"):
        return body
    named = " ".join(word for word in (block.kind, block.name, block.media_type) if word)
    return f"[{named}] {body}" if body else f"[{named}]"


def _text_of_body(body: Body) -> str:
    match body:
        case str():
            return body[: LINE_MAX_CHARS + 1]
        case Sealed():
            return f"[sealed, {size_of(len(body.ciphertext))}]"
        case Blob():
            preview = f" {body.preview[:LINE_MAX_CHARS]}" if body.preview else ""
            return f"[{body.media_type}, {size_of(body.size)}]{preview}"
