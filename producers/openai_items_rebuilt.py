"""Items of OpenAI's Responses API, made again from facts: the inverse of `openai_items`."""

from collections.abc import Iterator
from typing import Any, cast

from foldline.producers.importing import UNKNOWN_CALL
from foldline.producers.json_fields import Json
from foldline.producers.openai_blocks import content_blocks
from foldline.producers.openai_items import CALLS
from foldline.producers.openai_results import outcome_of
from foldline.producers.source_bodies import Bodies, UnbuildableError, parsed, written_by
from foldline.producers.source_groups import RESULTS, Group
from foldline.schemas.blocks import Block, Blocks
from foldline.schemas.events import (
    AssistantMessage,
    KnownEvent,
    SteeringReceived,
    SystemObservation,
    ToolCallRequested,
    ToolExecutionFailed,
    ToolResultProjected,
    UserMessage,
)

OF_THEIR_OWN: frozenset[str] = frozenset({"tool_search", "local_shell", "computer"})
"""Tools whose calls are items of types of their own."""

_ROLES = frozenset({"developer", "system"})


class Items:
    """Makes items again, and remembers the calls among them."""

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self.calls: dict[str, ToolCallRequested] = {}
        """Requests by call id."""

    def of(self, group: Group) -> Json:
        """The item that a group's facts tell.

        Raises:
            UnbuildableError: none does.
        """
        said = group.one(AssistantMessage)
        asked = group.one(ToolCallRequested)
        if asked is not None:
            self.calls[asked.call_id] = asked
            return self._call(asked)
        if said is not None:
            return self._said(said.blocks)
        results = [event for event in group.events if isinstance(event, RESULTS)]
        if results:
            return self._output(group, results[0])
        return self._message(group)

    def provider_id(self, call_id: str) -> str:
        """The provider's id of a call.

        Raises:
            UnbuildableError: nobody asked for it.
        """
        if call_id in self.calls:
            return self.calls[call_id].provider_call_id
        if not call_id.startswith(UNKNOWN_CALL):
            raise UnbuildableError
        return call_id.removeprefix(UNKNOWN_CALL)

    # --- the model -------------------------------------------------------------------

    def _call(self, asked: ToolCallRequested) -> Json:
        named = {"call_id": asked.provider_call_id} if asked.provider_call_id else {}
        text = self._bodies.raw(asked.arguments[0])
        if asked.tool in OF_THEIR_OWN and isinstance(written_by(text), dict):
            kind = f"{asked.tool}_call"
            return {"type": kind, **named, CALLS[kind]: written_by(text)}
        kind = "custom_tool_call" if asked.kind == "CUSTOM" else "function_call"
        spaced = {"namespace": asked.namespace} if asked.namespace else {}
        return {"type": kind, "name": asked.tool, **spaced, CALLS[kind]: text, **named}

    def _said(self, blocks: Blocks) -> Json:
        match [block.kind for block in blocks]:
            case ["reasoning"] if blocks[0].model is not None or blocks[0].opaque is None:
                return self.reasoning(blocks[0])
            case ["reasoning"]:
                return self._encrypted(blocks[0])
            case ["server_tool", *rest]:
                item: Json = parsed(self._bodies.text(blocks[0].body))
                return item | ({"result": self._made(blocks[1])} if rest else {})
            case _:
                content = self.pieces(blocks, "output_text")
                return {"type": "message", "role": "assistant", "content": content}

    def _encrypted(self, block: Block) -> Json:
        """Reasoning of a model that nobody named, or a message of an encrypted piece."""
        held: Json = parsed(self._bodies.text(block.opaque or ""))
        if held.get("type") == "encrypted_content":
            return {"type": "message", "role": "assistant", "content": [held]}
        return self.reasoning(block)

    def _made(self, block: Block) -> Any:
        """The image that a tool of the provider made."""
        if block.kind == "image":
            return self._bodies.data_url(block)[1]
        return self._bodies.value(block)

    def reasoning(self, block: Block) -> Json:
        """An item that goes back as it was, with what it says for people."""
        text = self._bodies.text(block.body)
        summary = [{"type": "summary_text", "text": text}] if text else []
        if block.opaque is not None:
            return parsed(self._bodies.text(block.opaque)) | {"summary": summary}
        named = {"id": block.provider_item_id} if block.provider_item_id else {}
        return {"type": "reasoning", **named, "summary": summary}

    # --- content ---------------------------------------------------------------------

    def pieces(self, blocks: Blocks, text_type: str = "input_text") -> list[Any]:
        """Blocks as the content of a message."""
        return [self._piece(block, text_type) for block in blocks]

    def _piece(self, block: Block, text_type: str) -> Any:
        match block.kind:
            case "text":
                return {"type": text_type, "text": self._bodies.raw(block)}
            case "image":
                media_type, data = self._bodies.data_url(block)
                url = f"data:{media_type};base64,{data}"
                return {"type": "input_image", "image_url": url}
            case "reasoning" if block.opaque is not None:
                return parsed(self._bodies.text(block.opaque))
            case "json":
                return self._bodies.value(block)
            case _:
                raise UnbuildableError

    # --- messages --------------------------------------------------------------------

    def _message(self, group: Group) -> Json:
        for event in group.events:
            match event:
                case UserMessage(blocks=blocks) | SteeringReceived(blocks=blocks):
                    return self._from("user", blocks)
                case SystemObservation(origin="agent-message", blocks=blocks):
                    return {"type": "agent_message", "content": self.pieces(blocks)}
                case SystemObservation(origin=origin, blocks=blocks):
                    return self._from(origin if origin in _ROLES else "user", blocks)
                case _:
                    pass
        raise UnbuildableError

    def _from(self, role: str, blocks: Blocks) -> Json:
        return {"type": "message", "role": role, "content": self.pieces(blocks)}

    # --- results ---------------------------------------------------------------------

    def _output(self, group: Group, result: KnownEvent) -> Json:
        """An output, in the first form that says what the facts say."""
        call_id: str = result.__dict__["call_id"]
        asked = self.calls.get(call_id)
        polled = (asked and asked.continues_handle) or ""
        blocks = _shown(group, result)
        whole = tuple(self._whole(block) for block in blocks)
        for raw in self._forms(blocks, result):
            told = outcome_of(call_id, raw, whole, polled=polled)
            if _tells(told.events[0], result):
                kind = _kind_of_output(asked)
                provider_call_id = self.provider_id(call_id)
                return {"type": kind, "call_id": provider_call_id, "output": raw}
        raise UnbuildableError

    def _whole(self, block: Block) -> Block:
        if block.kind == "text":
            return block.model_copy(update={"body": self._bodies.text(block.body)})
        return block

    def _forms(self, blocks: Blocks, result: KnownEvent) -> Iterator[Any]:
        """What an output may be: bare content, or content with a status beside it."""
        content = self._content(blocks)
        yield content
        yield {"content": content, "success": False}
        code: int | None = result.__dict__.get("exit_code")
        if isinstance(result, ToolExecutionFailed):
            name, _, digits = result.error_type.partition("ExitCode:")
            code = int(digits) if not name and digits.lstrip("-").isdecimal() else None
        duration_ms: int | None = result.__dict__.get("duration_ms")
        status = {} if code is None else {"exit_code": code}
        took = {} if duration_ms is None else {"duration_seconds": duration_ms / 1_000}
        yield {"content": content, **status, **took}

    def _content(self, blocks: Blocks) -> Any:
        if len(blocks) == 1 and blocks[0].kind == "text":
            return self._bodies.raw(blocks[0])
        if len(blocks) == 1 and blocks[0].kind == "json":
            value = self._bodies.value(blocks[0])
            if content_blocks(value)[:1] == content_blocks([value]):
                return value
        return self.pieces(blocks)


def _kind_of_output(asked: ToolCallRequested | None) -> str:
    if asked is None or (asked.kind != "CUSTOM" and asked.tool not in OF_THEIR_OWN):
        return "function_call_output"
    kind = "custom_tool" if asked.kind == "CUSTOM" else asked.tool
    return "tool_search_output" if kind == "tool_search" else f"{kind}_call_output"


def _shown(group: Group, result: KnownEvent) -> Blocks:
    shown = group.one(ToolResultProjected)
    if shown is not None:
        return shown.blocks
    fields = result.__dict__
    return cast("Blocks", fields.get("output", fields.get("blocks", ())))


def _tells(event: KnownEvent, wanted: KnownEvent) -> bool:
    """Whether an event says the same as another, but for what it shows."""
    shown = ("output", "blocks")
    mine, yours = (
        {name: value for name, value in one.__dict__.items() if name not in shown}
        for one in (event, wanted)
    )
    return type(event) is type(wanted) and mine == yours
