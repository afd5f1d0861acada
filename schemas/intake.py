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

import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from typing import Any, cast

from foldline.errors import DecodeError, SchemaError
from foldline.schemas.avro_bytes import data_bytes, long_bytes, time_bytes
from foldline.schemas.front import (
    Finish,
    FinishEnvelope,
    Lines,
    compiled,
    literal,
    records_in,
    runs,
)

Spans = tuple[int, ...]
"""Begin and end of each filled field, in the order of the bytes, then the content's."""

Like = tuple[Any, ...]
"""What is known of an envelope, for reading one that is like it: the next of its
session, mostly. Of another's it only costs time: equal bytes are equal fields."""

Whole = tuple[dict[str, Any], dict[str, Any], Spans, Like]
"""The envelope's fields, the event's own, the spans, and what the next may be like."""

Splice = Callable[[bytes, Spans, int, int, int, bytes | None], bytes]
"""Gives a body with seq, recorded_at, rules_version and prev_hash filled in."""

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

    read: Callable[[bytes, Like | None], Whole]
    splice: Splice


class _Walk(Lines):
    """Lines that read, as in a front, or only step over what they check."""

    def value(self, schema: Any) -> str:
        """Read a value; a boolean must be one of two bytes, or readers would disagree."""
        if schema == FILLED["recorded_at"]:
            return self._time_or_zero(schema)
        kind = (
            cast("dict[str, Any]", schema)["type"] if isinstance(schema, dict) else schema
        )
        if kind == "boolean":
            self.say("if b[i] > 1: negative(i)")
        return super().value(schema)

    def _time_or_zero(self, schema: Any) -> str:
        """A time; recorded_at is zero before admission."""
        variable = self.variable()
        self.say(f"if b[i] == 0: {variable} = 0; i += 1")
        self.say("else:")
        with self.deeper():
            self.say(f"{variable} = {super().value(schema)}")
        return variable

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
        """Step over fields; what may be null or false mostly is, several in a row."""
        for is_zero, group in groupby(schema["fields"], lambda f: _mostly_zero(f["type"])):
            items = list(group)
            if is_zero and len(items) > 1:
                zeros = bytes(len(items))
                self.say(f"if b.startswith({zeros!r}, i): i += {len(items)}")
                self.say("else:")
                with self.deeper():
                    self._skip_each(items)
            else:
                self._skip_each(items)

    def _skip_each(self, items: Sequence[Any]) -> None:
        for item in items:
            self.skip(item["type"])

    def _skip_union(self, branches: list[Any]) -> None:
        self.union(branches, self.skip)


def _mostly_zero(schema: Any) -> bool:
    """Whether one zero byte says it all: null, or false."""
    if isinstance(schema, list):
        return cast("list[Any]", schema)[:1] == ["null"]
    return schema == "boolean"


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
    _check_filled(name, envelope)
    walk = _Walk(name, records_in(envelope))
    own = walk.own(front, finish)
    for item in content:
        walk.skip(item["type"])
    spans = _spans(_order(envelope))
    lines = [
        "def read(b, like):",
        f"    envelope, i, {spans}like = read_envelope(b, like)",
        "    c0 = i",
        *walk.lines,
        "    if i != len(b): raise DecodeError(f'{len(b) - i} bytes after the record')",
        f"    return envelope, {own}, ({spans}c0), like",
    ]
    read_envelope, splice = _compile_envelope(json.dumps(envelope), finish_envelope)
    scope: dict[str, Any] = {
        "read_envelope": read_envelope,
        "models": finish.models,
        "missing": finish.missing,
    }
    return Intake(compiled(name, lines, scope)["read"], splice)


def _check_filled(name: str, envelope: Sequence[Any]) -> None:
    found = {item["name"]: item["type"] for item in envelope}
    wrong = [known for known, schema in FILLED.items() if found.get(known) != schema]
    if wrong:
        raise SchemaError(name, [f"{known} cannot be filled" for known in wrong])


def _order(envelope: Sequence[Any]) -> list[str]:
    return [item["name"] for item in envelope if item["name"] in FILLED]


def _spans(order: Sequence[str]) -> str:
    return "".join(f"s_{name}, e_{name}, " for name in order)


@lru_cache(maxsize=64)
def _compile_envelope(schema: str, finish: FinishEnvelope) -> tuple[Any, Splice]:
    """The two functions of an envelope: for all the types that have it, and no other.

    The first is two: one reads all of an envelope, one only what differs from a like
    one. What is known of that: the bytes of each run of fields that repeat, where in
    them a field to be filled lies, and the finished fields.
    """
    envelope: list[Any] = json.loads(schema)
    order = _order(envelope)
    parts = _Parts(_Walk("Envelope", {}), _Walk("Envelope", {}))
    for repeats, run in runs(envelope):
        if repeats:
            parts.repeating(run)
        else:
            parts.differing(run)
    lines = [
        "def read_whole(b):",
        "    i = 0",
        *parts.whole.lines,
        "    if i > len(b): raise DecodeError('truncated')",
        f"    envelope = finish({literal(parts.values)})",
        f"    like = (token, {parts.known}envelope)",
        f"    return envelope.copy(), i, {_spans(order)}like",
        "def read_envelope(b, like):",
        "    if like is None or like[0] is not token: return read_whole(b)",
        f"    _, {parts.known}envelope = like",
        "    i = 0",
        *parts.quick.lines,
        "    envelope = envelope.copy()",
        *(f"    envelope[{name!r}] = {value}" for name, value in parts.changed),
        f"    return envelope, i, {_spans(order)}like",
        "def splice(b, spans, seq, recorded_at, rules_version, prev_hash):",
        f"    {_spans(order)}_ = spans",
        f"    return b''.join(({_pieces(order)}))",
    ]
    scope: dict[str, Any] = {
        "finish": finish,
        "token": object(),
        "long_bytes": long_bytes,
        "time_bytes": time_bytes,
        "hash_bytes": hash_bytes,
    }
    scope = compiled("Envelope", lines, scope)
    return scope["read_envelope"], scope["splice"]


@dataclass(slots=True)
class _Parts:
    """The lines of both ways to read an envelope, and what the quick one must know."""

    whole: _Walk
    quick: _Walk
    values: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    changed: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    known: str = ""
    runs: int = 0

    def differing(self, run: Sequence[Any]) -> None:
        """Fields that both read."""
        for item in run:
            name = item["name"]
            for walk, values in ((self.whole, self.values), (self.quick, self.changed)):
                if name in FILLED:
                    walk.say(f"s_{name} = i")
                values.append((name, walk.value(item["type"])))
                if name in FILLED:
                    walk.say(f"e_{name} = i")

    def repeating(self, run: Sequence[Any]) -> None:
        """Fields that the quick one only compares."""
        number = self.runs
        self.runs += 1
        self.known += f"r{number}, n{number}, "
        self.whole.say(f"s{number} = i")
        self.quick.say(f"if not b.startswith(r{number}, i): return read_whole(b)")
        for item in run:
            name = item["name"]
            if name in FILLED:
                self.whole.say(f"s_{name} = i; f_{name} = i - s{number}")
            self.values.append((name, self.whole.value(item["type"])))
            if name in FILLED:
                self.whole.say(f"e_{name} = i; t_{name} = i - s{number}")
                self.quick.say(f"s_{name} = i + f_{name}; e_{name} = i + t_{name}")
                self.known += f"f_{name}, t_{name}, "
        self.whole.say(f"r{number} = b[s{number}:i]; n{number} = i - s{number}")
        self.quick.say(f"i += n{number}")


def _pieces(order: Sequence[str]) -> str:
    pieces: list[str] = []
    begin = ""
    for name in order:
        pieces.extend((f"b[{begin}:s_{name}]", _FILL[name]))
        begin = f"e_{name}"
    return ", ".join((*pieces, f"b[{begin}:]"))


def hash_bytes(digest: bytes | None) -> bytes:
    """A hash that may be null."""
    return b"\x00" if digest is None else b"\x02" + data_bytes(digest)


def read_whole(intake: Intake, body: bytes, like: Like | None) -> Whole:
    """Read with an intake; whatever its lines stumble over is one kind of error.

    Args:
        intake: that of the writer's schema.
        body: the append, without its frame.
        like: what `read_whole` gave for an envelope that this one may be like.

    Raises:
        DecodeError: junk, truncated, bytes left over.
    """
    try:
        return intake.read(body, like)
    except (IndexError, UnicodeDecodeError, struct.error) as error:
        raise DecodeError(repr(error)) from error
    except (LookupError, TypeError, AttributeError) as error:
        # A schema that calls itself one of ours and has another envelope.
        raise DecodeError(f"a foreign schema: {error!r}") from error
