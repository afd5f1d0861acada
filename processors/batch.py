"""One batch of appends on one machine: admit, encode, fold, keep what is due.

Nothing here stores anything: a log calls `admit_batch` inside its transaction, writes
the changes, and takes the new states into its cache only once they are committed.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from foldline.processors.admission import RULES_VERSION, admit, log_time, overruled
from foldline.processors.clock import Clock
from foldline.processors.fold import copy_of, fold_in, initial
from foldline.processors.stored import StoredEvent, StoredSnapshot
from foldline.schemas.codec import MAX_EVENT_BYTES, encode_envelope
from foldline.schemas.events import (
    CheckpointCreated,
    SessionCancelled,
    SessionCompleted,
    SessionFailed,
    SessionSuspended,
    type_of,
)
from foldline.schemas.recorded import Append, Recorded
from foldline.schemas.registry import LocalRegistry
from foldline.schemas.snapshots import encode_snapshot
from foldline.schemas.state import SessionState
from foldline.schemas.verdicts import TOO_LARGE, UNDECODABLE, Verdict

PAUSES = (SessionSuspended, SessionCompleted, SessionFailed, SessionCancelled)
"""The events after which a session rests for a while: its state is kept."""


@dataclass(slots=True)
class Change:
    """What a batch does to one session: its new state, rows and snapshots."""

    state: SessionState
    events: list[StoredEvent] = field(default_factory=list[StoredEvent])
    snapshots: list[StoredSnapshot] = field(default_factory=list[StoredSnapshot])

    def keep(self) -> None:
        """Keep a snapshot of the state as it is now, once per seq."""
        if not self.state.seq:
            return
        if not self.snapshots or self.snapshots[-1].seq != self.state.seq:
            self.snapshots.append(snapshot_of(self.state))


@dataclass(frozen=True, slots=True)
class Ways:
    """How a log does what a batch needs.

    `load` gives a session's state, which stays as it is.
    """

    load: Callable[[str], SessionState | None]
    schemas: LocalRegistry
    clock: Clock
    snapshot_every: int
    rules_version: int = RULES_VERSION


@dataclass(slots=True)
class Batch:
    """The answers to a batch, and what is to be stored: nothing if nothing changed."""

    verdicts: list[Verdict] = field(default_factory=list[Verdict])
    changes: dict[str, Change] = field(default_factory=dict[str, Change])


def snapshot_of(state: SessionState) -> StoredSnapshot:
    """A state as a log stores it."""
    body = encode_snapshot(state)
    return StoredSnapshot(state.seq, body, hashlib.sha256(body).digest())


def admit_batch(appends: Sequence[Append], *, ways: Ways) -> Batch:
    """Answer appends in order, each on the state that those before it made.

    Raises:
        EncodeError: an envelope that Avro cannot hold; nothing of the batch counts.
    """
    batch = Batch()
    loaded: dict[str, SessionState | None] = {}
    for append in appends:
        session_id = append.envelope.session_id
        change = batch.changes.get(session_id)
        if change is not None:
            state = change.state
        elif session_id in loaded:
            state = loaded[session_id]
        else:
            state = loaded[session_id] = ways.load(session_id)
        batch.verdicts.append(_answer(batch, state, append, ways))
    return batch


def _answer(
    batch: Batch, state: SessionState | None, append: Append, ways: Ways
) -> Verdict:
    now = log_time(state, ways.clock())
    decision = admit(state, append, now=now, rules_version=ways.rules_version)
    envelope = decision.envelope
    if envelope is None:
        return decision.verdict
    try:
        name = append.schema_name or type_of(append.event)
        schema_id = ways.schemas.id_of(name, version=append.schema_version)
    except KeyError:
        return overruled(decision.verdict, state, UNDECODABLE, "no schema of that name")
    body = encode_envelope(envelope) + append.content
    if len(body) > MAX_EVENT_BYTES:
        reason = f"{len(body)} bytes, MAX_EVENT_BYTES is {MAX_EVENT_BYTES}"
        return overruled(decision.verdict, state, TOO_LARGE, reason)
    change = batch.changes.get(envelope.session_id)
    if change is None:
        before = copy_of(state) if state else initial(envelope.session_id)
        change = batch.changes[envelope.session_id] = Change(before)
    recorded = Recorded(envelope, append.event, body, schema_id)
    record(change, recorded, snapshot_every=ways.snapshot_every)
    return decision.verdict


def record(change: Change, recorded: Recorded, *, snapshot_every: int) -> None:
    """Take one admitted event into a change, with the snapshots that are due for it."""
    event, seq = recorded.event, recorded.envelope.seq
    if isinstance(event, CheckpointCreated):
        change.keep()  # the state just before it: what its hash is of
    fold_in(change.state, recorded)
    change.events.append(StoredEvent(seq, recorded.schema_id, recorded.body))
    if seq % snapshot_every == 0 or isinstance(event, PAUSES):
        change.keep()
