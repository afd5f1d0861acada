"""Content of OpenAI's Responses items as blocks of ours."""

from base64 import b64decode
from binascii import Error as Base64Error
from typing import cast

from foldline.producers.json_fields import Json, as_id, as_json, as_list, as_object, as_text
from foldline.schemas.blocks import Block, Blocks, json_block, text_block

PROVIDER = "openai"

TEXTS: frozenset[str] = frozenset(
    {"input_text", "output_text", "text", "summary_text", "reasoning_text", "refusal"}
)
"""Types of content that are text."""

_ENCRYPTED = ("encrypted_content", "encryptedContent")

IMAGES: frozenset[str] = frozenset({"input_image", "image", "image_url"})


def content_blocks(content: object) -> Blocks:
    """What a message or an output holds: a string, one piece, or a list of them."""
    if isinstance(content, str):
        return (text_block(content),)
    if isinstance(content, list):
        return tuple(_piece(item) for item in as_list(cast("object", content)))
    return () if content is None else (_piece(content),)


def reasoning_block(item: Json, model: str | None) -> Block:
    """Reasoning: what it says for people, and what goes back to the provider as it is.

    The texts are the body, which is redacted; `opaque` is the item without them.
    """
    said = [*as_list(item.get("summary")), *as_list(item.get("content"))]
    return Block(
        kind="reasoning",
        body="\n".join(_text(piece) for piece in said if _text(piece)),
        provider=PROVIDER,
        model=model,
        provider_item_id=as_id(item.get("id")) or None,
        opaque=_encrypted(item),
    )


def _encrypted(item: Json) -> str | None:
    """The item as the API takes it back, without its texts; None with nothing encrypted.

    The SDK for JavaScript keeps what the API said under another name, or one level below.
    """
    whole: Json = {name: value for name, value in item.items() if name != "content"}
    if not as_text(item.get("encrypted_content")):
        below = as_object(item.get("providerData"))
        found = [one.get(name) for one in (item, below) for name in _ENCRYPTED]
        secret = next((as_text(value) for value in found if as_text(value)), "")
        if not secret:
            return None
        whole = {"type": item.get("type"), "encrypted_content": secret}
        whole |= {"id": item["id"]} if "id" in item else {}
    whole["summary"] = []
    return as_json(whole)


def server_tool_blocks(item: Json, model: str | None) -> Blocks:
    """A tool that the provider ran itself; an image that it made is a block of its own."""
    kind = as_text(item.get("type"))
    made = item.get("result") if kind == "image_generation_call" else None
    said = {name: value for name, value in item.items() if value is not made or not made}
    tool = Block(
        kind="server_tool",
        media_type="application/json",
        name=kind.removesuffix("_call"),
        body=as_json(said),
        provider=PROVIDER,
        model=model,
        provider_item_id=as_id(item.get("id")) or None,
    )
    image = _image(f"data:image/png;base64,{made}") if isinstance(made, str) else None
    return (tool, image) if image is not None else (tool, *_kept(made))


def _kept(made: object) -> Blocks:
    return () if made is None else (json_block(as_json(made)),)


def _piece(item: object) -> Block:
    piece = as_object(item)
    kind = as_text(piece.get("type"))
    if kind in TEXTS and _has_text(piece):
        return text_block(_text(piece))
    if kind in IMAGES:
        url = piece.get("image_url", piece.get("image"))
        image = _image(as_text(as_object(url).get("url", url)))
        if image is not None:
            return image
    if kind == "encrypted_content":
        return Block(kind="reasoning", provider=PROVIDER, opaque=as_json(piece))
    if isinstance(item, str):
        return text_block(item)
    return json_block(as_json(item)).model_copy(update={"name": kind or None})


def _has_text(piece: Json) -> bool:
    return isinstance(piece.get("text", piece.get("refusal")), str)


def _text(item: object) -> str:
    piece = as_object(item)
    return as_text(piece.get("text", piece.get("refusal")))


def _image(url: str) -> Block | None:
    """An image as its data URL, which becomes a blob; None for what is none."""
    head, comma, data = url.partition(",")
    if not comma or not head.startswith("data:") or not head.endswith(";base64"):
        return None
    try:
        whole = bool(b64decode(data, validate=True))
    except (Base64Error, ValueError):
        return None
    media_type = head.removeprefix("data:").removesuffix(";base64") or "image/png"
    return Block(kind="image", media_type=media_type, body=url) if whole else None
