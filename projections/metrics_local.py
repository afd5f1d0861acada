"""Counting a log by its index of sessions: those of one machine, and any other once.

How far it has counted is a seq for each session, and the hash of the event there. A
session that is not as far as that, or has another event there, means another log of the
same name: everything is counted anew. A session that cannot be read is counted up to there,
and is a gap.
"""

import logging

from foldline.errors import UNREADABLE, FoldlineError
from foldline.processors.stored import AuditableLog, StoredSession
from foldline.projections.metrics_counting import Counting
from foldline.projections.metrics_store import MetricsStore

BATCH_EVENTS = 5_000
"""How many events are counted before the counts are stored."""

_logger = logging.getLogger("foldline.metrics")


class LocalCounter:
    """Counts what a log has that was not counted yet. For one thread."""

    def __init__(self, log: AuditableLog, store: MetricsStore) -> None:
        self._log = log
        self.counting = Counting(store)
        self._heads = store.heads()
        self._uncommitted = 0
        self._unreadable: set[str] = set()

    def catch_up(self) -> int:
        """Count what is new; gives how many events were."""
        rows = list(self._log.stored_sessions())
        if self._is_another(rows):
            self.counting.start_anew()
            self._heads.clear()
        behind = [row for row in rows if row.seq > self._seq(row.session_id)]
        counted = sum(self._take_what_is_good(row) for row in behind)
        self.counting.lag = {None: 0}
        self._commit()
        return counted

    def _seq(self, session_id: str) -> int:
        return self._heads.get(session_id, (0, b""))[0]

    def _is_another(self, rows: list[StoredSession]) -> bool:
        """Whether what was counted is not the beginning of what is there."""
        there = {row.session_id: row for row in rows}
        for session_id, (seq, head) in self._heads.items():
            row = there.get(session_id)
            if row is None or row.seq < seq:
                return True
            if self._goes_on_otherwise(row, seq, head):
                return True
        return False

    def _goes_on_otherwise(self, row: StoredSession, seq: int, head: bytes) -> bool:
        if row.seq == seq:
            return row.head_hash != head
        try:
            following = self._log.structure(row.session_id, after_seq=seq, upto_seq=seq + 1)
            return any(recorded.envelope.prev_hash != head for recorded in following)
        except UNREADABLE:
            return False  # it is damaged, and no other log for that

    def _take_what_is_good(self, row: StoredSession) -> int:
        try:
            return self._take_in(row)
        except UNREADABLE as error:
            self._miss(row.session_id, error)
            return 0

    def _miss(self, session_id: str, error: FoldlineError) -> None:
        """A session that cannot be read is one gap, however often that is tried."""
        if session_id not in self._unreadable:
            self._unreadable.add(session_id)
            self.counting.gaps += 1
            _logger.error("session %s is not counted further: %s", session_id, error)

    def _take_in(self, row: StoredSession) -> int:
        """Count the new events of one session, up to where the index has it."""
        found = 0
        after = self._seq(row.session_id)
        events = self._log.structure(row.session_id, after_seq=after, upto_seq=row.seq)
        for recorded in events:
            self.counting.take(recorded)
            found += 1
            self._uncommitted += 1
            if self._uncommitted >= BATCH_EVENTS:
                self._commit()
        return found

    def _commit(self) -> None:
        for tracked in self.counting.commit():
            state = tracked.state
            self._heads[state.session_id] = (state.seq, state.chain_head)
        self._uncommitted = 0
