"""What a schema must not have, so that no bytes can hang or exhaust its reader.

An array of items without size (null, an empty record) with a count of 2^40 keeps a
decoder busy for ever; a recursive type lets a few bytes nest without end; a field
without size costs time that no byte pays for. Where every value takes at least one
byte, decoding ends with the bytes.
"""

from dataclasses import dataclass, field
from typing import Any, cast

from foldline.errors import SchemaError

MAX_SCHEMA_DEPTH = 16
"""How deep types may nest, named types followed."""

MAX_SCHEMA_FIELDS = 2_000
"""How many fields one record may have."""

_SIZED = frozenset({"boolean", "int", "long", "float", "double", "bytes", "string"})


def check_decodable(schema: dict[str, Any]) -> None:
    """Refuse a schema whose decoding is not bounded by the size of its bytes.

    Raises:
        SchemaError: types without size, recursion, too deep or too many fields.
    """
    problems = undecodable(schema)
    if problems:
        raise SchemaError(str(schema.get("name", "?")), problems)


def undecodable(schema: dict[str, Any]) -> list[str]:
    """What is wrong with a schema, each as `field path: reason`."""
    walk = _Walk()
    walk.visit(schema, _Place("", "", 0))
    return walk.problems


@dataclass(frozen=True, slots=True)
class _Place:
    """Where in a schema: the field's path, the namespace in force, how deep."""

    path: str
    namespace: str
    depth: int

    def inside(self, name: str, namespace: str) -> "_Place":
        path = f"{self.path}.{name}" if self.path else name
        return _Place(path, namespace, self.depth + 1)

    def deeper(self) -> "_Place":
        return _Place(self.path, self.namespace, self.depth + 1)


@dataclass(slots=True)
class _Walk:
    """Visits every type once; a named type's height is known when it is used again."""

    problems: list[str] = field(default_factory=list[str])
    heights: dict[str, int] = field(default_factory=dict[str, int])

    def _say(self, place: _Place, reason: str) -> None:
        self.problems.append(f"{place.path or 'the record'}: {reason}")

    def visit(self, schema: Any, place: _Place, *, in_union: bool = False) -> int:
        """Check a type; how many levels it has, itself included."""
        if place.depth > MAX_SCHEMA_DEPTH:
            self._say(place, f"deeper than {MAX_SCHEMA_DEPTH}")
            return 1
        if isinstance(schema, list):
            branches = cast("list[Any]", schema)
            if not branches:
                self._say(place, "a union without branches")
            inner = [self.visit(b, place.deeper(), in_union=True) for b in branches]
            return 1 + max(inner, default=0)
        if isinstance(schema, str):
            return self._name(schema, place, in_union=in_union)
        if not isinstance(schema, dict):
            self._say(place, f"no type: {schema!r}")
            return 1
        return self._complex(cast("dict[str, Any]", schema), place, in_union=in_union)

    def _name(self, name: str, place: _Place, *, in_union: bool) -> int:
        if name in _SIZED:
            return 1
        if name == "null":
            if not in_union:
                self._say(place, "null takes no bytes")
            return 1
        height = self.heights.get(_full(name, place.namespace))
        if height is None:
            self._say(place, f"{name} contains itself or is not known")
            return 1
        if place.depth + height > MAX_SCHEMA_DEPTH + 1:
            self._say(place, f"deeper than {MAX_SCHEMA_DEPTH}")
        return height

    def _complex(self, schema: dict[str, Any], place: _Place, *, in_union: bool) -> int:
        match schema.get("type"):
            case "array":
                return 1 + self.visit(schema.get("items"), place.deeper())
            case "map":
                return 1 + self.visit(schema.get("values"), place.deeper())
            case "record" | "error":
                return self._record(schema, place)
            case "fixed":
                if not isinstance(schema.get("size"), int) or schema["size"] < 1:
                    self._say(place, "a fixed without size takes no bytes")
                return self._define(schema, place, 1)
            case "enum":
                return self._define(schema, place, 1)
            case inner:
                return self.visit(inner, place.deeper(), in_union=in_union)

    def _define(self, schema: dict[str, Any], place: _Place, height: int) -> int:
        namespace = schema.get("namespace", place.namespace)
        self.heights[_full(str(schema.get("name", "")), namespace)] = height
        return height

    def _record(self, schema: dict[str, Any], place: _Place) -> int:
        full = _full(str(schema.get("name", "")), schema.get("namespace", place.namespace))
        namespace = full.rpartition(".")[0]
        fields = cast("list[dict[str, Any]]", schema.get("fields") or [])
        if not fields:
            self._say(place, "a record without fields takes no bytes")
        if len(fields) > MAX_SCHEMA_FIELDS:
            self._say(place, f"more than {MAX_SCHEMA_FIELDS} fields")
        inner = [
            self.visit(own.get("type"), place.inside(str(own.get("name")), namespace))
            for own in fields[: MAX_SCHEMA_FIELDS + 1]
        ]
        # Known only from here on: a field that names its own record finds nothing.
        self.heights[full] = 1 + max(inner, default=0)
        return self.heights[full]


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"
