"""Whether the fleet's states are those that the workers publish, at the same seq. Pure.

The fleet is often ahead of a snapshot, and behind it after a restart. So the latest rows
are kept for a while, and of the latest snapshots it is kept what they say until
the events are read. What is in neither is not compared: the next snapshot will be.
"""

from collections import OrderedDict
from typing import Literal

from foldline.projections.fleet_rows import decode_session
from foldline.schemas.snapshots import state_hash
from foldline.schemas.state import SessionState

KEPT_STATES = 4_000
"""Of how many events the state behind them is kept."""

KEPT_BYTES = 32 * 1024 * 1024
"""How large those states may be together."""

AWAITED_MAX = 4_000
"""How many snapshots may be ahead of the events that were read."""

MATCH: Literal["match"] = "match"
MISMATCH: Literal["mismatch"] = "mismatch"
UNSEEN: Literal["unseen"] = "unseen"
Comparison = Literal["match", "mismatch", "unseen"]
COMPARISONS: tuple[Comparison, ...] = (MATCH, MISMATCH, UNSEEN)

_At = tuple[str, int]


class States:
    """The latest states, and the snapshots that are ahead of them."""

    def __init__(self) -> None:
        self._states: OrderedDict[_At, bytes] = OrderedDict()
        self._bytes = 0
        self._awaited: OrderedDict[_At, bytes] = OrderedDict()

    def fold(self, session_id: str, seq: int, row: bytes) -> Comparison | None:
        """Take in a session's row; what a snapshot that came before says of its state."""
        self._states[session_id, seq] = row
        self._bytes += len(row)
        while len(self._states) > KEPT_STATES or self._bytes > KEPT_BYTES:
            self._bytes -= len(self._states.popitem(last=False)[1])
        wanted = self._awaited.pop((session_id, seq), None)
        return None if wanted is None else _compared(wanted, row)

    def compare(
        self, published: SessionState, *, ours: SessionState | None
    ) -> Comparison | None:
        """Compare with a snapshot; None if it is ahead: `fold` will.

        Args:
            published: the snapshot's state.
            ours: of that session, as far as it was read; None if nothing was.
        """
        at = published.session_id, published.seq
        row = self._states.get(at)
        if row is not None:
            return _compared(state_hash(published), row)
        seq = ours.seq if ours else 0
        if ours is not None and seq == published.seq:
            return MATCH if state_hash(ours) == state_hash(published) else MISMATCH
        if published.seq < seq:
            return UNSEEN
        self._awaited[at] = state_hash(published)
        if len(self._awaited) > AWAITED_MAX:
            self._awaited.popitem(last=False)
        return None


def _compared(wanted: bytes, row: bytes) -> Comparison:
    ours = decode_session(row).tracked.state
    return MATCH if state_hash(ours) == wanted else MISMATCH
