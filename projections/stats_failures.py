"""At which layer something failed, and what. Pure.

MODEL           a model's call failed, or it asked for what makes no sense
TOOL            a tool failed, or ended with an exit code other than 0
PERMISSION      somebody or a policy said no, or nobody answered
HARNESS         what runs the agent failed
INFRASTRUCTURE  what it runs on: time-outs, lost owners, unknown outcomes
POLICY          a rule was broken, or the agent went round in a circle
PERSON          somebody stopped it
"""

from typing import NamedTuple

from foldline.projections.calls import INTERRUPT_POLICY
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
    ToolCallValidated,
    ToolExecutionCancelled,
    ToolExecutionCompleted,
    ToolExecutionFailed,
    ToolExecutionTimedOut,
    ToolOutcomeUnknown,
    TurnEnded,
)

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


def failure_of(event: AnyEvent, *, in_turn: bool) -> Failure | None:
    """The failure that an event tells of; None for most events.

    Args:
        event: the event.
        in_turn: whether a turn was open before it.
    """
    found = _of_call(event) or _of_permission(event) or _of_session(event, in_turn=in_turn)
    if found is None:
        return None
    return Failure(found.layer, " ".join(found.kind.split())[:KIND_MAX_CHARS])


def _of_call(event: AnyEvent) -> Failure | None:
    match event:
        case ModelCallFailed(error_type=error_type):
            return Failure(MODEL, error_type)
        case ModelCallCancelled():
            return Failure(PERSON, "model call cancelled")
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
        case ToolExecutionCancelled():
            return Failure(PERSON, "tool cancelled")
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
        case CancellationRequested(target=target):
            return Failure(PERSON, f"{target.lower()} to be stopped")
        case _:
            return None
