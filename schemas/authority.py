"""Who may append what: the class of every event type, in one table.

- **decision**: only the owner, writer and epoch both the current ones;
- **fact**: how something ended: the owner, also a fenced one for what it had started;
- **claim**: makes its writer the owner, with the next epoch;
- **external**: anyone whose authenticated role allows it.

A permission's answer is a decision when a policy or an earlier grant gave it, and
external when a person did.
"""

from typing import Literal

from foldline.schemas.events import (
    EVENT_TYPES,
    AnyEvent,
    PermissionDenied,
    PermissionGranted,
)

Authority = Literal["decision", "fact", "claim", "external"]

AUTHORITY: dict[str, Authority] = {
    "UserMessage": "external",
    "AssistantMessage": "decision",
    "SystemObservation": "decision",
    "UserFeedback": "external",
    "MessageRetracted": "external",
    "HistoryRewound": "decision",
    "ContextCleared": "decision",
    "SteeringReceived": "external",
    "SteeringApplied": "decision",
    "SteeringExpired": "decision",
    "GoalSet": "external",
    "PlanUpdated": "decision",
    "ConstraintSet": "external",
    "ConstraintLifted": "external",
    "BudgetSet": "external",
    "TurnStarted": "decision",
    "TurnEnded": "decision",
    "ModelCallStarted": "decision",
    "ModelCallCompleted": "fact",
    "ModelCallFailed": "fact",
    "ModelCallCancelled": "fact",
    "UsageCorrected": "fact",
    "InstructionsSet": "decision",
    "ToolsDeclared": "decision",
    "ConfigChanged": "decision",
    "LabelsSet": "external",
    "ToolCallRequested": "decision",
    "ToolCallValidated": "decision",
    "ToolExecutionStarted": "decision",
    "ToolExecutionCompleted": "fact",
    "ToolExecutionFailed": "fact",
    "ToolExecutionCancelled": "fact",
    "ToolExecutionTimedOut": "fact",
    "ToolBackgrounded": "fact",
    "BackgroundEnded": "fact",
    "ToolOutcomeUnknown": "external",
    "ToolOutcomeResolved": "external",
    "ToolResultProjected": "decision",
    "PermissionRequested": "decision",
    "PermissionGranted": "external",
    "PermissionDenied": "external",
    "PermissionExpired": "decision",
    "InputRequested": "decision",
    "InputProvided": "external",
    "CompactionStarted": "decision",
    "CompactionCompleted": "decision",
    "CompactionFailed": "decision",
    "ContextPruned": "decision",
    "SummaryCreated": "decision",
    "SessionCreated": "external",
    "SessionSuspended": "decision",
    "SessionResumed": "claim",
    "CheckpointCreated": "decision",
    "SessionCompleted": "decision",
    "SessionFailed": "decision",
    "SessionCancelled": "decision",
    "SessionReopened": "claim",
    "SubagentStarted": "decision",
    "SubagentEnded": "decision",
    "HandedOff": "decision",
    "RetryScheduled": "decision",
    "CancellationRequested": "external",
    "LoopDetected": "external",
    "PolicyViolation": "external",
    "HookRan": "decision",
    "HarnessStateSet": "decision",
    "RedactionApplied": "external",
    "ForeignRecord": "external",
}

CLAIMS: frozenset[type] = frozenset(
    EVENT_TYPES[name] for name, authority in AUTHORITY.items() if authority == "claim"
)
"""The types that are claims."""

TAKEN_WHEN_ENDED: frozenset[str] = frozenset(
    {
        "ToolExecutionCompleted",
        "ToolExecutionFailed",
        "ToolExecutionCancelled",
        "ToolExecutionTimedOut",
        "ToolBackgrounded",
        "ModelCallCompleted",
        "ModelCallFailed",
        "ModelCallCancelled",
        "BackgroundEnded",
        "UsageCorrected",
        "ToolOutcomeResolved",
        "UserFeedback",
        "LabelsSet",
        "RedactionApplied",
        "LoopDetected",
        "PolicyViolation",
        "SessionReopened",
    }
)
"""Types that are taken even when the session has ended (facts of what is open)."""


def authority_of(event: AnyEvent) -> Authority:
    """The class of an event; what is unknown is the owner's alone."""
    authority = AUTHORITY.get(type(event).__name__, "decision")
    if type(event) is PermissionGranted or type(event) is PermissionDenied:
        return "external" if event.decided_by == "PERSON" else "decision"
    return authority
