"""What the rows of a fleet worker mean: the pure parts, put together for it.

fleet_fold    an event of a session: what it adds, which loops it closes
fleet_board   the panes to which it is added
fleet_rows    sessions and panes as bytes
fleet_states  our states beside those of the workers
"""

import logging
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from foldline.errors import LogFormatError
from foldline.processors.fleet_port import Row
from foldline.projections.fleet_board import Board, Bounds, Counted, When
from foldline.projections.fleet_fold import Step, Watched, limits_of, take
from foldline.projections.fleet_loops import DETECTOR, LOOP_KINDS
from foldline.projections.fleet_rows import (
    PANE,
    decode_pane,
    decode_session,
    encode_pane,
    encode_session,
    pane_in,
    pane_key,
    rows_version,
    session_key,
)
from foldline.projections.fleet_states import MISMATCH, Comparison, States
from foldline.projections.fleet_windows import Pane
from foldline.schemas.codec import encode_content
from foldline.schemas.derived import derived_id
from foldline.schemas.envelope import Actor, Envelope
from foldline.schemas.events import LoopDetected
from foldline.schemas.recorded import Append, Recorded
from foldline.schemas.snapshots import decode_snapshot
from foldline.schemas.verdicts import Verdict
from foldline.settings import Settings

LATEST_LOOPS = 1_000
"""How many loops are listed: the latest ones."""

MILLIS = 1_000

_logger = logging.getLogger("foldline.fleet")


def bounds_of(settings: Settings) -> Bounds:
    """How much a worker keeps."""
    return Bounds(
        pane_s=settings.fleet_pane_ms // MILLIS,
        keep_s=settings.fleet_keep_ms // MILLIS,
        panes_max=settings.fleet_panes_max,
    )


def append_of(recorded: Recorded, loop: LoopDetected) -> Append:
    """The append that says a loop; its id follows from the event that closed it."""
    cause = recorded.envelope
    envelope = Envelope(
        event_id=derived_id("loop", cause.session_id, loop.kind, str(recorded.seq)),
        session_id=cause.session_id,
        tenant=cause.tenant,
        writer=DETECTOR,
        actor=Actor(kind="SERVICE", id=DETECTOR),
        turn_id=cause.turn_id,
        parent_event_id=cause.event_id,
    )
    return Append(envelope, loop, encode_content(loop), known_seq=recorded.seq)


class FleetFolding:
    """Events to rows; `Folding` says what each method is for."""

    def __init__(self, settings: Settings) -> None:
        self._limits = limits_of(settings)
        self._bounds = bounds_of(settings)
        self._cached_max = settings.cached_sessions
        self._sessions: OrderedDict[bytes, tuple[int, Watched]] = OrderedDict()
        self._changed_panes: dict[tuple[int, Pane], Counted | None] = {}
        self._changed_sessions: dict[bytes, None] = {}
        self.states = States()
        self.version = rows_version(self._bounds.pane_s)
        self.stored: tuple[bytes, bytes] = (PANE, PANE + b"\xff" * 9)
        self.board = Board(self._bounds)
        self.events = 0
        self.repeats = 0
        self.late = 0
        self.gaps = 0
        self.skips = 0
        self.loops: Counter[str] = Counter(dict.fromkeys(LOOP_KINDS, 0))
        self.verdicts: Counter[str] = Counter()
        self.compared: Counter[Comparison] = Counter()
        self.latest: deque[tuple[str, LoopDetected]] = deque(maxlen=LATEST_LOOPS)

    # --- partitions ------------------------------------------------------------------

    def load(self, partition: int, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Take the panes of a partition over."""
        found = ((pane_in(key), decode_pane(value)) for key, value in rows)
        self.board.load(partition, found)

    def forget(self, partition: int) -> None:
        """Let go of what others have now."""
        self.board.forget(partition)
        gone = [key for key, (of, _) in self._sessions.items() if of == partition]
        for key in gone:
            del self._sessions[key]
            self._changed_sessions.pop(key, None)
        self._changed_panes = {
            place: one
            for place, one in self._changed_panes.items()
            if place[0] != partition
        }

    def session_key(self, session_id: str) -> bytes:
        """The key of a session's row."""
        return session_key(session_id)

    # --- events ----------------------------------------------------------------------

    def take(
        self,
        partition: int,
        offset: int,
        recorded: Recorded,
        *,
        row: Callable[[], bytes | None],
    ) -> Sequence[Append]:
        """Take an event in; the loops that it closes are to be appended.

        Raises:
            LogFormatError: a hole: the session has events between that were not read.
        """
        key = session_key(recorded.envelope.session_id)
        watched = self._watched(key, partition, recorded, row)
        before = watched.seq
        if before and recorded.seq > before + 1:
            reason = f"seq {before + 1} was to come, {recorded.seq} came"
            raise LogFormatError(recorded.envelope.session_id, reason)
        step = take(watched, recorded, limits=self._limits)
        if step.repeated:
            self.repeats += 1
            return ()
        self.events += 1
        self.gaps += recorded.seq != before + 1
        self._changed_sessions[key] = None
        self._add(partition, offset, recorded, step)
        result = self.states.reached(watched.tracked.state)
        self._count(result, recorded.envelope.session_id, recorded.seq)
        return [append_of(recorded, loop) for loop in step.loops]

    def _watched(
        self,
        key: bytes,
        partition: int,
        recorded: Recorded,
        row: Callable[[], bytes | None],
    ) -> Watched:
        found = self._sessions.get(key)
        if found is not None:
            self._sessions.move_to_end(key)
            return found[1]
        stored = row()
        session_id = recorded.envelope.session_id
        watched = decode_session(stored) if stored else Watched.begin(session_id)
        self._sessions[key] = partition, watched
        oldest = next(iter(self._sessions))
        if len(self._sessions) > self._cached_max and oldest not in self._changed_sessions:
            del self._sessions[oldest]
        return watched

    def _add(self, partition: int, offset: int, recorded: Recorded, step: Step) -> None:
        when = When(step.at_us, recorded.envelope.recorded_at)
        changed = self.board.add(partition, offset, when=when, increments=step.increments)
        self.late += changed.late
        for loop in step.loops:
            self.loops[loop.kind] += 1
            self.latest.append((recorded.envelope.session_id, loop))
        for pane, counted in changed.panes.items():
            self._changed_panes[partition, pane] = counted
        for pane in changed.dropped:
            self._changed_panes[partition, pane] = None

    # --- rows ------------------------------------------------------------------------

    @property
    def changes(self) -> int:
        """How many rows have changed."""
        return len(self._changed_panes) + len(self._changed_sessions)

    def changed(self) -> Iterator[Row]:
        """Panes first: a session that has an event has it in its panes."""
        panes, sessions = self._changed_panes, self._changed_sessions
        self._changed_panes, self._changed_sessions = {}, {}
        for (partition, pane), counted in panes.items():
            value = None if counted is None else encode_pane(counted)
            yield Row(partition, pane_key(pane), value)
        for key in sessions:
            partition, watched = self._sessions[key]
            yield Row(partition, key, encode_session(watched))

    # --- states ----------------------------------------------------------------------

    def compare(
        self, session_id: str, snapshot: bytes, *, row: Callable[[], bytes | None]
    ) -> None:
        """Compare a worker's snapshot of a session with ours."""
        published = decode_snapshot(snapshot)
        if published is None or published.session_id != session_id:
            return
        cached = self._sessions.get(session_key(session_id))
        stored = None if cached else row()
        watched = cached[1] if cached else decode_session(stored) if stored else None
        ours = watched.tracked.state if watched else None
        self._count(self.states.compare(published, ours=ours), session_id, published.seq)

    def _count(self, result: Comparison | None, session_id: str, seq: int) -> None:
        if result is None:
            return
        self.compared[result] += 1
        if result == MISMATCH:
            _logger.error(
                "session %s: our state at seq %d is not the worker's", session_id, seq
            )

    # --- what became of it -----------------------------------------------------------

    def answered(self, append: Append, verdict: Verdict) -> None:
        """Count what the log says of a loop; a refusal is said."""
        self.verdicts[verdict.kind] += 1
        if not verdict.recorded:
            session_id = append.envelope.session_id
            _logger.warning(
                "session %s: a loop is not recorded: %s", session_id, verdict.kind
            )

    def skipped(self, why: str) -> None:
        """Count a record that is no event."""
        del why
        self.skips += 1
