"""What tells two states of a session apart, field by field. Pure.

A path names the field as `foldline state` shows it: `calls.m1:0.status`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from foldline.projections.views import plain
from foldline.schemas.state import SessionState

LEFT_OUT = frozenset({"window", "chain_head"})
"""What changes with every event and says nothing to a person."""


@dataclass(frozen=True, slots=True)
class Change:
    """One field and its values, as plain data; None where it is not there."""

    path: str
    before: Any
    after: Any


def changes(before: SessionState, after: SessionState) -> list[Change]:
    """Every field that differs, in the order of the fields."""
    return list(_changes("", _fields(before), _fields(after)))


def _fields(state: SessionState) -> dict[str, Any]:
    fields = cast("dict[str, Any]", plain(state))
    shown = {name: value for name, value in fields.items() if name not in LEFT_OUT}
    return {"status": state.status} | shown


def _changes(
    path: str, before: Mapping[str, Any], after: Mapping[str, Any]
) -> Iterator[Change]:
    for name in dict.fromkeys((*before, *after)):
        if name.endswith("_at_us"):
            continue  # the same as `..._at`, for machines
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        inner = f"{path}.{name}" if path else name
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _changes(
                inner, cast("dict[str, Any]", old), cast("dict[str, Any]", new)
            )
        else:
            yield Change(inner, old, new)
