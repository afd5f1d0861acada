"""State replay: a session folded again from its stored events, and compared.

1. Each row is decoded and checked against its predecessor (the hash chain).
2. It is folded; the state then has a hash.
3. That is compared with whatever was kept there: the hash that a checkpoint names, a
   snapshot, and at the end the index and the state that the log answers with.

What breaks the chain ends the replay: what comes after it has no certain state. Another
version of the fold may have made a snapshot or a checkpoint; there is nothing to compare
it with, and it counts as skipped.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from foldline.errors import DecodeError, FoldlineError, SessionNotFoundError
from foldline.processors.chain import Chain
from foldline.processors.compared import (
    checkpoint_of,
    checkpoint_problem,
    index_problems,
    snapshot_problem,
)
from foldline.processors.fold import fold_in, initial
from foldline.processors.lineage import lineage_of
from foldline.processors.stored import (
    AuditableLog,
    StoredSession,
)
from foldline.schemas.recorded import Recorded
from foldline.schemas.snapshots import state_hash
from foldline.schemas.state import SessionState

CHECKPOINT = "checkpoint"
SNAPSHOT = "snapshot"
HEAD = "head"

PROBLEMS_LISTED_MAX = 1_000
"""How many problems the replay of a whole log lists; more are counted."""

Progress = Callable[[int, int], None]
"""Is told how many sessions are done, of how many."""


@dataclass(frozen=True, slots=True)
class Point:
    """An event as it was folded; `recorded` is None where its row cannot be read.

    `compared` says what its state was compared with, `skipped` what another version of
    the fold made. The state itself is the refold's, until it goes on.
    """

    seq: int
    recorded: Recorded | None
    compared: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


class Refold:
    """The refold of one session: `state` is that after the last point it gave."""

    def __init__(self, log: AuditableLog, row: StoredSession) -> None:
        self.state = initial(row.session_id)
        self._log = log
        self._row = row
        self._kept = {s.seq: s for s in log.stored_snapshots(row.session_id)}

    def points(self, *, upto_seq: int | None = None) -> Iterator[Point]:
        """One point per event up to a seq, or to the head; the head is compared too."""
        row = self._row
        last_seq = row.seq if upto_seq is None else min(upto_seq, row.seq)
        chain = Chain(row.session_id)
        for stored in self._log.stored_events(row.session_id, upto_seq=last_seq):
            recorded = chain.add(stored, self._log.codec)
            problems = tuple(problem.reason for problem in chain.found())
            if recorded is None or chain.broken:
                yield Point(stored.seq, recorded, problems=problems)
                return
            point = self._folded(recorded)
            if stored.seq == row.seq:
                point = self._at_head(point, chain)
            yield point
        if self.state.seq < last_seq:
            chain.end(row.seq, row.head_hash)
            problems = tuple(problem.reason for problem in chain.found())
            yield Point(self.state.seq + 1, None, problems=problems)

    def _folded(self, recorded: Recorded) -> Point:
        compared: list[str] = []
        skipped: list[str] = []
        problems: list[str] = []

        def take(kind: str, problem: str | None) -> None:
            (skipped if problem is None else compared).append(kind)
            problems.extend([problem] if problem else [])

        checkpoint = checkpoint_of(self.state, recorded)
        if checkpoint is not None:
            take(CHECKPOINT, checkpoint_problem(self.state, checkpoint))
        fold_in(self.state, recorded)
        snapshot = self._kept.get(self.state.seq)
        if snapshot is not None:
            take(SNAPSHOT, snapshot_problem(self.state, snapshot))
        return Point(
            recorded.seq, recorded, tuple(compared), tuple(skipped), tuple(problems)
        )

    def _at_head(self, point: Point, chain: Chain) -> Point:
        """Compare with the index, and with what the log answers."""
        row, state = self._row, self.state
        chain.end(row.seq, row.head_hash)
        problems = [problem.reason for problem in chain.found()]
        problems += index_problems(state, row)
        live = self._log.state(row.session_id, at_seq=row.seq)
        if live is None or state_hash(live) != state_hash(state):
            problems.append("the state that the log answers with is not the refolded one")
        return Point(
            point.seq,
            point.recorded,
            (*point.compared, HEAD),
            point.skipped,
            (*point.problems, *problems),
        )


def stored_session(log: AuditableLog, session_id: str) -> StoredSession:
    """What the index of a log says of a session.

    Raises:
        SessionNotFoundError: nothing.
    """
    for row in log.stored_sessions():
        if row.session_id == session_id:
            return row
    raise SessionNotFoundError(session_id, log.url)


def refolded(log: AuditableLog, session_id: str, *, at_seq: int) -> SessionState | None:
    """The state at a seq, folded from the events alone; None where there is no event.

    Up to a fork point it is the state of the ancestor whose event that is.

    Raises:
        DecodeError: an event up to there is not what was recorded.
        LineageError: an ancestor is not there as it was.
    """
    if at_seq < 1:
        return None
    own = next(log.stored_events(session_id), None)
    if own is not None and at_seq < own.seq:
        # A session that has lost its first event has no ancestor to ask.
        session_id = lineage_of(log, session_id).holder(at_seq)
    refold = Refold(log, stored_session(log, session_id))
    for point in refold.points(upto_seq=at_seq):
        if point.recorded is None or point.problems:
            raise DecodeError(f"seq {point.seq}: {'; '.join(point.problems)}")
    return refold.state if refold.state.seq == at_seq else None


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A session that does not fold to what was kept; `seq` is where that shows."""

    session_id: str
    seq: int
    reason: str


@dataclass(slots=True)
class Corpus:
    """What the replay of every session of a log found."""

    sessions: int = 0
    events: int = 0
    compared: int = 0
    skipped: int = 0
    mismatch_count: int = 0
    mismatches: list[Mismatch] = field(default_factory=list[Mismatch])

    @property
    def ok(self) -> bool:
        """Whether every session folds to what was kept of it."""
        return self.mismatch_count == 0

    def add(self, mismatch: Mismatch) -> None:
        """Count a mismatch, and list it while there is room."""
        self.mismatch_count += 1
        if len(self.mismatches) < PROBLEMS_LISTED_MAX:
            self.mismatches.append(mismatch)


def refold_all(
    log: AuditableLog,
    session_ids: frozenset[str] | None = None,
    *,
    on_progress: Progress | None = None,
) -> Corpus:
    """Fold every session of a log (or these) again; damage is reported, never raised.

    Args:
        log: what to replay; it is only read.
        session_ids: only these; all where not given.
        on_progress: called after each session.
    """
    corpus = Corpus()
    rows = [
        row
        for row in log.stored_sessions()
        if session_ids is None or row.session_id in session_ids
    ]
    for done, row in enumerate(rows, start=1):
        corpus.sessions += 1
        for seq, reason in _refold_one(log, row, corpus):
            corpus.add(Mismatch(row.session_id, seq, reason))
        if on_progress is not None:
            on_progress(done, len(rows))
    return corpus


def _refold_one(
    log: AuditableLog, row: StoredSession, corpus: Corpus
) -> Iterator[tuple[int, str]]:
    seq = 0
    try:
        for point in Refold(log, row).points():
            seq = point.seq
            corpus.events += point.recorded is not None
            corpus.compared += len(point.compared)
            corpus.skipped += len(point.skipped)
            for problem in point.problems:
                yield seq, problem
    except FoldlineError as error:
        yield seq, str(error)
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        # Damaged rows can hold anything; the other sessions are replayed all the same.
        yield seq, f"damaged: {error!r}"
