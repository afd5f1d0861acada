"""Verify: is every session still what was recorded, byte for byte and fold for fold?

Per session, on raw rows, so that nothing is smoothed over on the way:

1. every row decodes, is the next seq, and names its own seq and session;
2. its `prev_hash` is the hash of the body before it, its log time not before it;
3. every snapshot is the refolded state at its seq;
4. every checkpoint's hash is that of the refolded state just before it;
5. every blob that is named is there, with its bytes;
6. the index has the last event's seq and hash, and what the refolded state says;
7. the live state, and newest snapshot plus tail, equal the refolded state;
8. a fork's first `prev_hash` is the hash of its parent's event at the fork point. A
   mirrored fork's parent may never have been here: then there is nothing to compare.

Events that are appended meanwhile are left for the next time.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from foldline.errors import BlobError, FoldlineError
from foldline.processors.chain import Chain
from foldline.processors.compared import (
    checkpoint_of,
    checkpoint_problem,
    index_problems,
    snapshot_problem,
)
from foldline.processors.fold import fold_in, initial
from foldline.processors.named_blobs import blobs_in
from foldline.processors.restore import Source, restore
from foldline.processors.stored import (
    AuditableLog,
    Problem,
    StoredEvent,
    StoredSession,
    StoredSnapshot,
)
from foldline.schemas.events import SessionCreated
from foldline.schemas.recorded import Recorded
from foldline.schemas.state import MIRRORED, SessionState

MAX_PROBLEMS = 1_000
"""How many problems a report lists; more are counted."""

Progress = Callable[[int, int], None]
"""Is told how many sessions are done, of how many."""


@dataclass(slots=True)
class Report:
    """What verify found. `problems` lists the first ones, `problem_count` counts all."""

    sessions: int = 0
    events: int = 0
    problem_count: int = 0
    problems: list[Problem] = field(default_factory=list[Problem])

    @property
    def ok(self) -> bool:
        """Whether everything is as it was recorded."""
        return self.problem_count == 0

    def add(self, problem: Problem) -> None:
        """Count a problem, and list it while there is room."""
        self.problem_count += 1
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(problem)


def verify(
    log: AuditableLog,
    session_ids: Sequence[str] | None = None,
    *,
    on_progress: Progress | None = None,
) -> Report:
    """Check a log, or some of its sessions. Damage is reported, never raised.

    Args:
        log: what to check; it is only read.
        session_ids: the sessions to check; every one, and the store, where not given.
        on_progress: called after each session.
    """
    report = Report()
    indexed = _indexed(log, report)
    if session_ids is None:
        for problem in _sheltered(log.inspect(), ""):
            report.add(problem)
        session_ids = sorted(indexed)
    for done, session_id in enumerate(session_ids, start=1):
        row = indexed.get(session_id)
        if row is None:
            report.add(Problem(session_id, 0, "the index has no such session"))
        else:
            report.sessions += 1
            check = _SessionCheck(log, row)
            for problem in _sheltered(check.problems(), session_id, check):
                report.add(problem)
            report.events += check.events
        if on_progress is not None:
            on_progress(done, len(session_ids))
    return report


def _indexed(log: AuditableLog, report: Report) -> dict[str, StoredSession]:
    rows: dict[str, StoredSession] = {}
    try:
        for row in log.stored_sessions():
            rows[row.session_id] = row
    except FoldlineError as error:
        report.add(Problem("", 0, f"the index cannot be read: {error}"))
    return rows


def _sheltered(
    problems: Iterator[Problem], session_id: str, check: "_SessionCheck | None" = None
) -> Iterator[Problem]:
    """The problems, and as the last one whatever stopped the looking for more.

    Damaged rows can hold anything, a text where a number was: that is no reason to stop
    the whole verification with a traceback.
    """
    try:
        yield from problems
    except FoldlineError as error:
        yield Problem(session_id, check.seq if check else 0, str(error))
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        yield Problem(session_id, check.seq if check else 0, f"damaged: {error!r}")


class _SessionCheck:
    """The check of one session; `seq` is the row it has come to."""

    def __init__(self, log: AuditableLog, row: StoredSession) -> None:
        self._log = log
        self._row = row
        self._snapshots: dict[int, StoredSnapshot] = {}
        self._newest: StoredSnapshot | None = None
        self.seq = 0
        self.events = 0

    def problems(self) -> Iterator[Problem]:
        """Everything that is wrong with the session."""
        for snapshot in self._log.stored_snapshots(self._row.session_id):
            self._snapshots[snapshot.seq] = snapshot
        chain = Chain(self._row.session_id)
        state = initial(self._row.session_id)
        for stored in self._log.stored_events(self._row.session_id):
            if stored.seq > self._row.seq and self._appended_meanwhile():
                break
            self.seq = stored.seq
            self.events += 1
            recorded = chain.add(stored, self._log.codec)
            yield from chain.found()
            if recorded is not None:
                yield from self._parent(recorded)
                yield from self._blobs(recorded)
            if recorded is not None and not chain.broken:
                # After a break the fold would only repeat that something is wrong.
                yield from self._fold(state, recorded)
        chain.end(self._row.seq, self._row.head_hash)
        yield from chain.found()
        self.seq = self._row.seq
        if not chain.broken:
            yield from self._index(state)
            yield from self._left_over()
            yield from self._live(state)

    def _parent(self, recorded: Recorded) -> Iterator[Problem]:
        """8. What a fork goes on from."""
        event, envelope = recorded.event, recorded.envelope
        if not isinstance(event, SessionCreated) or event.fork_seq is None:
            return
        fork_seq, parent_id = event.fork_seq, event.parent_session_id or ""
        found = self._log.stored_events(
            parent_id, after_seq=fork_seq - 1, upto_seq=fork_seq
        )
        stored = next(iter(found), None)
        if stored is not None:
            if hashlib.sha256(stored.body).digest() != envelope.prev_hash:
                yield self._problem(
                    f"prev_hash is not that of event {fork_seq} of its parent {parent_id}"
                )
        elif event.mode != MIRRORED:
            yield self._problem(f"its parent {parent_id} has no event {fork_seq}")

    def _appended_meanwhile(self) -> bool:
        """Whether the index has moved on since: then the row beyond it is a new one."""
        now = self._log.state(self._row.session_id)
        return now is not None and now.seq > self._row.seq

    def _problem(self, reason: str) -> Problem:
        return Problem(self._row.session_id, self.seq, reason)

    def _fold(self, state: SessionState, recorded: Recorded) -> Iterator[Problem]:
        """3 and 4 of one row, folding it in."""
        checkpoint = checkpoint_of(state, recorded)
        if checkpoint and (problem := checkpoint_problem(state, checkpoint)):
            yield self._problem(problem)
        fold_in(state, recorded)
        snapshot = self._snapshots.pop(state.seq, None)
        self._newest = snapshot or self._newest
        if snapshot and (problem := snapshot_problem(state, snapshot)):
            yield self._problem(problem)

    def _blobs(self, recorded: Recorded) -> Iterator[Problem]:
        for blob in blobs_in(recorded.event):
            try:
                size = len(self._log.blobs.get(blob.sha256))
            except BlobError as error:
                yield self._problem(str(error))
                continue
            if size != blob.size:
                yield self._problem(f"blob {blob.sha256.hex()}: {size} bytes")

    def _index(self, state: SessionState) -> Iterator[Problem]:
        for problem in index_problems(state, self._row):
            yield self._problem(problem)

    def _left_over(self) -> Iterator[Problem]:
        for seq in sorted(self._snapshots):
            if seq <= self._row.seq:
                self.seq = seq
                yield self._problem("a snapshot at a seq that has no event")
        beyond = any(seq > self._row.seq for seq in self._snapshots)
        if beyond and not self._appended_meanwhile():
            yield self._problem("a snapshot beyond the last event")

    def _live(self, state: SessionState) -> Iterator[Problem]:
        """7. What the log answers, now and without its cache."""
        session_id, seq = self._row.session_id, self._row.seq
        live = self._log.state(session_id)
        if live is not None and live.seq != seq:
            live = self._log.state(session_id, at_seq=seq)
        if live != state:
            yield self._problem("the live state is not the refolded one")
        if self._newest is None:
            return
        restored = restore(
            Source(
                self._log.url,
                session_id,
                self._log.codec,
                [self._newest],
                lambda after: self._rows(after, seq),
            )
        )
        if restored != state:
            yield self._problem("snapshot plus tail is not the refolded state")

    def _rows(self, after_seq: int, upto_seq: int) -> Iterator[StoredEvent]:
        for recorded in self._log.structure(
            self._row.session_id, after_seq=after_seq, upto_seq=upto_seq
        ):
            yield StoredEvent(recorded.seq, recorded.schema_id, recorded.body)
