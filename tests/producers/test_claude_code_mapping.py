"""What each record of a Claude Code transcript becomes."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from foldline.processors.anomalies import MISSING_PARENT_ID
from foldline.processors.open_log import open_log
from foldline.producers.claude_code_mapping import NOISE
from foldline.schemas.blocks import Blob, text_of
from foldline.schemas.envelope import INFERRED
from foldline.schemas.events import (
    AssistantMessage,
    BackgroundEnded,
    CancellationRequested,
    CompactionCompleted,
    ConfigChanged,
    ContextPruned,
    ForeignRecord,
    HookRan,
    ModelCallCompleted,
    ModelCallFailed,
    PermissionDenied,
    RetryScheduled,
    SessionCreated,
    SteeringApplied,
    SteeringExpired,
    SteeringReceived,
    SummaryCreated,
    SystemObservation,
    ToolBackgrounded,
    ToolCallRequested,
    ToolExecutionCancelled,
    ToolExecutionCompleted,
    ToolExecutionFailed,
    ToolExecutionTimedOut,
    ToolResultProjected,
    TurnEnded,
    TurnStarted,
    UsageCorrected,
    UserMessage,
)
from tests.transcripts import (
    MODEL,
    SESSION,
    Import,
    Transcript,
    text,
    tool_result,
    tool_use,
)

DENIAL = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected "
    "(eg. if it was a file edit, the new_string was NOT written to the file)."
)
INTERRUPT = "[Request interrupted by user for tool use]"


@pytest.fixture
def script() -> Transcript:
    return Transcript()


@pytest.fixture
def into(tmp_path: Path) -> Import:
    return Import(open_log("memory:"), tmp_path)


def called(script: Transcript) -> Transcript:
    """A prompt, and one call of a tool."""
    script.user("do it")
    script.assistant("m1", tool_use("c1", command="ls"))
    return script


# --- conversation --------------------------------------------------------------------


def test_a_prompt_begins_a_turn_and_the_next_one_ends_it(
    script: Transcript, into: Import
) -> None:
    script.user("one")
    script.user([text("two")])
    into.take(script)
    assert into.order() == [
        "SessionCreated",
        *("TurnStarted", "UserMessage"),
        *("TurnEnded", "TurnStarted", "UserMessage"),
    ]
    assert [text_of(one.blocks) for one in into.of(UserMessage)] == ["one", "two"]
    assert [one.turn_id for one in (e.envelope for e in into.events())] == [
        None,
        *("r1", "r1", "r1", "r2", "r2"),
    ]


def test_only_creation_and_turns_are_inferred(script: Transcript, into: Import) -> None:
    called(script).result("c1")
    script.user("more")
    into.take(script)
    inferred = {e.type for e in into.events() if e.envelope.certainty == INFERRED}
    assert inferred == {"SessionCreated", "TurnStarted", "TurnEnded"}


def test_facts_say_where_they_were_read(script: Transcript, into: Import) -> None:
    script.user("one")
    into.take(script)
    for event in into.events():
        source = event.envelope.source
        assert source is not None
        assert (source.system, source.position) == ("claude-code", "0")
        assert source.stream == str((into.folder / "session.jsonl").resolve())
        assert event.envelope.occurred_at == 1_767_322_801_000_000


def test_the_records_of_one_message_are_its_parts(script: Transcript, into: Import) -> None:
    script.user("go")
    thought = {"type": "thinking", "thinking": "hm", "signature": "sig"}
    script.assistant("m1", thought)
    script.assistant("m1", text("I will"))
    script.assistant("m1", tool_use("c1", path="a"))
    script.assistant("m1", tool_use("c2", path="b"))
    into.take(script)
    parts = into.of(AssistantMessage)
    assert [(one.message_id, one.part, one.final) for one in parts] == [
        ("m1", part, None) for part in range(4)
    ]
    reasoning = parts[0].blocks[0]
    assert (reasoning.kind, reasoning.signature, reasoning.model) == (
        *("reasoning", "sig"),
        MODEL,
    )
    calls = into.of(ToolCallRequested)
    assert [one.call_id for one in calls] == ["m1:2", "m1:3"]
    assert [one.position for one in calls] == [2, 3]
    assert [one.provider_call_id for one in calls] == ["c1", "c2"]
    assert json.loads(text_of(calls[0].arguments)) == {"path": "a"}
    assert [b.call_id for part in parts for b in part.blocks] == [
        *(None, None),
        *("m1:2", "m1:3"),
    ]


def test_usage_is_counted_once_per_message_and_the_last_record_holds(
    script: Transcript, into: Import
) -> None:
    """B43."""
    script.user("go")
    for output in (1, 1, 250):
        usage = {"input_tokens": 10, "output_tokens": output}
        script.assistant("m1", text("x"), usage=usage)
    script.assistant("m2", text("y"), usage={"input_tokens": 5, "output_tokens": 2})
    into.take(script)
    assert [one.model_call_id for one in into.of(ModelCallCompleted)] == ["m1", "m2"]
    (corrected,) = into.of(UsageCorrected)
    assert corrected.usage.output_tokens == 250
    state = into.log.state(SESSION)
    assert state is not None
    assert (state.usage.input_tokens, state.usage.output_tokens) == (15, 252)


def test_all_that_usage_says_is_kept(script: Transcript, into: Import) -> None:
    usage = {
        "input_tokens": 1,
        "cache_read_input_tokens": 2,
        "cache_creation_input_tokens": 3,
        "output_tokens": 4,
        "output_tokens_details": {"thinking_tokens": 5},
        "service_tier": "standard",
    }
    script.assistant("m1", text("x"), usage=usage)
    into.take(script)
    (call,) = into.of(ModelCallCompleted)
    assert call.usage is not None
    kept = call.usage.model_dump(exclude={"extra_json"})
    assert list(kept.values()) == [1, 4, 2, 3, 5]
    assert json.loads(call.usage.extra_json or "")["service_tier"] == "standard"


def test_configuration_is_told_where_it_changes(script: Transcript, into: Import) -> None:
    script.user("a", permissionMode="default")
    script.assistant("m1", text("x"))
    script.assistant("m2", text("x"))
    script.user("b", permissionMode="plan", cwd="/elsewhere")
    script.bare("permission-mode", permissionMode="acceptEdits")
    script.bare("permission-mode", permissionMode="acceptEdits")
    report = into.take(script)
    assert into.of(ConfigChanged) == [
        ConfigChanged(permission_mode="default"),
        ConfigChanged(model=MODEL),
        ConfigChanged(permission_mode="plan", cwd="/elsewhere"),
        ConfigChanged(permission_mode="acceptEdits"),
    ]
    assert report.noise == {"permission-mode": 1}


def test_an_image_becomes_a_blob_of_its_decoded_bytes(
    script: Transcript, into: Import
) -> None:
    pixels = bytes(range(256)) * 4
    data = base64.b64encode(pixels).decode()
    source = {"type": "base64", "media_type": "image/png", "data": data}
    script.user([{"type": "image", "source": source}, text("look")])
    into.take(script)
    image = into.of(UserMessage)[0].blocks[0]
    assert isinstance(image.body, Blob)
    assert (image.kind, image.body.size, image.body.media_type) == (
        *("image", len(pixels)),
        "image/png",
    )
    assert into.log.blobs.get(image.body.sha256) == pixels


@pytest.mark.parametrize(
    "source",
    [
        {"type": "base64", "media_type": "image/png", "data": "not base64!"},
        {"type": "url", "url": "https://example.org/x.png"},
        None,
    ],
)
def test_an_image_without_bytes_is_kept_as_json(
    script: Transcript, into: Import, source: Any
) -> None:
    script.user([{"type": "image", "source": source}])
    into.take(script)
    (block,) = into.of(UserMessage)[0].blocks
    assert (block.kind, block.name) == ("json", "image")
    assert json.loads(str(block.body))["source"] == source


@pytest.mark.parametrize(
    ("said", "fields", "origin"),
    [
        (
            "Caveat: The messages below were generated by the user while running",
            {},
            "local",
        ),
        ("<local-command-stdout>Bye</local-command-stdout>", {}, "local"),
        ("anything", {"isMeta": True}, "meta"),
        ("anything", {"isVisibleInTranscriptOnly": True}, "meta"),
        ("anything", {"origin": {"kind": "channel"}}, "channel"),
    ],
)
def test_what_the_harness_says_as_the_user_is_no_prompt(
    script: Transcript, into: Import, said: str, fields: dict[str, Any], origin: str
) -> None:
    script.user(said, **fields)
    into.take(script)
    (observed,) = into.of(SystemObservation)
    assert observed.origin.startswith(origin)
    assert text_of(observed.blocks) == said
    assert into.of(TurnStarted) == []


def test_a_command_of_the_harness_is_said_by_the_user_and_begins_no_turn(
    script: Transcript, into: Import
) -> None:
    script.user("<command-name>/exit</command-name>")
    into.take(script)
    assert into.types() == {"SessionCreated": 1, "UserMessage": 1}


def test_what_the_harness_says_as_the_model_is_no_model_call(
    script: Transcript, into: Import
) -> None:
    record = script.assistant("x", text("No response requested."))
    record["message"]["model"] = "<synthetic>"
    failed = script.assistant("y", text("API Error: 500"), isApiErrorMessage=True)
    failed["message"]["model"] = "<synthetic>"
    into.take(script)
    assert into.of(ModelCallCompleted) == []
    assert [one.origin for one in into.of(SystemObservation)] == ["synthetic"]
    (error,) = into.of(ModelCallFailed)
    assert (error.model_call_id, text_of(error.blocks)) == ("y", "API Error: 500")


# --- results -------------------------------------------------------------------------


def test_results_close_their_calls_in_the_order_of_arrival(
    script: Transcript, into: Import
) -> None:
    """B14: three parallel calls, three results, none lost."""
    script.user("go")
    for call in "abc":
        script.assistant("m1", tool_use(call))
    for call in "bac":
        script.result(call, f"out {call}", toolUseResult={"durationMs": 7})
    into.take(script)
    done = into.of(ToolExecutionCompleted)
    assert [one.call_id for one in done] == ["m1:1", "m1:0", "m1:2"]
    assert [text_of(one.output) for one in done] == ["out b", "out a", "out c"]
    assert {one.duration_ms for one in done} == {7}
    state = into.log.state(SESSION)
    assert state is not None
    assert state.calls == {}


def test_a_denial_is_no_failure_and_carries_what_the_user_said(
    script: Transcript, into: Import
) -> None:
    said = DENIAL + " To tell you how to proceed, the user said:\nuse the other file"
    called(script).result("c1", said, is_error=True, toolUseResult=f"Error: {said}")
    script.assistant("m2", text("fine"))
    into.take(script)
    (denied,) = into.of(PermissionDenied)
    assert (denied.call_id, denied.decided_by) == ("m1:0", "PERSON")
    assert text_of(denied.feedback) == "use the other file"
    assert text_of(into.of(ToolResultProjected)[0].blocks) == said
    assert into.of(ToolExecutionFailed) == []
    assert into.of(TurnEnded) == []
    state = into.log.state(SESSION)
    assert state is not None
    assert state.finished["m1:0"].status == "DENIED"
    assert state.anomalies == {}


def test_a_plain_denial_and_its_interrupt_end_the_turn(
    script: Transcript, into: Import
) -> None:
    called(script).result("c1", DENIAL, is_error=True)
    script.user([text(INTERRUPT)])
    into.take(script)
    assert into.of(PermissionDenied)[0].feedback == ()
    assert into.of(CancellationRequested)[0].target_id == "r1"
    assert [one.outcome for one in into.of(TurnEnded)] == ["ABORTED"]
    state = into.log.state(SESSION)
    assert state is not None
    assert (state.status, state.cancellation) == ("IDLE", None)


def test_an_interrupt_without_a_turn_is_only_observed(
    script: Transcript, into: Import
) -> None:
    script.user([text("[Request interrupted by user]")])
    into.take(script)
    assert into.types() == {"SessionCreated": 1, "SystemObservation": 1}


def test_a_policy_denies_as_a_policy(script: Transcript, into: Import) -> None:
    said = "Permission to use Bash with command rm -rf / has been denied."
    called(script).result("c1", said, is_error=True)
    into.take(script)
    assert into.of(PermissionDenied)[0].decided_by == "POLICY"


@pytest.mark.parametrize(
    ("said", "twin", "layer", "error_type", "executed"),
    [
        ("Exit code 2\nno such file", None, "TOOL", "ExitCode:2", "YES"),
        ("<tool_use_error>File has not", None, "HARNESS", "ToolUseError", "UNKNOWN"),
        (
            "<tool_use_error>InputValidationError: x",
            None,
            *("MODEL", "InvalidToolCall", "NO"),
        ),
        ("connection lost", "Error: connection lost", "TOOL", "ToolError", "UNKNOWN"),
    ],
)
def test_errors_are_told_apart_by_their_text(  # noqa: PLR0917
    script: Transcript,
    into: Import,
    said: str,
    twin: Any,
    layer: str,
    error_type: str,
    executed: str,
) -> None:
    called(script).result("c1", said, is_error=True, toolUseResult=twin)
    into.take(script)
    (failed,) = into.of(ToolExecutionFailed)
    assert (failed.layer, failed.error_type, failed.executed) == (
        *(layer, error_type),
        executed,
    )
    assert text_of(failed.blocks) == said


@pytest.mark.parametrize(
    ("said", "fields", "reason"),
    [
        ("Permission prompt was aborted.", {"is_error": True}, "prompt"),
        ("<tool_use_error>Sibling tool call errored", {"is_error": True}, "same message"),
        (INTERRUPT, {"is_error": True}, "interrupted"),
        ("partial", {"toolUseResult": {"interrupted": True}}, "interrupted"),
    ],
)
def test_what_was_stopped_is_cancelled_and_did_not_fail(
    script: Transcript, into: Import, said: str, fields: dict[str, Any], reason: str
) -> None:
    called(script).result("c1", said, **fields)
    into.take(script)
    (cancelled,) = into.of(ToolExecutionCancelled)
    assert reason in cancelled.reason
    assert text_of(cancelled.blocks) == said


@pytest.mark.parametrize(
    ("said", "confirmed"),
    [
        ("Command timed out after 2m 0.5s\nsome output", False),
        ("Exit code 143\nCommand timed out after 2m 0.5s", True),
    ],
)
def test_a_time_out_confirms_no_stop_unless_the_command_ended(
    script: Transcript, into: Import, said: str, *, confirmed: bool
) -> None:
    called(script).result("c1", said, is_error=True)
    into.take(script)
    (late,) = into.of(ToolExecutionTimedOut)
    assert (late.after_ms, late.stop_confirmed) == (120_500, confirmed)


def test_a_repeated_id_closes_the_nearest_open_call(
    script: Transcript, into: Import
) -> None:
    """B16."""
    script.user("go")
    script.assistant("m1", tool_use("X"))
    script.result("X", "r1")
    script.assistant("m2", tool_use("X"))
    script.result("X", "r2")
    script.result("X", "r2")
    report = into.take(script)
    done = into.of(ToolExecutionCompleted)
    assert [(one.call_id, text_of(one.output)) for one in done] == [
        *(("m1:0", "r1"), ("m2:0", "r2")),
        ("m2:0", "r2"),
    ]
    assert (report.tool_calls, report.tool_results, report.duplicate_results) == (2, 3, 1)
    state = into.log.state(SESSION)
    assert state is not None
    assert state.anomalies == {"second_result": 1}


def test_calls_without_an_id_are_told_apart_by_their_records(
    script: Transcript, into: Import
) -> None:
    script.user("go")
    use: dict[str, Any] = {"type": "tool_use", "name": "Bash", "input": {}}
    first = script.assistant("m1", use)
    script.assistant("m2", use)
    result = {"type": "tool_result", "content": "x"}
    script.user([result], sourceToolAssistantUUID=first["uuid"])
    report = into.take(script)
    assert into.of(ToolExecutionCompleted)[0].call_id == "m1:0"
    assert (report.tool_calls, report.tool_results) == (0, 0)


def test_a_result_without_its_call_is_kept_and_odd(
    script: Transcript, into: Import
) -> None:
    script.result("gone")
    report = into.take(script)
    assert report.orphan_results == 1
    assert into.of(ToolExecutionCompleted)[0].call_id == "unknown:gone"
    state = into.log.state(SESSION)
    assert state is not None
    assert state.anomalies == {"result_without_call": 1}


def test_arguments_that_do_not_parse_stay_as_they_are(
    script: Transcript, into: Import
) -> None:
    """B13: the call and its error are both kept."""
    script.user("go")
    use = {"type": "tool_use", "id": "c1", "name": "Edit", "input": '{"path": "a'}
    script.assistant("m1", use)
    script.result("c1", "<tool_use_error>InputValidationError: bad JSON", is_error=True)
    into.take(script)
    assert text_of(into.of(ToolCallRequested)[0].arguments) == '{"path": "a'
    assert into.of(ToolExecutionFailed)[0].call_id == "m1:0"


def test_text_beside_a_result_goes_on_with_the_turn(
    script: Transcript, into: Import
) -> None:
    called(script).user([tool_result("c1"), text("and use tabs")])
    into.take(script)
    assert into.order()[-2:] == ["ToolExecutionCompleted", "UserMessage"]
    assert len(into.of(TurnStarted)) == 1


# --- background work and the queue -----------------------------------------------------

LAUNCHED = "Async agent launched successfully.\nagentId: a77 (internal)"


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


# --- system ----------------------------------------------------------------------------


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


# --- what is not mapped ----------------------------------------------------------------


def test_an_unknown_record_is_kept_as_it_is_in_its_place(
    script: Transcript, into: Import
) -> None:
    """B40."""
    script.user("one")
    strange = script.add("canvas", payload={"x": [1, 2.50, None]}, ü="ü")
    script.user("two")
    report = into.take(script)
    (kept,) = into.of(ForeignRecord)
    assert into.order()[3] == "ForeignRecord"
    assert json.loads(text_of(kept.blocks)) == strange
    assert (kept.record_type, kept.record_id, kept.parent_record_id) == (
        *("canvas", "r2"),
        "r1",
    )
    assert report.foreign == {"canvas": 1}
    parents = [e.envelope.parent_event_id for e in into.events()]
    assert parents[-1] == into.events()[3].envelope.event_id


@pytest.mark.parametrize("kind", sorted(NOISE))
def test_declared_noise_is_counted_and_not_recorded(
    script: Transcript, into: Import, kind: str
) -> None:
    script.user("one")
    head, _, sub = kind.partition("/")
    script.bare(head, uuid="p1", parentUuid="r1", data={"type": sub})
    script.user("two", parentUuid="p1")
    report = into.take(script)
    assert report.noise == {kind: 1}
    first, second = (e.envelope for e in into.events() if e.type == "UserMessage")
    assert second.parent_event_id == first.event_id
    assert report.missing_parents == 0


@pytest.mark.parametrize(
    "record",
    [
        {"type": "user"},
        {"type": "user", "message": "text"},
        {"type": "user", "message": {"content": 7}},
        {"type": "user", "message": {"content": []}},
        {"type": "user", "message": {"content": [1, "x", None]}},
        {"type": "assistant", "message": []},
        {"type": "system", "subtype": {"a": 1}},
        {"type": "attachment", "attachment": "x"},
        {"type": "queue-operation"},
        {"type": ["user"]},
        {},
    ],
)
def test_records_of_the_wrong_make_are_kept_as_foreign(
    script: Transcript, into: Import, record: dict[str, Any]
) -> None:
    script.user("one")
    script.records.append(record)
    report = into.take(script)
    assert sum(report.foreign.values()) == 1
    assert text_of(into.of(ForeignRecord)[0].blocks) == json.dumps(record)


# --- sessions, branches, parents, copies -------------------------------------------------


def test_an_inline_sidechain_is_a_branch_named_after_its_root(
    script: Transcript, into: Import
) -> None:
    script.user("go")
    script.assistant("m1", tool_use("c1", "Task"))
    main = script.last
    script.last = None
    root = script.user("look around", isSidechain=True)
    script.assistant("m2", tool_use("c2"), isSidechain=True)
    script.result("c2", isSidechain=True)
    script.result("c1", parentUuid=main)
    into.take(script)
    branches = [e.envelope.branch for e in into.events()]
    assert set(branches) == {None, root["uuid"]}
    assert branches[-1] is None
    assert len(into.of(TurnStarted)) == 1
    prompts = [e for e in into.events() if e.type == "UserMessage"]
    assert [e.envelope.actor.kind for e in prompts] == ["PERSON", "AGENT"]


def test_an_agent_with_an_id_is_a_child_session_with_its_call(
    script: Transcript, into: Import
) -> None:
    called(script).result("c1", LAUNCHED, toolUseResult={"isAsync": True, "agentId": "a77"})
    script.user("look", agentId="a77", isSidechain=True, parentUuid=None)
    script.assistant("m9", text("found"), agentId="a77", isSidechain=True)
    into.take(script)
    child = f"{SESSION}/agent-a77"
    (created,) = into.of(SessionCreated, child)
    assert (created.relation, created.parent_session_id, created.parent_call_id) == (
        *("SUBAGENT", SESSION),
        "m1:0",
    )
    assert into.of(TurnStarted, child)[0].trigger == "PARENT"
    assert {e.envelope.branch for e in into.events(child)} == {None}
    assert "AssistantMessage" in into.types(child)


def test_progress_of_an_agent_is_foreign_and_links_its_call(
    script: Transcript, into: Import
) -> None:
    called(script)
    data = {"type": "agent_progress", "agentId": "a77", "message": {"huge": "x"}}
    script.add("progress", data=data, parentToolUseID="c1")
    script.user("look", agentId="a77")
    report = into.take(script)
    assert report.foreign == {"progress/agent_progress": 1}
    (created,) = into.of(SessionCreated, f"{SESSION}/agent-a77")
    assert created.parent_call_id == "m1:0"


def test_an_agent_in_a_file_of_its_own_is_a_child_session(into: Import) -> None:
    script = Transcript(session_id="agent-a77")
    script.user("look", isSidechain=True, agentId="a77")
    into.take(script, "agent-a77.jsonl")
    assert into.of(SessionCreated, "agent-a77")[0].relation == "SUBAGENT"


def test_two_sessions_in_one_file_are_two_sessions(
    script: Transcript, into: Import
) -> None:
    script.user("old", sessionId="old")
    script.assistant("m1", text("hi"))
    script.user("again", sessionId="old")
    report = into.take(script)
    assert {one.session_id: one.head for one in report.sessions} == {"old": 6, SESSION: 4}
    (created,) = into.of(SessionCreated)
    assert (created.relation, created.parent_session_id) == ("CONTINUATION", "old")


@pytest.mark.parametrize("named_later", [True, False])
def test_records_without_a_session_belong_to_their_neighbours(
    into: Import, *, named_later: bool
) -> None:
    script = Transcript(session_id=None)
    script.user("first")
    script.user("second")
    if named_later:
        script.user("third", sessionId="named")
        script.user("fourth")
    into.take(script)
    (session,) = into.log.sessions()
    assert (session.session_id == "named") is named_later
    assert len(into.of(UserMessage, session.session_id)) == (4 if named_later else 2)
    assert len(session.session_id) == (5 if named_later else 64)


def test_a_missing_parent_is_a_new_root_with_a_mark(
    script: Transcript, into: Import
) -> None:
    script.last = "never-written"
    script.user("one")
    script.user("two")
    report = into.take(script)
    assert report.missing_parents == 1
    marked = [
        e.type for e in into.events() if e.envelope.parent_event_id == MISSING_PARENT_ID
    ]
    assert marked == ["TurnStarted"]
    state = into.log.state(SESSION)
    assert state is not None
    assert state.anomalies == {"missing_parent": 1}


def test_a_copy_is_known_whatever_directory_and_version_it_names(
    script: Transcript, into: Import
) -> None:
    """B25, B27: what is copied, with another parent too, is counted and not repeated."""
    script.user("one")
    script.assistant("m1", text("two"))
    first = script.records[0]
    script.records.append(first | {"cwd": "/other", "version": "9", "parentUuid": "r2"})
    newer = json.loads(json.dumps(script.records[1]))
    newer["message"]["context_management"] = None
    script.records.append(newer)
    report = into.take(script)
    assert (report.records, report.copies, report.flagged) == (4, 2, 0)
    assert len(into.of(UserMessage)) == len(into.of(AssistantMessage)) == 1


def test_a_known_id_with_other_content_is_kept_and_flagged(
    script: Transcript, into: Import
) -> None:
    first = script.user("one")
    other = first | {"message": {"role": "user", "content": "another"}}
    script.records += [other, other]
    report = into.take(script)
    assert (report.copies, report.flagged) == (0, 2)
    said = [text_of(one.blocks) for one in into.of(UserMessage)]
    assert said == ["one", "another", "another"]


def test_ids_that_somebody_redacted_are_no_ids(into: Import) -> None:
    script = Transcript()
    for said in ("one", "two"):
        script.user(said, uuid="REDACTED", parentUuid="REDACTED")
    report = into.take(script)
    assert (report.flagged, report.copies, report.missing_parents) == (0, 0, 0)
    assert len(into.of(UserMessage)) == 2


def test_time_that_goes_back_changes_no_order(script: Transcript, into: Import) -> None:
    for minute in (5, 3, 9):
        script.user(str(minute), timestamp=f"2026-01-02T03:0{minute}:00.000Z")
    script.user("no zone", timestamp="2026-01-02T03:00:00")
    script.user("nonsense", timestamp="[trimmed]")
    into.take(script)
    said = [text_of(one.blocks) for one in into.of(UserMessage)]
    assert said == ["5", "3", "9", "no zone", "nonsense"]
    assert into.events()[-1].envelope.occurred_at is None


def test_a_boundary_whose_stitch_is_broken_is_flagged_and_all_stays_reachable(
    script: Transcript, into: Import
) -> None:
    """B24: the last record before the compaction, as it names it, was never written."""
    for number in range(20):
        script.user(f"turn {number}")
    boundary = {"parentUuid": None, "logicalParentUuid": "never-written"}
    script.add("system", subtype="compact_boundary", compactMetadata={}, **boundary)
    script.user("in short", isCompactSummary=True)
    report = into.take(script)
    assert report.missing_parents == 1
    assert len(into.of(UserMessage)) == 20
    (compacted,) = into.of(CompactionCompleted)
    assert compacted.to_seq == into.order().index("CompactionCompleted")


def test_work_between_two_compactions_stays_when_the_second_links_into_a_copy(
    script: Transcript, into: Import
) -> None:
    """B25."""
    early = script.user("early")
    script.add("system", subtype="compact_boundary", compactMetadata={})
    script.user("summary one", isCompactSummary=True)
    script.user("work in between")
    script.add("system", subtype="compact_boundary", compactMetadata={})
    script.records.append(early | {"parentUuid": script.last})
    script.user("summary two", isCompactSummary=True, parentUuid=early["uuid"])
    report = into.take(script)
    assert (report.compactions, report.copies, report.missing_parents) == (2, 1, 0)
    assert [text_of(one.blocks) for one in into.of(UserMessage)] == [
        *("early", "work in between")
    ]
    by_id = {e.envelope.event_id: e for e in into.events()}
    summary = next(e for e in reversed(into.events()) if e.type == "SummaryCreated")
    parent = by_id[summary.envelope.parent_event_id or ""]
    assert parent.type == "UserMessage"


def test_two_children_of_one_record_are_both_kept_with_their_parent(
    script: Transcript, into: Import
) -> None:
    """B26."""
    script.user("r1")
    script.assistant("a", text("answer shown"), parentUuid="r1")
    script.assistant("b", text("later"), parentUuid="r1")
    script.user("r3")
    into.take(script)
    events = {e.envelope.event_id: e for e in into.events()}
    prompt = next(e for e in into.events() if e.type == "UserMessage")
    said = [e for e in into.events() if e.type == "ModelCallCompleted"]
    assert {e.envelope.parent_event_id for e in said} == {prompt.envelope.event_id}
    last = into.events()[-1]
    parent = events[last.envelope.parent_event_id or ""]
    assert isinstance(parent.event, ModelCallCompleted)
    assert parent.event.model_call_id == "b"


def test_a_continued_file_that_copies_its_parent_adds_only_what_is_new(
    into: Import,
) -> None:
    """B27: what two files share is there once, in the session that it is of."""
    old = Transcript(session_id="old")
    old.user("one")
    old.add("system", subtype="compact_boundary", compactMetadata={})
    old.user("in short", isCompactSummary=True)
    into.take(old, "old.jsonl")
    before = into.order("old")
    new = Transcript(session_id="new", prefix="n")
    new.records = list(old.records)
    new.last = old.last
    new.user("two")
    report = into.take(new, "new.jsonl")
    assert report.alarms == []
    assert into.order("old") == before
    assert into.order("new") == ["SessionCreated", "TurnStarted", "UserMessage"]
    (created,) = into.of(SessionCreated, "new")
    assert (created.relation, created.parent_session_id) == ("CONTINUATION", "old")
    assert report.events == 3


def test_no_start_and_no_request_is_invented(script: Transcript, into: Import) -> None:
    """No start, no request for permission: the transcript records neither."""
    called(script).result("c1", DENIAL, is_error=True)
    script.assistant("m2", tool_use("c2"))
    script.result("c2")
    report = into.take(script)
    assert report.mapped == 5
    assert not {
        *("ToolExecutionStarted", "PermissionRequested", "ModelCallStarted"),
        *("ToolCallValidated", "SubagentStarted", "SessionCompleted"),
    } & set(into.types())
