"""Content and results of Claude Code's records, made again from facts.

The inverse of `claude_code_blocks`, `claude_code_results` and `usage_of`.
"""

import json
from typing import Any

from foldline.producers.claude_code_messages import TASK_OUTCOMES
from foldline.producers.claude_code_results import (
    CANCELLED,
    DENIED_BY_PERSON,
    DENIED_BY_POLICY,
)
from foldline.producers.json_fields import Json, as_list, as_object, as_text
from foldline.producers.source_bodies import Bodies, UnbuildableError, parsed
from foldline.schemas.blocks import Block, Blocks
from foldline.schemas.events import (
    BackgroundEnded,
    KnownEvent,
    PermissionDenied,
    ToolBackgrounded,
    ToolExecutionCancelled,
    ToolExecutionCompleted,
    ToolExecutionFailed,
    ToolExecutionTimedOut,
    ToolResultProjected,
    Usage,
)

REJECTED = "User rejected tool use"
TASK_STATUS = {ours: theirs for theirs, ours in TASK_OUTCOMES.items()}
LAUNCHED = "Async agent launched"


def api_usage(usage: Usage | None) -> Json | None:
    """The tokens of a message as the API counts them."""
    if usage is None:
        return None
    extra: Json = json.loads(usage.extra_json) if usage.extra_json else {}
    return {
        "input_tokens": usage.input_tokens,
        "cache_creation_input_tokens": usage.cache_write_input_tokens,
        "cache_read_input_tokens": usage.cache_read_input_tokens,
        "output_tokens": usage.output_tokens,
        **extra,
    }


def api_block(block: Block, bodies: Bodies) -> Json:
    """A block as the API has it.

    Raises:
        UnbuildableError: it is none that the API knows.
    """
    match block.kind:
        case "text":
            return {"type": "text", "text": bodies.raw(block)}
        case "reasoning" if block.opaque is not None:
            return parsed(bodies.text(block.opaque))
        case "reasoning":
            signed = {} if block.signature is None else {"signature": block.signature}
            return {"type": "thinking", "thinking": bodies.text(block.body), **signed}
        case "image" | "file":
            media_type, data = bodies.data_url(block)
            source = {"type": "base64", "media_type": media_type, "data": data}
            kind = "image" if block.kind == "image" else "document"
            return {"type": kind, "source": source}
        case "json":
            return bodies.value(block)
        case _:
            raise UnbuildableError


def api_content(blocks: Blocks, bodies: Bodies) -> Any:
    """Blocks as the content of a message or a result: a bare string where it is one."""
    if not blocks:
        return []
    first = blocks[0]
    if len(blocks) == 1 and first.kind == "text":
        return bodies.raw(first)
    if len(blocks) == 1 and first.kind == "json" and first.name is None:
        value = bodies.value(first)
        return value if as_object(value) else [value]
    return [api_block(block, bodies) for block in blocks]


def result_block(provider_call_id: str, events: list[KnownEvent], bodies: Bodies) -> Json:
    """The facts of one result as its block."""
    named = {"tool_use_id": provider_call_id} if provider_call_id else {}
    content = api_content(_output_of(events), bodies)
    failed = {"is_error": True} if _is_error(events[0], content) else {}
    return {"type": "tool_result", **named, "content": content, **failed}


def _output_of(events: list[KnownEvent]) -> Blocks:
    shown = next((e for e in events if isinstance(e, ToolResultProjected)), None)
    if shown is not None:
        return shown.blocks
    match events[0]:
        case ToolExecutionCompleted(output=output) | ToolBackgrounded(output=output):
            return output
        case (
            ToolExecutionFailed(blocks=blocks)
            | ToolExecutionCancelled(blocks=blocks)
            | ToolExecutionTimedOut(blocks=blocks)
        ):
            return blocks
        case _:
            raise UnbuildableError


def _is_error(event: KnownEvent, content: Any) -> bool:
    """Whether the harness called it an error; an interrupted call may be none."""
    match event:
        case ToolExecutionCompleted() | ToolBackgrounded():
            return False
        case ToolExecutionCancelled():
            return said_by(content).startswith(tuple(CANCELLED))
        case _:
            return True


def said_by(content: Any) -> str:
    """The text of a content, as importers read it."""
    if isinstance(content, str):
        return content
    return "".join(as_text(as_object(piece).get("text")) for piece in as_list(content))


def twin_of(events: list[KnownEvent], content: Any) -> Any:
    """What a record says of its result beside the text: an object, text, or None."""
    first = events[0]
    twin: Json = {}
    match first:
        case PermissionDenied():
            return None if _tells_denial(said_by(content)) else REJECTED
        case ToolExecutionCompleted():
            numbers = {"exitCode": first.exit_code, "durationMs": first.duration_ms}
            twin = {name: value for name, value in numbers.items() if value is not None}
        case ToolExecutionCancelled() if not _is_error(first, content):
            twin = {"interrupted": True}
        case ToolBackgrounded(handle=handle) if said_by(content).startswith(LAUNCHED):
            twin = {"isAsync": True, "status": "async_launched", "agentId": handle}
        case ToolBackgrounded(handle=handle):
            twin = {"backgroundTaskId": handle}
        case _:
            pass
    ended = next((e for e in events if isinstance(e, BackgroundEnded)), None)
    if ended is not None:
        status = TASK_STATUS.get(ended.outcome, "")
        twin["task"] = {"task_id": ended.handle, "status": status}
    return twin or None


def _tells_denial(text: str) -> bool:
    return text.startswith(DENIED_BY_PERSON) or DENIED_BY_POLICY.match(text) is not None
