"""The fleet's windows and loops of any log, in this process: no broker, no Faust.

The same fold over every session that has anything since then; nothing is stored, and
nothing is appended.
"""

from dataclasses import dataclass, field

from foldline.errors import UNREADABLE
from foldline.processors.stored import AuditableLog, StoredSession
from foldline.projections.fleet_board import Board, Bounds, When
from foldline.projections.fleet_circles import LoopLimits
from foldline.projections.fleet_fold import Watched, take
from foldline.projections.fleet_latest import FoundLoop, in_order

PANES_MAX = 1_000_000
"""How many panes one look may need; beyond it, the oldest are not shown."""

FOR_EVER_S = 2**40
"""Nothing is too old for who asks for it."""


@dataclass(slots=True)
class Seen:
    """What a log has. `lost` sessions are counted up to what could not be read, and why."""

    board: Board
    loops: list[FoundLoop] = field(default_factory=list[FoundLoop])
    sessions: int = 0
    events: int = 0
    lost: dict[str, str] = field(default_factory=dict[str, str])


def look(log: AuditableLog, *, pane_s: int, since_us: int, limits: LoopLimits) -> Seen:
    """Fold every session that has an event since then.

    Args:
        log: any.
        pane_s: how many seconds are counted together.
        since_us: log time in microseconds; earlier events are folded, and not counted.
        limits: what is a loop.
    """
    bounds = Bounds(pane_s=pane_s, keep_s=FOR_EVER_S, panes_max=PANES_MAX)
    seen = Seen(Board(bounds))
    for row in log.stored_sessions():
        if row.recorded_at < since_us:
            continue
        try:
            _fold(log, row, seen, since_us, limits)
        except UNREADABLE as error:
            seen.lost[row.session_id] = str(error)
    seen.loops = in_order(seen.loops)
    return seen


def _fold(
    log: AuditableLog, row: StoredSession, seen: Seen, since_us: int, limits: LoopLimits
) -> None:
    watched = Watched.begin(row.session_id)
    seen.sessions += 1
    for recorded in log.events(row.session_id, upto_seq=row.seq):
        step = take(watched, recorded, limits=limits)
        if step.at_us < since_us:
            continue
        seen.events += 1
        when = When(step.at_us, recorded.envelope.recorded_at)
        seen.board.add(0, seen.events, when=when, increments=step.increments)
        seen.loops += [FoundLoop(row.session_id, step.at_us, loop) for loop in step.loops]
