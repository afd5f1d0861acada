"""What an execution replay gives a harness, and where the harness leaves the record. Pure.

    kind_of(event)            what a recorded value is to a replay
    request_difference(...)   the first difference of two requests to a model, and its cause
    answer_difference(...)    the same of two answers
    tools_difference(...)     the same of two sets of tools
    environment_difference(...)  the same of where the harness ran, and runs

A harness is a function of what it is given. So a replay gives it what was recorded, and
compares what it makes of that: each request to the model, each answer that it records,
each turn's end. What differs first is the cause; all that follows is a consequence.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from foldline.projections.context import Context, Message, Part
from foldline.projections.recorded_steps import RecordedCall
from foldline.projections.recording import Environment, Recording
from foldline.schemas.blocks import Blob, Block, Blocks, Body
from foldline.schemas.events import AnyEvent, ToolCallRequested, ToolDeclaration, type_of

# --- what a recorded value is --------------------------------------------------------

INPUT = "replayable input"
"""Somebody outside said it; it is said again, in its place."""

OBSERVATION = "recorded observation"
"""A model or a tool gave it; nobody is asked again."""

EXTERNAL = "external nondeterminism"
"""It came from a process, a clock or a network that a replay does not have."""

DECISION = "decision"
"""The harness made it; it makes it again, and is compared."""

KINDS: dict[str, str] = {
    "UserMessage": INPUT,
    "AssistantMessage": OBSERVATION,
    "SystemObservation": EXTERNAL,
    "UserFeedback": INPUT,
    "MessageRetracted": INPUT,
    "HistoryRewound": DECISION,
    "ContextCleared": DECISION,
    "SteeringReceived": INPUT,
    "SteeringApplied": DECISION,
    "SteeringExpired": DECISION,
    "GoalSet": INPUT,
    "PlanUpdated": DECISION,
    "ConstraintSet": INPUT,
    "ConstraintLifted": INPUT,
    "BudgetSet": INPUT,
    "TurnStarted": DECISION,
    "TurnEnded": DECISION,
    "ModelCallStarted": DECISION,
    "ModelCallCompleted": OBSERVATION,
    "ModelCallFailed": OBSERVATION,
    "ModelCallCancelled": EXTERNAL,
    "UsageCorrected": OBSERVATION,
    "InstructionsSet": DECISION,
    "ToolsDeclared": DECISION,
    "ConfigChanged": DECISION,
    "LabelsSet": INPUT,
    "ToolCallRequested": OBSERVATION,
    "ToolCallValidated": OBSERVATION,
    "ToolExecutionStarted": OBSERVATION,
    "ToolExecutionCompleted": OBSERVATION,
    "ToolExecutionFailed": OBSERVATION,
    "ToolExecutionCancelled": OBSERVATION,
    "ToolExecutionTimedOut": OBSERVATION,
    "ToolBackgrounded": OBSERVATION,
    "BackgroundEnded": OBSERVATION,
    "ToolOutcomeUnknown": OBSERVATION,
    "ToolOutcomeResolved": OBSERVATION,
    "ToolResultProjected": DECISION,
    "PermissionRequested": OBSERVATION,
    "PermissionGranted": INPUT,
    "PermissionDenied": INPUT,
    "PermissionExpired": OBSERVATION,
    "InputRequested": DECISION,
    "InputProvided": INPUT,
    "CompactionStarted": DECISION,
    "CompactionCompleted": DECISION,
    "CompactionFailed": DECISION,
    "ContextPruned": DECISION,
    "SummaryCreated": DECISION,
    "SessionCreated": EXTERNAL,
    "SessionSuspended": EXTERNAL,
    "SessionResumed": EXTERNAL,
    "CheckpointCreated": DECISION,
    "SessionCompleted": DECISION,
    "SessionFailed": DECISION,
    "SessionCancelled": DECISION,
    "SessionReopened": EXTERNAL,
    "SubagentStarted": OBSERVATION,
    "SubagentEnded": OBSERVATION,
    "HandedOff": DECISION,
    "RetryScheduled": EXTERNAL,
    "CancellationRequested": INPUT,
    "LoopDetected": EXTERNAL,
    "PolicyViolation": EXTERNAL,
    "HookRan": EXTERNAL,
    "HarnessStateSet": DECISION,
    "RedactionApplied": EXTERNAL,
    "ForeignRecord": EXTERNAL,
}


def kind_of(event: AnyEvent) -> str:
    """What a recorded event is to a replay; of what is unknown nobody can say more."""
    return KINDS.get(type_of(event), EXTERNAL)


# --- where a harness leaves the record -----------------------------------------------

MODEL = "model"
PROMPT = "prompt"
TOOL_SCHEMA = "tool schema"
TOOL_SET = "tool set"
ENVIRONMENT = "environment"
OUTSIDE = "external"
HARNESS = "harness"

CAUSES = (MODEL, PROMPT, TOOL_SCHEMA, TOOL_SET, ENVIRONMENT, OUTSIDE, HARNESS)
"""Why a replay leaves its record; `harness` is what none of the others explains."""

SHOWN_CHARS = 200
"""How much of a text a divergence shows, from a little before the first difference."""

SHOWN_BEFORE_CHARS = 40


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first difference; `seq` is the recorded event that it is about."""

    seq: int
    cause: str
    detail: str
    recorded: str = ""
    replayed: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """What a harness asks a model. `context` is None where it did not say."""

    provider: str
    model: str
    purpose: str
    context: Context | None


def request_difference(
    recording: Recording, call: RecordedCall, made: Request
) -> Divergence | None:
    """The first difference of a request from the one that was recorded."""
    started = call.started
    for name in ("provider", "model", "purpose"):
        old, new = getattr(started, name), getattr(made, name)
        if old != new:
            cause = HARNESS if name == "purpose" else MODEL
            return Divergence(call.seq, cause, f"another {name}", old, new)
    if made.context is None:
        return None
    shown = recording.context_of(call)
    return tools_difference(call.seq, shown.tools, made.context.tools) or (
        _messages_difference(recording, call, shown.messages, made.context.messages)
    )


def tools_difference(
    seq: int, recorded: Sequence[ToolDeclaration], made: Sequence[ToolDeclaration]
) -> Divergence | None:
    """The first difference of two sets of tools: which there are, then what they say."""
    old, new = {t.name: t for t in recorded}, {t.name: t for t in made}
    if old.keys() != new.keys():
        gone, come = sorted(old.keys() - new.keys()), sorted(new.keys() - old.keys())
        words = [f"without {name}" for name in gone] + [f"with {name}" for name in come]
        return Divergence(
            seq, TOOL_SET, ", ".join(words), ", ".join(sorted(old)), ", ".join(sorted(new))
        )
    for name, tool in old.items():
        for part in ToolDeclaration.model_fields:
            before, after = getattr(tool, part), getattr(new[name], part)
            if not _same_body(before, after):
                return _differing(
                    seq, TOOL_SCHEMA, f"{part} of {name}", str(before), str(after)
                )
    return None


def environment_difference(recorded: Environment, made_json: str) -> Divergence | None:
    """The difference of two environments: by field, where both are JSON objects."""
    old, new = _parsed(recorded.said_json), _parsed(made_json)
    if old == new:
        return None
    if not isinstance(old, dict) or not isinstance(new, dict):
        detail = "another environment"
        return _differing(recorded.seq, ENVIRONMENT, detail, recorded.said_json, made_json)
    before, after = cast("dict[str, Any]", old), cast("dict[str, Any]", new)
    absent = object()
    names = [
        name
        for name in sorted(before.keys() | after.keys())
        if before.get(name, absent) != after.get(name, absent)
    ]
    return Divergence(
        recorded.seq,
        ENVIRONMENT,
        f"another environment: {', '.join(names)}",
        _shown_of(before, names),
        _shown_of(after, names),
    )


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _shown_of(environment: Mapping[str, Any], names: Sequence[str]) -> str:
    said = {name: environment[name] for name in names if name in environment}
    return json.dumps(said, ensure_ascii=False)[:SHOWN_CHARS]


def _same_body(one: object, other: object) -> bool:
    """Whether two values are the same, also where one of them lies in a blob store."""
    return one == other or _digest(one) == _digest(other) is not None


def _digest(body: object) -> bytes | None:
    if isinstance(body, Blob):
        return body.sha256
    return hashlib.sha256(body.encode()).digest() if isinstance(body, str) else None


def _messages_difference(
    recording: Recording,
    call: RecordedCall,
    recorded: Sequence[Message],
    made: Sequence[Message],
) -> Divergence | None:
    for position, (old, new) in enumerate(zip(recorded, made, strict=False)):
        if (old.role, old.parts) != (new.role, new.parts):
            cause = _cause_of(recording, old)
            where = f"message {position + 1} to the model ({old.role})"
            return _differing(call.seq, cause, where, _words(old), _words(new))
    if len(recorded) == len(made):
        return None
    fewer = len(made) < len(recorded)
    extra = (recorded if fewer else made)[min(len(recorded), len(made))]
    said = _words(extra)[:SHOWN_CHARS]
    cause = _cause_of(recording, extra)
    word = "missing" if fewer else "new"
    detail = f"a {word} message to the model ({extra.role})"
    return Divergence(call.seq, cause, detail, said if fewer else "", "" if fewer else said)


def _cause_of(recording: Recording, message: Message) -> str:
    match message.role:
        case "assistant":
            return MODEL
        case "tool":
            return HARNESS  # results are given; it did not run the call, or shows another
        case _:
            types = {recording.type_of(event_id) for event_id in message.event_ids}
            return OUTSIDE if types == {"SystemObservation"} else PROMPT


def _differing(seq: int, cause: str, where: str, old: str, new: str) -> Divergence:
    """A divergence that shows two texts from where they begin to differ."""
    same = next(
        (i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b),
        min(len(old), len(new)),
    )
    first = max(same - SHOWN_BEFORE_CHARS, 0)
    last = first + SHOWN_CHARS
    return Divergence(seq, cause, where, old[first:last], new[first:last])


def _words(message: Message) -> str:
    return "\n".join(_part_words(part) for part in message.parts)


def _part_words(part: Part) -> str:
    match part.kind:
        case "call":
            return f"{part.tool}({part.text})"
        case "result":
            said = "\n".join(_part_words(inner) for inner in part.parts)
            return f"{part.tool}: {said}"
        case _:
            return part.text or (part.blob.sha256.hex() if part.blob else "")


# --- answers -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AskedFor:
    """A tool that an answer asks for; `args_hash` tells two sets of arguments apart."""

    tool: str
    args_hash: str
    text: str


AnswerPart = Block | AskedFor


def answer_of(
    blocks: Blocks, requests: Mapping[str, ToolCallRequested]
) -> list[AnswerPart]:
    """What a model answered, in its order: blocks, and requests by their call_id."""
    parts: list[AnswerPart] = []
    for block in blocks:
        request = requests.get(block.call_id or "")
        if request is None or block.kind != "tool_call":
            parts.append(block)
        else:
            said = "".join(_preview(block.body) for block in request.arguments)
            parts.append(AskedFor(request.tool, request.args_hash, said))
    return parts


def _preview(body: Body) -> str:
    if isinstance(body, str):
        return body
    return (body.preview or "") if isinstance(body, Blob) else "[sealed]"


def answer_difference(call: RecordedCall, made: Sequence[AnswerPart]) -> Divergence | None:
    """The first difference of an answer from the one that was recorded."""
    recorded = answer_of(call.blocks, call.requests)
    for old, new in zip(recorded, made, strict=False):
        if not _same_part(old, new):
            where = "another answer of the model"
            return _differing(
                call.seq, MODEL, where, _answer_words(old), _answer_words(new)
            )
    if len(recorded) == len(made):
        return None
    fewer = len(made) < len(recorded)
    extra = _answer_words((recorded if fewer else made)[min(len(recorded), len(made))])
    detail = "a shorter answer of the model" if fewer else "a longer answer of the model"
    said = extra[:SHOWN_CHARS]
    return Divergence(call.seq, MODEL, detail, said if fewer else "", "" if fewer else said)


def _same_part(old: AnswerPart, new: AnswerPart) -> bool:
    if isinstance(old, AskedFor) and isinstance(new, AskedFor):
        return (old.tool, old.args_hash) == (new.tool, new.args_hash)
    if isinstance(old, Block) and isinstance(new, Block):
        same = _same_body(old.body, new.body) and _same_body(old.opaque, new.opaque)
        return same and (old.kind, old.signature) == (new.kind, new.signature)
    return False


def _answer_words(part: AnswerPart) -> str:
    if isinstance(part, AskedFor):
        return f"{part.tool}({part.text})"
    return _preview(part.body) or f"[{part.kind}]"
