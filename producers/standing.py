"""Since when sessions stand still, by the clock of the process that looks at them.

A quiet log has no time: how long a pause has lasted nobody can read off it.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from foldline.schemas.state import SessionState

REMEMBERED_MAX = 100_000
"""How many stalled sessions are remembered."""


@dataclass(slots=True)
class Standing:
    """A session that stands still, in seconds of one clock.

    Nobody has had it since `since_s`, nothing was appended since `moved_s`; a harness
    was `wanted` so often.
    """

    epoch: int
    seq: int
    since_s: float
    moved_s: float
    wanted: int = 0


class Standings:
    """The sessions that one process sees standing still."""

    def __init__(self) -> None:
        self._known: dict[str, Standing] = {}

    def keep_only(self, session_ids: Iterable[str]) -> None:
        """Forget all that do not stand still any more."""
        names = set(session_ids)
        for name in [name for name in self._known if name not in names]:
            del self._known[name]

    def forget(self, session_id: str) -> None:
        """One that begins anew."""
        self._known.pop(session_id, None)

    def of(self, state: SessionState, *, now_s: float) -> Standing:
        """How long a session stands still, by what it was at the last look."""
        standing = self._known.get(state.session_id)
        if standing is None or standing.epoch != state.epoch:
            wanted = standing.wanted if standing else 0
            standing = Standing(state.epoch, state.seq, now_s, now_s, wanted)
            if len(self._known) < REMEMBERED_MAX:
                self._known[state.session_id] = standing
        if standing.seq != state.seq:  # people talk on meanwhile
            standing.seq, standing.moved_s = state.seq, now_s
        return standing
