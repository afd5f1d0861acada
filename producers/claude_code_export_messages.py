"""User and assistant records of Claude Code, made again from facts.

The inverse of `claude_code_messages`.
"""

from typing import Any

from foldline.producers.claude_code_rebuilt import (
    api_block,
    api_content,
    api_usage,
    result_block,
    twin_of,
)
from foldline.producers.claude_code_told import Message, Told
from foldline.producers.json_fields import Json
from foldline.producers.source_bodies import UnbuildableError, written_by
from foldline.producers.source_groups import RESULTS, Group
from foldline.schemas.events import (
    AssistantMessage,
    BackgroundEnded,
    CancellationRequested,
    ConfigChanged,
    KnownEvent,
    ModelCallCompleted,
    SummaryCreated,
    SystemObservation,
    ToolCallRequested,
    ToolResultProjected,
    TurnEnded,
    TurnStarted,
    UsageCorrected,
    UserMessage,
)

_BESIDE = (TurnStarted, TurnEnded, ConfigChanged)
"""What a record of a user also tells, without saying it."""

# --- the model -----------------------------------------------------------------------


def assistant_record(told: Told, group: Group, said: AssistantMessage, uuid: str) -> Json:
    """A part of a message of the model, and the calls in it.

    Raises:
        UnbuildableError: a block is none of the API's.
    """
    completed = group.one(ModelCallCompleted)
    known = _message(told, group, said)
    config = group.one(ConfigChanged)
    asked = {one.call_id: one for one in group.every(ToolCallRequested)}
    for one in asked.values():
        told.calls[one.call_id] = one.provider_call_id, uuid
    content = [
        _tool_use(told, asked.get(block.call_id or ""))
        if block.kind == "tool_call"
        else api_block(block, told.bodies)
        for block in said.blocks
    ]
    message: Json = {"model": (config and config.model) or known.model}
    message |= {} if group.holds(said.message_id) else {"id": said.message_id}
    message |= {"type": "message", "role": "assistant", "content": content}
    message["stop_reason"] = completed.finish_reason if completed else None
    message |= {"usage": known.usage} if known.usage is not None else {}
    request = {"requestId": known.request_id} if known.request_id else {}
    return {"message": message, "type": "assistant", **request, **told.mode}


def _message(told: Told, group: Group, said: AssistantMessage) -> Message:
    """What the message is known by, as of this part of it."""
    completed = group.one(ModelCallCompleted)
    corrected = group.one(UsageCorrected)
    known = told.messages.get(said.message_id)
    if known is None or completed is not None:
        usage = api_usage(completed.usage if completed else None)
        response_id = completed.response_id if completed else None
        model = (completed.model or "") if completed else told.model
        known = told.messages[said.message_id] = Message(model, usage, response_id)
    if corrected is not None:
        known.usage = api_usage(corrected.usage)
    return known


def _tool_use(told: Told, call: ToolCallRequested | None) -> Json:
    if call is None:
        raise UnbuildableError
    named = {"id": call.provider_call_id} if call.provider_call_id else {}
    arguments = written_by(told.bodies.raw(call.arguments[0]))
    return {"type": "tool_use", **named, "name": call.tool, "input": arguments}


# --- the user ------------------------------------------------------------------------


def user_record(told: Told, group: Group) -> Json:
    """Results of tools, and what stands beside them: a prompt, or a mark.

    Raises:
        UnbuildableError: a user record holds nothing of the kind.
    """
    results = _results_of(group)
    content: list[Any] = []
    beside: Json = {}
    for events in results:
        call_id: str = events[0].__dict__["call_id"]
        provider_call_id, asked_by = told.call(call_id)
        block = result_block(provider_call_id, events, told.bodies)
        twin = twin_of(events, block["content"])
        beside |= {"sourceToolAssistantUUID": asked_by} if asked_by else {}
        beside |= {} if twin is None else {"toolUseResult": twin}
        content.append(block)
    said, marks = _spoken(told, _beside(group, results))
    if results:
        said = [
            *content,
            *([{"type": "text", "text": said}] if isinstance(said, str) else said),
        ]
    message = {"role": "user", "content": said}
    return {"type": "user", "message": message, **beside, **marks, **told.mode}


def _results_of(group: Group) -> list[list[KnownEvent]]:
    """The facts of each result of a record."""
    results: list[list[KnownEvent]] = []
    for event in group.events:
        if isinstance(event, RESULTS):
            results.append([event])
        elif not results or (isinstance(event, BackgroundEnded) and event.output):
            break  # a notification, beside the results
        elif isinstance(event, ToolResultProjected | BackgroundEnded):
            results[-1].append(event)
    return results


def _beside(group: Group, results: list[list[KnownEvent]]) -> list[KnownEvent]:
    """What a record says beside its results."""
    rest = group.events[sum(len(events) for events in results) :]
    return [event for event in rest if not isinstance(event, _BESIDE)]


def _spoken(told: Told, events: list[KnownEvent]) -> tuple[Any, Json]:
    """A content, and the marks that say whose it is."""
    bodies = told.bodies
    match events:
        case []:
            return [], {}
        case [UserMessage(blocks=blocks)] | [BackgroundEnded(output=blocks)]:
            return api_content(blocks, bodies), {}
        case [SummaryCreated(blocks=blocks)]:
            marks = {"isVisibleInTranscriptOnly": True, "isCompactSummary": True}
            return api_content(blocks, bodies), marks
        case [CancellationRequested(target="TURN", reason=reason)]:
            return [{"type": "text", "text": reason}], {}
        case [SystemObservation(origin=origin, blocks=blocks)]:
            return api_content(blocks, bodies), _marks_of(origin)
        case _:
            raise UnbuildableError


def _marks_of(origin: str) -> Json:
    """What tells that no person said it; nothing where the text does."""
    if origin == "meta":
        return {"isMeta": True}
    if origin in ("interrupt", "notification", "local-command"):
        return {}
    return {"origin": {"kind": origin}}
