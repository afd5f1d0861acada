"""A reader for the front of a record: generated Python, several times faster.

A fold needs the envelope and the structure of an event, not its content. fastavro reads
about 28 fields in 15 to 20 us, most of it per-field overhead; refolding 100,000 events
a second leaves 10 us for everything. So for each writer's schema one straight-line
function is generated that reads those fields and stops. It reads what fastavro reads
(`tests/schemas/test_front.py` compares them on every type), and nothing else uses it.

How it stays safe: every length is checked not to be negative, every position not to run
past the end, array counts not to exceed the bytes that are left.
"""

import struct
from collections.abc import Callable
from typing import Any, cast

from foldline.errors import DecodeError, SchemaError

ReadFront = Callable[[bytes], tuple[dict[str, Any], dict[str, Any]]]
"""Reads a body and gives the envelope's fields and the event's own."""

MAX_VARINT_BYTES = 10
_DOUBLE = struct.Struct("<d")
_EIGHT = struct.Struct("8B")
_CONTINUATIONS = sum(128 << shift for shift in range(0, 49, 7))
_LENGTHS = tuple(c >> 1 if not c & 129 else -1 for c in range(256))
"""The length that a first byte stands for, -1 where it takes more than a look."""


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag number of several bytes, and the position behind it."""
    number = 0
    for shift in range(0, 7 * MAX_VARINT_BYTES, 7):
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:  # noqa: PLR2004 - the continuation bit
            return (number >> 1) ^ -(number & 1), at
    raise DecodeError("a number of more than ten bytes")


def length(data: bytes, at: int) -> tuple[int, int]:
    """A length of several bytes, and the position behind it."""
    number, at = varint(data, at)
    if number < 0:
        negative(at)
    return number, at


def _unpack_eight(data: bytes, at: int) -> tuple[int, int]:
    """A number of eight bytes, as times are; any other is read step by step."""
    b0, b1, b2, b3, b4, b5, b6, b7 = _EIGHT.unpack_from(data, at)
    if b7 > 127 or b0 & b1 & b2 & b3 & b4 & b5 & b6 < 128:  # noqa: PLR2004
        return varint(data, at)
    number = (
        b0
        + (b1 << 7)
        + (b2 << 14)
        + (b3 << 21)
        + (b4 << 28)
        + (b5 << 35)
        + (b6 << 42)
        + (b7 << 49)
        - _CONTINUATIONS
    )
    return (number >> 1) ^ -(number & 1), at + 8


def negative(at: int) -> None:
    """Refuse a negative length or an unknown union branch."""
    raise DecodeError(f"a negative length or an unknown branch at byte {at}")


def compile_front(name: str, envelope: list[Any], front: list[Any]) -> ReadFront:
    """Generate the reader of a schema's front.

    Args:
        name: the record's name, for tracebacks.
        envelope: the envelope's Avro fields, without logical types.
        front: the event's own Avro fields up to its content.

    Raises:
        SchemaError: a type that events do not use (enum, map, fixed).
    """
    writer = _Writer(name)
    envelope_value = writer.record(envelope)
    front_value = writer.record(front)
    lines = [
        "def read_front(b):",
        "    i = 0",
        *writer.lines,
        "    if i > len(b): raise DecodeError('truncated')",
        f"    return {envelope_value}, {front_value}",
    ]
    scope: dict[str, Any] = {
        "varint": varint,
        "negative": negative,
        "DecodeError": DecodeError,
        "unpack_double": _unpack_double,
        "eight": _unpack_eight,
        "length": length,
        "lengths": _LENGTHS,
    }
    code = compile("\n".join(lines), f"<front of {name}>", "exec")
    exec(code, scope)  # noqa: S102 - our own text, made of a checked schema's names
    return cast("ReadFront", scope["read_front"])


def _unpack_double(data: bytes, at: int) -> float:
    return cast("float", _DOUBLE.unpack_from(data, at)[0])


class _Writer:
    """Writes the lines that read one type after another."""

    def __init__(self, name: str) -> None:
        self.lines: list[str] = []
        self._name = name
        self._named: dict[str, dict[str, Any]] = {}
        self._variables = 0
        self._indent = 1

    def record(self, fields: list[Any]) -> str:
        """Read fields in order; the expression is the dictionary of them."""
        values = [(field["name"], self._value(field["type"])) for field in fields]
        return "{" + ", ".join(f"{name!r}: {value}" for name, value in values) + "}"

    def _say(self, line: str) -> None:
        self.lines.append("    " * self._indent + line)

    def _variable(self) -> str:
        self._variables += 1
        return f"v{self._variables}"

    def _value(self, schema: Any) -> str:
        """Lines that read a value; the expression that then stands for it."""
        if isinstance(schema, list):
            return self._union(cast("list[Any]", schema))
        if isinstance(schema, dict):
            fields = cast("dict[str, Any]", schema)
            match fields["type"]:
                case "record":
                    self._named[_full_name(fields)] = fields
                    return self._record(fields)
                case "array":
                    return self._array(fields["items"])
                case "long" if fields.get("logicalType") == "timestamp-micros":
                    return self._time()
                case inner:
                    return self._value(inner)
        if schema in self._named:
            return self._record(self._named[schema])
        return self._primitive(schema)

    def _record(self, fields: dict[str, Any]) -> str:
        variable = self._variable()
        self._say(f"{variable} = {self.record(fields['fields'])}")
        return variable

    def _primitive(self, schema: str) -> str:
        variable = self._variable()
        match schema:
            case "string" | "bytes":
                decode = ".decode()" if schema == "string" else ""
                self._say("n = lengths[b[i]]")
                self._say("if n < 0: n, i = length(b, i)")
                self._say("else: i += 1")
                self._say(f"j = i + n; {variable} = b[i:j]{decode}; i = j")
            case "long" | "int":
                self._number(variable)
            case "boolean":
                self._say(f"{variable} = b[i] == 1; i += 1")
            case "double":
                self._say(f"{variable} = unpack_double(b, i); i += 8")
            case "null":
                return "None"
            case _:
                raise SchemaError(self._name, [f"events do not use {schema}"])
        return variable

    def _time(self) -> str:
        variable = self._variable()
        self._say(f"{variable}, i = eight(b, i)")
        return variable

    def _number(self, variable: str) -> None:
        self._say("c = b[i]")
        self._say(f"if c < 128: {variable} = (c >> 1) ^ -(c & 1); i += 1")
        self._say(f"else: {variable}, i = varint(b, i)")

    def _union(self, branches: list[Any]) -> str:
        variable = self._variable()
        self._say("c = b[i]; i += 1")
        for index, branch in enumerate(branches):
            self._say(f"{'if' if index == 0 else 'elif'} c == {index << 1}:")
            self._indent += 1
            self._say(f"{variable} = {self._value(branch)}")
            self._indent -= 1
        self._say("else: negative(i)")
        return variable

    def _array(self, items: Any) -> str:
        variable, count = self._variable(), self._variable()
        self._say(f"{variable} = []")
        self._say("while True:")
        self._indent += 1
        self._number(count)
        self._say(f"if {count} == 0: break")
        self._say(f"if {count} < 0:")
        self._say(f"    {count} = -{count}; _, i = varint(b, i)")
        self._say(f"if {count} > len(b) - i: raise DecodeError('an array too long')")
        self._say(f"for _ in range({count}):")
        self._indent += 1
        self._say(f"{variable}.append({self._value(items)})")
        self._indent -= 2
        return f"tuple({variable})"


def _full_name(fields: dict[str, Any]) -> str:
    name = str(fields["name"])
    return name if "." in name else f"{fields.get('namespace', '')}.{name}"
