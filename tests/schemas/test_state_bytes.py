"""A state's bytes are those that fastavro writes, and the hash leaves out log times."""

import dataclasses
import hashlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldline.errors import EncodeError
from foldline.processors.fold import fold_in, initial
from foldline.schemas.avro_io import parsed, write
from foldline.schemas.events import KnownEvent, SessionCreated
from foldline.schemas.snapshots import (
    decode_snapshot,
    encode_snapshot,
    snapshot_schema,
    state_hash,
)
from foldline.schemas.state import FOLD_VERSION, SessionState
from foldline.schemas.state_bytes import LOG_TIMES
from tests.story import Story
from tests.strategies import colliding_events

SCHEMA = parsed(snapshot_schema())
STATE = parsed(snapshot_schema()["fields"][2]["type"])


def told(value: Any, *, hashed: bool) -> Any:
    """A state as fastavro wants it, by the rules of the snapshot's schema."""
    if dataclasses.is_dataclass(value):
        left_out = LOG_TIMES.get(type(value).__name__, frozenset()) if hashed else ()
        fields: dict[str, Any] = {}
        for item in dataclasses.fields(value):
            part = getattr(value, item.name)
            blank = b"" if isinstance(part, bytes) else 0
            fields[item.name] = (
                blank if item.name in left_out else told(part, hashed=hashed)
            )
        return fields
    if isinstance(value, dict):
        return [_pair(key, part, hashed=hashed) for key, part in sorted(value.items())]  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return value


def _pair(key: Any, part: Any, *, hashed: bool) -> Any:
    counted = isinstance(part, int)
    return {"name": key, "count": part} if counted else told(part, hashed=hashed)


@settings(max_examples=100, deadline=None)
@given(st.lists(colliding_events(), max_size=30), st.sampled_from(("OWNED", "MIRRORED")))
def test_a_snapshot_is_what_fastavro_writes(happened: list[KnownEvent], mode: str) -> None:
    story = Story().given(SessionCreated(agent="a", mode=mode))
    for event in happened:
        story.when(event)
    state = initial("session")
    for recorded in story.events:
        fold_in(state, recorded)
        digest = hashlib.sha256(write(STATE, told(state, hashed=True), what="s")).digest()
        assert state_hash(state) == digest
        snapshot = {
            "fold_version": FOLD_VERSION,
            "state_hash": digest,
            "state": told(state, hashed=False),
        }
        assert encode_snapshot(state) == write(SCHEMA, snapshot, what="Snapshot")
    assert decode_snapshot(encode_snapshot(state)) == state


@pytest.mark.parametrize("name", sorted(LOG_TIMES["SessionState"]))
def test_log_times_and_the_chain_head_do_not_count(name: str) -> None:
    state = Story().given(SessionCreated(agent="a")).state
    other = dataclasses.replace(state, **{name: b"x" if name == "chain_head" else 5})
    assert state_hash(other) == state_hash(state)
    assert encode_snapshot(other) != encode_snapshot(state)
    assert state_hash(dataclasses.replace(state, epoch=9)) != state_hash(state)


@pytest.mark.parametrize("bad", [{"seq": 2**64}, {"agent": "\ud800"}, {"epoch": "x"}])
def test_what_avro_cannot_hold_is_an_encode_error(bad: dict[str, Any]) -> None:
    with pytest.raises(EncodeError):
        encode_snapshot(dataclasses.replace(SessionState(session_id="s"), **bad))
