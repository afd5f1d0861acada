"""Items of OpenAI's Responses API as facts: messages, reasoning, calls and outputs.

The items of one answer follow each other and belong together: everything the model says
until an output, a prompt, or the end of the turn is one model call. Items are read as
both SDKs write them, with fields in snake case and in camel case.
"""

import json

from foldline.producers.importing import UNKNOWN_CALL
from foldline.producers.json_fields import (
    Json,
    as_call_id,
    as_json,
    as_list,
    as_object,
    as_text,
)
from foldline.producers.openai_blocks import (
    content_blocks,
    reasoning_block,
    server_tool_blocks,
)
from foldline.producers.openai_facts import (
    CALL,
    EXTRA,
    FOREIGN,
    MAIN,
    MAPPED,
    MESSAGE,
    PERSON,
    RESULT,
    Counts,
    ModelCall,
    Scribe,
)
from foldline.producers.openai_results import outcome_of
from foldline.schemas.blocks import Block, Blocks, json_block
from foldline.schemas.events import (
    AssistantMessage,
    BackgroundEnded,
    ModelCallCompleted,
    SteeringApplied,
    SteeringReceived,
    SystemObservation,
    ToolCallRequested,
    UserMessage,
)

CALLS: dict[str, str] = {
    "function_call": "arguments",
    "custom_tool_call": "input",
    "tool_search_call": "arguments",
    "local_shell_call": "action",
    "shell_call": "action",
    "computer_call": "action",
    "apply_patch_call": "operation",
}
"""Calls that the harness answers, and the field of their arguments."""

OUTPUTS: frozenset[str] = frozenset(
    {f"{call}_{end}" for call in CALLS for end in ("output", "result")}
    | {"tool_search_output"}
)
"""Items that answer a call."""

SERVER_TOOLS: frozenset[str] = frozenset(
    {
        *("web_search_call", "file_search_call", "image_generation_call"),
        *("code_interpreter_call", "mcp_call", "mcp_list_tools"),
        *("program", "program_output"),
    }
)
"""What the provider does and answers itself, within the model's answer."""

SAID_BY_HARNESS: dict[str, str] = {
    "<environment_context>": "environment",
    "<user_instructions>": "instructions",
    "# AGENTS.md instructions": "instructions",
    "<permissions instructions>": "instructions",
    "<collaboration_mode>": "instructions",
    "<skill>": "skill",
    "<turn_aborted>": "interrupt",
    "<user_shell_command>": "local-command",
    "<subagent_notification>": "notification",
    "<agent_notification>": "notification",
}
"""How user messages begin that no user wrote, and what they are."""


def call_id_of(item: Json) -> str:
    """The provider's id of the call that an item makes or answers."""
    return as_call_id(item.get("call_id", item.get("callId")))


def kind_of(item: Json) -> str:
    """The type of an item; a message may leave it out."""
    kind = as_text(item.get("type"))
    return kind or ("message" if "role" in item and "content" in item else "")


def map_item(scribe: Scribe, item: Json) -> str:
    """An item as facts; foreign if it is of no known type."""
    kind = kind_of(item)
    if kind == "message":
        return _message(scribe, item)
    if kind == "reasoning":
        said(scribe, (reasoning_block(item, scribe.thread.model or None),))
    elif kind in CALLS:
        _requested(scribe, item)
    elif kind in OUTPUTS:
        _result(scribe, item)
    elif kind in SERVER_TOOLS:
        said(scribe, server_tool_blocks(item, scribe.thread.model or None))
    elif kind == "agent_message":
        scribe.thread.pause()
        _observed(scribe, "agent-message", content_blocks(item.get("content")))
    else:
        return FOREIGN
    return MAPPED


# --- the model -----------------------------------------------------------------------


def open_call(scribe: Scribe) -> ModelCall:
    """The model call that an item belongs to; a new one where the last has ended."""
    thread = scribe.thread
    if thread.call is None or thread.call.closed:
        thread.call = ModelCall(scribe.event_id(MAIN))
        event = ModelCallCompleted(
            model_call_id=thread.call.call_id, model=thread.model or None
        )
        scribe.write(MAIN, event, thread.agent, inferred=True)
    return thread.call


def said(scribe: Scribe, blocks: Blocks, *, slot: int = MESSAGE) -> tuple[ModelCall, int]:
    """A part of the model's answer: its call, and the index of the first block in it."""
    call = open_call(scribe)
    first = call.blocks
    event = AssistantMessage(
        message_id=call.call_id,
        model_call_id=call.call_id,
        part=call.parts,
        blocks=blocks,
    )
    call.blocks += len(blocks)
    call.parts += 1
    scribe.write(slot, event, scribe.thread.agent)
    return call, first


def _requested(scribe: Scribe, item: Json) -> None:
    thread = scribe.thread
    call = open_call(scribe)
    call_id = f"{call.call_id}:{call.blocks}"
    tool, arguments = _tool_of(item)
    block = Block(kind="tool_call", name=tool, call_id=call_id)
    _, position = said(scribe, (block,))
    provider_call_id = call_id_of(item)
    handle = _polled(tool, arguments) if item.get("type") == "function_call" else ""
    event = ToolCallRequested(
        call_id=call_id,
        provider_call_id=provider_call_id,
        kind="CUSTOM" if item.get("type") == "custom_tool_call" else "FUNCTION",
        namespace=as_text(item.get("namespace")) or None,
        tool=tool,
        args_hash="",
        message_id=call.call_id,
        position=position,
        continues_handle=handle or None,
        arguments=(json_block(arguments),),
    )
    scribe.write(CALL, event, thread.agent)
    thread.open_calls.setdefault(provider_call_id, []).append(call_id)
    thread.calls[provider_call_id] = call_id
    if handle:
        thread.polls[call_id] = handle


def _tool_of(item: Json) -> tuple[str, str]:
    """The name of the tool, and its arguments as the model wrote them."""
    kind = as_text(item.get("type"))
    tool = as_text(item.get("name")) or kind.removesuffix("_call")
    arguments: object = item.get(CALLS[kind])
    if isinstance(arguments, str):
        return tool, arguments
    return tool, "{}" if arguments is None else as_json(arguments)


def _polled(tool: str, arguments: str) -> str:
    """The handle of a running process that a call writes to or waits for."""
    if tool != "write_stdin":
        return ""
    try:
        session = as_object(json.loads(arguments)).get("session_id")
    except (ValueError, RecursionError):
        return ""
    return "" if session is None else str(session)[:40]


def _result(scribe: Scribe, item: Json) -> None:
    thread = scribe.thread
    thread.pause()
    provider_call_id = call_id_of(item)
    call_id = (
        thread.close_call(provider_call_id)
        or thread.calls.get(provider_call_id)
        or f"{UNKNOWN_CALL}{provider_call_id}"
    )
    raw: object = item.get("output")
    if raw is None and "tools" in item:
        raw = item["tools"]
    output = content_blocks(_content_of(raw))
    polled = thread.polls.get(call_id, "")
    outcome = outcome_of(call_id, raw, output, polled=polled)
    for at, event in enumerate(outcome.events):
        denied = type(event).__name__ == "PermissionDenied"
        scribe.write(RESULT + at, event, PERSON if denied else thread.harness)
    if outcome.handle:
        thread.handles.add(outcome.handle)
    elif polled in thread.handles and outcome.exit_code is not None:
        thread.handles.discard(polled)
        how = "FAILED" if outcome.exit_code else "COMPLETED"
        ended = BackgroundEnded(handle=polled, outcome=how)
        scribe.write(EXTRA, ended, thread.harness)


def _content_of(raw: object) -> object:
    """The content of an output that wraps it with a status."""
    told = as_object(raw)
    return told["content"] if "content" in told and "type" not in told else raw


# --- messages ------------------------------------------------------------------------


def _message(scribe: Scribe, item: Json) -> str:
    content: object = item.get("content")
    if not isinstance(content, str) and as_list(content) != content:
        return FOREIGN
    blocks = content_blocks(content)
    match as_text(item.get("role")):
        case "assistant":
            said(scribe, blocks)
        case "user":
            _user(scribe, blocks)
        case "developer" | "system" as role:
            scribe.thread.pause()
            _observed(scribe, role, blocks)
        case _:
            return FOREIGN
    return MAPPED


def _user(scribe: Scribe, blocks: Blocks) -> None:
    """A prompt, steering within a turn, or what the harness says in the user's name."""
    thread = scribe.thread
    thread.pause()
    first = blocks[0].body if blocks and isinstance(blocks[0].body, str) else ""
    begin = first[:200].lstrip()
    origins = [name for mark, name in SAID_BY_HARNESS.items() if begin.startswith(mark)]
    if origins:
        _observed(scribe, origins[0], blocks)
    elif thread.turn_recorded and thread.prompted:
        event_id = scribe.write(MAIN, SteeringReceived(blocks=blocks), PERSON)
        applied = SteeringApplied(steering_event_id=event_id)
        scribe.write(EXTRA, applied, thread.harness)
    else:
        prompt(scribe, blocks)


def prompt(scribe: Scribe, blocks: Blocks, *, message_id: str = "") -> None:
    """A user's own words; in a child session they are the agent's."""
    thread = scribe.thread
    if not thread.turn_recorded:
        scribe.start_turn("", recorded=False)
    thread.prompted = True
    event = UserMessage(message_id=message_id or scribe.event_id(MAIN), blocks=blocks)
    scribe.write(MAIN, event, thread.agent if thread.child else PERSON)


def _observed(scribe: Scribe, origin: str, blocks: Blocks) -> None:
    event = SystemObservation(origin=origin, blocks=blocks)
    scribe.write(MAIN, event, scribe.thread.harness)


def count_item(counts: Counts, item: Json) -> None:
    """Count the call or the result that an item is."""
    kind = kind_of(item)
    if not (call_id := call_id_of(item)):
        return
    if kind in CALLS:
        counts.call(call_id)
    elif kind in OUTPUTS:
        counts.result(call_id)
