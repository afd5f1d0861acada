"""Permissions and questions: bound to call and arguments, pending until answered."""

import pytest

from foldline.schemas.events import (
    KnownEvent,
    PermissionGranted,
    SessionResumed,
    SessionSuspended,
)
from foldline.schemas.verdicts import ACCEPTED
from tests import happenings as h
from tests.story import Story


def call_of(story: Story, call_id: str = h.CALL) -> str:
    """The status of a call."""
    state = story.state
    return (state.calls.get(call_id) or state.finished[call_id]).status


def test_a_granted_call_runs_with_the_arguments_that_were_granted() -> None:
    """The model's, where the person changed nothing."""
    story = h.waiting().given(h.grant())
    call = story.state.calls[h.CALL]
    assert (call.status, call.granted_args_hash) == ("GRANTED", call.args_hash)
    assert call.granted_seq == story.seq
    assert story.when(h.start()).kind == ACCEPTED


def test_edited_arguments_are_what_is_granted() -> None:
    """The grant is bound to the model's arguments and carries the person's."""
    story = h.waiting().given(h.grant(edited_args_hash="edited"))
    assert story.state.calls[h.CALL].granted_args_hash == "edited"
    assert story.when(h.start()).kind == ACCEPTED


def test_a_policy_grants_and_denies_without_a_request() -> None:
    """It decides through the owner, on the call's own arguments."""
    story = h.with_call().given(h.grant(None, decided_by="POLICY", policy="p"))
    assert call_of(story) == "GRANTED"
    story = h.with_call().given(
        h.deny(None, call_id=h.CALL, decided_by="POLICY", policy="p")
    )
    assert call_of(story) == "DENIED"
    assert h.CALL in story.state.finished


@pytest.mark.parametrize("scope", ["TURN", "SESSION"])
def test_an_earlier_grant_covers_further_calls_of_its_tool_as_far_as_its_scope(
    scope: str,
) -> None:
    """In this turn, or in this session, over owners too."""

    def by_earlier(call_id: str) -> PermissionGranted:
        return h.grant(None, call_id, decided_by="EARLIER_GRANT")

    story = h.waiting().given(h.grant(scope=scope), h.start(), h.done())
    story.given(h.request("b"), by_earlier("b"), h.start("b"), h.done("b"))
    assert story.take("next", SessionResumed(reason="crash")).kind == ACCEPTED
    story.given(h.request("c"), by_earlier("c"), h.turn_ends("ABORTED"))
    story.given(h.turn(), h.request("d"))
    verdict = story.when(by_earlier("d"))
    assert (verdict.kind == ACCEPTED) == (scope == "SESSION")


def test_a_denial_closes_the_call_unless_it_may_be_asked_for_again() -> None:
    """A single denial ends neither turn nor session."""
    story = h.waiting().given(h.deny())
    assert call_of(story) == "DENIED"
    assert h.CALL in story.state.finished
    story = h.waiting().given(h.deny(may_request_again=True))
    call = story.state.calls[h.CALL]
    assert (call.status, call.denials) == ("DENIED", 1)
    story.given(h.ask("r2"), h.grant("r2"), h.start(), h.done(), h.turn_ends())


def test_a_request_expires_by_log_time_and_stays_answerable_by_a_new_one() -> None:
    """Its own outcome, counted on the call."""
    story = h.waiting(expires_ms=100)
    request = story.state.requests["r"]
    assert request.expires_at == story.state.recorded_at + 100_000
    story.wait_ms(101)
    assert story.when(h.deny()).rule == "request_expired"
    story.given(h.expired())
    call = story.state.calls[h.CALL]
    assert (call.status, call.expiries) == ("EXPIRED", 1)
    story.given(h.ask("r2", expires_ms=100), h.grant("r2"), h.start())


def test_requests_survive_suspension_and_takeover_and_can_be_answered_then() -> None:
    """The person's answer waits for nobody to be alive."""
    story = h.waiting().given(h.question(), SessionSuspended(reason="r"))
    story.given(h.grant(), h.answer())
    assert not story.state.requests
    assert story.take("next", SessionResumed(reason="r")).kind == ACCEPTED
    assert call_of(story) == "GRANTED"
    assert story.when(h.start()).kind == ACCEPTED


def test_each_question_is_answered_once() -> None:
    """The second answer finds no question."""
    story = h.in_turn().given(h.question(), h.answer())
    assert story.when(h.answer()).rule == "no_pending_request"


def test_the_outcome_of_a_call_takes_its_pending_request_along() -> None:
    """A mirror may record a result without the answer before it."""
    story = h.session(mode="MIRRORED").given(h.turn(), h.request(), h.ask(), h.done())
    assert not story.state.requests
    assert story.state.status == "RUNNING"


def test_a_request_that_is_about_no_call_waits_all_the_same() -> None:
    """A plan, say: bound to the hash of what is asked."""
    story = h.in_turn().given(h.ask("r", None, kind="PLAN", args_hash="plan"))
    assert story.state.status == "WAITING_APPROVAL"
    story.given(h.grant("r", None, args_hash="plan"))
    assert story.state.status == "RUNNING"


@pytest.mark.parametrize(
    "end",
    [
        h.resolved(outcome="COMPLETED"),
        h.resolved(outcome="FAILED"),
        h.resolved(outcome="NOT_EXECUTED"),
        h.done(),
    ],
    ids=["found completed", "found failed", "found not executed", "came late"],
)
def test_a_question_about_a_call_is_answered_by_whatever_tells_its_end(
    end: KnownEvent,
) -> None:
    """Nobody has to answer it a second time, and the turn no longer waits."""
    story = h.running(effect="UNSAFE").given(h.unknown(), h.question(call_id=h.CALL))
    assert story.state.status == "WAITING_APPROVAL"
    story.given(end)
    assert not story.state.requests
    assert story.state.status == "RUNNING"


def test_a_question_about_a_call_does_not_keep_it_from_running() -> None:
    """It is no request for permission."""
    story = h.with_call().given(h.question(call_id=h.CALL))
    assert story.when(h.start()).kind == ACCEPTED
