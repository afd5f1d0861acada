"""Fields of foreign JSON, read without trust: any of them may be anything."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import rfc8785

from foldline.processors.naming import session_id_problem
from foldline.schemas.blocks import clean_text

ID_MAX = 400
"""Longer ids, in characters, are none."""

COUNT_MAX = 2**62
"""Larger counts are none; a log holds 64 bits."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

Json = dict[str, Any]


def as_object(value: object) -> Json:
    """The value if it is an object, else an empty one."""
    return cast("Json", value) if isinstance(value, dict) else {}


def as_list(value: object) -> list[object]:
    """The value if it is a list, else an empty one."""
    return cast("list[object]", value) if isinstance(value, list) else []


def as_text(value: object) -> str:
    """The value if it is a string (without lone surrogates), else an empty one."""
    return clean_text(value)[0] if isinstance(value, str) else ""


def as_id(value: object) -> str:
    """The value if it can be an id: no placeholder of somebody's redaction."""
    text = as_text(value)
    if not 0 < len(text) <= ID_MAX or text == "REDACTED" or text[0] in "[<‹":
        return ""
    return text


def as_session_id(value: object) -> str:
    """The value if a session can be called that, else an empty string."""
    text = as_text(value)
    return "" if len(text) > ID_MAX or session_id_problem(text) else text


def as_call_id(value: object) -> str:
    """A provider's id of a call, as text whatever it is; without one an empty string."""
    return as_text(value if isinstance(value, str) else str(value or ""))


def as_count(value: object) -> int | None:
    """The value if it is a count that a log can hold, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value <= COUNT_MAX else None


def as_json(value: object) -> str:
    """JSON text of a decoded value."""
    return json.dumps(value, ensure_ascii=False)


def canonical_json(value: object) -> str:
    """RFC 8785 JSON; sorted JSON of what that form cannot hold, such as large numbers."""
    try:
        return rfc8785.dumps(cast("Json", value)).decode()
    except (rfc8785.CanonicalizationError, UnicodeEncodeError):
        return json.dumps(value, sort_keys=True, ensure_ascii=False)


def micros_of(value: object) -> int | None:
    """Microseconds since 1970 of an ISO time; None without a zone, or for what is none."""
    try:
        moment = datetime.fromisoformat(as_text(value))
    except ValueError:
        return None
    if moment.tzinfo is None:
        return None
    return (moment - _EPOCH) // _MICROSECOND
