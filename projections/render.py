"""A context as two APIs want it: OpenAI Chat Completions and Anthropic Messages. Pure.

Ids of calls are the provider's where they are there and not used twice; else ours. They
are given in the order of the calls, so that a longer history keeps those of a shorter.
"""

import base64
import json
from collections.abc import Callable, Iterable
from typing import Any, cast

from foldline.projections.context import Context, Message, Part

ReadBlob = Callable[[bytes], bytes]
_Json = dict[str, Any]


def to_openai_messages(
    context: Context, *, read_blob: ReadBlob | None = None
) -> list[_Json]:
    """Messages for an OpenAI-style chat completion.

    Args:
        context: what to show.
        read_blob: gives the bytes of images; without it they are named, not shown.
    """
    ids = _call_ids(context)
    messages: list[_Json] = []
    for message in context.messages:
        if message.role == "tool":
            messages.extend(
                {
                    "role": "tool",
                    "tool_call_id": ids[part.call_id],
                    "content": _plain_text(part.parts),
                }
                for part in message.parts
            )
        else:
            messages.extend(_openai_message(message, ids, read_blob))
    return messages


def _openai_message(
    message: Message, ids: dict[str, str], read_blob: ReadBlob | None
) -> list[_Json]:
    calls = [part for part in message.parts if part.kind == "call"]
    said = [part for part in message.parts if _is_open(part)]
    images = [part for part in said if part.kind == "image" and part.blob is not None]
    content: object = _plain_text(said) or None
    if images and read_blob is not None and message.role == "user":
        content = [_openai_part(part, read_blob) for part in said]
    if content is None and not calls:
        return []
    rendered: _Json = {"role": message.role, "content": content}
    if calls:
        rendered["tool_calls"] = [
            {
                "id": ids[part.call_id],
                "type": "function",
                "function": {"name": part.tool, "arguments": part.text},
            }
            for part in calls
        ]
    return [rendered]


def _is_open(part: Part) -> bool:
    """Whether a part is for any model, and not only for the one that said it."""
    return part.kind not in ("call", "reasoning") and (bool(part.text) or not part.opaque)


def _openai_part(part: Part, read_blob: ReadBlob) -> _Json:
    if part.kind != "image" or part.blob is None:
        return {"type": "text", "text": _plain_text([part])}
    url = f"data:{part.blob.media_type};base64,{_encoded(part, read_blob)}"
    return {"type": "image_url", "image_url": {"url": url}}


def to_anthropic_messages(
    context: Context, *, model: str = "", read_blob: ReadBlob | None = None
) -> tuple[str, list[_Json]]:
    """The system text, and messages for an Anthropic-style request.

    Args:
        context: what to show.
        model: signed reasoning goes back to this model only; of others it is dropped.
        read_blob: gives the bytes of images; without it they are named, not shown.
    """
    ids = _call_ids(context)
    system = ""
    messages: list[_Json] = []
    for message in context.messages:
        if message.role == "system":
            system = _plain_text(message.parts)
            continue
        role = "assistant" if message.role == "assistant" else "user"
        content = [
            item
            for part in message.parts
            for item in _anthropic_part(part, ids, model, read_blob)
        ]
        if content and messages and messages[-1]["role"] == role:
            cast("list[_Json]", messages[-1]["content"]).extend(content)
        elif content:
            messages.append({"role": role, "content": content})
    return system, messages


def _anthropic_part(
    part: Part, ids: dict[str, str], model: str, read_blob: ReadBlob | None
) -> list[_Json]:
    match part.kind:
        case "call":
            arguments = {
                "type": "tool_use",
                "id": ids[part.call_id],
                "name": part.tool,
                "input": _object(part.text),
            }
            return [arguments]
        case "result":
            result: _Json = {
                "type": "tool_result",
                "tool_use_id": ids[part.call_id],
                "content": _plain_text(part.parts),
            }
            return [result | {"is_error": True}] if part.error else [result]
        case "reasoning" | "server_tool":
            return _verbatim(part, model)
        case "image" if part.blob is not None and read_blob is not None:
            source = {
                "type": "base64",
                "media_type": part.blob.media_type,
                "data": _encoded(part, read_blob),
            }
            return [{"type": "image", "source": source}]
        case _:
            return [{"type": "text", "text": _plain_text([part])}]


def _verbatim(part: Part, model: str) -> list[_Json]:
    """What goes back to the provider and model that said it, or nowhere."""
    if part.provider != "anthropic" or part.model != model:
        return []
    if part.opaque is not None:
        return [cast("_Json", json.loads(part.opaque))]
    if part.signature is None:
        return []
    return [{"type": "thinking", "thinking": part.text, "signature": part.signature}]


def _object(text: str) -> object:
    """Arguments as an object; what is none goes in as the text that the model wrote."""
    try:
        value: object = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {"_unparsed": text}
    return cast("object", value) if isinstance(value, dict) else {"_unparsed": text}


def _plain_text(parts: Iterable[Part]) -> str:
    return "".join(part.text or _named(part) for part in parts)


def _named(part: Part) -> str:
    if part.blob is None:
        return f"[{part.kind}]"
    return f"[{part.kind}: {part.blob.size} bytes of {part.blob.media_type}]"


def _encoded(part: Part, read_blob: ReadBlob) -> str:
    return base64.b64encode(read_blob(part.blob.sha256 if part.blob else b"")).decode()


def _call_ids(context: Context) -> dict[str, str]:
    """The id of each call on the wire: letters, digits, dashes and underscores."""
    ids: dict[str, str] = {}
    used: set[str] = set()
    for message in context.messages:
        for part in message.parts:
            if part.kind != "call":
                continue
            wanted = part.provider_call_id
            usable = wanted and wanted not in used and _is_plain(wanted)
            wire = wanted if usable else f"call_{part.call_id.replace(':', '_')}"
            ids[part.call_id] = wire
            used.add(wire)
    return ids


def _is_plain(text: str) -> bool:
    return text.isascii() and text.replace("-", "").replace("_", "").isalnum()
