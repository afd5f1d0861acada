"""What a tool result of Claude Code says happened."""

from typing import Any

import pytest

from foldline.schemas.blocks import text_of
from foldline.schemas.events import (
    CancellationRequested,
    PermissionDenied,
    ToolCallRequested,
    ToolExecutionCancelled,
    ToolExecutionCompleted,
    ToolExecutionFailed,
    ToolExecutionTimedOut,
    ToolResultProjected,
    TurnEnded,
    TurnStarted,
)
from tests.transcripts import (
    DENIAL,
    INTERRUPT,
    SESSION,
    Import,
    Transcript,
    called,
    text,
    tool_result,
    tool_use,
)


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


def test_an_id_that_is_no_text_pairs_all_the_same(script: Transcript, into: Import) -> None:
    script.user("go")
    script.assistant("m1", {"type": "tool_use", "id": 7, "name": "Bash"})
    script.user([{"type": "tool_result", "tool_use_id": 7, "content": "x"}])
    report = into.take(script)
    assert (report.tool_calls, report.open_tool_calls) == (1, 0)
    (requested,) = into.of(ToolCallRequested)
    assert (requested.provider_call_id, text_of(requested.arguments)) == ("7", "{}")
    assert into.of(ToolExecutionCompleted)[0].call_id == "m1:0"


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
