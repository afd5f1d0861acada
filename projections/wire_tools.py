"""Tools as requests to every API declare them: with the schema of an object. Pure."""

from collections.abc import Iterable
from typing import NamedTuple

from foldline.projections.wire import Json, ReadBlob, Wire, parsed_item, read_of
from foldline.schemas.blocks import Blob, Body, clean_text
from foldline.schemas.events import ToolDeclaration

_UNSUPPORTED = frozenset({"oneOf", "anyOf", "allOf", "not", "enum"})


class Tool(NamedTuple):
    """A tool as every API takes it: a schema of an object, with nothing on top of it."""

    name: str
    description: str
    schema: Json


def tools_of(tools: Iterable[ToolDeclaration], wire: Wire) -> list[Tool]:
    """The tools that are declared, each name once."""
    found: dict[str, Tool] = {}
    for tool in tools:
        name = wire.name(tool.name)
        if name not in found:
            description = _body(tool.description, wire.read_blob)
            schema = _schema(_body(tool.input_schema, wire.read_blob))
            found[name] = Tool(name, description, schema)
    return list(found.values())


def _schema(text: str) -> Json:
    found = parsed_item(text)
    schema = {key: value for key, value in found.items() if key not in _UNSUPPORTED}
    properties: object = schema.get("properties")
    schema["properties"] = properties if isinstance(properties, dict) else {}
    return {"type": "object"} | schema | {"type": "object"}


def _body(body: Body, read_blob: ReadBlob | None) -> str:
    match body:
        case str():
            text = body
        case Blob():
            data = None if read_blob is None else read_of(read_blob, body)
            text = body.preview or "" if data is None else data.decode(errors="replace")
        case _:
            text = ""
    return clean_text(text)[0]
