"""The rows that a fleet worker keeps, as private bytes: sessions and panes of a partition.

| key | row |
| --- | --- |
| `s` + session id | its state, what is open in it, what is watched for loops |
| `w` + start, by, name | a pane: the offset of the last event in it, and its tally |
| `x` + time, session id, seq | a loop that was detected |

They are in one table on purpose: its changelog is one ordered stream for each partition,
and every event writes its panes and loops before its session. Whatever part of it a
restore finds, a session that has an event has it in its panes; and a pane that is ahead of
its session knows so by the offset. Pure.
"""

import hashlib
from typing import get_type_hints

import msgspec

from foldline.errors import DecodeError
from foldline.projections.fleet_board import Counted
from foldline.projections.fleet_circles import Circles, Run
from foldline.projections.fleet_fold import Watched
from foldline.projections.fleet_latest import FoundLoop, place_of
from foldline.projections.fleet_loops import DETECTOR_VERSION
from foldline.projections.fleet_windows import BUCKETS_S, Pane, Tally
from foldline.projections.metrics_codec import VERSION, decode_tracked, encode_tracked
from foldline.projections.metrics_tracked import Tracked
from foldline.schemas.events import LoopDetected
from foldline.settings import Settings

ROWS_VERSION = 2

SESSION = b"s"
PANE = b"w"
LOOP = b"x"
BEHIND_LOOPS = b"y"

VERSION_CHARS = 12

MOMENT_BYTES = 8

_encode = msgspec.msgpack.Encoder().encode
_decode_session = msgspec.msgpack.Decoder(tuple[bytes, bytes, Circles, int, bool]).decode
_decode_pane = msgspec.msgpack.Decoder(Counted).decode
_decode_name = msgspec.msgpack.Decoder(tuple[str, str]).decode
_decode_place = msgspec.msgpack.Decoder(tuple[str, int, str]).decode


def version_of(settings: Settings) -> str:
    """A name for all that rows depend on: those of another are not gone on with."""
    tracked = (VERSION, get_type_hints(Tracked))
    shapes = (tracked, Circles.__struct_fields__, Run.__struct_fields__)
    counted = (Counted.__struct_fields__, Tally.__struct_fields__, BUCKETS_S)
    versions = (ROWS_VERSION, DETECTOR_VERSION, settings.fleet_pane_ms)
    made_of = repr((shapes, counted, versions))
    return hashlib.sha256(made_of.encode()).hexdigest()[:VERSION_CHARS]


def session_key(session_id: str) -> bytes:
    """The key of a session's row."""
    return SESSION + session_id.encode()


def encode_session(watched: Watched) -> bytes:
    """A session's row."""
    tracked = encode_tracked(watched.tracked)
    return _encode((*tracked, watched.circles, watched.offset, watched.holed))


def decode_session(data: bytes) -> Watched:
    """The session of a row.

    Raises:
        DecodeError: bytes of no such row.
    """
    try:
        state, rest, circles, offset, holed = _decode_session(data)
    except msgspec.MsgspecError as error:
        raise DecodeError(f"no session row: {error}") from error
    return Watched(decode_tracked(state, rest), circles, offset, holed)


def pane_key(pane: Pane) -> bytes:
    """The key of a pane's row: panes are in the order of time."""
    name = _encode((pane.by, pane.name))
    return PANE + _moment(pane.start_s) + name


def _moment(number: int) -> bytes:
    """A time as keys have it; all that were ever are in order."""
    return number.to_bytes(MOMENT_BYTES, "big", signed=True)


def _parts(key: bytes) -> tuple[int, bytes]:
    """The time in a key, and what comes behind it; all prefixes are of one byte."""
    moment, rest = key[1 : 1 + MOMENT_BYTES], key[1 + MOMENT_BYTES :]
    return int.from_bytes(moment, "big", signed=True), rest


def pane_in(key: bytes) -> Pane:
    """The pane of a key."""
    start_s, rest = _parts(key)
    by, name = _decode_name(rest)
    return Pane(by, name, start_s)


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


def loop_key(found: FoundLoop) -> bytes:
    """The key of a loop's row: loops are in the order of time."""
    return LOOP + _moment(found.at_us) + _encode(place_of(found))


def encode_loop(found: FoundLoop) -> bytes:
    """A loop's row."""
    return found.loop.model_dump_json().encode()


def decode_loop(key: bytes, data: bytes) -> FoundLoop:
    """The loop of a key and a row.

    Raises:
        DecodeError: bytes of no such row.
    """
    at_us, rest = _parts(key)
    try:
        session_id, _, _ = _decode_place(rest)
        return FoundLoop(session_id, at_us, LoopDetected.model_validate_json(data))
    except (msgspec.MsgspecError, ValueError) as error:
        raise DecodeError(f"no loop row: {error}") from error
