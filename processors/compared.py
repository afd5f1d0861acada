"""What was kept of a session beside its events, compared with the refolded state."""

import hashlib
from collections.abc import Iterator

from foldline.errors import DecodeError
from foldline.processors.stored import StoredSession, StoredSnapshot, index_fields
from foldline.schemas.events import CheckpointCreated
from foldline.schemas.recorded import Recorded
from foldline.schemas.snapshots import decode_snapshot, state_hash
from foldline.schemas.state import FOLD_VERSION, MIRRORED, SessionState


def checkpoint_of(state: SessionState, recorded: Recorded) -> CheckpointCreated | None:
    """The checkpoint whose hash is to be that of the state before it; None for others.

    A mirrored one names a state that was never here.
    """
    event = recorded.event
    checkpoint = event if isinstance(event, CheckpointCreated) else None
    return None if state.mode == MIRRORED else checkpoint


def checkpoint_problem(state: SessionState, event: CheckpointCreated) -> str | None:
    """What is wrong with a checkpoint; empty: nothing, None: of another fold."""
    if event.fold_version != FOLD_VERSION:
        return None
    if event.upto_seq == state.seq and event.state_hash == state_hash(state):
        return ""
    return "the checkpoint's hash is not that of the state then"


def snapshot_problem(state: SessionState, snapshot: StoredSnapshot) -> str | None:
    """What is wrong with a snapshot; empty: nothing, None: of another fold."""
    if hashlib.sha256(snapshot.body).digest() != snapshot.digest:
        return "the snapshot's bytes do not match their digest"
    try:
        kept = decode_snapshot(snapshot.body)
    except DecodeError as error:
        return f"the snapshot: {error.reason}"
    if kept is None:
        return None
    return "" if kept == state else "the snapshot is not the refolded state"


def index_problems(state: SessionState, row: StoredSession) -> Iterator[str]:
    """What the index says otherwise than the refolded state."""
    folded = StoredSession(*index_fields(state))
    for name in StoredSession.__slots__:
        here, there = getattr(folded, name), getattr(row, name)
        if here != there:
            said = name.replace("_", " ")
            yield f"{said} is {_shown(there)} in the index, {_shown(here)} in the events"


def _shown(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else repr(value)
