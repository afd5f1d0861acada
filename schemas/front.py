"""A reader for the front of a record: generated Python, several times faster.

A fold needs the envelope and the structure of an event, not its content. fastavro reads
about 28 fields in 15 to 20 us, most of it per-field overhead; refolding 100,000 events
a second leaves 10 us for everything. So for each writer's schema one straight-line
function is generated that reads those fields and stops. It reads what fastavro reads
(`tests/schemas/test_front.py` compares them on every type), and nothing else uses it.

How it stays safe: every length is checked not to be negative, every position not to run
past the end, array counts not to exceed the bytes that are left.

Who writes, and where, repeats from event to event. So the bytes of those fields are
compared with the last ones that were read, and only what differs is read anew. Avro has
one meaning for given bytes at a given place, so equal bytes are equal fields.
"""

import json
import struct
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, cast

from foldline.errors import DecodeError, SchemaError

ReadFront = Callable[[bytes], tuple[dict[str, Any], dict[str, Any]]]
"""Reads a body and gives the envelope's fields and the event's own."""

_ReadEnvelope = Callable[[bytes], tuple[dict[str, Any], int]]

PER_EVENT = frozenset(
    {"event_id", "seq", "occurred_at", "recorded_at", "batch_id", "prev_hash"}
)
"""The envelope's fields that differ from event to event; the others mostly repeat."""

MAX_VARINT_BYTES = 10
_DOUBLE = struct.Struct("<d")
_EIGHT = struct.Struct("<Q")
_TOP_BITS = 0x8080_8080_8080_8080
_GOES_ON = 0x0080_8080_8080_8080
"""The top bits of a number of exactly eight bytes: all but the last byte's are set."""

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
            if number >> 64:
                raise DecodeError("a number of more than 64 bits")
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
    (number,) = _EIGHT.unpack_from(data, at)
    if number & _TOP_BITS != _GOES_ON:
        return varint(data, at)
    # Close the gaps between groups of seven bits: in pairs, then fours, then eights.
    number &= 0x7F7F_7F7F_7F7F_7F7F
    number = (number & 0x007F_007F_007F_007F) | ((number & 0x7F00_7F00_7F00_7F00) >> 1)
    number = (number & 0x0000_3FFF_0000_3FFF) | ((number & 0x3FFF_0000_3FFF_0000) >> 2)
    number = (number & 0x0000_0000_0FFF_FFFF) | ((number & 0x0FFF_FFFF_0000_0000) >> 4)
    return (number >> 1) ^ -(number & 1), at + 8


def negative(at: int) -> None:
    """Refuse a negative length or an unknown union branch."""
    raise DecodeError(f"a negative length or an unknown branch at byte {at}")


FinishEnvelope = Callable[[dict[str, Any]], dict[str, Any]]
"""Makes of an envelope's fields, as they are read, those of the envelope."""


def _as_read(fields: dict[str, Any]) -> dict[str, Any]:
    return fields


@dataclass(frozen=True, slots=True)
class Finish:
    """What becomes of an event's own fields once they are read.

    `models` gives, by name, what turns a value into a model; `missing` the values of
    fields that the bytes do not have, or that are left out.
    """

    models: Mapping[str, Callable[[Any], Any]] = field(
        default_factory=dict[str, Callable[[Any], Any]]
    )
    missing: Mapping[str, Any] = field(default_factory=dict[str, Any])


def compile_front(
    name: str,
    envelope: list[Any],
    front: list[Any],
    *,
    finish_envelope: FinishEnvelope = _as_read,
    finish: Finish | None = None,
) -> ReadFront:
    """Generate the reader of a schema's front.

    Args:
        name: the record's name, for tracebacks.
        envelope: the envelope's Avro fields.
        front: the event's own Avro fields up to its content.
        finish_envelope: what becomes of the envelope's fields.
        finish: what becomes of the event's own.

    Raises:
        SchemaError: a type that events do not use (enum, map, fixed).
    """
    finish = finish or Finish()
    writer = Lines(name, records_in(envelope))
    own = writer.own(front, finish)
    scope = {
        "read_envelope": _compile_envelope(json.dumps(envelope), finish_envelope),
        "models": finish.models,
        "missing": finish.missing,
    }
    lines = [
        "def read_front(b):",
        "    envelope, i = read_envelope(b)",
        *writer.lines,
        "    if i > len(b): raise DecodeError('truncated')",
        f"    return envelope, {own}",
    ]
    return cast("ReadFront", compiled(name, lines, scope)["read_front"])


def compiled(name: str, lines: Sequence[str], scope: dict[str, Any]) -> dict[str, Any]:
    """Compile generated lines; the scope then holds the functions that they define."""
    scope |= {
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
    return scope


@lru_cache(maxsize=64)
def _compile_envelope(schema: str, finish: FinishEnvelope) -> _ReadEnvelope:
    """The reader of an envelope: one for all the types that have it.

    Two functions: one reads all of it, one only what differs from the last. What is
    known of the last: the bytes of each run of fields that repeat, and the finished
    fields. It is replaced as a whole, so that a thread sees one envelope's.
    """
    whole, quick = Lines("Envelope", {}), Lines("Envelope", {})
    values: list[tuple[str, str]] = []
    differing: list[tuple[str, str]] = []
    count = 0
    for repeats, run in runs(json.loads(schema)):
        if not repeats:
            values.extend((f["name"], whole.value(f["type"])) for f in run)
            differing.extend((f["name"], quick.value(f["type"])) for f in run)
            continue
        whole.say(f"s{count} = i")
        values.extend((f["name"], whole.value(f["type"])) for f in run)
        whole.say(f"r{count} = b[s{count}:i]; n{count} = i - s{count}")
        quick.say(f"if not b.startswith(r{count}, i): return read_whole(b)")
        quick.say(f"i += n{count}")
        count += 1
    names = "".join(f"r{n}, n{n}, " for n in range(count))
    lines = [
        "def read_whole(b):",
        "    i = 0",
        *whole.lines,
        "    if i > len(b): raise DecodeError('truncated')",
        f"    envelope = finish({literal(values)})",
        f"    last[0] = ({names}envelope)",
        "    return envelope.copy(), i",
        "def read_envelope(b):",
        "    if last[0] is None: return read_whole(b)",
        f"    {names}envelope = last[0]",
        "    i = 0",
        *quick.lines,
        "    envelope = envelope.copy()",
        *(f"    envelope[{name!r}] = {value}" for name, value in differing),
        "    return envelope, i",
    ]
    scope = compiled("Envelope", lines, {"finish": finish, "last": [None]})
    return cast("_ReadEnvelope", scope["read_envelope"])


def runs(fields: Sequence[Any]) -> list[tuple[bool, list[Any]]]:
    """The fields in runs of those that mostly repeat, and of those that do not."""
    runs: list[tuple[bool, list[Any]]] = []
    for item in fields:
        repeats = item["name"] not in PER_EVENT
        if not runs or runs[-1][0] != repeats:
            runs.append((repeats, []))
        runs[-1][1].append(item)
    return runs


def literal(values: Sequence[tuple[str, str]]) -> str:
    """The text of a dictionary, of names and the expressions of their values."""
    return "{" + ", ".join(f"{name!r}: {value}" for name, value in values) + "}"


def _unpack_double(data: bytes, at: int) -> float:
    return cast("float", _DOUBLE.unpack_from(data, at)[0])


class Lines:
    """Writes the lines that read one type after another."""

    def __init__(self, name: str, named: dict[str, dict[str, Any]]) -> None:
        self.lines: list[str] = []
        self.name = name
        self.named = named
        self._variables = 0
        self._indent = 1

    def record(self, fields: Sequence[Any]) -> str:
        """Read fields in order; the expression is the dictionary of them."""
        return literal([(item["name"], self.value(item["type"])) for item in fields])

    def own(self, fields: Sequence[Any], finish: Finish) -> str:
        """The same for an event's own fields, each made what it is to be."""
        values: list[tuple[str, str]] = []
        for item in fields:
            name, value = item["name"], self.value(item["type"])
            values.append(
                (name, f"models[{name!r}]({value})" if name in finish.models else value)
            )
        values.extend((name, f"missing[{name!r}]") for name in finish.missing)
        return literal(values)

    def say(self, line: str) -> None:
        """Add a line."""
        self.lines.append("    " * self._indent + line)

    @contextmanager
    def deeper(self) -> Generator[None]:
        """What is said meanwhile belongs to the line before."""
        self._indent += 1
        yield
        self._indent -= 1

    def define(self, fields: dict[str, Any]) -> None:
        """Remember a record: what follows may name it."""
        self.named[_full_name(fields)] = fields

    def variable(self) -> str:
        """A name that is not used yet."""
        self._variables += 1
        return f"v{self._variables}"

    def value(self, schema: Any) -> str:
        """Lines that read a value; the expression that then stands for it."""
        if isinstance(schema, list):
            return self._union(cast("list[Any]", schema))
        if isinstance(schema, dict):
            fields = cast("dict[str, Any]", schema)
            match fields["type"]:
                case "record":
                    self.define(fields)
                    return self._record(fields)
                case "array":
                    return self._array(fields["items"])
                case "long" if fields.get("logicalType") == "timestamp-micros":
                    return self._time()
                case inner:
                    return self.value(inner)
        if schema in self.named:
            return self._record(self.named[schema])
        return self._primitive(schema)

    def _record(self, fields: dict[str, Any]) -> str:
        variable = self.variable()
        self.say(f"{variable} = {self.record(fields['fields'])}")
        return variable

    def _primitive(self, schema: str) -> str:
        variable = self.variable()
        match schema:
            case "string" | "bytes":
                decode = ".decode()" if schema == "string" else ""
                self.say("n = lengths[b[i]]")
                self.say("if n < 0: n, i = length(b, i)")
                self.say("else: i += 1")
                self.say(f"j = i + n; {variable} = b[i:j]{decode}; i = j")
            case "long" | "int":
                self.number(variable)
            case "boolean":
                self.say(f"{variable} = b[i] == 1; i += 1")
            case "double":
                self.say(f"{variable} = unpack_double(b, i); i += 8")
            case "null":
                return "None"
            case _:
                raise SchemaError(self.name, [f"events do not use {schema}"])
        return variable

    def _time(self) -> str:
        variable = self.variable()
        self.say(f"{variable}, i = eight(b, i)")
        return variable

    def number(self, variable: str) -> None:
        """Read a number."""
        self.say("c = b[i]")
        self.say(f"if c < 128: {variable} = (c >> 1) ^ -(c & 1); i += 1")
        self.say("elif (d := b[i + 1]) < 128:")
        self.say(f"    c += (d << 7) - 128; {variable} = (c >> 1) ^ -(c & 1); i += 2")
        self.say(f"else: {variable}, i = varint(b, i)")

    def _union(self, branches: list[Any]) -> str:
        variable = self.variable()
        self.union(branches, lambda b: self.say(f"{variable} = {self.value(b)}"))
        return variable

    def union(self, branches: list[Any], each: Callable[[Any], None]) -> None:
        """Take the branch that a number names."""
        self.say("c = b[i]; i += 1")
        for index, branch in enumerate(branches):
            self.say(f"{'if' if index == 0 else 'elif'} c == {index << 1}:")
            self._indent += 1
            self.say("pass")
            each(branch)
            self._indent -= 1
        self.say("else: negative(i)")

    def _array(self, items: Any) -> str:
        variable = self.variable()
        self.say(f"{variable} = []")
        self.array(lambda: self.say(f"{variable}.append({self.value(items)})"))
        return f"tuple({variable})"

    def array(self, each: Callable[[], None]) -> None:
        """Go through an array's blocks; none has more items than bytes are left."""
        count = self.variable()
        self.say("while True:")
        self._indent += 1
        self.number(count)
        self.say(f"if {count} == 0: break")
        self.say(f"if {count} < 0:")
        self.say(f"    {count} = -{count}; _, i = varint(b, i)")
        self.say(f"if {count} > len(b) - i: raise DecodeError('an array too long')")
        self.say(f"for _ in range({count}):")
        self._indent += 1
        each()
        self._indent -= 2


def records_in(schema: Any) -> dict[str, dict[str, Any]]:
    """The records that fields define, by name: what follows may name them."""
    found: dict[str, dict[str, Any]] = {}
    if isinstance(schema, list):
        for item in cast("list[Any]", schema):
            found |= records_in(item)
    elif isinstance(schema, dict):
        part = cast("dict[str, Any]", schema)
        if part.get("type") == "record":
            found[_full_name(part)] = part
        for key in ("type", "items", "fields"):
            found |= records_in(part.get(key))
    return found


def _full_name(fields: dict[str, Any]) -> str:
    name = str(fields["name"])
    return name if "." in name else f"{fields.get('namespace', '')}.{name}"
