"""What no API takes in a request: blank texts, broken images, ids and tools. Pure."""

import re
from collections.abc import Iterator
from typing import cast

from foldline.projections.wire import Json

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What a tool can be called."""

ID_MAX = 64
"""How long the id of a call may be."""

_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_DATA_URL = re.compile(r"data:(image/[a-z]+);base64,[A-Za-z0-9+/]+={0,2}")


def objects(value: object) -> list[Json]:
    """The objects in a list; none where it is no list."""
    found = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("Json", one) for one in found if isinstance(one, dict)]


def an_object(value: object) -> Json:
    """The object that a value is; an empty one where it is none."""
    return cast("Json", value) if isinstance(value, dict) else {}


def blocks(content: object) -> list[Json]:
    """What a message holds: a text alone is one block."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return objects(content)


def said(block: Json, where: str) -> Iterator[str]:
    """A text that is blank."""
    if not str(block.get("text") or "").strip():
        yield f"{where}: a blank text"


def image(url: str, where: str) -> Iterator[str]:
    """An image that no API shows."""
    found = _DATA_URL.fullmatch(url)
    if found is None or found[1] not in _IMAGES:
        yield f"{where}: an image that cannot be shown"


def is_id(text: str, longest: int) -> bool:
    """Whether a call can have this id."""
    return bool(NAME.fullmatch(text)) and len(text) <= longest


def tools(request: Json, schema_key: str) -> Iterator[str]:
    """Tools that the caller runs and that cannot be declared so.

    Those of the provider have types of their own.
    """
    names: set[str] = set()
    for tool in objects(request.get("tools")):
        if tool.get("type", "function") not in ("function", "custom"):
            continue
        told = cast("Json", tool.get("function", tool))
        name, schema = told.get("name"), cast("object", told.get(schema_key))
        if not NAME.fullmatch(str(name)) or name in names:
            yield f"tool {name!r} is there twice, or none can be called so"
        names.add(str(name))
        if not isinstance(schema, dict) or cast("Json", schema).get("type") != "object":
            yield f"tool {name!r}: its input is no object"
