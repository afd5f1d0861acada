"""An event from what a person types: `--field name=value` or a JSON object.

A field of blocks takes plain text; in JSON it also takes a list of blocks with inline
bodies. Labels take `{"name": "value"}`. What the person need not say (an id, that a
person decides) is filled in, and what a request already says is taken from it.
"""

import getpass
import json
import math
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from foldline.cli.events import near
from foldline.cli.failures import UnknownTypeError, UsageError
from foldline.producers.identity import fresh_id
from foldline.schemas.authority import AUTHORITY, authority_of
from foldline.schemas.blocks import Block, Blocks, text_block
from foldline.schemas.codec import MAX_EVENT_BYTES
from foldline.schemas.events import EVENT_TYPES, KnownEvent
from foldline.schemas.state import SessionState

INPUT_MAX_BYTES = 4 * MAX_EVENT_BYTES
"""The longest input: what is too large for an event may still go to the blob store."""

NOT_BY_HAND: dict[str, str] = {
    "SessionCreated": "append creates no session; a harness or an importer does",
    "RedactionApplied": "foldline itself records what it redacted",
    "ForeignRecord": "only an importer records what another harness wrote",
}
"""External events that no person appends, and why."""

APPENDABLE: tuple[str, ...] = tuple(
    sorted(
        name
        for name, authority in AUTHORITY.items()
        if authority == "external" and name not in NOT_BY_HAND
    )
)
"""The event types that a person may append."""

_BLOCKS: Any = Blocks


def event_class(name: str) -> type[KnownEvent]:
    """The class of an event type that a person may append.

    Raises:
        UnknownTypeError: there is no such type.
        UsageError: it is none that a person appends.
    """
    found = EVENT_TYPES.get(name)
    if found is None:
        raise UnknownTypeError(name, near(name, EVENT_TYPES))
    if name in NOT_BY_HAND:
        raise UsageError(f"--type {name}", NOT_BY_HAND[name])
    if name not in APPENDABLE:
        raise UsageError(
            f"--type {name}",
            f"only the session's owner appends it ({AUTHORITY[name]}); "
            f"a person may append {', '.join(APPENDABLE)}",
        )
    return found


def typed_fields(pairs: Iterable[str], model: type[KnownEvent]) -> dict[str, Any]:
    """The fields of `--field name=value`: text where text is wanted, else JSON."""
    fields: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or name in fields:
            raise UsageError(f"--field {pair}", "name=value, each name once")
        fields[name] = _typed(name, value, model)
    return fields


def _typed(name: str, value: str, model: type[KnownEvent]) -> Any:
    info = model.model_fields.get(name)
    if info is None or info.annotation == _BLOCKS or _is_text(info.annotation):
        return value
    return _json(f"--field {name}", value)


def _is_text(annotation: Any) -> bool:
    return annotation in (str, str | None)


def json_fields(source: str) -> dict[str, Any]:
    """The fields of a JSON object in a file, or on standard input for `-`.

    Raises:
        UsageError: not one JSON object, or too long.
        FileNotFoundError: no such file.
    """
    if source == "-":
        text = sys.stdin.read(INPUT_MAX_BYTES + 1)
    else:
        with Path(source).open(encoding="utf-8", errors="surrogateescape") as file:
            text = file.read(INPUT_MAX_BYTES + 1)
    if len(text) > INPUT_MAX_BYTES:
        raise UsageError(source, f"at most {INPUT_MAX_BYTES} characters")
    fields = _json(f"--json-file {source}", text)
    if not isinstance(fields, dict):
        raise UsageError(f"--json-file {source}", "one JSON object of fields")
    return cast("dict[str, Any]", fields)


def _json(what: str, text: str) -> Any:
    """JSON as the standard has it: no NaN, no infinity, no key twice, not too deep."""
    try:
        return json.loads(
            text,
            parse_constant=_no_constant,
            parse_float=_finite,
            object_pairs_hook=_no_key_twice,
        )
    except (ValueError, RecursionError) as error:
        raise UsageError(what, f"JSON; {error}") from error


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits} is too large")
    return number


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return fields


def make_event(
    model: type[KnownEvent], fields: dict[str, Any], state: SessionState
) -> KnownEvent:
    """The event of these fields, with what a person need not say filled in.

    Raises:
        UsageError: a field is missing, unknown or of another type.
    """
    given = _with_defaults(model, fields, state)
    for name, info in model.model_fields.items():
        if info.annotation == _BLOCKS and isinstance(given.get(name), str):
            given[name] = (text_block(given[name]),)
    try:
        event = model.model_validate(given)
    except ValidationError as error:
        raise UsageError(model.__name__, _first_problem(error, model)) from error
    _check_inline(event)
    if authority_of(event) != "external":
        raise UsageError(f"decided_by={given.get('decided_by')}", "PERSON")
    return event


def _with_defaults(
    model: type[KnownEvent], fields: dict[str, Any], state: SessionState
) -> dict[str, Any]:
    known = model.model_fields
    given = dict(fields)
    for name in ("message_id", "grant_id", "constraint_id"):
        if name in known and model.__name__ != "ConstraintLifted":
            given.setdefault(name, fresh_id())
    if "decided_by" in known:
        given.setdefault("decided_by", "PERSON")
    if "resolver" in known:
        given.setdefault("resolver", f"person {user_name()}")
    labels = given.get("labels")
    if isinstance(labels, dict):
        pairs = sorted(cast("dict[str, Any]", labels).items())
        given["labels"] = [{"key": key, "value": value} for key, value in pairs]
    return _of_request(known.keys(), given, state)


def _of_request(
    known: Iterable[str], given: dict[str, Any], state: SessionState
) -> dict[str, Any]:
    """Take call and arguments from the request that is answered: it is bound to them."""
    request = state.requests.get(str(given.get("request_id", "")))
    if request is None:
        return given
    for name, value in (("call_id", request.call_id), ("args_hash", request.args_hash)):
        if name in known and value:
            given.setdefault(name, value)
    return given


def _first_problem(error: ValidationError, model: type[KnownEvent]) -> str:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    names = ", ".join(
        name if info.is_required() else f"[{name}]"
        for name, info in model.model_fields.items()
    )
    return f"{where}: {first['msg']}; its fields: {names}"


def _check_inline(event: KnownEvent) -> None:
    """Refuse bodies that only a client can make: blobs and what is sealed."""
    for name, value in event.__dict__.items():
        for block in cast("tuple[object, ...]", value if isinstance(value, tuple) else ()):
            if isinstance(block, Block) and not isinstance(block.body, str):
                raise UsageError(name, "blocks with text as their body")


def user_name() -> str:
    """Who the operating system says is typing."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid-{os.getuid()}"
