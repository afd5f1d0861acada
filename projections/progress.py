"""Whether an agent gets anywhere between the compactions of its context. Pure.

Progress is what was not there before: something that a person said, or a call that ended
with an output that no call of the same tool and arguments had. Reading the same again is
none, and neither is opening old events once more.
"""

from collections.abc import Iterable

from foldline.projections.reopening import READ_EVENT
from foldline.projections.shaped import is_failure
from foldline.schemas.blocks import Blob, Blocks, Sealed
from foldline.schemas.events import (
    BackgroundEnded,
    CompactionCompleted,
    CompactionFailed,
    CompactionStarted,
    ContextCleared,
    GoalSet,
    HistoryRewound,
    InputProvided,
    MessageRetracted,
    SteeringReceived,
    SubagentEnded,
    ToolCallRequested,
    ToolExecutionCompleted,
    ToolOutcomeResolved,
    UserMessage,
)
from foldline.schemas.recorded import Recorded

PERSON = "PERSON"

Ended = tuple[str, str, tuple[object, ...]]
"""A tool, the hash of its arguments, and what came of it."""


def compactions_without_progress(events: Iterable[Recorded]) -> int:
    """How many compactions were tried since the last progress.

    One that failed counts too, and together with the extracts that stood in for it as one.

    Args:
        events: of the session and its ancestors, in order.
    """
    tried: set[int] = set()
    begun: dict[str, int] = {}
    known: set[Ended] = set()
    asked: dict[str, tuple[str, str]] = {}
    for recorded in events:
        match recorded.event:
            case CompactionStarted(compaction_id=name, base_seq=base_seq):
                begun[name] = base_seq
            case CompactionCompleted(compaction_id=name):
                tried.add(begun.get(name, -recorded.seq))
            case CompactionFailed(compaction_id=name) as failed if is_failure(failed):
                tried.add(begun.get(name, -recorded.seq))
            case ToolCallRequested(call_id=call_id, tool=tool, args_hash=args_hash):
                asked[call_id] = tool, args_hash
            case _ if _is_new(recorded, asked, known):
                tried = set()
            case _:
                pass
    return len(tried)


def _is_new(
    recorded: Recorded, asked: dict[str, tuple[str, str]], known: set[Ended]
) -> bool:
    """Whether an event is progress; what ended by it is known from here on."""
    match recorded.event:
        case UserMessage() | SteeringReceived() | InputProvided() | GoalSet():
            return recorded.envelope.actor.kind == PERSON
        case HistoryRewound() | ContextCleared() | MessageRetracted() | SubagentEnded():
            return True
        case ToolExecutionCompleted(call_id=call_id, output=output):
            tool, args_hash = asked.get(call_id, ("", ""))
        case ToolOutcomeResolved(call_id=call_id, outcome="COMPLETED", output=output):
            tool, args_hash = asked.get(call_id, ("", ""))
        case BackgroundEnded(handle=handle, output=output):
            tool, args_hash = "", handle
        case _:
            return False
    ended = tool, args_hash, _said(output)
    new = tool != READ_EVENT and ended not in known
    known.add(ended)
    return new


def _said(blocks: Blocks) -> tuple[object, ...]:
    return tuple(_body(block.body) for block in blocks)


def _body(body: object) -> object:
    match body:
        case Blob(sha256=sha256):
            return sha256
        case Sealed(ciphertext=ciphertext):
            return ciphertext
        case _:
            return body
