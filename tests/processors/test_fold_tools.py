"""Tool calls: what runs, what is certain, what is unknown, and what comes late."""

import pytest

from foldline.processors.anomalies import MISSING_PARENT_ID
from foldline.processors.fold import evolve
from foldline.schemas.envelope import Source
from foldline.schemas.events import KnownEvent, SessionResumed
from foldline.schemas.snapshots import decode_snapshot, encode_snapshot
from foldline.schemas.verdicts import ACCEPTED
from tests import happenings as h
from tests.story import Story

SOURCE = Source(system="openhands", stream="s", position="1", sha256=b"")


def status_of(story: Story, call_id: str = h.CALL) -> tuple[str, str]:
    """Status of a call, and what is known of its effect."""
    state = story.state
    call = state.calls.get(call_id) or state.finished[call_id]
    return call.status, call.executed


@pytest.mark.parametrize(
    ("end", "status", "executed"),
    [
        (h.done(), "COMPLETED", "YES"),
        (h.failed(), "FAILED", "UNKNOWN"),
        (h.failed(executed="NO"), "FAILED", "NO"),
        (h.failed(executed="YES"), "FAILED", "YES"),
        (h.cancelled(), "CANCELLED", "UNKNOWN"),
        (h.timed_out(confirmed=True), "TIMED_OUT", "UNKNOWN"),
        (h.resolved("COMPLETED"), "COMPLETED", "YES"),
        (h.resolved("FAILED"), "FAILED", "UNKNOWN"),
    ],
)
def test_a_confirmed_end_closes_the_call(
    end: KnownEvent, status: str, executed: str
) -> None:
    """It is listed among the finished for a while."""
    story = h.running().given(end)
    assert h.CALL not in story.state.calls
    assert status_of(story) == (status, executed)


@pytest.mark.parametrize(
    ("end", "status"),
    [
        (h.cancelled(confirmed=False), "CANCELLING"),
        (h.timed_out(), "TIMED_OUT"),
        (h.unknown(), "UNKNOWN"),
        (h.backgrounded(), "BACKGROUND"),
    ],
)
def test_what_confirms_nothing_leaves_the_call_open_and_its_outcome_attaches(
    end: KnownEvent, status: str
) -> None:
    """The tool may still be running: a late outcome closes the call, once."""
    story = h.running().given(end)
    assert status_of(story) == (status, "UNKNOWN")
    assert h.CALL in story.state.calls
    assert story.when(h.done()).kind == ACCEPTED
    assert status_of(story) == ("COMPLETED", "YES")
    assert story.when(h.done()).rule == "already_ended"
    assert not story.state.handles


@pytest.mark.parametrize("belief", ["COMPLETED", "FAILED"])
def test_after_a_resolved_outcome_the_first_real_one_is_still_taken_as_late(
    belief: str,
) -> None:
    """And then no other."""
    story = h.running().given(h.unknown(), h.resolved(belief))
    verdict = story.when(h.failed(executed="YES"))
    assert (verdict.kind, verdict.anomalies) == (ACCEPTED, ("late",))
    assert status_of(story) == ("FAILED", "YES")
    assert story.state.anomalies == {"late": 1}
    assert story.when(h.done()).rule == "already_ended"


def test_after_resolved_not_executed_the_call_may_be_started_again() -> None:
    """Positive evidence that nothing happened, even for an unsafe tool."""
    story = h.running().given(h.unknown(), h.resolved("NOT_EXECUTED"))
    assert status_of(story) == ("NOT_EXECUTED", "NO")
    story.given(h.start(attempt=2), h.done(attempt=2))
    assert status_of(story) == ("COMPLETED", "YES")


def test_the_real_outcome_of_what_was_believed_not_executed_ends_the_call() -> None:
    """Nothing is repeated after it."""
    story = h.running().given(h.unknown(), h.resolved("NOT_EXECUTED"), h.done())
    assert status_of(story) == ("COMPLETED", "YES")
    assert story.when(h.start(attempt=2)).rule == "already_ended"
    assert story.when(h.failed()).rule == "already_ended"


def test_an_outcome_of_a_former_attempt_does_not_end_the_running_one() -> None:
    """It is a fact about that attempt, and named late."""
    story = h.running(effect="IDEMPOTENT").given(h.timed_out())
    story.given(h.start(attempt=2, effect="IDEMPOTENT"))
    verdict = story.when(h.done(attempt=1))
    assert (verdict.kind, verdict.anomalies) == (ACCEPTED, ("late",))
    assert status_of(story) == ("RUNNING", "UNKNOWN")
    assert story.when(h.done(attempt=1)).rule == "already_ended"
    story.given(h.failed(attempt=2))
    assert status_of(story)[0] == "FAILED"


def test_a_failed_call_is_opened_again_by_a_retry() -> None:
    """It is the same call, with one more attempt."""
    story = h.running(effect="READ_ONLY").given(h.failed(), h.retry())
    story.given(h.start(attempt=2, effect="READ_ONLY"))
    assert story.state.calls[h.CALL].attempt == 2
    assert h.CALL not in story.state.finished
    assert not story.state.retries


def test_a_handle_lives_over_turns_and_owners_until_its_end() -> None:
    """Whoever owns the session then may tell."""
    story = h.running().given(h.backgrounded(), h.turn_ends(), h.turn())
    assert story.take("next", SessionResumed(reason="crash")).kind == ACCEPTED
    assert story.state.handles["h"].call_id == h.CALL
    assert story.state.status == "RUNNING"
    story.given(h.background_ends())
    assert not story.state.handles
    assert status_of(story) == ("COMPLETED", "YES")


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        ("COMPLETED", "COMPLETED"),
        ("FAILED", "FAILED"),
        ("CANCELLED", "CANCELLED"),
        ("UNKNOWN", "UNKNOWN"),
    ],
)
def test_background_work_ends_as_its_outcome_says(outcome: str, status: str) -> None:
    """UNKNOWN leaves the call open, to be resolved."""
    story = h.running().given(h.backgrounded(), h.background_ends("h", outcome))
    assert status_of(story)[0] == status
    assert (h.CALL in story.state.calls) == (outcome == "UNKNOWN")


def test_background_work_that_was_resolved_may_still_tell_its_real_end() -> None:
    """Once, as late."""
    story = h.running().given(h.backgrounded(), h.resolved("FAILED"))
    assert not story.state.handles
    verdict = story.when(h.background_ends())
    assert (verdict.kind, verdict.anomalies) == (ACCEPTED, ("late",))
    assert status_of(story) == ("COMPLETED", "YES")
    assert story.when(h.background_ends()).rule == "unknown_handle"


def test_background_work_whose_call_has_its_real_end_tells_no_other() -> None:
    """Whatever was believed of it before."""
    story = h.running().given(h.backgrounded(), h.resolved("NOT_EXECUTED"), h.done())
    assert story.when(h.background_ends()).rule == "unknown_handle"


@pytest.mark.parametrize("attempt", [-(2**63), -1, 0, 61, 62, 63, 10**6, 2**63 - 1])
def test_a_mirror_may_count_attempts_as_it_likes(attempt: int) -> None:
    """The call ends, and its state can be stored."""
    story = h.session(mode="MIRRORED").given(h.turn(), h.request(), h.start())
    story.given(h.start(attempt=attempt), h.done(attempt=attempt))
    assert story.when(h.done(attempt=attempt)).anomalies == ("second_result",)
    assert decode_snapshot(encode_snapshot(story.state)) == story.state


def test_times_that_others_judge_are_log_times_from_the_events_own() -> None:
    """Milliseconds after the start was recorded, not a writer's clock."""
    story = h.running(start_by_ms=5, deadline_ms=7)
    call, recorded_at = story.state.calls[h.CALL], story.state.recorded_at
    assert call.start_by_at == recorded_at + 5_000
    assert call.deadline_at == recorded_at + 7_000


def test_times_and_tokens_beyond_64_bits_stop_at_the_largest_number() -> None:
    """A state can always be stored."""
    story = h.session(mode="MIRRORED").given(
        h.request(), h.start(start_by_ms=2**62, deadline_ms=-(2**62)), h.done()
    )
    story.given(
        *(h.model_completes(str(n), usage={"input_tokens": 2**62}) for n in range(3))
    )
    assert story.state.usage.input_tokens == 2**63 - 1
    assert story.state.finished[h.CALL].start_by_at == 2**63 - 1
    assert evolve(story.state, story.events[-1]).usage == story.state.usage


def test_an_invalid_call_is_closed_with_whatever_waited_for_it() -> None:
    """No request stays pending for a call that cannot run."""
    story = h.waiting().given(h.validated(valid=False))
    assert not story.state.requests
    assert status_of(story) == ("INVALID", "NO")
    assert h.with_call().given(h.validated(valid=True)).state.calls[h.CALL]


def test_a_cancellation_stays_known_until_what_it_is_about_has_ended() -> None:
    """The widest counts; each call remembers its own."""
    story = h.running().given(h.request("b"), h.start("b"))
    story.given(h.cancel("CALL", h.CALL), h.cancel("CALL", "b"))
    calls = story.state.calls
    assert all(calls[i].cancel_seq for i in (h.CALL, "b"))
    story.given(h.cancel("SESSION"), h.cancel("CALL", "b"), h.cancelled("b"))
    assert story.state.cancellation is not None
    assert story.state.cancellation.target == "SESSION"


def test_a_mirror_counts_results_that_do_not_fit_and_invents_nothing() -> None:
    """Each oddity has a name, in the verdict and in the state."""
    story = h.session(mode="MIRRORED").given(h.turn(), h.request())
    odd = [
        (h.done("x"), "result_without_call"),
        (h.start("x"), "start_without_request"),
        (h.background_ends("x"), "end_of_unknown_handle"),
        (h.grant("x", "x"), "answer_without_request"),
        (h.steering_applied("x"), "steering_not_pending"),
        (h.usage_corrected("x"), "correction_of_unknown_call"),
    ]
    for event, anomaly in odd:
        assert story.when(event).anomalies == (anomaly,)
    story.given(h.done())
    assert story.when(h.done()).anomalies == ("second_result",)
    story.given(h.model_starts(), h.model_completes())
    assert story.when(h.model_completes()).anomalies == ("model_outcome_twice",)
    assert "x" not in story.state.calls
    assert story.state.finished[h.CALL].started_seq == 0


def test_a_missing_start_is_odd_only_where_the_source_records_starts() -> None:
    """Many sources know only requests and results."""
    story = h.session(mode="MIRRORED").given(h.turn(), h.request("a"), h.request("b"))
    assert story.when(h.done("a")).anomalies == ()
    story.source = SOURCE
    assert story.when(h.done("b")).anomalies == ("missing_start",)


def test_a_missing_parent_is_named_whatever_the_event_is() -> None:
    """The source names a parent that it does not hold."""
    story = h.session(mode="MIRRORED")
    story.parent_event_id = MISSING_PARENT_ID
    assert story.when(h.user()).anomalies == ("missing_parent",)


def test_a_full_list_of_a_mirror_counts_the_rest() -> None:
    """Nothing is refused, nothing grows without end, nothing is forgotten in silence."""
    story = h.session(mode="MIRRORED").given(*(h.request(str(n)) for n in range(300)))
    assert len(story.state.calls) == 256
    assert story.state.dropped == {"open_calls": 44}
