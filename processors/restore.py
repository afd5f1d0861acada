"""A state from what is stored: the nearest good snapshot, and the events after it.

A snapshot is never trusted blindly. It counts if its bytes match their digest, its
state matches its own hash, this version of the fold made it, and the event at its seq
is the one that it saw last. Otherwise an older one is tried, and in the end the whole
session is folded again. Events are never folded unseen either: each one's `prev_hash`
must be the hash of the one before it.
"""

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

from foldline.errors import DecodeError, LogFormatError
from foldline.processors.fold import initial, replay
from foldline.processors.stored import StoredEvent, StoredSnapshot
from foldline.schemas.codec import Codec
from foldline.schemas.events import SessionCreated
from foldline.schemas.recorded import Recorded
from foldline.schemas.snapshots import decode_snapshot
from foldline.schemas.state import SessionState

OTHER_HASH = "its prev_hash is not the hash of the event before it"

T = TypeVar("T")

_logger = logging.getLogger("foldline.log")


@dataclass(frozen=True, slots=True)
class Source:
    """Where a state is restored from.

    `snapshots` come newest first, none beyond the wanted seq; `events(after_seq)` end
    at the wanted seq.
    """

    url: str
    session_id: str
    codec: Codec
    snapshots: Iterable[StoredSnapshot]
    events: Callable[[int], Iterable[StoredEvent]]
    base_seq: int = 0
    """The seq of a snapshot whose own event may be missing: there its hash is enough."""


def restore(source: Source) -> SessionState | None:
    """The state; None where there is no event.

    Raises:
        LogFormatError: an event that is not the one that was recorded; it names
            session and seq.
    """
    for snapshot in source.snapshots:
        state = _usable(source, snapshot)
        if state is not None:
            after = carry_on(source, state)
            if after is not None:
                return after
            _ignore(source, snapshot, "it does not fit the event at its seq")
    empty = initial(source.session_id)
    state = replay(empty, _checked(source, source.events(0), b""))
    return state if state.seq else None


def carry_on(source: Source, state: SessionState) -> SessionState | None:
    """The state after the events that follow; None if it is not of these events.

    Raises:
        LogFormatError: as of `restore`.
    """
    # The first event is the state's own: already folded, only compared.
    tail = iter(source.events(state.seq - 1))
    own = next(tail, None)
    if own is None or own.seq != state.seq:
        if state.seq != source.base_seq:
            return None
        tail = chain((own,) if own else (), tail)
    elif hashlib.sha256(own.body).digest() != state.chain_head:
        return None
    return replay(state, _checked(source, tail, state.chain_head))


def _usable(source: Source, snapshot: StoredSnapshot) -> SessionState | None:
    if hashlib.sha256(snapshot.body).digest() != snapshot.digest:
        return _ignore(source, snapshot, "its bytes do not match their digest")
    try:
        state = decode_snapshot(snapshot.body)
    except DecodeError as error:
        return _ignore(source, snapshot, error.reason)
    if state is None:
        return _ignore(source, snapshot, "another version of the fold made it")
    if (state.session_id, state.seq) != (source.session_id, snapshot.seq):
        return _ignore(source, snapshot, "it is of another session or seq")
    return state


def _ignore(source: Source, snapshot: StoredSnapshot, reason: str) -> None:
    _logger.warning(
        "%s: session %r: the snapshot at seq %d is ignored: %s",
        source.url,
        source.session_id,
        snapshot.seq,
        reason,
    )


def _checked(
    source: Source, events: Iterable[StoredEvent], head: bytes
) -> Iterator[Recorded]:
    """Decode events for folding, each compared with its row and its predecessor."""
    for stored in events:
        try:
            recorded = source.codec.decode_structure(stored.schema_id, stored.body)
        except DecodeError as error:
            raise broken(source.url, source.session_id, stored.seq, error.reason) from (
                error
            )
        reason = misplaced(recorded, source.session_id, stored.seq, head)
        if reason:
            raise broken(source.url, source.session_id, stored.seq, reason)
        head = hashlib.sha256(stored.body).digest()
        yield recorded


def misplaced(recorded: Recorded, session_id: str, seq: int, head: bytes) -> str:
    """Why an event cannot stand where it stands; empty if it can.

    Args:
        recorded: the event.
        session_id: the session that its row is in.
        seq: the seq of its row.
        head: hash of the body of the event before it; empty for a session's first.
    """
    envelope = recorded.envelope
    if (envelope.session_id, envelope.seq) != (session_id, seq):
        return f"it is seq {envelope.seq} of session {envelope.session_id!r}"
    event = recorded.event
    if not head and isinstance(event, SessionCreated):
        first = (event.fork_seq or 0) + 1
        return "" if seq == first else f"the session begins at seq {first}"
    if envelope.prev_hash != head:
        return OTHER_HASH
    return ""


def broken(url: str, session_id: str, seq: int, reason: str) -> LogFormatError:
    """The error that says which event is not as it was recorded."""
    return LogFormatError(url, f"session {session_id!r}, seq {seq}: {reason}")


def decoded(
    decode: Callable[[int, bytes], T], stored: StoredEvent, *, url: str, session_id: str
) -> T:
    """What a decoder reads of a stored event.

    Raises:
        LogFormatError: it does not decode.
    """
    try:
        return decode(stored.schema_id, stored.body)
    except DecodeError as error:
        raise broken(url, session_id, stored.seq, error.reason) from error
