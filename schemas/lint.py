"""What a schema must not have, so that no bytes can hang or exhaust its reader.

An array of items without size (null, an empty record) with a count of 2^40 keeps a
decoder busy for ever; a recursive type lets a few bytes nest without end.
"""

from typing import Any, cast

from foldline.errors import SchemaError

MAX_SCHEMA_DEPTH = 16
MAX_SCHEMA_FIELDS = 2_000


def check_decodable(schema: dict[str, Any]) -> None:
    """Refuse a schema whose decoding is not bounded by the size of its bytes.

    Raises:
        SchemaError: zero-size items, recursion, too deep or too many fields.
    """
    problems: list[str] = []
    sizes: dict[str, int] = {}
    _least_size(schema, "", 0, sizes, problems)
    if problems:
        raise SchemaError(str(schema.get("name", "?")), problems)


def _least_size(
    schema: Any, path: str, depth: int, sizes: dict[str, int], problems: list[str]
) -> int:
    """The fewest bytes a value can take; -1 in `sizes` marks a type being defined."""
    if depth > MAX_SCHEMA_DEPTH:
        problems.append(f"{path}: deeper than {MAX_SCHEMA_DEPTH}")
        return 1
    if isinstance(schema, list):
        branches = cast("list[Any]", schema)
        for branch in branches:
            _least_size(branch, path, depth + 1, sizes, problems)
        return 1
    if isinstance(schema, str):
        if sizes.get(schema) == -1:
            problems.append(f"{path}: {schema} contains itself")
            return 1
        return sizes.get(schema, 0 if schema == "null" else 1)
    fields = cast("dict[str, Any]", schema)
    match fields.get("type"):
        case "array" | "map" as kind:
            key = "items" if kind == "array" else "values"
            if _least_size(fields.get(key), path, depth + 1, sizes, problems) == 0:
                problems.append(f"{path}: {kind} of items without size")
            return 1
        case "record":
            return _record_size(fields, path, depth, sizes, problems)
        case "fixed":
            return int(fields.get("size", 0))
        case "enum":
            return 1
        case inner:
            return _least_size(inner, path, depth + 1, sizes, problems)


def _record_size(
    fields: dict[str, Any],
    path: str,
    depth: int,
    sizes: dict[str, int],
    problems: list[str],
) -> int:
    name = str(fields.get("name", ""))
    full = name if "." in name else f"{fields.get('namespace', 'foldline.events')}.{name}"
    sizes[full] = -1
    own = cast("list[dict[str, Any]]", fields.get("fields", []))
    if len(own) > MAX_SCHEMA_FIELDS:
        problems.append(f"{path}: more than {MAX_SCHEMA_FIELDS} fields")
    size = sum(
        _least_size(field["type"], f"{path}.{field['name']}", depth + 1, sizes, problems)
        for field in own
    )
    sizes[full] = size
    return size
