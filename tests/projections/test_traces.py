"""A session's events as spans: parents, times, ends, links, usage, and what is left out."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldline.projections.otel_genai import UTIL_1_3
from foldline.projections.spans import EVENTS_MAX, Span, ref_of_traceparent
from foldline.projections.trace_board import OWNER_LOST
from foldline.projections.traces import Traces, traced
from foldline.schemas.blocks import json_block, text_block
from foldline.schemas.envelope import Source
from foldline.schemas.events import (
    AssistantMessage,
    BackgroundEnded,
    CompactionCompleted,
    CompactionStarted,
    KnownEvent,
    ModelCallCompleted,
    ModelCallFailed,
    ModelCallStarted,
    PermissionDenied,
    PermissionGranted,
    PermissionRequested,
    SessionCreated,
    SessionFailed,
    SessionResumed,
    SteeringReceived,
    ToolBackgrounded,
    ToolCallRequested,
    ToolExecutionCompleted,
    ToolExecutionFailed,
    ToolExecutionStarted,
    ToolOutcomeResolved,
    ToolOutcomeUnknown,
    ToolResultProjected,
    TurnEnded,
    TurnStarted,
    Usage,
    UsageCorrected,
    UserMessage,
)
from foldline.schemas.recorded import Recorded
from tests.story import OWNER, STEP_US, Story
from tests.strategies import colliding_events

SAID = "Authorization: Bearer told-to-nobody"
HASH = "hash"


def asked(call_id: str, tool: str = "shell") -> ToolCallRequested:
    position = int(call_id.partition(":")[2])
    return ToolCallRequested(
        call_id=call_id,
        provider_call_id=f"toolu-{position}",
        tool=tool,
        args_hash=HASH,
        message_id="a1",
        position=position,
        arguments=(json_block(f'{{"cmd": "{SAID}"}}'),),
    )


def started(call_id: str, attempt: int = 1, effect: str = "READ_ONLY") -> KnownEvent:
    return ToolExecutionStarted(
        call_id=call_id, attempt=attempt, effect=effect, operation_id=f"op-{call_id}"
    )


def done(call_id: str, attempt: int = 1, exit_code: int = 0) -> KnownEvent:
    return ToolExecutionCompleted(
        call_id=call_id,
        attempt=attempt,
        exit_code=exit_code,
        duration_ms=7,
        output=(text_block(SAID),),
    )


def answered(call_id: str = "m1", **fields: object) -> tuple[KnownEvent, ...]:
    said = AssistantMessage(
        message_id="a1", model_call_id=call_id, blocks=(text_block(SAID),)
    )
    begun = ModelCallStarted(model_call_id=call_id, provider="anthropic", model="large")
    completed = {"model_call_id": call_id} | fields
    return begun, ModelCallCompleted.model_validate(completed), said


def begun(*events: KnownEvent) -> Story:
    return Story().given(
        SessionCreated(agent="coder"), TurnStarted(trigger="USER"), *events
    )


def mirrored(*events: KnownEvent) -> Story:
    source = Source(system="claude-code", stream="x", position="1", sha256=b"\0" * 32)
    story = Story(source=source)
    return story.given(SessionCreated(agent="claude-code", mode="MIRRORED"), *events)


def spans_of(story: Story, *, reason: str = "log_ends") -> dict[str, Span]:
    """By name; a second of the same name has its number behind it."""
    found: dict[str, Span] = {}
    for span in traced("session", story.events, reason=reason):
        again = sum(name.partition(" #")[0] == span.name for name in found)
        found[f"{span.name} #{again + 1}" if again else span.name] = span
    return found


def parents_of(found: dict[str, Span]) -> dict[str, str]:
    names = {span.ref.span_id: name for name, span in found.items()}
    return {name: names.get(span.parent_id, "") for name, span in found.items()}


def test_a_turn_is_a_trace_with_its_calls_side_by_side_below_it() -> None:
    story = begun(*answered(), asked("m1:0"), asked("m1:1", "read"))
    story.given(started("m1:0"), started("m1:1"), done("m1:1"), done("m1:0"))
    story.given(TurnEnded(outcome="DONE"))
    found = spans_of(story)
    assert parents_of(found) == {
        "invoke_agent coder": "",
        "chat large": "invoke_agent coder",
        "execute_tool shell": "invoke_agent coder",
        "execute_tool read": "invoke_agent coder",
        "execution shell": "execute_tool shell",
        "execution read": "execute_tool read",
    }
    assert {span.status for span in found.values()} == {"OK"}
    assert len({span.ref.trace_id for span in found.values()}) == 1
    shell, read = found["execute_tool shell"], found["execute_tool read"]
    assert shell.start_us < read.start_us < read.end_us < shell.end_us


def test_every_span_says_which_conversation_it_is_of() -> None:
    for span in spans_of(begun(*answered(), asked("m1:0"), started("m1:0"))).values():
        assert span.attributes["gen_ai.conversation.id"] == "session"
        assert span.attributes["gen_ai.agent.name"] == "coder"


def test_a_call_has_its_hash_and_an_execution_its_exit_code_and_duration() -> None:
    found = spans_of(begun(*answered(), asked("m1:0"), started("m1:0"), done("m1:0")))
    call = found["execute_tool shell"].attributes
    assert call["gen_ai.tool.call.id"] == "m1:0"
    assert call["foldline.tool.provider_call_id"] == "toolu-0"
    assert call["foldline.tool.args_hash"] == HASH
    execution = found["execution shell"].attributes
    assert execution["foldline.execution.exit_code"] == 0
    assert execution["foldline.execution.duration_ms"] == 7


def test_a_model_call_has_its_reasons_and_its_first_chunk_in_seconds() -> None:
    story = begun(*answered(finish_reason="tool_use", response_id="r", ttft_ms=250))
    chat = spans_of(story)["chat large"]
    assert chat.kind == "CLIENT"
    assert chat.attributes["gen_ai.response.finish_reasons"] == ("tool_use",)
    assert chat.attributes["gen_ai.response.time_to_first_chunk"] == 0.25


def test_usage_is_counted_once_whatever_was_said_of_it_before() -> None:
    """B43: what was said last is the call's, and no other span has a part of it."""
    first = Usage(input_tokens=3, output_tokens=1, cache_read_input_tokens=10)
    last = Usage(input_tokens=3, output_tokens=9, cache_read_input_tokens=10)
    story = mirrored(TurnStarted(trigger="USER"), UserMessage(message_id="u", blocks=()))
    story.given(ModelCallCompleted(model_call_id="m1", model="large", usage=first))
    story.given(ModelCallCompleted(model_call_id="m1", model="large", usage=first))
    story.given(UsageCorrected(model_call_id="m1", usage=last), TurnEnded(outcome="DONE"))
    story.given(UsageCorrected(model_call_id="m1", usage=last))
    counts = [
        (span.name, value)
        for span in traced("session", story.events)
        for name, value in span.attributes.items()
        if name in {"gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"}
    ]
    assert counts == [("chat large", 13), ("chat large", 9)]


def test_a_mirrored_model_call_begins_where_the_model_had_heard_all() -> None:
    story = mirrored(TurnStarted(trigger="USER"), UserMessage(message_id="u", blocks=()))
    heard_us = story.clock_us
    times = iter(range(heard_us, heard_us + 10**9, 1_000_000))
    said = AssistantMessage(message_id="a", model_call_id="m1", blocks=())
    for event in (
        UserMessage(message_id="v", blocks=()),
        ModelCallCompleted(model_call_id="m1", model="large"),
        said,
        said.model_copy(update={"part": 1}),
        asked("m1:0"),
        done("m1:0"),
        ModelCallCompleted(model_call_id="m2", model="large"),
    ):
        story.given(event)
        _at(story, next(times))
    found = spans_of(story)
    first = found["chat large"]
    assert (first.start_us, first.end_us) == (heard_us, heard_us + 3_000_000)
    assert first.attributes["foldline.start.inferred"] is True
    assert found["chat large #2"].start_us == heard_us + 5_000_000
    assert "execution shell" not in found
    assert found["execute_tool shell"].status == "OK"


def _at(story: Story, time_us: int) -> None:
    """The last event, as its source says when it was."""
    last = story.events[-1]
    envelope = last.envelope.model_copy(update={"occurred_at": time_us})
    story.events[-1] = last._replace(envelope=envelope)


def test_calls_outside_of_any_turn_have_an_implied_one_and_are_no_roots() -> None:
    story = mirrored(ModelCallCompleted(model_call_id="m1"), asked("m1:0"), done("m1:0"))
    found = spans_of(story)
    assert parents_of(found)["execute_tool shell"] == "invoke_agent claude-code"
    assert found["invoke_agent claude-code"].attributes["foldline.certainty"] == "INFERRED"


def test_what_a_dead_owner_ran_ends_at_its_last_sign_of_life_with_the_reason() -> None:
    """And the takeover is a span, as long as nobody was there, with links back."""
    story = begun(*answered(), asked("m1:0"), started("m1:0", effect="RECONCILABLE"))
    died_us = story.clock_us
    story.wait_ms(60_000)
    story.take("second", SessionResumed(reason="taken"))
    resolved = ToolOutcomeResolved(call_id="m1:0", outcome="COMPLETED", resolver="mail")
    story.given(resolved, TurnEnded(outcome="DONE"))
    found = spans_of(story)
    execution, call = found["execution shell"], found["execute_tool shell"]
    assert (execution.end_us, execution.status) == (died_us, "ERROR")
    assert execution.attributes["error.type"] == OWNER_LOST
    assert execution.attributes["foldline.closed.reason"] == OWNER_LOST
    assert (call.status, call.attributes["foldline.outcome"]) == ("OK", "COMPLETED")
    gap, turn = found["takeover coder"], found["invoke_agent coder"]
    assert gap.end_us - gap.start_us == 60_000_000 + STEP_US
    assert [link.to for link in gap.links] == [turn.ref, execution.ref]
    assert (turn.status, gap.parent_id) == ("OK", turn.ref.span_id)


def test_a_run_that_died_and_was_not_resumed_is_closed_with_its_reason() -> None:
    story = begun(*answered(), asked("m1:0"), started("m1:0"))
    for name, span in spans_of(story, reason=OWNER_LOST).items():
        assert span.closed
        if name != "chat large":
            assert (span.status, span.attributes["error.type"]) == ("ERROR", OWNER_LOST)
    for span in spans_of(story).values():
        assert span.attributes.get("foldline.closed.reason", "log_ends") == "log_ends"
        assert span.status != "ERROR"


def test_a_late_outcome_of_a_dead_owner_is_its_executions_end_after_all() -> None:
    story = begun(*answered(), asked("m1:0"), started("m1:0"))
    story.take("second", SessionResumed(reason="taken"))
    assert story.when(done("m1:0"), by=OWNER).recorded
    execution = spans_of(story)["execution shell"]
    assert (execution.status, execution.end_us) == ("OK", story.clock_us)
    assert "foldline.closed.reason" not in execution.attributes
    assert "error.type" not in execution.attributes


def test_a_retry_is_another_execution_of_the_same_call_and_goes_back_to_the_first() -> None:
    failed = ToolExecutionFailed(
        call_id="m1:0", layer="TOOL", error_type="Timeout", executed="NO"
    )
    story = begun(*answered(), asked("m1:0"), started("m1:0"), failed)
    story.given(started("m1:0", 2), done("m1:0", 2), TurnEnded(outcome="DONE"))
    found = spans_of(story)
    first, second = found["execution shell"], found["execution shell #2"]
    assert (first.status, first.attributes["error.type"]) == ("ERROR", "Timeout")
    assert [link.to for link in second.links] == [first.ref]
    call = found["execute_tool shell"]
    assert (call.status, call.end_us) == ("OK", second.end_us)
    assert "error.type" not in call.attributes


def test_an_unknown_outcome_is_an_error_until_somebody_found_out() -> None:
    unknown = ToolOutcomeUnknown(call_id="m1:0", reason="nobody knows")
    story = begun(*answered(), asked("m1:0"), started("m1:0", effect="UNSAFE"), unknown)
    call = spans_of(story)["execute_tool shell"]
    assert (call.status, call.attributes["error.type"]) == ("ERROR", "outcome_unknown")
    resolved = ToolOutcomeResolved(call_id="m1:0", outcome="FAILED", resolver="person")
    call = spans_of(story.given(resolved))["execute_tool shell"]
    assert (call.status, call.attributes["foldline.outcome"]) == ("ERROR", "FAILED")


def test_a_permission_is_as_long_as_the_wait_and_a_denial_no_error() -> None:
    request = PermissionRequested(
        request_id="r1", call_id="m1:0", args_hash=HASH, display=(text_block(SAID),)
    )
    story = begun(*answered(), asked("m1:0"), asked("m1:1"), request)
    story.wait_ms(5_000)
    granted = PermissionGranted(
        request_id="r1", call_id="m1:0", args_hash=HASH, decided_by="PERSON", grant_id="g"
    )
    denied = PermissionDenied(call_id="m1:1", decided_by="POLICY", policy="no-shell")
    story.given(granted)
    story.when(denied, by=OWNER)
    found = spans_of(story)
    assert found["permission shell"].end_us - found["permission shell"].start_us > 5_000_000
    assert parents_of(found)["permission shell"] == "execute_tool shell"
    second = found["permission shell #2"]
    assert second.attributes["foldline.permission.decision"] == "DENIED"
    assert second.attributes["foldline.permission.policy"] == "no-shell"
    assert second.start_us == second.end_us
    call = found["execute_tool shell #2"]
    assert (call.status, call.attributes["foldline.outcome"]) == ("UNSET", "DENIED")


def test_what_runs_in_the_background_outlives_its_turn() -> None:
    story = begun(*answered(), asked("m1:0"), asked("m1:1"), started("m1:0"))
    story.given(started("m1:1"), ToolBackgrounded(call_id="m1:0", handle="h"))
    story.given(TurnEnded(outcome="ABORTED", reason="stopped"), TurnStarted(trigger="USER"))
    story.given(BackgroundEnded(handle="h", outcome="COMPLETED"))
    found = spans_of(story)
    call = found["execute_tool shell"]
    assert (call.status, call.end_us) == ("OK", story.clock_us)
    assert found["execute_tool shell #2"].attributes["foldline.closed.reason"] == (
        "turn_ended"
    )
    assert found["invoke_agent coder"].end_us < call.end_us


def test_a_session_that_fails_in_a_turn_ends_all_that_is_open() -> None:
    story = begun(*answered(), asked("m1:0"), started("m1:0"))
    story.given(SessionFailed(error_type="OutOfDisk"))
    found = spans_of(story)
    turn = found["invoke_agent coder"]
    assert (turn.status, turn.attributes["error.type"]) == ("ERROR", "OutOfDisk")
    closed = found["execution shell"].attributes["foldline.closed.reason"]
    assert closed == "session_ended"


def test_a_session_resumed_between_turns_links_the_next_turn_to_the_last() -> None:
    story = begun(TurnEnded(outcome="DONE"))
    story.take("second", SessionResumed(reason="taken"))
    story.given(TurnStarted(trigger="USER"))
    found = spans_of(story)
    first, second = found["invoke_agent coder"], found["invoke_agent coder #2"]
    assert [(link.kind, link.to) for link in second.links] == [("RESUME", first.ref)]
    assert second.ref.trace_id != first.ref.trace_id


def test_a_failed_model_call_and_its_retry_are_two_spans() -> None:
    first = ModelCallStarted(model_call_id="m1", provider="p", model="large")
    failed = ModelCallFailed(
        model_call_id="m1", error_type="overloaded", blocks=(text_block(SAID),)
    )
    again = first.model_copy(update={"model_call_id": "m2", "retry_of": "m1"})
    found = spans_of(begun(first, failed, again))
    one, other = found["chat large"], found["chat large #2"]
    assert (one.status, one.attributes["error.type"], one.message) == (
        "ERROR",
        "overloaded",
        "",
    )
    assert [link.to for link in other.links] == [one.ref]


def test_the_call_after_a_compaction_says_that_its_context_was_compacted() -> None:
    story = begun(*answered())
    base = story.seq
    story.given(CompactionStarted(compaction_id="c", base_seq=base, reason="full"))
    story.given(
        CompactionCompleted(
            compaction_id="c", from_seq=1, to_seq=base, base_seq=base, strategy="summary"
        )
    )
    story.given(*answered("m2"), *answered("m3"))
    marks = [
        span.attributes.get("gen_ai.conversation.compacted")
        for span in traced("session", story.events)
        if span.name == "chat large"
    ]
    assert marks == [None, True, None]


def test_what_happens_beside_is_an_event_and_events_are_bounded() -> None:
    story = begun(*answered(), asked("m1:0"), started("m1:0"), done("m1:0"))
    story.given(ToolResultProjected(call_id="m1:0", form="FULL", tokens=3, blocks=()))
    events = spans_of(story)["execute_tool shell"].events
    assert [event.name for event in events] == ["foldline.observation"]
    traces = Traces("session")
    for recorded in story.events:
        traces.take(recorded)
    steering = Recorded(
        story.events[-1].envelope, SteeringReceived(blocks=(text_block(SAID),)), b"", 0
    )
    for _ in range(EVENTS_MAX + 5):
        traces.take(steering)
    turn = traces.finished()[0]
    assert (len(turn.events), turn.events_dropped) == (EVENTS_MAX, 5)


def test_no_content_is_in_a_span_unless_it_is_asked_for() -> None:
    """B45: what a tool or a model said stays in the log."""
    story = begun(*answered(), asked("m1:0"), started("m1:0"), done("m1:0"))
    assert SAID not in repr(traced("session", story.events))
    traces = Traces("session", content=True)
    for recorded in story.events:
        traces.take(recorded)
    told = {
        name
        for span in traces.finished()
        for name, value in span.attributes.items()
        if SAID in str(value)
    }
    assert told == {
        "gen_ai.output.messages",
        "gen_ai.tool.call.arguments",
        "gen_ai.tool.call.result",
    }


def test_the_other_version_of_the_conventions_has_its_names() -> None:
    usage = Usage(input_tokens=1, output_tokens=1, cache_write_input_tokens=5)
    story = begun(*answered(usage=usage, ttft_ms=1))
    traces = Traces("session", names=UTIL_1_3)
    for recorded in story.events:
        traces.take(recorded)
    attributes = traces.finished()[1].attributes
    assert attributes["gen_ai.usage.cache_creation.input_tokens"] == 5
    assert "gen_ai.usage.cache_write.input_tokens" not in attributes
    assert "gen_ai.response.time_to_first_chunk" not in attributes


def test_a_traceparent_is_a_link_and_never_a_parent() -> None:
    """B44: where a span belongs is in the event, not in what ran around its writer."""
    named = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    story = begun()
    last = story.events[-1]
    envelope = last.envelope.model_copy(update={"traceparent": named})
    story.events[-1] = last._replace(envelope=envelope)
    turn = spans_of(story)["invoke_agent coder"]
    assert turn.parent_id == ""
    assert [(link.kind, link.to) for link in turn.links] == [
        ("TRACEPARENT", ref_of_traceparent(named))
    ]


@pytest.mark.parametrize(
    "text",
    ["", "00-1", f"00-{'0' * 32}-{'1' * 16}-01", f"00-{'1' * 32}-{'0' * 16}-01", "x" * 55],
)
def test_what_is_no_traceparent_is_no_link(text: str) -> None:
    assert ref_of_traceparent(text) is None


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["OWNED", "MIRRORED"]), st.lists(colliding_events(), max_size=40))
def test_any_history_gives_spans_that_form_trees(mode: str, told: list[KnownEvent]) -> None:
    """The walk never raises; it gives the same again; nothing hangs in the air."""
    story = Story().given(SessionCreated(agent="a", mode=mode))
    for event in told:
        story.when(event)
    spans = traced("session", story.events)
    assert traced("session", story.events) == spans
    known = {span.ref.span_id: span for span in spans}
    assert len(known) == len(spans)
    for span in spans:
        assert span.end_us >= span.start_us > 0
        above = known.get(span.parent_id)
        assert (above is None) == (span.what == "turn")
        assert above is None or above.ref.trace_id == span.ref.trace_id
    requested = {event.call_id for event in story.told(ToolCallRequested)}
    assert sum(span.what == "call" for span in spans) == len(requested)
