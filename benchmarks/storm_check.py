"""What must hold at the end of a seed, however it came about.

Every session has ended, or waits with a question. Nothing acknowledged is missing, no
event is there twice, no steering was applied twice, the log verifies. No UNSAFE and no
RECONCILABLE effect happened twice, none is called done that is not, and one whose tool
does no operation twice happened exactly once where it is called done.
"""

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

from storm_lives import check_context, settings
from storm_script import Script

from foldline.processors.log import Log
from foldline.processors.open_log import open_log
from foldline.processors.verify import verify
from foldline.projections.building import build
from foldline.projections.context import Sources
from foldline.schemas.events import (
    SteeringApplied,
    ToolCallRequested,
    ToolExecutionCompleted,
    ToolExecutionStarted,
    ToolOutcomeResolved,
)
from foldline.schemas.recorded import Recorded
from foldline.schemas.state import ENDED, SUSPENDED, WAITING_APPROVAL, SessionState

UNSAFE = frozenset({"unsafe", "approved"})
RECONCILABLE = frozenset({"deduplicated", "asked"})


@dataclass(slots=True)
class Outcome:
    """What became of one seed, counted."""

    sessions: int = 0
    kills: int = 0
    freezes: int = 0
    types: dict[str, int] = field(default_factory=dict[str, int])
    acknowledged: int = 0
    acknowledged_lost: int = 0
    unsafe_twice: int = 0
    reconcilable_twice: int = 0
    parked: int = 0
    completed: int = 0
    problems: list[str] = field(default_factory=list[str])

    def write(self, path: Path) -> None:
        """Leave it for the process that counts."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> "Outcome":
        """What another process left."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))

    def add(self, other: "Outcome") -> None:
        """Count another seed's too."""
        self.sessions += other.sessions
        self.kills += other.kills
        self.freezes += other.freezes
        self.types = dict(Counter(self.types) + Counter(other.types))
        self.acknowledged += other.acknowledged
        self.acknowledged_lost += other.acknowledged_lost
        self.unsafe_twice += other.unsafe_twice
        self.reconcilable_twice += other.reconcilable_twice
        self.parked += other.parked
        self.completed += other.completed

    def expect(self, what: str, *, holds: bool) -> None:
        """Note what does not hold."""
        if not holds:
            self.problems.append(what)


def check(url: str, script: Script, outcome: Outcome) -> None:
    """Look at every session of a seed, and count."""
    log = open_log(url, settings=settings())
    try:
        for session_id in script.sessions:
            _check_session(log, script, session_id, outcome)
        _check_acknowledged(log, script, outcome)
        _check_twice(script, outcome)
        report = verify(log, script.sessions)
        outcome.expect(f"verify: {report}", holds=report.ok)
    finally:
        log.close()


def _check_session(log: Log, script: Script, session_id: str, outcome: Outcome) -> None:
    state = log.state(session_id)
    if state is None:
        outcome.problems.append(f"{session_id} was never made")
        return
    events = list(log.events(session_id))
    outcome.sessions += 1
    types = Counter(recorded.type for recorded in events)
    types[f"{ToolExecutionStarted.__name__} of another attempt"] = sum(
        isinstance(r.event, ToolExecutionStarted) and r.event.attempt > 1 for r in events
    )
    outcome.types = dict(types + Counter(outcome.types))
    _check_end(state, outcome)
    seqs = [recorded.seq for recorded in events]
    dense = seqs == list(range(1, len(events) + 1)) and state.seq == len(events)
    outcome.expect(f"{session_id}: seq is not dense", holds=dense)
    ids = Counter(recorded.envelope.event_id for recorded in events)
    outcome.expect(f"{session_id}: an event twice", holds=set(ids.values()) == {1})
    applied = Counter(
        recorded.event.steering_event_id
        for recorded in events
        if isinstance(recorded.event, SteeringApplied)
    )
    once = set(applied.values()) <= {1}
    outcome.expect(f"{session_id}: steering applied twice", holds=once)
    check_context(build(Sources(events)))
    _check_done(script, session_id, events, outcome)


def _check_end(state: SessionState, outcome: Outcome) -> None:
    asks = bool(state.requests) and state.status in (SUSPENDED, WAITING_APPROVAL)
    outcome.completed += state.status in ENDED
    outcome.parked += asks
    ended = state.status in ENDED or asks
    outcome.expect(f"{state.session_id} is left {state.status}", holds=ended)


def _check_acknowledged(log: Log, script: Script, outcome: Outcome) -> None:
    """Every event that the log acknowledged, to whomever, is in it."""
    there = {name: set(log.event_ids(name)) for name in script.sessions}
    for line in script.lines("acknowledged"):
        session_id, event_id, kind = line
        outcome.acknowledged += 1
        if event_id not in there[session_id]:
            outcome.acknowledged_lost += 1
            outcome.problems.append(f"{session_id}: {kind} {event_id} is lost")


def _check_twice(script: Script, outcome: Outcome) -> None:
    """Calls are told apart by their number in the script, not by operation_id."""
    times = Counter((e.session_id, e.tool, e.number) for e in script.effects())
    for (session_id, tool, number), count in times.items():
        if count == 1 or tool not in UNSAFE | RECONCILABLE:
            continue
        outcome.unsafe_twice += tool in UNSAFE
        outcome.reconcilable_twice += tool in RECONCILABLE
        outcome.problems.append(f"{session_id}: {tool} {number} happened {count} times")


def _check_done(
    script: Script, session_id: str, events: list[Recorded], outcome: Outcome
) -> None:
    """What is called done was done; each call keeps its operation_id."""
    tools = {
        recorded.event.call_id: recorded.event.tool
        for recorded in events
        if isinstance(recorded.event, ToolCallRequested)
    }
    started: dict[str, set[str]] = {}
    done: set[str] = set()
    for recorded in events:
        match recorded.event:
            case ToolExecutionStarted(call_id=call_id, operation_id=operation_id):
                started.setdefault(call_id, set()).add(operation_id)
            case ToolExecutionCompleted(call_id=call_id):
                done.add(call_id)
            case ToolOutcomeResolved(call_id=call_id, outcome="COMPLETED"):
                done.add(call_id)
            case _:
                pass
    happened = {effect.operation_id for effect in script.effects()}
    for call_id, operations in started.items():
        name = f"{session_id}: {tools.get(call_id)} {call_id}"
        outcome.expect(f"{name} has {operations}", holds=len(operations) == 1)
        is_true = call_id not in done or operations <= happened
        outcome.expect(f"{name} is called done and is not", holds=is_true)
