"""At which layer something failed, and what. Pure.

MODEL           a model's call failed, or it asked for what makes no sense
TOOL            a tool failed, or ended with an exit code other than 0
PERMISSION      somebody or a policy said no, or nobody answered
HARNESS         what runs the agent failed
INFRASTRUCTURE  what it runs on: time-outs, lost owners, unknown outcomes
POLICY          a rule was broken, the agent went round in a circle, or a service stopped it
PERSON          somebody else stopped it
"""

from typing import NamedTuple

from foldline.projections.calls import INTERRUPT_POLICY
from foldline.schemas.envelope import Actor
from foldline.schemas.events import (
    AnyEvent,
    CancellationRequested,
    CompactionFailed,
    LoopDetected,
    ModelCallCancelled,
    ModelCallFailed,
    PermissionDenied,
    PermissionExpired,
    PolicyViolation,
    SessionFailed,
    SessionResumed,
    SteeringReceived,
    ToolCallValidated,
    ToolExecutionCancelled,
    ToolExecutionCompleted,
    ToolExecutionFailed,
    ToolExecutionTimedOut,
    ToolOutcomeUnknown,
    TurnEnded,
    TurnStarted,
)
from foldline.schemas.recorded import Recorded
from foldline.schemas.state import SessionState

MODEL = "MODEL"
TOOL = "TOOL"
PERMISSION = "PERMISSION"
HARNESS = "HARNESS"
INFRASTRUCTURE = "INFRASTRUCTURE"
POLICY = "POLICY"
PERSON = "PERSON"

LAYERS = (MODEL, TOOL, PERMISSION, HARNESS, INFRASTRUCTURE, POLICY, PERSON)

KIND_MAX_CHARS = 60
"""How much of an error's name is told."""

_SERVICES = frozenset({"POLICY", "SERVICE"})

_LAYER_OF_TOOL = {
    "TOOL": TOOL,
    "MODEL": MODEL,
    "HARNESS": HARNESS,
    "ENVIRONMENT": INFRASTRUCTURE,
}


class Failure(NamedTuple):
    """What failed, and at which layer."""

    layer: str
    kind: str


def is_service(actor: Actor) -> bool:
    """Whether a policy or another service speaks, and no person or agent."""
    return actor.kind in _SERVICES


class Failures:
    """Tells the failures of one session, by its events in order."""

    def __init__(self) -> None:
        self._stopper = PERSON
        """The layer of whoever asked last in this turn that something stops."""

    def take(self, recorded: Recorded, before: SessionState) -> Failure | None:
        """The failure that an event tells of; None for most events.

        Args:
            recorded: the event.
            before: the session's state before it.
        """
        event = recorded.event
        self._heed(recorded)
        found = (
            _of_call(event)
            or _of_permission(event)
            or _of_session(event, in_turn=before.turn is not None)
            or self._of_stop(event, before)
        )
        if found is None:
            return None
        return Failure(found.layer, " ".join(found.kind.split())[:KIND_MAX_CHARS])

    def _heed(self, recorded: Recorded) -> None:
        match recorded.event:
            case TurnStarted():
                self._stopper = PERSON
            case CancellationRequested() | SteeringReceived(mode="INTERRUPT"):
                service = is_service(recorded.envelope.actor)
                self._stopper = POLICY if service else PERSON
            case _:
                pass

    def _of_stop(self, event: AnyEvent, before: SessionState) -> Failure | None:
        match event:
            case CancellationRequested(target=target):
                return Failure(self._stopper, f"{target.lower()} to be stopped")
            case ModelCallCancelled(model_call_id=name):
                left = _is_left(before, name)
                layer = INFRASTRUCTURE if left else self._stopper
                return Failure(layer, "model call cancelled")
            case ToolExecutionCancelled():
                return Failure(self._stopper, "tool cancelled")
            case _:
                return None


def _is_left(state: SessionState, model_call_id: str) -> bool:
    """Whether a model call is that of an owner who was lost: nobody heard its answer."""
    call = state.model_calls.get(model_call_id)
    return call is not None and call.epoch < state.epoch


def _of_call(event: AnyEvent) -> Failure | None:
    match event:
        case ModelCallFailed(error_type=error_type):
            return Failure(MODEL, error_type)
        case ToolCallValidated(valid=False):
            return Failure(MODEL, "invalid arguments")
        case ToolExecutionCompleted(exit_code=exit_code) if exit_code:
            return Failure(TOOL, "exit code other than 0")
        case ToolExecutionFailed(layer=layer, error_type=error_type):
            return Failure(_LAYER_OF_TOOL.get(layer, TOOL), error_type or "failed")
        case ToolExecutionTimedOut():
            return Failure(INFRASTRUCTURE, "tool timed out")
        case ToolOutcomeUnknown():
            return Failure(INFRASTRUCTURE, "outcome unknown")
        case _:
            return None


def _of_permission(event: AnyEvent) -> Failure | None:
    match event:
        case PermissionDenied(policy=policy) if policy == INTERRUPT_POLICY:
            return Failure(PERSON, "interrupted before it began")
        case PermissionDenied(decided_by=decided_by):
            return Failure(PERMISSION, f"denied by {decided_by.lower()}")
        case PermissionExpired():
            return Failure(PERMISSION, "nobody answered")
        case PolicyViolation(rule=rule):
            return Failure(POLICY, f"rule {rule}")
        case LoopDetected(kind=kind):
            return Failure(POLICY, f"loop {kind}")
        case _:
            return None


def _of_session(event: AnyEvent, *, in_turn: bool) -> Failure | None:
    match event:
        case SessionFailed(error_type=error_type):
            return Failure(HARNESS, error_type or "session failed")
        case CompactionFailed():
            return Failure(HARNESS, "compaction failed")
        case TurnEnded(outcome="LIMIT"):
            return Failure(POLICY, "limit of a turn")
        case SessionResumed() if in_turn:
            return Failure(INFRASTRUCTURE, "owner lost in a turn")
        case _:
            return None
