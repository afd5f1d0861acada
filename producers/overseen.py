"""What a runner of policies did in one look, in words that can be shown."""

from dataclasses import dataclass, field
from typing import Protocol

from foldline.errors import FoldlineError
from foldline.projections.oversight import Finding, Wanted
from foldline.schemas.events import CancellationRequested, PolicyViolation, type_of
from foldline.schemas.state import MIRRORED, SessionState

RECORDED = "RECORDED"
TOO_LATE = "TOO_LATE"
REFUSED = "REFUSED"


@dataclass(frozen=True, slots=True)
class Done:
    """What became of one thing that a rule wanted: RECORDED, TOO_LATE or REFUSED."""

    session_id: str
    rule: str
    seq: int
    event_type: str
    event_id: str
    result: str
    said: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class NotJudged:
    """A session that is not judged, and why; `rule` where it is by that rule only."""

    session_id: str
    why: str
    rule: str = ""


@dataclass(slots=True)
class Look:
    """What one look at all sessions did."""

    sessions: int = 0
    done: list[Done] = field(default_factory=list[Done])
    failed: list[NotJudged] = field(default_factory=list[NotJudged])


class Told(Protocol):
    """Who hears what each look did, and of what kept it from its end and may pass."""

    def __call__(self, look: Look, trouble: FoldlineError | None, /) -> object:
        """Hear of one look."""
        ...


def too_late(state: SessionState, finding: Finding, wanted: Wanted) -> str:
    """Why nobody would heed this any more, by the state of now; empty where one would."""
    event = wanted.event
    if isinstance(event, PolicyViolation):
        return ""
    if state.mode == MIRRORED:
        return "another harness runs the session"
    if state.ended:
        return "the session has ended"
    if not isinstance(event, CancellationRequested):
        return ""
    turn = state.turn
    if event.target == "TURN" and (turn is None or turn.seq > finding.seq):
        return "the turn has ended"
    if event.target == "CALL" and event.target_id not in state.calls:
        return "the call has ended"
    return ""


def done_of(finding: Finding, wanted: Wanted, result: str, detail: str = "") -> Done:
    """What became of one thing that a rule wanted."""
    return Done(
        session_id=finding.session_id,
        rule=finding.rule,
        seq=finding.seq,
        event_type=type_of(wanted.event),
        event_id=wanted.event_id,
        result=result,
        said=finding.said,
        detail=detail,
    )
