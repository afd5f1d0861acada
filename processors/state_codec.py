"""States as private bytes: for tables that can be rebuilt, never for a topic.

Four times quicker than a Snapshot's Avro, and without its hash: who reads such bytes
compares the state's chain head with the event at its seq. `LAYOUT` goes into the meta
row of whatever holds them: bytes of another layout are not read at all.
"""

import hashlib
import typing
from dataclasses import fields, is_dataclass
from operator import attrgetter
from typing import Any, cast

import msgspec

from foldline.errors import DecodeError
from foldline.schemas.state import FOLD_VERSION, SessionState

STATE_FORMAT = 1
"""The version of this way of writing a state."""

_NAMES = tuple(item.name for item in fields(SessionState))
_HINTS = typing.get_type_hints(SessionState)


def _shape(hint: Any, seen: set[type]) -> str:
    """What a type is made of, in words, down to its fields' names."""
    parts = [_shape(part, seen) for part in typing.get_args(hint)]
    if is_dataclass(hint) and isinstance(hint, type) and hint not in seen:
        seen.add(hint)
        hints = typing.get_type_hints(hint)
        parts += [f"{name}:{_shape(part, seen)}" for name, part in hints.items()]
    return f"{getattr(hint, '__name__', hint)}({','.join(parts)})"


LAYOUT = (
    f"{STATE_FORMAT}.{FOLD_VERSION}."
    + hashlib.sha256(_shape(SessionState, set()).encode()).hexdigest()[:12]
)
"""Changes with this module, with the fold and with the fields of a state."""

_values = attrgetter(*_NAMES)
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(
    cast(
        "Any",
        tuple.__class_getitem__(tuple(_HINTS[name] for name in _NAMES)),
    )
)


def encode_state(state: SessionState) -> bytes:
    """The bytes of a state."""
    return _encoder.encode(_values(state))


def decode_state(data: bytes) -> SessionState:
    """The state of bytes of this layout.

    Raises:
        DecodeError: they are of no state.
    """
    try:
        return SessionState(*_decoder.decode(data))
    except msgspec.MsgspecError as error:
        raise DecodeError(f"no state: {error}") from error
