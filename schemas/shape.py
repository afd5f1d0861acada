"""What a published schema must look like, whatever its version.

Nothing that may grow is an enum, nothing is a map, every value takes bytes, the
envelope is one run that ends in `prev_hash`, and structure comes before content.
"""

from collections.abc import Iterator
from typing import Any, cast

from foldline.schemas.avsc import NAMESPACE, event_schema
from foldline.schemas.changes import Change
from foldline.schemas.events import ContextCleared
from foldline.schemas.lint import undecodable
from foldline.schemas.readers import is_content, split

LOGICAL_TYPES = {"uuid": "string", "timestamp-micros": "long"}
"""The logical types in use, each with the type that carries it."""


def misshapen(schema: dict[str, Any], *, is_event: bool) -> list[Change]:
    """What is wrong with a schema, by field."""
    problems = [_split_path(problem) for problem in undecodable(schema)]
    problems += _types(schema, "")
    if is_event:
        problems += _envelope(schema)
        problems += _content(schema)
    return problems


def _split_path(problem: str) -> Change:
    path, _, reason = problem.partition(": ")
    return path, reason


def _types(schema: Any, path: str) -> Iterator[Change]:
    if isinstance(schema, list):
        for branch in cast("list[Any]", schema):
            yield from _types(branch, path)
    if not isinstance(schema, dict):
        return
    fields = cast("dict[str, Any]", schema)
    kind = fields["type"]
    if kind == "map":
        yield path, "a map has no order: use an array of pairs, sorted"
    if kind == "enum":
        yield path, "an enum cannot grow: use a string"
    logical = fields.get("logicalType")
    if logical is not None and LOGICAL_TYPES.get(logical) != kind:
        yield path, f"logicalType {logical} on {kind} is not in use"
    for own in fields.get("fields", ()):
        inner = f"{path}.{own['name']}" if path else own["name"]
        if isinstance(own["type"], list) and own["type"][0] == "null":
            if own.get("default", "") is not None:
                yield inner, "what may be null has null as its default"
        elif isinstance(own["type"], list) and "null" in own["type"]:
            yield inner, "null comes first in a union"
        yield from _types(own["type"], inner)
    if kind == "array":
        yield from _types(fields["items"], f"{path}.[]")


def _envelope(schema: dict[str, Any]) -> Iterator[Change]:
    """The first fields are the envelope's, in its order, up to `prev_hash`."""
    names = [own["name"] for own in schema["fields"]]
    wanted = [own["name"] for own in split(event_schema(ContextCleared))[0]]
    if "prev_hash" not in names:
        yield "prev_hash", "the envelope is missing"
        return
    run = names[: names.index("prev_hash") + 1]
    ours = [name for name in run if name in wanted]
    if ours != [name for name in wanted if name in run]:
        yield "prev_hash", "the envelope is not one run that ends in prev_hash"
    for name in set(wanted) & set(names[len(run) :]):
        yield name, "a field of the envelope comes after prev_hash"
    if schema.get("namespace") != NAMESPACE:
        yield "", f"the namespace is not {NAMESPACE}"


def _content(schema: dict[str, Any]) -> Iterator[Change]:
    """Once content has begun, no structure follows."""
    if "prev_hash" not in [own["name"] for own in schema["fields"]]:
        return
    begun = ""
    for own in split(schema)[1]:
        if is_content(own["type"]):
            begun = own["name"]
        elif begun:
            yield own["name"], f"structure after the content {begun}"
