"""What `foldline show` finds out about a session: state, lease, and what refs say.

A state is small because it only says which event holds a goal or a plan; here these
events are read. Of the events themselves only the last `EVENTS_LOOKED_AT` are read, so
that a session of any length is shown at once.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from foldline.cli.certainty import certain_of, unknown_of
from foldline.cli.content import line_of, line_of_blocks
from foldline.errors import LineageError
from foldline.processors.lineage import Stretch, lineage_from
from foldline.processors.log import Lease
from foldline.projections.views import event_view, iso_time, lease_view, plain, state_view
from foldline.schemas.blocks import Blocks
from foldline.schemas.events import (
    AssistantMessage,
    ConstraintSet,
    GoalSet,
    InputRequested,
    ModelCallCompleted,
    PermissionRequested,
    PlanItem,
    PlanUpdated,
    SessionCreated,
    ToolCallRequested,
    TurnEnded,
    TurnStarted,
    UserMessage,
)
from foldline.schemas.recorded import Recorded
from foldline.schemas.state import Call, Ref, SessionState

if TYPE_CHECKING:
    from foldline.processors.log import Log

EVENTS_LOOKED_AT = 400
TURNS_SHOWN = 3
LINE_CHARS = 300


@dataclass(slots=True)
class TurnSeen:
    """What the last events say about one turn. `began` is false if it began earlier."""

    turn_id: str
    first_seq: int
    trigger: str = ""
    outcome: str = ""
    events: int = 0
    model_calls: int = 0
    tool_calls: int = 0
    output_tokens: int = 0
    asked: str = ""
    answered: str = ""


@dataclass(slots=True)
class Look:
    """All that `show` shows of one session."""

    state: SessionState
    lease: Lease | None
    created: Recorded | None = None
    goal: str = ""
    plan: tuple[PlanItem, ...] = ()
    constraints: dict[str, str] = field(default_factory=dict[str, str])
    asked: dict[str, str] = field(default_factory=dict[str, str])
    calls: dict[str, str] = field(default_factory=dict[str, str])
    steering: dict[str, str] = field(default_factory=dict[str, str])
    turns: list[TurnSeen] = field(default_factory=list[TurnSeen])
    ancestors: tuple[Stretch, ...] = ()
    no_history: str = ""
    """Why a fork's history cannot be joined; empty where it can."""


def look_at(log: "Log", state: SessionState) -> Look:
    """Read what a state refers to, and the last turns."""
    look = Look(state, log.leases.get(state.session_id))
    try:
        look.ancestors = lineage_from(state, log.state).ancestors
    except LineageError as error:
        look.no_history = str(error)
    look.created = _event_at(log, state, state.fork_seq + 1)
    look.goal = line_of_blocks(_goal(_referred(log, state, state.goal)))
    look.plan = _plan(_referred(log, state, state.plan))
    for key, ref in state.constraints.items():
        look.constraints[key] = _constraint(_referred(log, state, ref), key)
    for key, request in state.requests.items():
        look.asked[key] = _question(_event_at(log, state, request.seq))
    for key, call in state.calls.items():
        look.calls[key] = _line_at(log, state, call.requested_seq)
    for key, steering in state.steering.items():
        look.steering[key] = _line_at(log, state, steering.seq)
    look.turns = _last_turns(log, state)
    return look


def _event_at(log: "Log", state: SessionState, seq: int) -> Recorded | None:
    found = log.events(state.session_id, after_seq=seq - 1, upto_seq=seq)
    return next(iter(found), None)


def _referred(log: "Log", state: SessionState, ref: Ref | None) -> Recorded | None:
    return None if ref is None else _event_at(log, state, ref.seq)


def _line_at(log: "Log", state: SessionState, seq: int) -> str:
    recorded = _event_at(log, state, seq)
    return line_of(recorded.event, max_chars=LINE_CHARS) if recorded else ""


def _goal(recorded: Recorded | None) -> Blocks:
    match recorded.event if recorded else None:
        case GoalSet(blocks=blocks):
            return blocks
        case SessionCreated(inherited=inherited) if inherited is not None:
            return inherited.goal
        case _:
            return ()


def _plan(recorded: Recorded | None) -> tuple[PlanItem, ...]:
    match recorded.event if recorded else None:
        case PlanUpdated(items=items):
            return items
        case SessionCreated(inherited=inherited) if inherited is not None:
            return inherited.plan
        case _:
            return ()


def _constraint(recorded: Recorded | None, constraint_id: str) -> str:
    match recorded.event if recorded else None:
        case ConstraintSet(blocks=blocks):
            return line_of_blocks(blocks)
        case SessionCreated(inherited=inherited) if inherited is not None:
            for constraint in inherited.constraints:
                if constraint.constraint_id == constraint_id:
                    return line_of_blocks(constraint.blocks)
            return ""
        case _:
            return ""


def _question(recorded: Recorded | None) -> str:
    match recorded.event if recorded else None:
        case PermissionRequested(display=blocks) | InputRequested(prompt=blocks):
            return line_of_blocks(blocks, max_chars=LINE_CHARS)
        case _:
            return ""


def _last_turns(log: "Log", state: SessionState) -> list[TurnSeen]:
    """The last turns, as far as the last events tell."""
    turns: dict[str, TurnSeen] = {}
    after_seq = max(state.seq - EVENTS_LOOKED_AT, 0)
    open_turn = ""
    for recorded in log.events(state.session_id, after_seq=after_seq):
        event, turn_id = recorded.event, recorded.envelope.turn_id
        if isinstance(event, TurnStarted):
            open_turn = turn_id or ""
        key = turn_id or open_turn
        if key:
            turn = turns.setdefault(key, TurnSeen(key, recorded.seq))
            _see(turn, recorded)
        if isinstance(event, TurnEnded):
            open_turn = ""
    return list(turns.values())[-TURNS_SHOWN:]


def _see(turn: TurnSeen, recorded: Recorded) -> None:
    turn.events += 1
    match recorded.event:
        case TurnStarted(trigger=trigger):
            turn.trigger = trigger
        case TurnEnded(outcome=outcome):
            turn.outcome = outcome
        case UserMessage(blocks=blocks):
            turn.asked = turn.asked or line_of_blocks(blocks, max_chars=LINE_CHARS)
        case AssistantMessage(blocks=blocks):
            said = line_of_blocks(
                (b for b in blocks if b.kind == "text"), max_chars=LINE_CHARS
            )
            turn.answered = said or turn.answered
        case ToolCallRequested():
            turn.tool_calls += 1
        case ModelCallCompleted(usage=usage):
            turn.model_calls += 1
            turn.output_tokens += (usage and usage.output_tokens) or 0
        case _:
            pass


def view_of_look(look: Look) -> dict[str, Any]:
    """The same for machines."""
    state = look.state
    return {
        "session_id": state.session_id,
        "status": state.status,
        "created": event_view(look.created) if look.created else None,
        "ancestors": [plain(stretch) for stretch in look.ancestors],
        "no_history": look.no_history or None,
        "last_event_at": iso_time(state.recorded_at),
        "lease": lease_view(look.lease),
        "goal": look.goal or None,
        "plan": [
            {"item_id": i.item_id, "status": i.status, "text": line_of_blocks(i.blocks)}
            for i in look.plan
        ],
        "constraints": look.constraints,
        "open_calls": [_call_view(look, call) for call in open_calls(state)],
        "pending": [
            plain(request) | {"text": look.asked.get(key, "")}
            for key, request in state.requests.items()
        ],
        "steering": [
            plain(steering) | {"text": look.steering.get(key, "")}
            for key, steering in state.steering.items()
        ],
        "turns": [plain(turn) for turn in look.turns],
        "state": state_view(state),
    }


def _call_view(look: Look, call: Call) -> dict[str, Any]:
    return plain(call) | {
        "text": look.calls.get(call.call_id, ""),
        "certain": certain_of(look.state, call),
        "unknown": unknown_of(look.state, call, look.lease) or None,
    }


def open_calls(state: SessionState) -> list[Call]:
    """Open calls, in the order in which they were requested."""
    return sorted(state.calls.values(), key=lambda call: call.requested_seq)
