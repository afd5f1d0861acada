"""A model's answer in neutral form, and how to make it from what three APIs send."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from foldline.producers.openai_blocks import (
    content_blocks,
    reasoning_block,
    server_tool_blocks,
)
from foldline.schemas.blocks import Block, text_block
from foldline.schemas.events import Usage


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """The model asks for a tool; `arguments` is the text that it wrote, parsed or not."""

    tool: str
    arguments: str = "{}"
    provider_call_id: str = ""


@dataclass(frozen=True, slots=True)
class ModelResponse:
    """What a model answered: blocks and requests for tools, in its order."""

    parts: Sequence[Block | ToolRequest] = ()
    usage: Usage | None = None
    finish_reason: str | None = None
    response_id: str | None = None
    model: str | None = None

    @classmethod
    def of(cls, text: str = "", *requests: ToolRequest) -> "ModelResponse":
        """Text and requests for tools."""
        said: tuple[Block | ToolRequest, ...] = (text_block(text),) if text else ()
        return cls(parts=(*said, *requests))


_Json = Mapping[str, Any]


def from_openai(completion: Mapping[str, Any]) -> ModelResponse:
    """The first choice of an OpenAI-style chat completion, as parsed JSON."""
    choice = cast("_Json", (completion.get("choices") or [{}])[0])
    message = cast("_Json", choice.get("message") or {})
    parts: list[Block | ToolRequest] = []
    if message.get("reasoning_content"):
        thought = str(message["reasoning_content"])
        parts.append(Block(kind="reasoning", body=thought, provider="openai"))
    said = [message.get("content"), message.get("refusal")]
    parts.extend(text_block(str(text)) for text in said if text)
    for item in cast("Sequence[_Json]", message.get("tool_calls") or ()):
        function = cast("_Json", item.get("function") or {})
        parts.append(
            ToolRequest(
                tool=str(function.get("name") or ""),
                arguments=_as_text(function.get("arguments")),
                provider_call_id=str(item.get("id") or ""),
            )
        )
    return ModelResponse(
        parts=parts,
        usage=_openai_usage(
            cast("_Json | None", completion.get("usage")),
            given="prompt_tokens",
            made="completion_tokens",
        ),
        finish_reason=choice.get("finish_reason"),
        response_id=completion.get("id"),
        model=completion.get("model"),
    )


def from_responses(response: Mapping[str, Any]) -> ModelResponse:
    """A response of OpenAI's Responses API, as parsed JSON.

    Encrypted reasoning goes back to its model only where it was asked for: with
    `"include": ["reasoning.encrypted_content"]` among the request's parameters.
    """
    model = response.get("model")
    items = cast("Sequence[dict[str, Any]]", response.get("output") or ())
    cut = cast("_Json", response.get("incomplete_details") or {})
    return ModelResponse(
        parts=[part for item in items for part in _response_parts(item, model)],
        usage=_openai_usage(
            cast("_Json | None", response.get("usage")),
            given="input_tokens",
            made="output_tokens",
        ),
        finish_reason=cut.get("reason") or response.get("status"),
        response_id=response.get("id"),
        model=model,
    )


def _response_parts(
    item: dict[str, Any], model: str | None
) -> Sequence[Block | ToolRequest]:
    match item.get("type"):
        case "message":
            return content_blocks(item.get("content"))
        case "function_call" | "custom_tool_call":
            asked = item.get("arguments", item.get("input"))
            name, call_id = str(item.get("name") or ""), str(item.get("call_id") or "")
            return (ToolRequest(name, _as_text(asked), call_id),)
        case "reasoning" | "compaction":
            return (reasoning_block(item, model),)
        case _:
            return server_tool_blocks(item, model)


def from_anthropic(message: Mapping[str, Any]) -> ModelResponse:
    """An Anthropic-style message, as parsed JSON."""
    model = message.get("model")
    parts = [
        _anthropic_part(item, model)
        for item in cast("Sequence[_Json]", message.get("content") or ())
    ]
    return ModelResponse(
        parts=parts,
        usage=_anthropic_usage(cast("_Json | None", message.get("usage"))),
        finish_reason=message.get("stop_reason"),
        response_id=message.get("id"),
        model=model,
    )


def _anthropic_part(item: _Json, model: str | None) -> Block | ToolRequest:
    match item.get("type"):
        case "text":
            return text_block(str(item.get("text") or ""))
        case "tool_use":
            return ToolRequest(
                tool=str(item.get("name") or ""),
                arguments=_as_text(item.get("input")),
                provider_call_id=str(item.get("id") or ""),
            )
        case "thinking":
            return Block(
                kind="reasoning",
                body=str(item.get("thinking") or ""),
                provider="anthropic",
                model=model,
                signature=item.get("signature") or None,
            )
        case kind:
            # Kept verbatim, for return to the same provider and model only.
            return Block(
                kind="reasoning" if kind == "redacted_thinking" else "server_tool",
                provider="anthropic",
                model=model,
                opaque=json.dumps(item, ensure_ascii=False),
            )


def _as_text(arguments: object) -> str:
    if isinstance(arguments, str):
        return arguments
    return json.dumps({} if arguments is None else arguments, ensure_ascii=False)


def _openai_usage(usage: _Json | None, *, given: str, made: str) -> Usage | None:
    """Usage, by an API's names for the tokens given to a model and those made by it."""
    if usage is None:
        return None
    read = cast("_Json", usage.get(f"{given}_details") or {})
    written = cast("_Json", usage.get(f"{made}_details") or {})
    return Usage(
        input_tokens=usage.get(given),
        output_tokens=usage.get(made),
        cache_read_input_tokens=read.get("cached_tokens"),
        reasoning_output_tokens=written.get("reasoning_tokens"),
    )


def _anthropic_usage(usage: _Json | None) -> Usage | None:
    if usage is None:
        return None
    return Usage(
        input_tokens=usage.get("input_tokens"),
        output_tokens=usage.get("output_tokens"),
        cache_read_input_tokens=usage.get("cache_read_input_tokens"),
        cache_write_input_tokens=usage.get("cache_creation_input_tokens"),
    )
