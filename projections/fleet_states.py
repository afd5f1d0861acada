"""Whether the fleet's states are those that the workers publish, at the same seq. Pure.

A snapshot that is ahead of what was read waits for its event. One of a session that has
gone on since is not compared; the next one will be, or the one of the session at rest.
"""

from collections import OrderedDict
from typing import Literal

from foldline.schemas.snapshots import state_hash
from foldline.schemas.state import SessionState

AWAITED_MAX = 10_000
"""How many snapshots may be ahead of the events that were read."""

MATCH: Literal["match"] = "match"
MISMATCH: Literal["mismatch"] = "mismatch"
UNSEEN: Literal["unseen"] = "unseen"
Comparison = Literal["match", "mismatch", "unseen"]
COMPARISONS: tuple[Comparison, ...] = (MATCH, MISMATCH, UNSEEN)


class States:
    """What snapshots say of states that are not read yet."""

    def __init__(self) -> None:
        self._awaited: OrderedDict[tuple[str, int], bytes] = OrderedDict()

    def reached(self, ours: SessionState) -> Comparison | None:
        """Compare a state with the snapshot that was ahead of it, if one was."""
        if not self._awaited:
            return None
        wanted = self._awaited.pop((ours.session_id, ours.seq), None)
        return None if wanted is None else _compared(wanted, ours)

    def compare(
        self, published: SessionState, *, ours: SessionState | None
    ) -> Comparison | None:
        """Compare with a snapshot; None if it is ahead: `reached` will.

        Args:
            published: the snapshot's state.
            ours: of that session, as far as it was read; None if nothing was.
        """
        seq = ours.seq if ours else 0
        if ours is not None and seq == published.seq:
            return _compared(state_hash(published), ours)
        if published.seq < seq:
            return UNSEEN
        self._awaited[published.session_id, published.seq] = state_hash(published)
        if len(self._awaited) > AWAITED_MAX:
            self._awaited.popitem(last=False)
        return None


def _compared(wanted: bytes, ours: SessionState) -> Comparison:
    return MATCH if state_hash(ours) == wanted else MISMATCH
