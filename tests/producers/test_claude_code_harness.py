"""What the harness writes into its transcript: queue, background work, system records."""

from typing import Any

import pytest

from foldline.schemas.blocks import text_of
from foldline.schemas.events import (
    BackgroundEnded,
    CompactionCompleted,
    ContextPruned,
    HookRan,
    ModelCallFailed,
    RetryScheduled,
    SteeringApplied,
    SteeringExpired,
    SteeringReceived,
    SummaryCreated,
    SystemObservation,
    ToolBackgrounded,
    TurnEnded,
)
from tests.transcripts import (
    LAUNCHED,
    SESSION,
    Import,
    Transcript,
    called,
    text,
    tool_use,
)

# --- background work and the queue ---


def note(handle: str, status: str = "completed") -> str:
    return (
        f"<agent-notification>\n<agent-id>{handle}</agent-id>\n"
        f"<status>{status}</status>\n</agent-notification>"
    )


@pytest.mark.parametrize(
    ("said", "twin"),
    [
        (LAUNCHED, {"isAsync": True, "status": "async_launched", "agentId": "a77"}),
        ("Command running in background with ID: a77", {"backgroundTaskId": "a77"}),
        (LAUNCHED, None),
        ("Command running in background with ID: a77", None),
    ],
)
def test_background_work_goes_on_under_its_handle_until_it_is_notified(
    script: Transcript, into: Import, said: str, twin: Any
) -> None:
    called(script).result("c1", said, toolUseResult=twin)
    into.take(script)
    (background,) = into.of(ToolBackgrounded)
    assert (background.call_id, background.handle) == ("m1:0", "a77")
    state = into.log.state(SESSION)
    assert state is not None
    assert list(state.handles) == ["a77"]
    script.bare("queue-operation", operation="enqueue", content=note("a77", "failed"))
    script.bare("queue-operation", operation="remove")
    report = into.take(script)
    assert [(one.handle, one.outcome) for one in into.of(BackgroundEnded)] == [
        ("a77", "FAILED")
    ]
    assert report.noise == {"queue-operation/remove": 1}
    state = into.log.state(SESSION)
    assert state is not None
    assert (state.handles, state.calls, state.anomalies) == ({}, {}, {})


def test_a_background_end_is_told_once(script: Transcript, into: Import) -> None:
    called(script).result("c1", LAUNCHED, toolUseResult={"isAsync": True, "agentId": "a77"})
    script.assistant("m2", tool_use("c2", "TaskOutput"))
    task = {"task": {"task_id": "a77", "status": "completed"}}
    script.result("c2", "the output", toolUseResult=task)
    script.user(note("a77"))
    into.take(script)
    assert len(into.of(BackgroundEnded)) == 1
    assert [one.origin for one in into.of(SystemObservation)] == ["notification"]


def test_the_queue_closes_its_oldest_entry_of_either_kind(
    script: Transcript, into: Import
) -> None:
    def queue(operation: str, content: str | None = None) -> None:
        fields = {} if content is None else {"content": content}
        script.bare("queue-operation", operation=operation, **fields)

    queue("enqueue", "first")
    queue("enqueue", note("zz"))
    queue("enqueue", "second")
    queue("dequeue")
    queue("remove")
    report = into.take(script)
    first, second = (
        e.envelope.event_id for e in into.events() if e.type == "SteeringReceived"
    )
    assert [one.steering_event_id for one in into.of(SteeringApplied)] == [first]
    queue("remove")
    queue("remove")
    queue("enqueue")
    queue("popAll")
    report = into.take(script)
    assert [one.steering_event_id for one in into.of(SteeringApplied)] == [first, second]
    assert len(into.of(SteeringExpired)) == 1
    assert report.foreign == {"queue-operation/remove": 1}
    state = into.log.state(SESSION)
    assert state is not None
    assert state.steering == {}


def test_what_the_queue_delivered_is_not_steering_again(
    script: Transcript, into: Import
) -> None:
    script.bare("queue-operation", operation="enqueue", content="faster")
    script.bare("queue-operation", operation="remove")
    attachment = {"type": "queued_command", "prompt": "faster"}
    script.add("attachment", attachment=attachment)
    report = into.take(script)
    assert report.noise == {"attachment/queued_command": 1}
    assert len(into.of(SteeringReceived)) == 1
    script.add("attachment", attachment=attachment | {"prompt": [text("slower")]})
    into.take(script)
    assert [text_of(one.blocks) for one in into.of(SteeringReceived)] == [
        *("faster", "slower")
    ]
    assert len(into.of(SteeringApplied)) == 2


# --- system ---


def test_a_compaction_replaces_everything_before_it(
    script: Transcript, into: Import
) -> None:
    called(script).result("c1")
    script.add(
        "system",
        subtype="compact_boundary",
        parentUuid=None,
        logicalParentUuid="r3",
        compactMetadata={"trigger": "auto", "preTokens": 155_000},
    )
    script.user("In short: ...", isCompactSummary=True, isVisibleInTranscriptOnly=True)
    report = into.take(script)
    (compacted,) = into.of(CompactionCompleted)
    seq = 1 + into.order().index("CompactionCompleted")
    assert (compacted.from_seq, compacted.to_seq) == (1, seq - 1)
    assert (compacted.base_seq, compacted.token_before) == (seq - 1, 155_000)
    (summary,) = into.of(SummaryCreated)
    assert (summary.from_seq, summary.to_seq) == (1, seq - 1)
    assert (report.compactions, report.missing_parents) == (1, 0)
    assert into.of(TurnEnded) == []


def test_a_microcompaction_prunes_outputs(script: Transcript, into: Import) -> None:
    called(script).result("c1")
    metadata = {"tokensSaved": 900, "compactedToolIds": ["c1", "older"]}
    script.add("system", subtype="microcompact_boundary", microcompactMetadata=metadata)
    into.take(script)
    (pruned,) = into.of(ContextPruned)
    assert (pruned.targets, pruned.tokens_saved) == (("m1:0", "older"), 900)


def test_an_api_error_is_a_failed_call_and_the_retry_that_it_names(
    script: Transcript, into: Import
) -> None:
    script.user("go")
    script.add(
        "system",
        subtype="api_error",
        error={"status": 529, "message": "overloaded"},
        retryInMs=534.74,
        retryAttempt=1,
        maxRetries=10,
    )
    script.add("system", subtype="api_error", error={}, retryAttempt=0, maxRetries=0)
    into.take(script)
    first, second = into.of(ModelCallFailed)
    assert (first.error_type, first.retryable) == ("HTTP 529", True)
    assert (second.error_type, second.retryable) == ("ApiError", False)
    (retry,) = into.of(RetryScheduled)
    assert retry.target == first.model_call_id
    assert (retry.attempt, retry.not_before_ms) == (2, 534)


def test_the_turns_duration_ends_it(script: Transcript, into: Import) -> None:
    script.user("go")
    script.add("system", subtype="stop_hook_summary", preventedContinuation=True)
    script.add("system", subtype="turn_duration", durationMs=5)
    script.add("system", subtype="turn_duration", durationMs=5)
    report = into.take(script)
    assert [one.outcome for one in into.of(TurnEnded)] == ["DONE"]
    assert [(one.hook, one.decision) for one in into.of(HookRan)] == [("Stop", "block")]
    assert report.foreign == {"system/turn_duration": 1}


def test_hooks_and_reminders_come_as_attachments(script: Transcript, into: Import) -> None:
    called(script)
    hook = {"type": "hook_success", "hookName": "PreToolUse:Bash", "toolUseID": "c1"}
    script.add("attachment", attachment=hook)
    script.add("attachment", attachment={"type": "todo_reminder", "content": []})
    script.add("attachment", attachment={"type": "never_heard_of"})
    report = into.take(script)
    (ran,) = into.of(HookRan)
    assert (ran.hook, ran.call_id) == ("PreToolUse:Bash", "m1:0")
    assert into.of(SystemObservation)[0].origin == "attachment/todo_reminder"
    assert report.foreign == {"attachment/never_heard_of": 1}
