"""When models were asked, by the events of a session. Pure.

    asked_of(events)      all calls
    main_calls(events)    those that the conversation's own model was asked in

Of a call that an importer took over only the answer may be recorded. Then the model was
asked just before the first event that names the call.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from foldline.projections.recorded_steps import COMPACTION
from foldline.schemas.events import (
    AssistantMessage,
    ModelCallCompleted,
    ModelCallStarted,
    RequestRef,
    Usage,
    UsageCorrected,
)
from foldline.schemas.recorded import Recorded


@dataclass(slots=True)
class Asked:
    """One call of a model: where it begins, and up to which seq its context reaches.

    `usage` is what was last said of it; `started` is None of a call without a start.
    `aside`: another model was asked than that of the conversation, for a summary or on a
    branch.
    """

    model_call_id: str
    seq: int
    upto_seq: int
    model: str = ""
    provider: str = ""
    usage: Usage | None = None
    started: ModelCallStarted | None = None
    aside: bool = False


def main_calls(events: Iterable[Recorded]) -> list[Asked]:
    """The calls in which the conversation's own model was asked, in their order."""
    return [call for call in asked_of(events) if not call.aside]


def asked_of(events: Iterable[Recorded]) -> list[Asked]:
    """The calls of models among events, in the order in which they began."""
    found: dict[str, Asked] = {}
    for recorded in events:
        match recorded.event:
            case ModelCallStarted() as started:
                found[started.model_call_id] = _started(recorded, started)
            case ModelCallCompleted(model_call_id=call_id) as completed:
                call = _call(found, call_id, recorded)
                call.usage = completed.usage
                call.model = call.model or completed.model or ""
            case UsageCorrected(model_call_id=call_id, usage=usage) if call_id in found:
                found[call_id].usage = usage
            case AssistantMessage(model_call_id=str() as call_id) as message:
                _learn(_call(found, call_id, recorded), message)
            case _:
                pass
    return list(found.values())


def _started(recorded: Recorded, started: ModelCallStarted) -> Asked:
    seq = recorded.seq
    request = started.request
    ranges = request.ranges if isinstance(request, RequestRef) else ()
    return Asked(
        started.model_call_id,
        seq,
        ranges[-1].to_seq if ranges else seq - 1,
        started.model,
        started.provider,
        started=started,
        aside=is_aside(recorded) or started.purpose == COMPACTION,
    )


def _call(found: dict[str, Asked], call_id: str, recorded: Recorded) -> Asked:
    seq = recorded.seq
    new = Asked(call_id, seq, seq - 1, aside=is_aside(recorded))
    return found.setdefault(call_id, new)


def is_aside(recorded: Recorded) -> bool:
    """Whether an event stands on a branch, apart from the conversation."""
    return recorded.envelope.branch is not None


def _learn(call: Asked, message: AssistantMessage) -> None:
    """Without a recorded start, take provider and model from the message."""
    for block in message.blocks:
        call.provider = call.provider or block.provider or ""
        call.model = call.model or block.model or ""
