"""Blocks of the API, as Claude Code writes them down, as blocks of ours."""

import binascii
from base64 import b64decode
from typing import cast

from foldline.producers.json_fields import Json, as_json, as_list, as_object, as_text
from foldline.schemas.blocks import Block, Blocks, json_block, text_block


def output_of(content: object) -> Blocks:
    """A tool's output: text, or a list of blocks."""
    if isinstance(content, str):
        return (text_block(content),)
    if isinstance(content, list):
        return tuple(_item(item) for item in as_list(cast("object", content)))
    return () if content is None else (json_block(as_json(content)),)


def _item(item: object) -> Block:
    block = as_object(item)
    return block_of(block, None) if block else json_block(as_json(item))


def block_of(block: Json, model: str | None) -> Block:
    """A block of the API as ours; what is not known is kept as JSON."""
    kind = as_text(block.get("type"))
    if kind == "text" and isinstance(block.get("text"), str):
        return text_block(block["text"])
    if kind == "thinking":
        return Block(
            kind="reasoning",
            body=as_text(block.get("thinking")),
            provider="anthropic",
            model=model,
            signature=as_text(block.get("signature")) or None,
        )
    if kind in ("image", "document"):
        return _media(block, "image" if kind == "image" else "file")
    if kind == "redacted_thinking":
        return Block(
            kind="reasoning", provider="anthropic", model=model, opaque=as_json(block)
        )
    return json_block(as_json(block)).model_copy(update={"name": kind or None})


def _media(block: Json, kind: str) -> Block:
    """Binary media as a data URL, which becomes a blob of the decoded bytes."""
    source = as_object(block.get("source"))
    media_type = as_text(source.get("media_type")) or "application/octet-stream"
    data = as_text(source.get("data"))
    if source.get("type") != "base64" or not _is_base64(data):
        return json_block(as_json(block)).model_copy(update={"name": kind})
    body = f"data:{media_type};base64,{data}"
    return Block(kind=kind, media_type=media_type, body=body)


def _is_base64(data: str) -> bool:
    try:
        return bool(b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        return False
