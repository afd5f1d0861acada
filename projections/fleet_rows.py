"""The rows that a fleet worker keeps, as private bytes: sessions and panes of a partition.

| key | row |
| --- | --- |
| `s` + session id | its state, what is open in it, what is watched for loops |
| `w` + start, by, name | a pane: the offset of the last event in it, and its tally |

They are in one table on purpose: its changelog is one ordered stream for each partition,
and every event writes its panes before its session. Whatever part of it a restore finds,
a session that has an event has it in its panes; and a pane that is ahead of its session
knows so by the offset.
"""

import dataclasses
import hashlib
import typing
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from foldline.errors import DecodeError
from foldline.processors.state_codec import LAYOUT, decode_state, encode_state
from foldline.projections.fleet_board import Counted
from foldline.projections.fleet_circles import Circles, Run
from foldline.projections.fleet_fold import Watched
from foldline.projections.fleet_loops import DETECTOR_VERSION
from foldline.projections.fleet_windows import BUCKETS_S, Pane, Tally
from foldline.projections.metric_names import METRICS_VERSION
from foldline.projections.metrics_tracked import Tracked

ROWS_VERSION = 1

SESSION = b"s"
PANE = b"w"

VERSION_CHARS = 12

START_BYTES = 8

_NAMES = tuple(item.name for item in dataclasses.fields(Tracked) if item.name != "state")
_HINTS = typing.get_type_hints(Tracked)

_encode = msgspec.msgpack.Encoder().encode
_decode_session = msgspec.msgpack.Decoder(
    cast(
        "Any",
        tuple.__class_getitem__((bytes, Circles, *(_HINTS[name] for name in _NAMES))),
    )
).decode
_decode_pane = msgspec.msgpack.Decoder(Counted).decode
_decode_name = msgspec.msgpack.Decoder(tuple[str, str]).decode


def rows_version(pane_s: int) -> str:
    """A name for all that rows depend on: those of another are not gone on with."""
    shapes = (_HINTS, Circles.__struct_fields__, Run.__struct_fields__)
    counted = (Counted.__struct_fields__, Tally.__struct_fields__, BUCKETS_S)
    versions = (LAYOUT, ROWS_VERSION, DETECTOR_VERSION, METRICS_VERSION, pane_s)
    made_of = repr((shapes, counted, versions))
    return hashlib.sha256(made_of.encode()).hexdigest()[:VERSION_CHARS]


def session_key(session_id: str) -> bytes:
    """The key of a session's row."""
    return SESSION + session_id.encode()


def encode_session(watched: Watched) -> bytes:
    """A session's row."""
    tracked = watched.tracked
    rest = (getattr(tracked, name) for name in _NAMES)
    return _encode((encode_state(tracked.state), watched.circles, *rest))


def decode_session(data: bytes) -> Watched:
    """The session of a row.

    Raises:
        DecodeError: bytes of no such row.
    """
    try:
        state, circles, *rest = _decode_session(data)
    except msgspec.MsgspecError as error:
        raise DecodeError(f"no session row: {error}") from error
    named: Mapping[str, Any] = dict(zip(_NAMES, rest, strict=True))
    return Watched(Tracked(decode_state(state), **named), circles)


def pane_key(pane: Pane) -> bytes:
    """The key of a pane's row: panes are in the order of time."""
    name = _encode((pane.by, pane.name))
    return PANE + pane.start_s.to_bytes(START_BYTES, "big", signed=True) + name


def pane_in(key: bytes) -> Pane:
    """The pane of a key."""
    start = key[len(PANE) :][:START_BYTES]
    by, name = _decode_name(key[len(PANE) + START_BYTES :])
    return Pane(by, name, int.from_bytes(start, "big", signed=True))


def encode_pane(counted: Counted) -> bytes:
    """A pane's row."""
    return _encode(counted)


def decode_pane(data: bytes) -> Counted:
    """The pane of a row.

    Raises:
        DecodeError: bytes of no such row.
    """
    try:
        return _decode_pane(data)
    except msgspec.MsgspecError as error:
        raise DecodeError(f"no pane row: {error}") from error
