"""One event of every type, every field with a value of its own: for tables and bytes."""

import types
from typing import Annotated, Any, Union, cast, get_args, get_origin

from foldline.schemas.blocks import Blob, Block, Sealed
from foldline.schemas.envelope import Actor, Envelope, Source
from foldline.schemas.events import EVENT_TYPES, KnownEvent
from foldline.schemas.record import Record

SEALED = Sealed(key_id="key-1", nonce=b"nonce", ciphertext=b"\x00\x01cipher")
BLOB = Blob(
    sha256=b"\x11" * 32,
    size=70_000,
    media_type="text/plain",
    preview="first line",
    key_id="key-1",
    nonce=b"nonce",
)
BLOCKS = (
    Block(kind="text", body="Grüße, 世界 \U0001f600"),
    Block(kind="reasoning", provider="p", model="x", signature="sig", opaque=SEALED),
    Block(kind="file", name="a.txt", media_type="text/plain", body=BLOB, lossy=True),
)
ENVELOPE = Envelope(
    event_id="01890a5d-ac96-774b-bcce-b302099a8057",
    session_id="session-1",
    tenant="tenant-1",
    seq=12,
    schema_version=1,
    occurred_at=1_700_000_000_000_001,
    recorded_at=1_700_000_000_000_002,
    writer="writer-1",
    epoch=3,
    actor=Actor(kind="PERSON", id="person-1"),
    turn_id="turn-1",
    branch="branch-1",
    parent_event_id="01890a5d-ac96-774b-bcce-b302099a8056",
    correlation_id="correlation-1",
    batch_id="batch-1",
    traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    certainty="INFERRED",
    source=Source(system="s", stream="a.jsonl", position="7", sha256=b"\x22" * 32),
    rules_version=1,
    prev_hash=b"\x33" * 32,
)
BARE_ENVELOPE = Envelope(
    event_id="01890a5d-ac96-774b-bcce-b302099a8057",
    session_id="session-1",
    writer="writer-1",
    actor=Actor(kind="HARNESS", id=""),
)

_WORDS: dict[tuple[str, str], Any] = {
    ("PermissionGranted", "decided_by"): "PERSON",
    ("PermissionDenied", "decided_by"): "PERSON",
    ("SessionCreated", "mode"): "OWNED",
    ("SteeringReceived", "mode"): "NEXT_TURN",
    ("ToolExecutionStarted", "effect"): "IDEMPOTENT",
    ("ToolExecutionStarted", "attempt"): 1,
}
"""Values that decide which class or rule an event falls under."""


def sample(cls: type[Record]) -> Any:
    """A record with a telling value in every field; it depends on nothing but names."""
    return cls(
        **{
            name: _WORDS.get((cls.__name__, name), _value(info.annotation, name))
            for name, info in cls.model_fields.items()
        }
    )


def _value(hint: Any, name: str) -> Any:
    origin = get_origin(hint)
    if origin is Annotated:
        return _value(get_args(hint)[0], name)
    if origin in (Union, types.UnionType):
        branches = [b for b in get_args(hint) if b is not types.NoneType]
        return _value(branches[0], name)
    if origin is tuple:
        item = get_args(hint)[0]
        return BLOCKS if item is Block else (_value(item, name), _value(item, name))
    if isinstance(hint, type) and issubclass(hint, Record):
        return sample(hint)
    return {
        str: f"{name}-1",
        int: len(name) * 100,
        bool: True,
        float: len(name) + 0.5,
        bytes: name.encode(),
    }[hint]


SAMPLES: dict[str, KnownEvent] = {
    name: cast("KnownEvent", sample(cls)) for name, cls in EVENT_TYPES.items()
}
