"""What the rows of a fleet worker mean: the pure parts, put together for it.

fleet_fold    an event of a session: what it adds, which loops it closes
fleet_board   the panes to which it is added
fleet_latest  the loops that are listed
fleet_rows    all of them as bytes
fleet_states  our states beside those of the workers
"""

import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from foldline.errors import LogFormatError
from foldline.processors.fleet_port import Row
from foldline.projections.fleet_board import Board, Bounds, Counted, Place, When
from foldline.projections.fleet_fold import Step, Watched, limits_of, take
from foldline.projections.fleet_latest import FoundLoop, LatestLoops
from foldline.projections.fleet_loops import DETECTOR, LOOP_KINDS
from foldline.projections.fleet_rows import (
    BEHIND_LOOPS,
    PANE,
    decode_loop,
    decode_pane,
    decode_session,
    encode_loop,
    encode_pane,
    encode_session,
    loop_key,
    pane_in,
    pane_key,
    session_key,
    version_of,
)
from foldline.projections.fleet_states import MISMATCH, Comparison, States
from foldline.projections.fleet_windows import Pane
from foldline.schemas.codec import encode_content
from foldline.schemas.derived import derived_id
from foldline.schemas.envelope import Actor, Envelope
from foldline.schemas.events import LoopDetected
from foldline.schemas.recorded import Append, Recorded
from foldline.schemas.snapshots import decode_snapshot
from foldline.schemas.state import MIRRORED
from foldline.schemas.verdicts import Verdict
from foldline.settings import Settings

MILLIS = 1_000

OLD = "old"
LEFT_ALONE = "mirrored"
UNTOLD = (OLD, LEFT_ALONE)
"""Why a loop is counted and not recorded in its session."""

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


@dataclass(slots=True)
class _Read:
    """What was read of a partition in this life.

    From which offset on, and which record of it last could not be taken in.
    """

    begin: int
    skipped: int = -1


class FleetFolding:
    """Events to rows; `Folding` says what each method is for."""

    def __init__(self, settings: Settings, *, mirrored: bool = False) -> None:
        """Begin with nothing.

        Args:
            settings: how much is kept, what is a loop, which are recorded.
            mirrored: loops are recorded in mirrored sessions, too.
        """
        self._mirrored = mirrored
        self._tell_us = settings.fleet_tell_ms * MILLIS
        self._limits = limits_of(settings)
        self._bounds = bounds_of(settings)
        self._cached_max = settings.cached_sessions
        self._sessions: OrderedDict[bytes, tuple[int, Watched]] = OrderedDict()
        self._changed_panes: dict[Place, Counted | None] = {}
        self._changed_loops: dict[tuple[int, bytes], bytes | None] = {}
        self._changed_sessions: dict[bytes, None] = {}
        self._read: dict[int, _Read] = {}
        self.states = States()
        self.version = version_of(settings)
        self.stored: tuple[bytes, bytes] = (PANE, BEHIND_LOOPS)
        self.board = Board(self._bounds)
        self.events = 0
        self.repeats = 0
        self.late = 0
        self.gaps = 0
        self.skips = 0
        self.loops: Counter[str] = Counter(dict.fromkeys(LOOP_KINDS, 0))
        self.verdicts: Counter[str] = Counter()
        self.compared: Counter[Comparison] = Counter()
        self.untold: Counter[str] = Counter(dict.fromkeys(UNTOLD, 0))
        self.latest = LatestLoops()

    # --- partitions ------------------------------------------------------------------

    def load(self, partition: int, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Take the panes and the loops of a partition over."""
        panes: list[tuple[Pane, Counted]] = []
        loops: list[FoundLoop] = []
        for key, value in rows:
            if key.startswith(PANE):
                panes.append((pane_in(key), decode_pane(value)))
            else:
                loops.append(decode_loop(key, value))
        dropped = self.board.load(partition, panes)
        self.latest.load(partition, loops)
        self._changed_panes.update(dict.fromkeys(dropped))

    def forget(self, partition: int) -> None:
        """Let go of what others have now."""
        self.board.forget(partition)
        self.latest.forget(partition)
        self._read.pop(partition, None)
        gone = [key for key, (of, _) in self._sessions.items() if of == partition]
        for key in gone:
            del self._sessions[key]
            self._changed_sessions.pop(key, None)
        self._changed_panes = _without(partition, self._changed_panes)
        self._changed_loops = _without(partition, self._changed_loops)

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
        now_us: int,
    ) -> Sequence[Append]:
        """Take an event in; the loops that it closes are to be appended.

        Raises:
            LogFormatError: events before it are missing, and were there to be read.
        """
        self._read.setdefault(partition, _Read(offset))
        key = session_key(recorded.envelope.session_id)
        watched = self._watched(key, partition, recorded, row)
        if recorded.seq > watched.seq + 1:
            self._go_on(partition, watched, recorded)
        step = take(watched, recorded, limits=self._limits)
        if step.repeated:
            self.repeats += 1
            return ()
        watched.offset = offset
        self.events += 1
        self._changed_sessions[key] = None
        self._add(partition, offset, recorded, step)
        if not watched.holed:
            result = self.states.reached(watched.tracked.state)
            self._count(result, recorded.envelope.session_id, recorded.seq)
        return self._to_tell(watched, recorded, step, now_us)

    def _go_on(self, partition: int, watched: Watched, recorded: Recorded) -> None:
        """Go on behind a hole, if none of its events can be had by reading again.

        It can not what was behind us when this life began (skipped by a former one, or
        deleted before anybody read it), or where this one has skipped a record.
        """
        read = self._read[partition]
        if watched.seq and watched.offset >= max(read.begin, read.skipped):
            reason = f"seq {watched.seq + 1} was to come, {recorded.seq} came"
            raise LogFormatError(recorded.envelope.session_id, reason)
        self.gaps += 1
        watched.go_on_behind_hole()
        _logger.warning(
            "session %s: events from seq %d to %d are not there, its counts lack them",
            recorded.envelope.session_id,
            watched.seq + 1,
            recorded.seq - 1,
        )

    def _to_tell(
        self, watched: Watched, recorded: Recorded, step: Step, now_us: int
    ) -> list[Append]:
        """The appends for the loops that are to be said in the session."""
        if not step.loops:
            return []
        reason = self._why_untold(watched, recorded, now_us)
        if reason:
            self.untold[reason] += len(step.loops)
            return []
        return [append_of(recorded, loop) for loop in step.loops]

    def _why_untold(self, watched: Watched, recorded: Recorded, now_us: int) -> str:
        if watched.tracked.state.mode == MIRRORED and not self._mirrored:
            return LEFT_ALONE
        return OLD if now_us - recorded.envelope.recorded_at > self._tell_us else ""

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
        for pane, counted in changed.panes.items():
            self._changed_panes[Place(partition, pane)] = counted
        self._changed_panes.update(dict.fromkeys(changed.dropped))
        for loop in step.loops:
            self.loops[loop.kind] += 1
            self._list(partition, FoundLoop(recorded.envelope.session_id, step.at_us, loop))

    def _list(self, partition: int, found: FoundLoop) -> None:
        gone = self.latest.add(partition, found)
        self._changed_loops[partition, loop_key(found)] = encode_loop(found)
        if gone is not None:
            self._changed_loops[partition, loop_key(gone)] = None

    # --- rows ------------------------------------------------------------------------

    @property
    def changes(self) -> int:
        """How many rows have changed."""
        changed = (self._changed_panes, self._changed_loops, self._changed_sessions)
        return sum(map(len, changed))

    def changed(self) -> Iterator[Row]:
        """Sessions last: one that has an event has it in its panes, and its loop listed."""
        panes, loops = self._changed_panes, self._changed_loops
        sessions = self._changed_sessions
        self._changed_panes, self._changed_loops, self._changed_sessions = {}, {}, {}
        for (partition, pane), counted in panes.items():
            value = None if counted is None else encode_pane(counted)
            yield Row(partition, pane_key(pane), value)
        for (partition, key), value in loops.items():
            yield Row(partition, key, value)
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
        if watched is not None and watched.holed:
            return
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

    def skipped(self, partition: int, offset: int | None) -> None:
        """Count a record that could not be taken in; an event, if it has an offset."""
        self.skips += 1
        if offset is not None:
            read = self._read.setdefault(partition, _Read(offset))
            read.skipped = max(read.skipped, offset)


Kept = TypeVar("Kept", bound=tuple[int, Any])
Value = TypeVar("Value")


def _without(partition: int, changed: Mapping[Kept, Value]) -> dict[Kept, Value]:
    """What has changed in other partitions."""
    return {place: value for place, value in changed.items() if place[0] != partition}
