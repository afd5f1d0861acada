"""What a state keeps of an event is bounded: long texts are cut and told apart by hash.

A session's writer chooses ids, names and reasons; a foreign source may choose them
badly. Fold and admission look at an event through `bounded`, so that both see the same
short text and a state stays small. The recorded event keeps every byte.

A lone surrogate, which no log can store, is seen as the U+FFFD that is stored for it;
times and sums that do not fit into 64 bits stop at the largest number that does. Pure.
"""

import hashlib
from typing import Any, TypeVar

from foldline.schemas.blocks import clean_text
from foldline.schemas.envelope import Envelope
from foldline.schemas.events import EVENT_TYPES, AnyEvent, UnknownEvent

MAX_KEPT_CHARS = 512
"""How long a text may be that a state keeps; a longer one is cut, its hash appended."""

KEPT_PREFIX_CHARS = 440

INT64_MAX = 2**63 - 1

KEPT: dict[str, tuple[str, ...]] = {
    "SteeringReceived": ("mode",),
    "SteeringApplied": ("steering_event_id",),
    "SteeringExpired": ("steering_event_id",),
    "ConstraintSet": ("constraint_id",),
    "ConstraintLifted": ("constraint_id",),
    "TurnStarted": ("trigger",),
    "ModelCallStarted": ("model_call_id", "purpose", "provider", "model"),
    "ModelCallCompleted": ("model_call_id",),
    "ModelCallFailed": ("model_call_id",),
    "ModelCallCancelled": ("model_call_id",),
    "UsageCorrected": ("model_call_id",),
    "InstructionsSet": ("role",),
    "ToolCallRequested": (
        "call_id",
        "provider_call_id",
        "namespace",
        "tool",
        "args_hash",
    ),
    "ToolCallValidated": ("call_id",),
    "ToolExecutionStarted": ("call_id", "effect", "operation_id"),
    "ToolExecutionCompleted": ("call_id",),
    "ToolExecutionFailed": ("call_id", "executed"),
    "ToolExecutionCancelled": ("call_id",),
    "ToolExecutionTimedOut": ("call_id",),
    "ToolBackgrounded": ("call_id", "handle"),
    "BackgroundEnded": ("handle",),
    "ToolOutcomeUnknown": ("call_id",),
    "ToolOutcomeResolved": ("call_id",),
    "PermissionRequested": ("request_id", "kind", "call_id", "args_hash"),
    "PermissionGranted": (
        "request_id",
        "call_id",
        "args_hash",
        "scope",
        "grant_id",
        "edited_args_hash",
    ),
    "PermissionDenied": ("request_id", "call_id"),
    "PermissionExpired": ("request_id",),
    "InputRequested": ("request_id", "call_id"),
    "InputProvided": ("request_id",),
    "CompactionStarted": ("compaction_id",),
    "CompactionCompleted": ("compaction_id",),
    "CompactionFailed": ("compaction_id",),
    "SessionCreated": (
        "agent",
        "mode",
        "relation",
        "parent_session_id",
        "parent_call_id",
    ),
    "SessionSuspended": ("reason",),
    "SessionCompleted": ("outcome",),
    "SessionFailed": ("error_type",),
    "SessionCancelled": ("reason",),
    "SubagentStarted": ("child_session_id", "call_id"),
    "SubagentEnded": ("child_session_id",),
    "HandedOff": ("to_agent",),
    "RetryScheduled": ("target",),
    "CancellationRequested": ("target", "target_id", "reason"),
    "HarnessStateSet": ("state_namespace", "key"),
}
"""The texts of each event type that a state keeps, or looks something up by."""

_KEPT_OF = {cls: KEPT.get(name, ()) for name, cls in EVENT_TYPES.items()}

Known = TypeVar("Known", bound=AnyEvent)


def bounded(event: Known) -> Known:
    """The event as a state sees it: nearly always the event itself."""
    names = _KEPT_OF.get(type(event))  # pyright: ignore[reportArgumentType]
    if names:
        fields = event.__dict__
        for name in names:
            text = fields[name]
            if text and (len(text) > MAX_KEPT_CHARS or not text.isascii()):
                return _bounded(event, names)
    return event


def _bounded(event: Known, names: tuple[str, ...]) -> Known:
    if isinstance(event, UnknownEvent):
        return event
    fields: dict[str, Any] = dict(event.__dict__)
    for name in names:
        if fields[name]:
            fields[name] = short(fields[name])
    return type(event).trusted(fields)


def short(text: str) -> str:
    """A text as a state keeps it: valid UTF-8 of at most MAX_KEPT_CHARS characters."""
    if not text.isascii():
        text = clean_text(text)[0]
    if len(text) <= MAX_KEPT_CHARS:
        return text
    return f"{text[:KEPT_PREFIX_CHARS]}~{hashlib.sha256(text.encode()).hexdigest()}"


def harness_key(namespace: str, key: str) -> str:
    """One text for a namespace and a key in it, never the same for two pairs."""
    return f"{namespace.replace('~', '~0').replace('/', '~1')}/{key}"


def log_time_after(envelope: Envelope, after_ms: int | None) -> int:
    """A time that was given as milliseconds after the event's own recorded_at."""
    return 0 if after_ms is None else fit(envelope.recorded_at + after_ms * 1000)


def fit(number: int) -> int:
    """The nearest number of 64 bits."""
    return max(-INT64_MAX, min(number, INT64_MAX))


def attempt_bit(attempt: int) -> int:
    """The bit of an attempt in a bit set of 62; what cannot be an attempt shares one.

    Admission keeps the attempts of owned sessions from 1 to LIMITS["attempts"].
    """
    return 1 << (attempt if 0 <= attempt < LAST_ATTEMPT_BIT else LAST_ATTEMPT_BIT)


LAST_ATTEMPT_BIT = 61
