"""The recovery plan: what each open thing calls for, and that none is forgotten."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldline.projections.recovery import (
    AskPerson,
    CancelModelCall,
    CloseCall,
    ExpireRequest,
    FailCompaction,
    HonourCancellation,
    KeepHandle,
    MarkUnknown,
    NeedsPerson,
    OfferAgain,
    PlannedAction,
    Reconcile,
    RecoveryPolicy,
    Retry,
    RetryLater,
    RunCall,
    plan_recovery,
    question_id,
)
from foldline.projections.resuming import needs_harness, waits_for_people
from foldline.schemas.state import EXECUTING, NOT_BEGUN
from tests.happenings import (
    ask,
    backgrounded,
    cancel,
    cancelled,
    compaction_starts,
    done,
    expired,
    grant,
    in_turn,
    model_starts,
    request,
    resolved,
    retry,
    running,
    session,
    start,
    steer,
    timed_out,
    turn_ends,
    unknown,
    waiting,
    with_call,
)
from tests.story import Story

CALL = "m:0"
QUESTION = question_id(CALL, 1)


def plan(story: Story, **options: int) -> tuple[PlannedAction, ...]:
    """The plan for a story's state, a second later."""
    now = story.state.recorded_at + 1_000_000
    resumes = options.pop("resumes", 1)
    return plan_recovery(story.state, now, RecoveryPolicy(**options), resumes=resumes)


def test_nothing_is_planned_for_a_session_without_open_work() -> None:
    """An idle session is not dead."""
    assert plan(session()) == ()
    assert plan(in_turn()) == ()
    assert plan(running().given(done())) == ()


@pytest.mark.parametrize("effect", ["READ_ONLY", "IDEMPOTENT"])
def test_what_is_safe_to_repeat_is_repeated_under_its_operation_id(effect: str) -> None:
    """And not before the old attempt can no longer begin."""
    story = running(effect=effect, start_by_ms=5_000)
    not_before = story.state.calls[CALL].start_by_at
    assert plan(story) == (Retry(CALL, 2, f"op of {CALL}", not_before),)
    assert not_before == story.state.recorded_at + 5_000_000


def test_a_reconcilable_tool_is_asked_and_never_just_repeated() -> None:
    """Also when its outcome was called unknown before: it may know now."""
    story = running(effect="RECONCILABLE", start_by_ms=1)
    asked = Reconcile(CALL, 1, f"op of {CALL}", story.state.calls[CALL].start_by_at)
    assert plan(story) == (asked,)
    assert plan(story.given(unknown())) == (asked,)


def test_an_unsafe_execution_is_unknown_and_a_person_is_asked() -> None:
    """Never retried because of silence."""
    mark, question = plan(running(effect="UNSAFE"))
    assert isinstance(mark, MarkUnknown)
    assert (mark.call_id, mark.attempt) == (CALL, 1)
    assert question == AskPerson(CALL, 1, QUESTION)


def test_a_person_is_asked_once_about_the_same_attempt() -> None:
    """A plan made again after half of it was carried out asks for the rest only."""
    story = running(effect="UNSAFE").given(unknown())
    assert plan(story) == (AskPerson(CALL, 1, QUESTION),)
    assert plan(story.given(ask(QUESTION, None))) == (OfferAgain(QUESTION, ""),)


def test_retries_are_bounded_and_then_a_person_decides() -> None:
    """Case B05: not the same resume for ever."""
    story = running(effect="IDEMPOTENT")
    for attempt in (2, 3):
        story.given(start(attempt=attempt, effect="IDEMPOTENT"))
    assert [type(action) for action in plan(story)] == [MarkUnknown]
    assert [type(action) for action in plan(story, attempts_max=4)] == [Retry]


def test_a_turn_resumed_too_often_needs_a_person() -> None:
    """What is safe to repeat is not repeated either: something kills its owners."""
    actions = plan(running(effect="IDEMPOTENT"), resumes=6, resumes_max=5)
    assert [type(action) for action in actions] == [NeedsPerson, MarkUnknown]


def test_a_timeout_of_an_idempotent_tool_is_repeated_of_an_unsafe_one_is_not() -> None:
    """Case B32: a time-out is an unknown outcome."""
    safe = plan(running(effect="IDEMPOTENT").given(timed_out()))
    unsafe = plan(running(effect="UNSAFE").given(timed_out()))
    assert [type(action) for action in safe] == [Retry]
    assert [type(action) for action in unsafe] == [MarkUnknown, AskPerson]


def test_what_was_cancelled_is_not_run_again() -> None:
    """Somebody wanted it to stop."""
    actions = plan(running(effect="IDEMPOTENT").given(cancelled(confirmed=False)))
    assert [type(action) for action in actions] == [MarkUnknown]


@pytest.mark.parametrize("target", ["TURN", "SESSION"])
def test_nothing_is_repeated_for_a_turn_that_is_to_stop(target: str) -> None:
    """Nobody wants its result."""
    actions = plan(running(effect="IDEMPOTENT").given(cancel(target)))
    assert [type(action) for action in actions] == [MarkUnknown, HonourCancellation]


@pytest.mark.parametrize(
    "story",
    [
        with_call(),
        waiting(),
        waiting(expires_ms=1),
        waiting().given(grant()),
        running(effect="RECONCILABLE").given(resolved("NOT_EXECUTED")),
    ],
    ids=["requested", "waiting", "expired", "granted", "not executed"],
)
def test_a_cancelled_call_that_has_not_happened_is_closed(story: Story) -> None:
    """With whatever is asked about it; it is not run."""
    story = story.given(cancel("CALL", CALL))
    assert plan(story) == (CloseCall(CALL),)
    assert not waits_for_people(story.state, plan(story))
    assert not needs_harness(plan(story), frozenset())
    assert plan(story.given(turn_ends("ABORTED"))) == ()


def test_a_cancelled_call_that_may_have_happened_is_settled_and_not_repeated() -> None:
    """Also by the plan after the one that said so."""
    for effect in ("READ_ONLY", "IDEMPOTENT"):
        story = running(effect=effect).given(cancel("CALL", CALL))
        assert [type(action) for action in plan(story)] == [MarkUnknown]
        assert plan(story.given(unknown())) == ()
    asked = running(effect="RECONCILABLE").given(cancel("CALL", CALL))
    assert [type(action) for action in plan(asked)] == [Reconcile]
    unsafe = running(effect="UNSAFE").given(cancel("CALL", CALL))
    assert [type(action) for action in plan(unsafe)] == [MarkUnknown, AskPerson]


def test_nothing_is_repeated_while_steering_wants_the_agent_to_look_up() -> None:
    """It is shown first; steering for a later turn stops nothing."""
    story = running(effect="IDEMPOTENT")
    assert [type(action) for action in plan(story.given(steer()))] == [MarkUnknown]
    later = running(effect="IDEMPOTENT").given(steer("NEXT_TURN"))
    assert [type(action) for action in plan(later)] == [Retry]


def test_nothing_is_repeated_for_a_turn_that_has_ended() -> None:
    """Nobody waits for its result; whether it happened is still said."""
    story = running(effect="IDEMPOTENT").given(turn_ends("ABORTED"))
    assert [type(action) for action in plan(story)] == [MarkUnknown]


def test_calls_that_never_began_have_still_to_run() -> None:
    """Requested, granted, expired, or found not to have happened."""
    assert plan(with_call()) == (RunCall(CALL),)
    assert plan(waiting().given(grant())) == (RunCall(CALL),)
    assert plan(waiting().given(expired())) == (RunCall(CALL),)
    story = running(effect="UNSAFE").given(resolved("NOT_EXECUTED"))
    assert plan(story) == (RunCall(CALL),)


def test_a_request_without_answer_is_offered_again_until_it_expires() -> None:
    """Case B36: an approval is not only in memory."""
    assert plan(waiting(expires_ms=2_000)) == (OfferAgain("r", CALL),)
    assert plan(waiting(expires_ms=500)) == (ExpireRequest("r", "TOOL"),)


def test_requests_that_nobody_answers_are_not_made_for_ever() -> None:
    """Case B35: after some expiries a person must act."""
    story = with_call()
    for number in range(3):
        story.given(ask(f"r{number}"), expired(f"r{number}"))
    assert [type(action) for action in plan(story)] == [NeedsPerson]
    assert [type(action) for action in plan(story, expiries_max=4)] == [RunCall]


def test_everything_else_that_is_open_is_in_the_plan() -> None:
    """Model calls, compactions, handles, retries and cancellations."""
    story = running().given(backgrounded())
    story.given(model_starts(), compaction_starts(base_seq=2), retry(), cancel("TURN"))
    assert plan(story) == (
        CancelModelCall("m"),
        FailCompaction("c"),
        KeepHandle("h", CALL),
        RetryLater(CALL, 2, story.state.retries[CALL].not_before_at),
        HonourCancellation("TURN", ""),
    )


def test_a_cancellation_of_a_turn_that_is_over_asks_for_nothing() -> None:
    """It came too late, or was done."""
    assert plan(session().given(cancel("TURN"))) == ()
    assert plan(in_turn().given(cancel("CALL", CALL))) == ()
    assert plan(session().given(cancel("SESSION"))) == (HonourCancellation("SESSION", ""),)


EFFECTS = ("READ_ONLY", "IDEMPOTENT", "RECONCILABLE", "UNSAFE")
ENDINGS = (None, "unknown", "timed_out", "cancelled", "not_executed", "background")


@given(
    calls=st.lists(
        st.tuples(st.sampled_from((None, *EFFECTS)), st.sampled_from(ENDINGS)), max_size=6
    ),
    resumes=st.integers(0, 7),
)
@settings(max_examples=150, deadline=None)
def test_a_plan_names_every_open_call_and_repeats_only_what_may_be(
    calls: list[tuple[str | None, str | None]], resumes: int
) -> None:
    """Whatever is open, in whatever order."""
    story = in_turn()
    for number, (effect, ending) in enumerate(calls):
        call_id = f"m:{number}"
        story.given(request(call_id))
        if effect is not None:
            story.given(start(call_id, effect=effect))
            _end(story, call_id, ending)
    actions = plan(story, resumes=resumes)
    named = {getattr(action, "call_id", "") for action in actions} - {""}
    safe = {c.call_id for c in story.state.calls.values() if c.effect in EFFECTS[:2]}
    begun = {
        c.call_id
        for c in story.state.calls.values()
        if c.status not in NOT_BEGUN and c.status in EXECUTING
    }
    assert begun <= named
    assert {a.call_id for a in actions if isinstance(a, Retry)} <= safe
    assert len(set(actions)) == len(actions)
    assert plan(story, resumes=resumes) == actions


def _end(story: Story, call_id: str, ending: str | None) -> None:
    match ending:
        case "unknown":
            story.given(unknown(call_id))
        case "timed_out":
            story.given(timed_out(call_id))
        case "cancelled":
            story.given(cancelled(call_id, confirmed=False))
        case "not_executed":
            story.given(resolved("NOT_EXECUTED", call_id))
        case "background":
            story.given(backgrounded(f"h of {call_id}", call_id))
        case _:
            pass


def test_every_kind_of_action_is_reached_by_some_state() -> None:
    """A plan that could not happen would be code that nobody needs."""
    stories = [running(effect=effect) for effect in EFFECTS] + [
        waiting(),
        waiting(expires_ms=1),
        with_call(),
        with_call().given(cancel("CALL", CALL)),
    ]
    everything = running().given(backgrounded(), model_starts(), retry())
    everything.given(compaction_starts(base_seq=2), cancel("SESSION"))
    kinds = {
        type(action)
        for story in [*stories, everything]
        for action in itertools.chain(plan(story), plan(story, resumes=9))
    }
    assert kinds == set(PlannedAction.__args__)
