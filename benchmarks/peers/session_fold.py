"""The two folds that every Python peer does.

`admitting` is what conditional appends need at least, and keeps a state about as large
as foldline's: an event (JSON, 500 bytes) whose id is among the session's last 128 is
dropped; others get the session's next seq, which goes out with the event; the state
counts them by status and remembers their ids.

`bare` is the cheapest fold one can think of: nothing is decoded. An event is 500 bytes
with its status in the first; the state of a session is 256 bytes: how many events, how
many of each status, the last status, padding. What goes out is the event behind its seq.

Either way foldline does more: it validates, decodes with the writer's registered schema,
admits by the rules of a session, folds calls, permissions, turns and budgets, chains the
events by hash, and answers each append with a verdict of its own.
"""

import struct
from typing import Any

WINDOW = 128
STATE_BYTES = 256
STATUSES = 4

_layout = struct.Struct(f">Q{STATUSES}QB")
_position = struct.Struct(">Q")
_padding = bytes(STATE_BYTES - _layout.size)
_empty = bytes(STATE_BYTES)

State = dict[str, Any]
Event = dict[str, Any]


def fold_admitting(state: State | None, event: Event) -> tuple[State, Event] | None:
    """The next state, and what goes out; None for an event that is there already."""
    state = state or {"seq": 0, "status": "", "counts": {}, "ids": []}
    ids, event_id, status = state["ids"], event["event_id"], event["status"]
    if event_id in ids:
        return None
    ids.append(event_id)
    del ids[:-WINDOW]
    counts = state["counts"]
    counts[status] = counts.get(status, 0) + 1
    state["status"] = status
    state["seq"] += 1
    event["seq"] = state["seq"]
    return state, event


def fold_bare(state: bytes | None, value: bytes) -> tuple[bytes, bytes]:
    """The next state, and what goes out."""
    seq, *counts, _ = _layout.unpack_from(state or _empty)
    status = value[0] % STATUSES
    counts[status] += 1
    after = _layout.pack(seq + 1, *counts, status) + _padding
    return after, _position.pack(seq + 1) + value
