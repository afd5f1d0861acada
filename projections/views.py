"""Every event, state, session, lease and verdict as plain data: what machines are told.

Bytes are hex. A time `x_at` is ISO 8601 UTC with microseconds (null for none), and
`x_at_us` is the same in microseconds since 1970. A body that is not inline is
`{"blob": {...}}` or `{"sealed": {...}}`. A number that is none is null. Keys are those
of the schemas and do not change.
"""

import dataclasses
import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from foldline.processors.log import Lease, SessionSummary
from foldline.schemas.blocks import Blob, Sealed
from foldline.schemas.events import RequestRef, UnknownEvent
from foldline.schemas.record import Record
from foldline.schemas.recorded import Recorded
from foldline.schemas.snapshots import state_hash
from foldline.schemas.state import FOLD_VERSION, SessionState
from foldline.schemas.verdicts import Verdict

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TAGS: dict[type[Record], str] = {Blob: "blob", Sealed: "sealed", RequestRef: "request_ref"}


def event_view(recorded: Recorded) -> dict[str, Any]:
    """An event: seq and type, the envelope's fields, its own under `event`."""
    event = recorded.event
    own = event.fields if isinstance(event, UnknownEvent) else event.__dict__
    envelope = plain_fields(recorded.envelope.__dict__)
    head = {"seq": envelope.pop("seq"), "type": recorded.type}
    return head | envelope | {"complete": recorded.complete, "event": plain_fields(own)}


def state_view(state: SessionState) -> dict[str, Any]:
    """A state: its fields, the status they give, and the hash to compare it by."""
    return plain(state) | {
        "status": state.status,
        "state_hash": state_hash(state).hex(),
        "fold_version": FOLD_VERSION,
        "window": state.event_ids,
    }


def session_view(summary: SessionSummary) -> dict[str, Any]:
    """A line of `foldline sessions`."""
    return plain(summary)


def lease_view(lease: Lease | None) -> dict[str, Any] | None:
    """Who says that it owns a session."""
    return None if lease is None else plain(lease)


def verdict_view(verdict: Verdict) -> dict[str, Any]:
    """Admission's answer, and whether the event is in the log now."""
    return plain_fields(verdict.__dict__) | {"recorded": verdict.recorded}


def plain(value: Any) -> Any:
    """Anything that a schema can hold, as JSON can hold it."""
    match value:
        case bytes():
            return value.hex()
        case float():
            return value if math.isfinite(value) else None
        case Record():
            fields = plain_fields(value.__dict__)
            tag = _TAGS.get(type(value))
            return {tag: fields} if tag else fields
        case dict():
            named = cast("dict[Any, Any]", value)
            return {str(key): plain(item) for key, item in named.items()}
        case list() | tuple() | set() | frozenset():
            return [plain(item) for item in cast("list[Any]", value)]
        case None | bool() | int() | str():
            return value
        case _ if dataclasses.is_dataclass(value):
            names = [field.name for field in dataclasses.fields(value)]
            return plain_fields({name: getattr(value, name) for name in names})
        case _:
            return str(value)


def plain_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The same for named values; a time gets its second form beside it."""
    view: dict[str, Any] = {}
    for name, value in fields.items():
        if name.endswith("_at") and (value is None or type(value) is int):
            view[name] = iso_time(value)
            view[f"{name}_us"] = value or None
        else:
            view[name] = plain(value)
    return view


def iso_time(time_us: int | None) -> str | None:
    """ISO 8601 UTC with microseconds; None for none, or for no year people know."""
    moment = moment_of(time_us)
    return moment and moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def moment_of(time_us: int | None) -> datetime | None:
    """The moment of a time in microseconds since 1970; None where there is none."""
    if not time_us:
        return None
    try:
        return _EPOCH + timedelta(microseconds=time_us)
    except OverflowError:
        return None
