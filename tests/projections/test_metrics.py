"""Events become counts: each thing once, in bounded labels, in the names of one table."""

from collections.abc import Iterable
from itertools import chain
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families as parsed

from foldline.processors.fold import initial
from foldline.producers.replay_inputs import FORKED
from foldline.projections.metric_names import (
    CONSUMER,
    FAMILIES,
    LABEL_VALUES_MAX,
    Family,
)
from foldline.projections.metrics import Counts, count
from foldline.projections.metrics_counting import Shown
from foldline.projections.metrics_text import SessionMetrics, view_of
from foldline.projections.metrics_tracked import Tracked
from foldline.schemas.blocks import text_block
from foldline.schemas.events import (
    CompactionCompleted,
    CompactionStarted,
    KnownEvent,
    ModelCallCompleted,
    ModelCallStarted,
    PermissionGranted,
    PermissionRequested,
    SessionCompleted,
    SessionCreated,
    SessionResumed,
    ToolCallRequested,
    ToolExecutionCompleted,
    ToolExecutionFailed,
    ToolExecutionStarted,
    ToolExecutionTimedOut,
    ToolOutcomeUnknown,
    TurnEnded,
    TurnStarted,
    Usage,
    UsageCorrected,
)
from foldline.schemas.recorded import Recorded
from tests import happenings as h
from tests.samples import SAMPLES
from tests.story import PERSON, Story

ROOT = Path(__file__).resolve().parents[2]
TEXT = (text_block("x"),)


def counts_of(*stories: Story) -> Counts:
    counts = Counts()
    for story in stories:
        _count_in(counts, story.session_id, story.events)
    return counts


def _count_in(counts: Counts, session_id: str, events: Iterable[Recorded]) -> None:
    tracked = Tracked(initial(session_id))
    for recorded in events:
        for sample in count(tracked, recorded):
            counts.add(sample)


def exposed(counts: Counts) -> dict[str, float]:
    """What Prometheus' own parser reads, by name and labels."""
    text = SessionMetrics(lambda: Shown(counts.series)).text().decode()
    samples = chain.from_iterable(family.samples for family in parsed(text))
    return {
        sample.name + "".join(f" {k}={v}" for k, v in sorted(sample.labels.items())): (
            sample.value
        )
        for sample in samples
    }


def begun() -> Story:
    return Story().given(SessionCreated(agent="coder"), TurnStarted(trigger="USER"))


def call(tool: str = "shell", index: int = 0) -> ToolCallRequested:
    return ToolCallRequested(
        call_id=f"m:{index}",
        tool=tool,
        args_hash="h",
        message_id="m",
        position=index,
        arguments=(),
    )


def test_usage_said_again_and_again_is_counted_once() -> None:
    story = begun().given(ModelCallStarted(model_call_id="m", provider="p", model="large"))
    story.given(ModelCallCompleted(model_call_id="m", usage=Usage(input_tokens=10)))
    for output_tokens in (1, 7, 40, 40):
        usage = Usage(input_tokens=10, output_tokens=output_tokens)
        story.given(UsageCorrected(model_call_id="m", usage=usage))
    found = exposed(counts_of(story))
    assert found["foldline_tokens_total kind=input model=large"] == 10
    assert found["foldline_tokens_total kind=output model=large"] == 40
    assert found["foldline_model_calls_total model=large outcome=COMPLETED"] == 1


@pytest.mark.parametrize("trigger", ["USER", "STEERING", "PARENT", "HARNESS", FORKED])
def test_what_foldline_itself_calls_a_trigger_is_counted_by_its_name(trigger: str) -> None:
    story = Story().given(SessionCreated(agent="coder"), TurnStarted(trigger=trigger))
    found = exposed(counts_of(story))
    assert found[f"foldline_turns_started_total trigger={trigger}"] == 1


def test_a_correction_downwards_never_lowers_a_counter() -> None:
    story = begun().given(
        ModelCallStarted(model_call_id="m", provider="p", model="large"),
        ModelCallCompleted(
            model_call_id="m", usage=Usage(output_tokens=50, cache_read_input_tokens=9)
        ),
        UsageCorrected(model_call_id="m", usage=Usage(output_tokens=30)),
    )
    counts = counts_of(story)
    found = exposed(counts)
    assert found["foldline_tokens_total kind=output model=large"] == 50
    assert found["foldline_tokens_taken_back_total kind=output model=large"] == 20
    assert found["foldline_model_cache_hits_total model=large"] == 1
    assert view_of(Shown(counts.series))["tokens"] == {"output": 30, "cache_read": 0}


def test_tools_are_counted_by_name_outcome_and_layer() -> None:
    story = begun().given(
        call(),
        call(index=1),
        ToolExecutionStarted(call_id="m:0", effect="IDEMPOTENT", operation_id="o0"),
        ToolExecutionCompleted(call_id="m:0", exit_code=2, duration_ms=300, output=()),
        ToolExecutionStarted(call_id="m:1", effect="IDEMPOTENT", operation_id="o1"),
        ToolExecutionFailed(
            call_id="m:1", layer="ENVIRONMENT", error_type="disk", executed="NO"
        ),
    )
    found = exposed(counts_of(story))
    assert found["foldline_tool_calls_total tool=shell"] == 2
    assert found["foldline_tool_executions_total tool=shell"] == 2
    assert found["foldline_tool_nonzero_exits_total tool=shell"] == 1
    assert found["foldline_tool_errors_total layer=ENVIRONMENT tool=shell"] == 1
    assert found["foldline_tool_duration_seconds_count tool=shell"] == 2
    assert found["foldline_tool_duration_seconds_bucket le=0.25 tool=shell"] == 1
    assert found["foldline_tool_duration_seconds_bucket le=0.5 tool=shell"] == 2


def test_the_wait_for_a_person_is_measured_in_log_time() -> None:
    story = begun().given(
        call(),
        PermissionRequested(request_id="r", call_id="m:0", args_hash="h", display=TEXT),
    )
    assert exposed(counts_of(story))["foldline_approvals_waiting"] == 1
    story.wait_ms(90_000)
    granted = PermissionGranted(
        request_id="r", call_id="m:0", args_hash="h", decided_by="PERSON", grant_id="g"
    )
    story.when(granted, by=PERSON)
    found = exposed(counts_of(story))
    assert found["foldline_approvals_waiting"] == 0
    assert found["foldline_approvals_total answer=GRANTED"] == 1
    assert found["foldline_approval_wait_seconds_sum answer=GRANTED"] == pytest.approx(
        90, abs=0.1
    )


def test_a_request_that_its_turn_took_along_was_abandoned() -> None:
    story = begun().given(
        call(),
        PermissionRequested(request_id="r", call_id="m:0", args_hash="h", display=TEXT),
        TurnEnded(outcome="ABORTED"),
    )
    found = exposed(counts_of(story))
    assert found["foldline_approvals_total answer=ABANDONED"] == 1
    assert found["foldline_approvals_waiting"] == 0


def test_a_take_over_in_a_turn_is_a_recovery_and_its_end_says_how_it_went() -> None:
    story = begun().given(
        call(),
        ToolExecutionStarted(call_id="m:0", effect="UNSAFE", operation_id="o"),
    )
    story.wait_ms(20_000)
    story.take("second", SessionResumed(reason="taken"))
    story.given(
        ToolOutcomeUnknown(call_id="m:0", reason="the owner died"),
        ModelCallStarted(model_call_id="m2", provider="p", model="large"),
    )
    found = exposed(counts_of(story))
    assert found["foldline_recoveries_total"] == found["foldline_recoveries_open"] == 1
    assert found["foldline_unknown_outcomes_open"] == 1
    assert found["foldline_unknown_outcomes_total tool=shell"] == 1
    assert found["foldline_standstill_seconds_sum"] == pytest.approx(20, abs=0.1)
    assert found["foldline_wake_seconds_count status=RUNNING"] == 1
    story.take("third", SessionResumed(reason="taken"))
    counts = counts_of(story)
    found = exposed(counts)
    assert found["foldline_recovery_results_total result=RETAKEN"] == 1
    assert found["foldline_recoveries_open"] == 1
    assert view_of(Shown(counts.series))["recovery_rate"] == 0


def test_a_session_is_in_one_status_at_a_time() -> None:
    story = begun().given(TurnEnded(outcome="DONE"), SessionCompleted())
    found = exposed(counts_of(story))
    by_status = {k: v for k, v in found.items() if k.startswith("foldline_sessions status")}
    assert sum(by_status.values()) == 1
    assert by_status["foldline_sessions status=COMPLETED"] == 1
    assert found["foldline_sessions_ended_total outcome=COMPLETED"] == 1
    assert found["foldline_turns_total outcome=DONE"] == 1


def test_compactions_say_what_they_saved() -> None:
    story = begun().given(
        CompactionStarted(compaction_id="c", base_seq=2, reason="full", token_before=900),
        CompactionCompleted(
            compaction_id="c",
            from_seq=1,
            to_seq=1,
            base_seq=2,
            strategy="summary",
            token_before=900,
            token_after=100,
        ),
    )
    found = exposed(counts_of(story))
    assert found["foldline_compactions_total outcome=COMPLETED"] == 1
    assert found["foldline_compaction_tokens_saved_total"] == 800


def test_what_detectors_and_policies_find_is_counted() -> None:
    story = begun().given(h.looped(), h.violated())
    found = exposed(counts_of(story))
    assert found["foldline_loops_total"] == 1
    assert found["foldline_policy_violations_total"] == 1


def test_open_labels_are_bounded_and_no_name_may_look_like_content() -> None:
    stories = [
        Story(session_id=f"s{number}").given(
            SessionCreated(agent="a"), TurnStarted(trigger="USER"), call(f"tool-{number}")
        )
        for number in range(LABEL_VALUES_MAX + 30)
    ]
    odd = begun().given(call("Authorization: Bearer abc def"), call("x" * 200, index=1))
    found = exposed(counts_of(odd, *stories))
    calls = {k: v for k, v in found.items() if k.startswith("foldline_tool_calls_total")}
    assert len(calls) == LABEL_VALUES_MAX + 1
    assert calls["foldline_tool_calls_total tool=other"] == 32
    assert sum(calls.values()) == len(stories) + 2


def test_every_type_of_event_is_counted_as_itself_and_breaks_nothing() -> None:
    story = begun()
    last = story.events[-1]
    events = [
        Recorded(last.envelope.model_copy(update={"seq": last.seq + n}), event, b"", 1)
        for n, event in enumerate(SAMPLES.values(), start=1)
    ]
    story.events.extend(events)
    found = exposed(counts_of(story))
    assert all(found[f"foldline_events_total type={name}"] >= 1 for name in SAMPLES)
    assert "foldline_events_total type=other" not in found


def test_sums_do_not_depend_on_the_order_of_sessions() -> None:
    stories = [
        Story(session_id=f"s{number}").given(
            SessionCreated(agent="a"), TurnStarted(trigger="USER"), call(), call(index=1)
        )
        for number in range(3)
    ]
    assert counts_of(*stories).series == counts_of(*reversed(stories)).series


def test_stored_counts_go_on_with_the_names_that_they_had() -> None:
    counts = counts_of(begun().given(call("first")))
    again = Counts.of(counts.series.items())
    assert again.series == counts.series
    assert again.names == counts.names


@pytest.mark.parametrize("family", [*FAMILIES.values(), *CONSUMER.values()], ids=str)
def test_names_and_units_follow_prometheus_conventions(family: Family) -> None:
    assert family.shown == family.shown.lower()
    assert not family.shown.endswith(("_total", "_count", "_sum", "_ms", "_bucket"))
    assert bool(family.buckets) == (family.kind == "histogram")
    seconds = family.shown.removesuffix("_timestamp_seconds").endswith("_seconds")
    assert seconds == (family.kind == "histogram")
    assert family.text.endswith(".")
    assert "le" not in family.labels


def test_every_name_is_in_the_documentation_as_it_is() -> None:
    text = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    for family in (*FAMILIES.values(), *CONSUMER.values()):
        name = family.shown + ("_total" if family.kind == "counter" else "")
        labels = ", ".join(f"`{label}`" for label in family.labels)
        row = f"| `{name}` | {family.kind} | {labels} | {family.text} |"
        assert row in text, row


def imported(*events: KnownEvent) -> dict[str, float]:
    """Counts of a session that another harness runs: calls are asked for, then these."""
    story = Story().given(SessionCreated(agent="coder", mode="MIRRORED"))
    story.given(TurnStarted(trigger="USER"))
    story.given(*(h.request(f"m:{number}", tool="shell") for number in range(2)))
    for event in events:
        story.when(event)
    return exposed(counts_of(story))


def test_an_execution_of_which_only_outcomes_are_recorded_counts_once() -> None:
    late = ToolExecutionTimedOut(call_id="m:1", stop_confirmed=False)
    found = imported(
        ToolExecutionFailed(call_id="m:0", layer="TOOL", error_type="E"),
        ToolExecutionFailed(call_id="m:0", layer="TOOL", error_type="E"),
        late,
        h.done("m:1"),
        h.done("m:1"),
    )
    assert found["foldline_tool_executions_total tool=shell"] == 2
    retried = h.done("m:0", attempt=2)
    found = imported(h.done("m:0"), retried, retried)
    assert found["foldline_tool_executions_total tool=shell"] == 2
    started = ToolExecutionStarted(call_id="m:0", operation_id="o", effect="READ_ONLY")
    found = imported(started, h.done("m:0"))
    assert found["foldline_tool_executions_total tool=shell"] == 1


def test_what_failed_in_the_background_is_an_error_of_its_tool() -> None:
    found = imported(
        h.backgrounded(call_id="m:0"),
        h.background_ends(outcome="FAILED"),
    )
    assert found["foldline_tool_executions_total tool=shell"] == 1
    assert found["foldline_tool_errors_total layer=TOOL tool=shell"] == 1
