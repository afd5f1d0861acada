"""A state's Avro bytes and its hash in one pass: generated from the dataclasses.

fastavro wants dictionaries of everything, and wants them twice: the hash is over the
same bytes with the chain head and the log times left out. Here one function for each
record gives its pieces in order, and says which of them the hash leaves out; a field
that is left out is zero or empty, which in Avro is one zero byte.
"""

import dataclasses
import hashlib
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, cast

from foldline.schemas.avro_bytes import data_bytes, long_bytes, text_bytes, time_bytes

LOG_TIMES: Mapping[str, frozenset[str]] = {
    "SessionState": frozenset({"created_at", "recorded_at", "chain_head"}),
    "Call": frozenset({"start_by_at", "deadline_at"}),
    "PendingRequest": frozenset({"expires_at"}),
    "ModelCall": frozenset({"deadline_at"}),
    "Retry": frozenset({"not_before_at"}),
}
"""Fields that differ between logs that took the same appends."""

_LEFT_OUT = b"\x00"

_Pieces = Callable[[Any, list[bytes], list[int]], None]
"""Appends a record's pieces, and the places of those that the hash leaves out."""

_PRIMITIVES: Mapping[Any, str] = {
    str: "(text({0}) if {0} else zero)",
    int: "long({0})",
    bool: "(one if {0} else zero)",
    bytes: "data({0})",
}


def compile_state_bytes(cls: type) -> Callable[[Any], tuple[bytes, bytes]]:
    """Generate what gives a state's bytes and the SHA-256 of what counts of them."""
    pieces = _record(cls, {})

    def state_bytes(state: Any) -> tuple[bytes, bytes]:
        out: list[bytes] = []
        left_out: list[int] = []
        pieces(state, out, left_out)
        whole = b"".join(out)
        for place in left_out:
            out[place] = _LEFT_OUT
        return whole, hashlib.sha256(b"".join(out)).digest()

    return state_bytes


def _record(cls: type, known: dict[type, _Pieces]) -> _Pieces:
    """Generate the function of one record; those of its parts first."""
    if cls in known:
        return known[cls]
    scope: dict[str, Any] = {
        "text": text_bytes,
        "long": long_bytes,
        "time": time_bytes,
        "data": data_bytes,
        "counts": _counts,
        "listed": _listed,
        "zero": b"\x00",
        "one": b"\x01",
        "branch": b"\x02",
    }
    lines = ["def pieces(part, out, left_out):"]
    run: list[str] = []
    hints = typing.get_type_hints(cls)
    for name in (item.name for item in dataclasses.fields(cls)):
        value = f"part.{name}"
        if name in LOG_TIMES.get(cls.__name__, ()):
            _flush(lines, run)
            lines.append("    left_out.append(len(out))")
            kind = "data" if hints[name] is bytes else "time"
            lines.append(f"    out.append({kind}({value}))")
        elif hints[name] in _PRIMITIVES:
            run.append(_PRIMITIVES[hints[name]].format(value))
        else:
            _flush(lines, run)
            lines.extend(_part(value, hints[name], scope, known))
    _flush(lines, run)
    exec("\n".join(lines), scope)  # noqa: S102 - our own text, of our own fields' names
    known[cls] = cast("_Pieces", scope["pieces"])
    return known[cls]


def _flush(lines: list[str], run: list[str]) -> None:
    if run:
        lines.append(f"    out += ({', '.join(run)},)")
        run.clear()


def _part(
    value: str, hint: Any, scope: dict[str, Any], known: dict[type, _Pieces]
) -> list[str]:
    """The lines of a field that is no primitive."""
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is dict:
        if arguments[1] is int:
            return [f"    out.append(counts({value}) if {value} else zero)"]
        name = f"of_{arguments[1].__name__}"
        scope[name] = _record(arguments[1], known)
        return [
            f"    if {value}: listed({value}, {name}, out, left_out)",
            "    else: out.append(zero)",
        ]
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        inner = next(a for a in arguments if a is not types.NoneType)
        name = f"of_{inner.__name__}"
        scope[name] = _record(inner, known)
        return [
            f"    if {value} is None: out.append(zero)",
            f"    else: out.append(branch); {name}({value}, out, left_out)",
        ]
    name = f"of_{hint.__name__}"
    scope[name] = _record(hint, known)
    return [f"    {name}({value}, out, left_out)"]


def _counts(counts: Mapping[str, int]) -> bytes:
    """Counters as an array of pairs, sorted by name."""
    items = sorted(counts.items())
    pairs = [text_bytes(name) + long_bytes(count) for name, count in items]
    return b"".join((long_bytes(len(pairs)), *pairs, b"\x00"))


def _listed(
    things: Mapping[Any, Any], pieces: _Pieces, out: list[bytes], left_out: list[int]
) -> None:
    """Listed things as an array, sorted by key."""
    out.append(long_bytes(len(things)))
    for key in sorted(things):
        pieces(things[key], out, left_out)
    out.append(b"\x00")
