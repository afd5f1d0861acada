"""The states of a partition's sessions: committed, of the open batch, and in the table.

Committed states are never changed: a batch folds into copies, which take their places
once it is committed. So a state that was handed to the table stays what it was. States
that the table does not have yet cannot be read again and are never evicted.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Protocol

from foldline.processors.fold import copier_for, copy_of, initial, light_copy_of
from foldline.schemas.events import AnyEvent
from foldline.schemas.state import SessionState
from foldline.schemas.topic_records import LostSession

_Copier = Callable[[SessionState], SessionState]


class StateTable(Protocol):
    """Where states that are not in memory lie: written behind, read when needed."""

    def get(self, session_id: str) -> SessionState | None:
        """The state of a session as the table has it; the caller may keep it."""
        ...

    def lost(self, session_id: str) -> LostSession | None:
        """What is missing of a session that is lost; None for any other."""
        ...

    @property
    def lost_sessions(self) -> int:
        """How many sessions are lost."""
        ...


class StateOverlay:
    """States by session id: the batch's over the committed over the table's."""

    def __init__(self, table: StateTable, *, max_cached: int) -> None:
        self._table = table
        self._max_cached = max_cached
        self._batch: dict[str, SessionState] = {}
        self._copiers: dict[str, _Copier] = {}
        self._unflushed: dict[str, SessionState] = {}
        self._cached: OrderedDict[str, SessionState] = OrderedDict()
        self._handed: Sequence[SessionState] = ()
        self._lost: dict[str, LostSession] = {}
        self._lost_handed: Sequence[LostSession] = ()

    def get(self, session_id: str) -> SessionState | None:
        """The state as the batch has made it so far; not to be changed."""
        state = self._batch.get(session_id)
        return self._committed(session_id) if state is None else state

    def _committed(self, session_id: str) -> SessionState | None:
        state = self._unflushed.get(session_id)
        if state is not None:
            return state
        state = self._cached.get(session_id)
        if state is not None:
            self._cached.move_to_end(session_id)
            return state
        state = None if session_id in self._lost else self._table.get(session_id)
        if state is not None:
            self._cached[session_id] = state
            self._evict()
        return state

    def lost(self, session_id: str) -> LostSession | None:
        """What is missing of a session that is lost; None for any other."""
        return self._lost.get(session_id) or self._table.lost(session_id)

    @property
    def lost_count(self) -> int:
        """How many sessions are lost."""
        return self._table.lost_sessions + len(self._lost)

    @property
    def has_lost(self) -> bool:
        """Whether sessions are lost of which the table does not know it."""
        return bool(self._lost)

    def lose(self, lost: LostSession) -> None:
        """Forget the state of a session, which is lost: during a restore only."""
        self._unflushed.pop(lost.session_id, None)
        self._cached.pop(lost.session_id, None)
        self._lost[lost.session_id] = lost

    def known(self, session_id: str) -> bool:
        """Whether the session is in memory: no key of it need be looked at again."""
        return (
            session_id in self._batch
            or session_id in self._unflushed
            or session_id in self._cached
        )

    def own(
        self, session_id: str, state: SessionState | None, event: AnyEvent
    ) -> SessionState:
        """A state that the batch may fold an event into.

        Args:
            session_id: the session.
            state: what `get` gave.
            event: what will be folded into it, and nothing else.
        """
        wanted = copier_for(event)
        mine = self._batch.get(session_id)
        if mine is None:
            if state is None:
                mine, wanted = initial(session_id), copy_of
            else:
                mine = wanted(state)
            self._batch[session_id] = mine
            self._copiers[session_id] = wanted
            return mine
        had = self._copiers[session_id]
        if wanted is had or had is copy_of or wanted is light_copy_of:
            return mine
        mine = self._batch[session_id] = copy_of(mine)
        self._copiers[session_id] = copy_of
        return mine

    def refolding(self, session_id: str) -> SessionState:
        """The committed state itself, to be folded in place: during a restore only."""
        state = self._committed(session_id) or initial(session_id)
        self._cached.pop(session_id, None)
        self._unflushed[session_id] = state
        return state

    def commit(self) -> None:
        """The batch's states take their places."""
        for session_id in self._batch:
            self._cached.pop(session_id, None)
        self._unflushed.update(self._batch)
        self.drop()
        self._evict()

    def drop(self) -> None:
        """Forget the batch's states."""
        self._batch = {}
        self._copiers = {}

    @property
    def full(self) -> bool:
        """Whether the states that wait for the table are as many as may be cached."""
        return len(self._unflushed) >= self._max_cached

    def hand_over(self) -> Sequence[SessionState]:
        """Every state that the table does not have."""
        self._handed = tuple(self._unflushed.values())
        return self._handed

    def hand_over_lost(self) -> Sequence[LostSession]:
        """Every lost session that the table does not know to be lost."""
        self._lost_handed = tuple(self._lost.values())
        return self._lost_handed

    def handed_over(self) -> None:
        """What was handed over is in the table: of it, what is not new again may go."""
        for lost in self._lost_handed:
            self._lost.pop(lost.session_id, None)
        self._lost_handed = ()
        for state in self._handed:
            if self._unflushed.get(state.session_id) is state:
                del self._unflushed[state.session_id]
                self._cached[state.session_id] = state
        self._handed = ()
        self._evict()

    def _evict(self) -> None:
        """The longest unused go first."""
        surplus = len(self._cached) + len(self._unflushed) - self._max_cached
        for _ in range(min(surplus, len(self._cached))):
            self._cached.popitem(last=False)
