"""The states last used, so that an append to a session in use restores nothing."""

import threading
from collections import OrderedDict

from foldline.schemas.state import SessionState

CACHED_SESSIONS = 1024
"""How many sessions' states a log keeps in memory; the others are restored."""


class StateCache:
    """Keys and states by session. Whoever gets a state must not change it.

    A cached state is the newest that this process has seen. Whether it is still the
    newest there is, its chain head tells: it must be the one in the log's index.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: OrderedDict[str, tuple[int, SessionState]] = OrderedDict()

    def get(self, session_id: str) -> tuple[int, SessionState] | None:
        """Key and state of a session."""
        with self._lock:
            entry = self._entries.get(session_id)
            if entry is not None:
                self._entries.move_to_end(session_id)
            return entry

    def put(self, key: int, state: SessionState) -> None:
        """Take in a state that is committed."""
        with self._lock:
            self._entries[state.session_id] = (key, state)
            self._entries.move_to_end(state.session_id)
            if len(self._entries) > CACHED_SESSIONS:
                self._entries.popitem(last=False)
