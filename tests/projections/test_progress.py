"""What counts as progress between compactions."""

from collections.abc import Sequence

import pytest

from foldline.projections.progress import compactions_without_progress
from foldline.schemas.blocks import text_block
from foldline.schemas.envelope import Actor, Envelope
from foldline.schemas.events import (
    AssistantMessage,
    CompactionCompleted,
    CompactionFailed,
    CompactionStarted,
    KnownEvent,
    ToolCallRequested,
    ToolExecutionCompleted,
    ToolExecutionFailed,
    UserMessage,
)
from foldline.schemas.recorded import Recorded


def history(*events: KnownEvent, actor: str = "PERSON") -> list[Recorded]:
    """Events as a log has them."""
    return [
        Recorded(
            envelope=Envelope(
                event_id=str(seq),
                session_id="s",
                writer="w",
                seq=seq,
                actor=Actor(kind=actor, id="x"),
            ),
            event=event,
            body=b"",
            schema_id=0,
        )
        for seq, event in enumerate(events, 1)
    ]


COMPACTED = CompactionCompleted(
    compaction_id="c", from_seq=1, to_seq=1, base_seq=1, strategy="s"
)
SAID = UserMessage(message_id="m", blocks=(text_block("hello"),))
THOUGHT = AssistantMessage(message_id="a", final=True, blocks=(text_block("hm"),))


def call(
    number: int, said: str = "ok", *, tool: str = "read", args: str = "x"
) -> Sequence[KnownEvent]:
    """A call and its end."""
    name = f"call-{number}"
    return (
        ToolCallRequested(
            call_id=name,
            provider_call_id="",
            tool=tool,
            args_hash=args,
            message_id="m",
            position=0,
            arguments=(),
        ),
        ToolExecutionCompleted(call_id=name, attempt=1, output=(text_block(said),)),
    )


def failed(number: int) -> KnownEvent:
    """A call's failure."""
    return ToolExecutionFailed(
        call_id=f"call-{number}",
        attempt=1,
        layer="TOOL",
        error_type="E",
        executed="NO",
        blocks=(),
    )


@pytest.mark.parametrize(
    ("events", "count"),
    [
        ((), 0),
        ((SAID, COMPACTED, COMPACTED), 2),
        ((SAID, COMPACTED, THOUGHT, COMPACTED), 2),
        ((COMPACTED, COMPACTED, SAID), 0),
        ((*call(1), COMPACTED, *call(2), COMPACTED), 2),
        ((*call(1), COMPACTED, *call(2, "other"), COMPACTED), 1),
        ((*call(1), COMPACTED, *call(2, args="y"), COMPACTED), 1),
        ((*call(1), COMPACTED, *call(2, tool="read_event"), COMPACTED), 2),
        ((COMPACTED, failed(1), COMPACTED, failed(2), COMPACTED), 3),
    ],
)
def test_progress_is_what_was_not_there_before(
    events: Sequence[KnownEvent], count: int
) -> None:
    assert compactions_without_progress(history(*events)) == count


def test_what_a_harness_says_in_a_persons_place_is_no_progress() -> None:
    events = history(COMPACTED, SAID, COMPACTED, actor="HARNESS")
    assert compactions_without_progress(events) == 2


def test_a_compaction_that_failed_counts_once_with_the_extracts_that_stood_in() -> None:
    """What was cancelled, or left by a crash, is no try."""
    begun = [
        CompactionStarted(compaction_id=name, base_seq=seq, reason="budget")
        for name, seq in (("a", 1), ("b", 1), ("c", 9), ("d", 12))
    ]
    failures = [
        CompactionFailed(compaction_id=name, reason=reason)
        for name, reason in (("a", "broken"), ("c", "broken"), ("d", "crash"))
    ]
    done = COMPACTED.model_copy(update={"compaction_id": "b"})
    events = (begun[0], failures[0], begun[1], done, begun[2], failures[1], begun[3])
    assert compactions_without_progress(history(SAID, *events, failures[2])) == 2
