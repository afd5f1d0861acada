"""A reader for appends that come from outside: whole, checked, and where to splice.

Admission fills four fields of the envelope: seq, recorded_at, rules_version, prev_hash.
A worker may be older than the writer, so it never makes the event anew: it puts these
fields into the writer's bytes and keeps all others, also those that it does not know.
So for each writer's schema two functions are generated:

- `read` gives the fields of envelope and structure, as `front` does, says where the
  four fields lie, and walks over the content to the end without building it. What it
  accepts fastavro accepts too; of content it checks lengths, branches and UTF-8.
- `splice` gives the body with the four fields filled.
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from foldline.errors import DecodeError, SchemaError
from foldline.schemas.avro_bytes import data_bytes, long_bytes, time_bytes
from foldline.schemas.front import Finish, FinishEnvelope, Lines, compiled, records_in

Spans = tuple[int, ...]
"""Begin and end of each filled field, in the order of the bytes, then the content's."""

Whole = tuple[dict[str, Any], dict[str, Any], Spans]
"""The envelope's fields, the event's own, and the spans."""

FILLED = {
    "seq": "long",
    "recorded_at": {"type": "long", "logicalType": "timestamp-micros"},
    "rules_version": "long",
    "prev_hash": ["null", "bytes"],
}
"""What admission fills in, and how it must be written."""

_FILL = {
    "seq": "long_bytes(seq)",
    "recorded_at": "time_bytes(recorded_at)",
    "rules_version": "long_bytes(rules_version)",
    "prev_hash": "hash_bytes(prev_hash)",
}


@dataclass(frozen=True, slots=True)
class Intake:
    """What admits events of one writer's schema."""

    read: Callable[[bytes], Whole]
    splice: Callable[[bytes, Spans, int, int, int, bytes | None], bytes]


class _Walk(Lines):
    """Lines that read, as in a front, or only step over what they check."""

    def value(self, schema: Any) -> str:
        """Read a value; a boolean must be one of two bytes, or readers would disagree."""
        kind = cast("dict[str, Any]", schema)["type"] if isinstance(schema, dict) else schema
        if kind == "boolean":
            self.say("if b[i] > 1: negative(i)")
        return super().value(schema)

    def skip(self, schema: Any) -> None:
        """Step over a value."""
        if isinstance(schema, list):
            self._skip_union(cast("list[Any]", schema))
        elif isinstance(schema, dict):
            self._skip_complex(cast("dict[str, Any]", schema))
        elif schema in self.named:
            self._skip_fields(self.named[schema])
        elif schema in ("string", "bytes"):
            self._skip_text(decoded=schema == "string")
        elif schema == "boolean":
            self.say("if b[i] > 1: negative(i)")
            self.say("i += 1")
        elif schema == "double":
            self.say("i += 8")
        elif schema in ("long", "int"):
            self.number("_")
        elif schema != "null":
            raise SchemaError(self.name, [f"events do not use {schema}"])

    def _skip_text(self, *, decoded: bool) -> None:
        self.say("n = lengths[b[i]]")
        self.say("if n < 0: n, i = length(b, i)")
        self.say("else: i += 1")
        self.say("i += n")
        if decoded:
            self.say("if n: b[i - n:i].decode()")

    def _skip_complex(self, schema: dict[str, Any]) -> None:
        match schema["type"]:
            case "record":
                self.define(schema)
                self._skip_fields(schema)
            case "array":
                self.array(lambda: self.skip(schema["items"]))
            case inner:
                self.skip(inner)

    def _skip_fields(self, schema: dict[str, Any]) -> None:
        for item in schema["fields"]:
            self.skip(item["type"])

    def _skip_union(self, branches: list[Any]) -> None:
        self.union(branches, self.skip)


def compile_intake(
    name: str,
    envelope: list[Any],
    front: list[Any],
    content: list[Any],
    *,
    finish_envelope: FinishEnvelope,
    finish: Finish,
) -> Intake:
    """Generate both functions for a writer's schema.

    Args:
        name: the record's name, for tracebacks.
        envelope: the envelope's Avro fields.
        front: the event's own Avro fields up to its content.
        content: those behind.
        finish_envelope: what becomes of the envelope's fields.
        finish: what becomes of the event's own.

    Raises:
        SchemaError: a type that events do not use, or an envelope that cannot be filled.
    """
    order = [item["name"] for item in envelope if item["name"] in FILLED]
    _check_filled(name, envelope)
    walk = _Walk(name, records_in(envelope))
    fields = _envelope_lines(walk, envelope)
    walk.say("c0 = i")
    own = walk.own(front, finish)
    for item in content:
        walk.skip(item["type"])
    spans = "".join(f"s_{field}, e_{field}, " for field in order)
    lines = [
        "def read(b):",
        "    i = 0",
        *walk.lines,
        "    if i != len(b): raise DecodeError(f'{len(b) - i} bytes after the record')",
        f"    return finish_envelope({fields}), {own}, ({spans}c0)",
        "def splice(b, spans, seq, recorded_at, rules_version, prev_hash):",
        f"    {spans}_ = spans",
        f"    return b''.join(({_pieces(order)}))",
    ]
    scope: dict[str, Any] = {
        "finish_envelope": finish_envelope,
        "models": finish.models,
        "missing": finish.missing,
        "long_bytes": long_bytes,
        "time_bytes": time_bytes,
        "hash_bytes": hash_bytes,
    }
    scope = compiled(name, lines, scope)
    return Intake(scope["read"], scope["splice"])


def _check_filled(name: str, envelope: Sequence[Any]) -> None:
    found = {item["name"]: item["type"] for item in envelope}
    wrong = [field for field, schema in FILLED.items() if found.get(field) != schema]
    if wrong:
        raise SchemaError(name, [f"{field} cannot be filled" for field in wrong])


def _envelope_lines(walk: _Walk, envelope: Sequence[Any]) -> str:
    values: list[str] = []
    for item in envelope:
        name = item["name"]
        if name in FILLED:
            walk.say(f"s_{name} = i")
        values.append(f"{name!r}: {walk.value(item['type'])}")
        if name in FILLED:
            walk.say(f"e_{name} = i")
    return "{" + ", ".join(values) + "}"


def _pieces(order: Sequence[str]) -> str:
    pieces: list[str] = []
    begin = ""
    for field in order:
        pieces.extend((f"b[{begin}:s_{field}]", _FILL[field]))
        begin = f"e_{field}"
    return ", ".join((*pieces, f"b[{begin}:]"))


def hash_bytes(digest: bytes | None) -> bytes:
    """A hash that may be null."""
    return b"\x00" if digest is None else b"\x02" + data_bytes(digest)


def read_whole(intake: Intake, body: bytes) -> Whole:
    """Read with an intake; whatever its lines stumble over is one kind of error.

    Raises:
        DecodeError: junk, truncated, bytes left over.
    """
    try:
        return intake.read(body)
    except (IndexError, UnicodeDecodeError, struct.error) as error:
        raise DecodeError(repr(error)) from error
    except (LookupError, TypeError, AttributeError) as error:
        # A schema that calls itself one of ours and has another envelope.
        raise DecodeError(f"a foreign schema: {error!r}") from error
