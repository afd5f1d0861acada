"""What is tracked of a session, as private bytes: for whoever keeps it between two runs.

Its state has bytes of its own (`foldline.processors.state_codec`); this is the rest, all
fields of `Tracked` in their order. Another METRICS_VERSION may have others. Pure.
"""

import dataclasses
import typing
from typing import Any

import msgspec

from foldline.errors import DecodeError
from foldline.processors.state_codec import LAYOUT, decode_state, encode_state
from foldline.projections.metric_names import METRICS_VERSION
from foldline.projections.metrics_tracked import Tracked

_HINTS = typing.get_type_hints(Tracked)
_Rest: Any = msgspec.defstruct(
    "_Rest",
    [
        (item.name, _HINTS[item.name])
        for item in dataclasses.fields(Tracked)
        if item.name != "state"
    ],
    array_like=True,
)

VERSION = f"{METRICS_VERSION}.{LAYOUT}"
"""What these bytes depend on: those of another version are not read."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Rest).decode


def encode_tracked(tracked: Tracked) -> tuple[bytes, bytes]:
    """The state, and what is tracked beside it."""
    rest = _Rest(*(getattr(tracked, name) for name in _Rest.__struct_fields__))
    return encode_state(tracked.state), _encode(rest)


def decode_tracked(state: bytes, rest: bytes) -> Tracked:
    """What was tracked.

    Raises:
        DecodeError: bytes of no such thing.
    """
    try:
        found = _decode(rest)
    except msgspec.MsgspecError as error:
        raise DecodeError(f"nothing that was tracked: {error}") from error
    return Tracked(decode_state(state), **msgspec.structs.asdict(found))
