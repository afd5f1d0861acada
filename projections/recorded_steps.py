"""The steps in a session's events: model calls and their answers, and turns. Pure.

calls_in(events)       the model calls that a harness makes again, with their answers
turns_of(events)       the turns, and what opened each
about_calls(events)    the tool call that each event is about
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from foldline.schemas.blocks import Blocks
from foldline.schemas.events import (
    AssistantMessage,
    BackgroundEnded,
    CompactionCompleted,
    CompactionFailed,
    CompactionStarted,
    InputProvided,
    InputRequested,
    ModelCallCompleted,
    ModelCallFailed,
    ModelCallStarted,
    PermissionExpired,
    PermissionRequested,
    RequestRef,
    SubagentEnded,
    SubagentStarted,
    ToolBackgrounded,
    ToolCallRequested,
    TurnEnded,
    TurnStarted,
    UserMessage,
)
from foldline.schemas.recorded import Recorded

COMPACTION = "COMPACTION"
"""The purpose of a model call that makes a summary."""

SHAPING = "shaping:"
"""What the id of a compaction begins with that foldline makes by itself."""


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A model call that was answered, or failed.

    `upto_seq` is where its context ends, `end_seq` the last event of its answer.
    """

    seq: int
    started: ModelCallStarted
    upto_seq: int
    end_seq: int
    failed: ModelCallFailed | None = None
    completed: ModelCallCompleted | None = None
    blocks: Blocks = ()
    requests: Mapping[str, ToolCallRequested] = field(
        default_factory=dict[str, ToolCallRequested]
    )


@dataclass(frozen=True, slots=True)
class RecordedTurn:
    """A turn and what opened it; `end_seq` is None where it is still open."""

    seq: int
    turn_id: str
    trigger: str
    message: UserMessage | None = None
    message_event_id: str = ""
    end_seq: int | None = None
    outcome: str = ""


@dataclass(slots=True)
class _OpenCall:
    seq: int
    started: ModelCallStarted
    end_seq: int
    failed: ModelCallFailed | None = None
    completed: ModelCallCompleted | None = None
    blocks: Blocks = ()
    requests: dict[str, ToolCallRequested] = field(
        default_factory=dict[str, ToolCallRequested]
    )


def calls_in(events: Iterable[Recorded]) -> list[RecordedCall]:
    """The model calls with an answer or a failure.

    One that nobody saw end is left out: its process died, or gave it up, and whoever
    went on asked anew.
    """
    found: dict[str, _OpenCall] = {}
    messages: dict[str, _OpenCall] = {}
    shaping = False
    for recorded in events:
        event = recorded.event
        if isinstance(event, (CompactionStarted, CompactionCompleted, CompactionFailed)):
            began = isinstance(event, CompactionStarted)
            shaping = began and event.compaction_id.startswith(SHAPING)
        elif isinstance(event, ModelCallStarted):
            if shaping and event.purpose == COMPACTION:
                continue  # no harness makes it again: what came of it is given
            found[event.model_call_id] = _OpenCall(recorded.seq, event, recorded.seq)
        elif isinstance(event, ToolCallRequested):
            _take(messages.get(event.message_id), recorded)
        elif isinstance(event, (ModelCallCompleted, ModelCallFailed, AssistantMessage)):
            call = found.get(event.model_call_id or "")
            _take(call, recorded)
            if call is not None and isinstance(event, AssistantMessage):
                messages[event.message_id] = call
    return [_closed(call) for call in found.values() if call.failed or call.completed]


def _take(call: _OpenCall | None, recorded: Recorded) -> None:
    """Take a part of a call's answer, or its failure."""
    if call is None:
        return
    call.end_seq = recorded.seq
    match recorded.event:
        case ModelCallFailed() as failed:
            call.failed = failed
        case ModelCallCompleted() as completed:
            call.completed = completed
        case AssistantMessage(blocks=blocks):
            call.blocks = (*call.blocks, *blocks)
        case ToolCallRequested() as request:
            call.requests[request.call_id] = request
        case _:
            pass


def _closed(call: _OpenCall) -> RecordedCall:
    request = call.started.request
    shown = request.ranges if isinstance(request, RequestRef) else ()
    return RecordedCall(
        call.seq,
        call.started,
        upto_seq=shown[-1].to_seq if shown else call.seq - 1,
        end_seq=call.end_seq,
        failed=call.failed,
        completed=call.completed,
        blocks=call.blocks,
        requests=call.requests,
    )


def turns_of(events: Iterable[Recorded]) -> list[RecordedTurn]:
    """The turns that began, in their order."""
    found: dict[str, RecordedTurn] = {}
    for recorded in events:
        turn_id = recorded.envelope.turn_id or ""
        turn = found.get(turn_id)
        match recorded.event:
            case TurnStarted(trigger=trigger):
                found[turn_id] = RecordedTurn(recorded.seq, turn_id, trigger)
            case UserMessage() as message if turn is not None and turn.message is None:
                found[turn_id] = RecordedTurn(
                    turn.seq, turn_id, turn.trigger, message, recorded.envelope.event_id
                )
            case TurnEnded(outcome=outcome) if turn is not None:
                found[turn_id] = RecordedTurn(
                    turn.seq,
                    turn_id,
                    turn.trigger,
                    turn.message,
                    turn.message_event_id,
                    recorded.seq,
                    outcome,
                )
            case _:
                pass
    return list(found.values())


def about_calls(events: Iterable[Recorded]) -> dict[int, str]:
    """The tool call that each event is about: named, or by a request, handle or child."""
    by_name: dict[str, str] = {}
    found: dict[int, str] = {}
    for recorded in events:
        event = recorded.event
        call_id: str = getattr(event, "call_id", None) or ""
        match event:
            case PermissionRequested(request_id=name) | InputRequested(request_id=name):
                by_name[name] = call_id
            case ToolBackgrounded(handle=name) | SubagentStarted(child_session_id=name):
                by_name[name] = call_id
            case PermissionExpired(request_id=name) | InputProvided(request_id=name):
                call_id = by_name.get(name, "")
            case BackgroundEnded(handle=name) | SubagentEnded(child_session_id=name):
                call_id = by_name.get(name, "")
            case _:
                pass
        if call_id:
            found[recorded.seq] = call_id
    return found
