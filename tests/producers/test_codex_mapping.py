"""What each record of a rollout becomes: items, turns, configuration, tokens."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from foldline.processors.open_log import open_log
from foldline.producers.codex_mapping import NOISE
from foldline.producers.openai_items import CALLS, SAID_BY_HARNESS, SERVER_TOOLS
from foldline.projections.building import build
from foldline.projections.reading import sources_of
from foldline.schemas.blocks import Blob, text_of
from foldline.schemas.events import (
    AssistantMessage,
    BackgroundEnded,
    CancellationRequested,
    CompactionCompleted,
    ConfigChanged,
    ForeignRecord,
    GoalSet,
    InstructionsSet,
    KnownEvent,
    ModelCallCompleted,
    ModelCallFailed,
    PermissionDenied,
    SteeringApplied,
    SteeringReceived,
    SubagentEnded,
    SubagentStarted,
    SystemObservation,
    ToolBackgrounded,
    ToolCallRequested,
    ToolExecutionCancelled,
    ToolExecutionCompleted,
    ToolExecutionFailed,
    ToolExecutionTimedOut,
    TurnEnded,
    TurnStarted,
    UsageCorrected,
    UserMessage,
)
from tests.rollouts import EXITED, MODEL, ROLLOUT, RUNNING, Rollout, into_codex, tokens
from tests.transcripts import Import

PIXEL = base64.b64encode(b"\x89PNG not really").decode()


@pytest.fixture
def into(tmp_path: Path) -> Import:
    return into_codex(open_log("memory:"), tmp_path)


@pytest.fixture
def script() -> Rollout:
    script = Rollout()
    script.meta()
    script.event("task_started", turn_id="t1")
    script.context(turn_id="t1")
    script.message("user", "do it")
    return script


# --- items -----------------------------------------------------------------------------


def test_what_the_model_says_until_an_output_is_one_call(
    script: Rollout, into: Import
) -> None:
    script.item("reasoning", summary=[], encrypted_content="gAAAA", id="r1")
    script.message("assistant", "first this")
    script.call("a", cmd="ls")
    script.call("b", cmd="pwd")
    script.output("a")
    script.output("b")
    script.used(10)
    script.message("assistant", "done")
    script.used(20)
    into.take(script.data)
    calls = into.of(ModelCallCompleted, ROLLOUT)
    said = into.of(AssistantMessage, ROLLOUT)
    assert [m.part for m in said] == [0, 1, 2, 3, 0]
    assert {m.model_call_id for m in said[:4]} == {calls[0].model_call_id}
    assert [c.model for c in calls] == [MODEL, MODEL]
    requested = into.of(ToolCallRequested, ROLLOUT)
    assert [r.call_id for r in requested] == [
        f"{calls[0].model_call_id}:{n}" for n in (2, 3)
    ]
    used = into.of(UsageCorrected, ROLLOUT)
    assert [(u.model_call_id, u.usage.input_tokens) for u in used] == [
        (calls[0].model_call_id, 10),
        (calls[1].model_call_id, 20),
    ]


def test_encrypted_reasoning_is_kept_verbatim_and_its_text_beside_it(
    script: Rollout, into: Import
) -> None:
    item = {"type": "reasoning", "id": "r1", "encrypted_content": "gAAAA/+=="}
    summary = [{"type": "summary_text", "text": "I think"}]
    script.add("response_item", item | {"summary": summary})
    into.take(script.data)
    block = into.of(AssistantMessage, ROLLOUT)[0].blocks[0]
    assert (block.kind, block.provider, block.model) == ("reasoning", "openai", MODEL)
    assert block.body == "I think"
    assert isinstance(block.opaque, str)
    assert json.loads(block.opaque) == item | {"summary": []}


def test_reasoning_without_anything_encrypted_goes_back_to_nobody(
    script: Rollout, into: Import
) -> None:
    script.item("reasoning", summary=[], id="r1")
    into.take(script.data)
    block = into.of(AssistantMessage, ROLLOUT)[0].blocks[0]
    assert (block.opaque, block.provider_item_id) == (None, "r1")


def test_images_become_blobs_wherever_they_stand(script: Rollout, into: Import) -> None:
    image = {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"}
    script.message("user", "look", image)
    script.call("a", "view_image", path="x.png")
    script.output("a", [{"type": "input_text", "text": "here"}, image])
    script.item("image_generation_call", id="ig", result=PIXEL, status="completed")
    script.message("user", {"type": "input_image", "image_url": None})
    into.take(script.data)
    blocks = [
        block
        for one in into.events(ROLLOUT)
        for block in getattr(one.event, "blocks", getattr(one.event, "output", ()))
        if block.kind == "image"
    ]
    assert [type(block.body) for block in blocks] == [Blob, Blob, Blob]
    body = blocks[0].body
    assert isinstance(body, Blob)
    assert into.log.blobs.get(body.sha256) == b"\x89PNG not really"


@pytest.mark.parametrize("kind", sorted(CALLS))
def test_every_kind_of_call_is_paired_with_its_output(
    script: Rollout, into: Import, kind: str
) -> None:
    script.item(kind, call_id="c1", name="t", **{CALLS[kind]: "x"})
    script.item(f"{kind}_output", call_id="c1", output="ok")
    report = into.take(script.data)
    request = into.of(ToolCallRequested, ROLLOUT)[0]
    assert request.tool == "t"
    assert into.of(ToolExecutionCompleted, ROLLOUT)[0].call_id == request.call_id
    assert (report.tool_calls, report.tool_results, report.open_tool_calls) == (1, 1, 0)


@pytest.mark.parametrize("kind", sorted(SERVER_TOOLS))
def test_what_the_provider_runs_itself_is_part_of_the_answer(
    script: Rollout, into: Import, kind: str
) -> None:
    script.item(kind, id="ws", action={"query": "x"})
    report = into.take(script.data)
    assert into.of(AssistantMessage, ROLLOUT)[0].blocks[0].kind == "server_tool"
    assert report.tool_calls == 0


@pytest.mark.parametrize(
    ("output", "kind", "has"),
    [
        (EXITED.format(0), ToolExecutionCompleted, {"exit_code": 0, "duration_ms": 500}),
        (EXITED.format(127), ToolExecutionFailed, {"error_type": "ExitCode:127"}),
        (EXITED.format(-1), ToolExecutionFailed, {"executed": "YES"}),
        ("Exit code: 0\nOutput:\nx", ToolExecutionCompleted, {"exit_code": 0}),
        ("Plan updated", ToolExecutionCompleted, {"exit_code": None}),
        (
            '{"output":"x","metadata":{"exit_code":2,"duration_seconds":0.1}}',
            ToolExecutionFailed,
            {"error_type": "ExitCode:2"},
        ),
        (
            '{"output":"x","metadata":{"exit_code":0,"duration_seconds":0.1}}',
            ToolExecutionCompleted,
            {"exit_code": 0, "duration_ms": 100},
        ),
        ({"content": "x", "success": False}, ToolExecutionFailed, {"layer": "TOOL"}),
        ({"content": "x", "success": True}, ToolExecutionCompleted, {"exit_code": None}),
        ({"type": "input_text", "text": "x"}, ToolExecutionCompleted, {}),
        ([{"type": "input_text", "text": "x"}], ToolExecutionCompleted, {}),
        ("aborted by user after 29.7s", ToolExecutionCancelled, {"stop_confirmed": True}),
        ("aborted", ToolExecutionCancelled, {"reason": "aborted"}),
        (
            "command timed out after 1000 milliseconds\nx",
            ToolExecutionTimedOut,
            {"after_ms": 1000, "stop_confirmed": False},
        ),
        (
            "Exit code: 124\nWall time: 1 s\nOutput:\ncommand timed out after 9 ms\nx",
            ToolExecutionTimedOut,
            {"after_ms": 9, "stop_confirmed": True},
        ),
        (
            EXITED.format(0) + "\ncommand timed out after 5000 ms",
            ToolExecutionCompleted,
            {"exit_code": 0},
        ),
        (
            EXITED.format(0) + "\nProcess running with session ID 77",
            ToolExecutionCompleted,
            {"exit_code": 0},
        ),
        (
            "notes:\nProcess running with session ID 77\nProcess exited with code 3",
            ToolExecutionCompleted,
            {"exit_code": None},
        ),
        (
            '{"output":"command timed out after 5 ms","metadata":{"exit_code":0}}',
            ToolExecutionCompleted,
            {"exit_code": 0},
        ),
        (
            '{"output":"Process exited with code 3","metadata":{"exit_code":0}}',
            ToolExecutionCompleted,
            {"exit_code": 0},
        ),
        ("exec command rejected by user", PermissionDenied, {"decided_by": "PERSON"}),
        ("unsupported call: foo", ToolExecutionFailed, {"executed": "NO"}),
        ("apply_patch verification failed: x", ToolExecutionFailed, {"layer": "TOOL"}),
        (RUNNING.format(7), ToolBackgrounded, {"handle": "7"}),
        (None, ToolExecutionCompleted, {"output": ()}),
    ],
)
def test_an_output_says_what_happened(
    script: Rollout, into: Import, output: Any, kind: type[KnownEvent], has: dict[str, Any]
) -> None:
    script.call("a", cmd="x")
    script.output("a", output)
    into.take(script.data)
    event = into.of(kind, ROLLOUT)[0]
    assert {name: getattr(event, name) for name in has} == has
    state = into.log.state(ROLLOUT)
    assert state is not None
    assert state.anomalies == {}


def test_a_running_process_ends_with_the_call_that_asks_about_it(
    script: Rollout, into: Import
) -> None:
    script.call("a", cmd="sleep 9")
    script.output("a", RUNNING.format(7))
    script.call("b", "write_stdin", session_id=7, chars="")
    script.output("b", RUNNING.format(7))
    script.call("c", "write_stdin", session_id=7, chars="")
    script.output("c", EXITED.format(3))
    into.take(script.data)
    asked = [r.continues_handle for r in into.of(ToolCallRequested, ROLLOUT)]
    assert asked == [None, "7", "7"]
    assert [b.handle for b in into.of(ToolBackgrounded, ROLLOUT)] == ["7"]
    ended = into.of(BackgroundEnded, ROLLOUT)
    assert [(e.handle, e.outcome) for e in ended] == [("7", "FAILED")]


def test_calls_and_outputs_that_do_not_pair_are_kept_and_counted(
    script: Rollout, into: Import
) -> None:
    script.output("never-called")
    script.call("a", cmd="x")
    script.output("a")
    script.output("a")
    script.call("open", cmd="x")
    report = into.take(script.data)
    assert (report.tool_calls, report.tool_results) == (2, 3)
    assert (report.open_tool_calls, report.orphan_results) == (1, 1)
    assert report.duplicate_results == 1
    ends = into.of(ToolExecutionCompleted, ROLLOUT)
    assert ends[0].call_id == "unknown:never-called"
    assert ends[1].call_id == ends[2].call_id
    state = into.log.state(ROLLOUT)
    assert state is not None
    assert state.anomalies["result_without_call"] == 1


def test_a_result_before_its_call_is_a_duplicate_of_the_file_and_odd_in_the_log(
    script: Rollout, into: Import
) -> None:
    for call in ("a", "b"):
        script.output(call)
    for call in ("a", "b"):
        script.call(call, cmd="x")
    report = into.take(script.data)
    assert (report.orphan_results, report.duplicate_results) == (0, 2)
    assert (report.tool_calls, report.open_tool_calls) == (2, 2)
    state = into.log.state(ROLLOUT)
    assert state is not None
    assert state.anomalies["result_without_call"] == 2


def test_a_repeated_id_is_two_calls(script: Rollout, into: Import) -> None:
    for _ in range(2):
        script.call("a", cmd="x")
        script.output("a")
    report = into.take(script.data)
    assert (report.tool_calls, report.duplicate_results) == (2, 0)
    ids = [r.call_id for r in into.of(ToolCallRequested, ROLLOUT)]
    assert len(set(ids)) == 2
    assert [e.call_id for e in into.of(ToolExecutionCompleted, ROLLOUT)] == ids


def test_arguments_that_do_not_parse_stay_as_they_are(
    script: Rollout, into: Import
) -> None:
    script.item("function_call", call_id="a", name="exec_command", arguments='{"cmd": "x')
    into.take(script.data)
    assert text_of(into.of(ToolCallRequested, ROLLOUT)[0].arguments) == '{"cmd": "x'


# --- people and the harness ------------------------------------------------------------


@pytest.mark.parametrize(("begin", "origin"), sorted(SAID_BY_HARNESS.items()))
def test_what_the_harness_says_as_the_user_is_no_prompt(
    script: Rollout, into: Import, begin: str, origin: str
) -> None:
    script.message("user", f"{begin} and more")
    into.take(script.data)
    assert [o.origin for o in into.of(SystemObservation, ROLLOUT)] == [origin]
    assert len(into.of(UserMessage, ROLLOUT)) == 1


def test_a_second_message_within_a_turn_is_steering(script: Rollout, into: Import) -> None:
    script.message("assistant", "working")
    script.message("user", "faster")
    into.take(script.data)
    received = into.of(SteeringReceived, ROLLOUT)
    assert [text_of(r.blocks) for r in received] == ["faster"]
    assert len(into.of(SteeringApplied, ROLLOUT)) == 1


def test_turns_are_told_where_the_rollout_tells_them(script: Rollout, into: Import) -> None:
    script.event("task_complete", turn_id="t1")
    script.event("task_started", turn_id="t2")
    script.message("user", "again")
    script.message("user", "<turn_aborted>")
    script.event("turn_aborted", turn_id="t2", reason="interrupted")
    into.take(script.data)
    turns = [
        (one.envelope.turn_id, one.envelope.certainty)
        for one in into.events(ROLLOUT)
        if isinstance(one.event, TurnStarted | TurnEnded)
    ]
    assert turns == [(t, "RECORDED") for t in ("t1", "t1", "t2", "t2")]
    assert [e.outcome for e in into.of(TurnEnded, ROLLOUT)] == ["DONE", "ABORTED"]
    assert into.of(CancellationRequested, ROLLOUT)[0].target_id == "t2"


def test_turns_of_the_bare_form_are_inferred_from_prompts(into: Import) -> None:
    script = Rollout(bare=True)
    script.meta()
    script.message("user", "<environment_context>x</environment_context>")
    script.message("user", "one")
    script.message("assistant", "1")
    script.message("user", "two")
    report = into.take(script.data)
    certain = {
        one.envelope.certainty
        for one in into.events(ROLLOUT)
        if isinstance(one.event, TurnStarted | TurnEnded)
    }
    assert certain == {"INFERRED"}
    assert len(into.of(TurnStarted, ROLLOUT)) == 2
    assert text_of(into.of(InstructionsSet, ROLLOUT)[0].blocks) == "Be brief."
    assert report.mapped == report.records


def test_configuration_is_told_where_it_changes(script: Rollout, into: Import) -> None:
    script.context(turn_id="t2")
    script.context(turn_id="t3", model="gpt-test-2", developer_instructions="Mind.")
    report = into.take(script.data)
    first, second = into.of(ConfigChanged, ROLLOUT)
    assert (first.model, first.permission_mode, first.sandbox, first.cwd) == (
        *(MODEL, "on-request"),
        *("read-only", "/w"),
    )
    assert (second.model, second.cwd) == ("gpt-test-2", None)
    assert [i.role for i in into.of(InstructionsSet, ROLLOUT)] == ["developer"]
    assert report.noise["turn_context"] == 1


def test_base_instructions_are_the_systems(into: Import) -> None:
    script = Rollout()
    script.meta(base_instructions={"text": "You are X."})
    into.take(script.data)
    told = into.of(InstructionsSet, ROLLOUT)
    assert [(i.role, text_of(i.blocks)) for i in told] == [("system", "You are X.")]


# --- tokens ----------------------------------------------------------------------------


def test_a_total_that_is_told_again_is_counted_once(script: Rollout, into: Import) -> None:
    script.message("assistant", "x")
    script.used(10)
    script.event("token_count", info=tokens(10, 10))
    script.event("token_count", info=None)
    report = into.take(script.data)
    state = into.log.state(ROLLOUT)
    assert state is not None
    assert state.usage.input_tokens == 10
    assert report.noise["event_msg/token_count"] == 2


def test_tokens_of_calls_that_are_not_shown_are_counted_too(
    script: Rollout, into: Import
) -> None:
    """The total is what was used, whatever the records show."""
    script.message("assistant", "x")
    script.used(10)
    script.event("token_count", info=tokens(45, 20))  # another went by, of 15
    into.take(script.data)
    state = into.log.state(ROLLOUT)
    assert state is not None
    assert (state.usage.input_tokens, state.usage.output_tokens) == (45, 22)
    used = [c.usage for c in into.of(ModelCallCompleted, ROLLOUT) if c.usage]
    assert [u.input_tokens for u in used] == [20, 15]


# --- what was taken back -----------------------------------------------------------------


def said_in(into: Import) -> str:
    """What the model is shown at the end."""
    sources = sources_of(into.log, ROLLOUT)
    assert sources is not None
    return str(build(sources).messages)


def test_turns_that_were_rolled_back_are_no_longer_shown(
    script: Rollout, into: Import
) -> None:
    """A turn is a message of the user, also one within another turn."""
    script.message("assistant", "done it")
    for word in ("second", "third", "fourth"):
        script.message("user", f"{word} prompt")
        script.message("assistant", f"{word} answer")
    script.event("thread_rolled_back", num_turns=2)
    script.message("user", "then this")
    into.take(script.data)
    shown = said_in(into)
    assert all(said in shown for said in ("do it", "second answer", "then this"))
    assert not any(said in shown for said in ("third", "fourth"))


def test_a_second_rollback_goes_on_from_the_first(script: Rollout, into: Import) -> None:
    for word in ("second", "third", "fourth"):
        script.message("user", f"{word} prompt")
    for _ in range(2):
        script.event("thread_rolled_back", num_turns=1)
    into.take(script.data)
    assert ["second" in said_in(into), "third" in said_in(into)] == [True, False]
    script.event("thread_rolled_back", num_turns=9)
    into.take(script.data)
    assert not any(said in said_in(into) for said in ("second", "do it"))


def test_a_rollback_leaves_what_a_compaction_put_in_its_place(
    script: Rollout, into: Import
) -> None:
    script.add("compacted", {"message": "so far"})
    script.message("user", "later prompt")
    script.event("thread_rolled_back", num_turns=3)
    into.take(script.data)
    assert ["so far" in said_in(into), "later" in said_in(into)] == [True, False]


@pytest.mark.parametrize("turns", [0, None, "two"])
def test_a_rollback_that_takes_nothing_back_is_kept_as_it_is(
    script: Rollout, into: Import, turns: Any
) -> None:
    script.event("thread_rolled_back", num_turns=turns)
    into.take(script.data)
    (foreign,) = into.of(ForeignRecord, ROLLOUT)
    assert foreign.record_type == "event_msg/thread_rolled_back"


# --- compaction, subagents, the rest ---------------------------------------------------


def test_a_compaction_holds_the_new_history(script: Rollout, into: Import) -> None:
    history = [
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "a"}],
        },
        {"type": "message", "role": "assistant", "content": "b"},
        {"type": "compaction", "encrypted_content": "gAAAAhistory"},
    ]
    script.add("compacted", {"message": "m", "replacement_history": history})
    script.event("context_compacted")
    report = into.take(script.data)
    (event,) = into.of(CompactionCompleted, ROLLOUT)
    at = into.order(ROLLOUT).index("CompactionCompleted") + 1
    assert (event.from_seq, event.to_seq, event.base_seq) == (1, at - 1, at - 1)
    assert [(b.name, b.body) for b in event.blocks[:2]] == [
        ("user", "a"),
        ("assistant", "b"),
    ]
    assert "gAAAAhistory" in str(event.blocks[2].opaque)
    assert report.compactions == 1


def test_a_compaction_without_a_history_holds_its_message(
    script: Rollout, into: Import
) -> None:
    script.add("compacted", {"message": "so far"})
    into.take(script.data)
    assert text_of(into.of(CompactionCompleted, ROLLOUT)[0].blocks) == "so far"


def test_subagents_are_named_with_their_call(script: Rollout, into: Import) -> None:
    script.call("a", "spawn_agent", message="look")
    script.event("collab_agent_spawn_end", call_id="a", new_thread_id="child")
    script.output("a", "child")
    script.event(
        "collab_close_end", receiver_thread_id="child", status={"completed": "done"}
    )
    into.take(script.data)
    started = into.of(SubagentStarted, ROLLOUT)[0]
    assert started.child_session_id == "child"
    assert started.call_id == into.of(ToolCallRequested, ROLLOUT)[0].call_id
    assert into.of(SubagentEnded, ROLLOUT)[0].outcome == "COMPLETED"


def test_errors_and_goals_are_told(script: Rollout, into: Import) -> None:
    script.event("stream_error", message="again")
    script.event("error", message="no", codex_error_info="usage_limit_exceeded")
    script.event("thread_goal_updated", goal={"objective": "win"})
    into.take(script.data)
    failed = into.of(ModelCallFailed, ROLLOUT)
    assert [f.error_type for f in failed] == ["stream_error", "usage_limit_exceeded"]
    assert text_of(into.of(GoalSet, ROLLOUT)[0].blocks) == "win"


@pytest.mark.parametrize("label", sorted(NOISE - {"state"}))
def test_declared_noise_is_counted_and_not_recorded(
    script: Rollout, into: Import, label: str
) -> None:
    kind, _, subtype = label.partition("/")
    before = len(into.events(ROLLOUT)) if into.take(script.data) else 0
    script.add(kind, {"type": subtype, "message": "x"})
    report = into.take(script.data)
    assert report.noise[label] == 1
    assert len(into.events(ROLLOUT)) == before


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        ("world_state", {"full": True}),
        ("response_item", {"type": "ghost_snapshot"}),
        ("response_item", {"type": "message", "role": "user", "content": 7}),
        ("response_item", {"type": "message", "role": "ghost", "content": "x"}),
        ("event_msg", {"type": "patch_apply_end", "call_id": "a"}),
        ("event_msg", {"type": "turn_aborted_by_nobody"}),
        ("session_meta", {"id": "another", "cwd": "/"}),
        ("brand_new", {"x": 1}),
    ],
)
def test_what_has_no_mapping_is_kept_as_it_is_in_its_place(
    script: Rollout, into: Import, kind: str, payload: dict[str, Any]
) -> None:
    script.add(kind, payload)
    script.message("assistant", "later")
    report = into.take(script.data)
    (kept,) = into.of(ForeignRecord, ROLLOUT)
    assert json.loads(text_of(kept.blocks))["payload"] == payload
    assert into.order(ROLLOUT)[-1] == "AssistantMessage"
    assert report.foreign.total() == 1


def test_time_that_goes_back_changes_no_order(script: Rollout, into: Import) -> None:
    script.message("assistant", "late")["timestamp"] = "2020-01-01T00:00:00Z"
    into.take(script.data)
    assert into.order(ROLLOUT)[-1] == "AssistantMessage"
