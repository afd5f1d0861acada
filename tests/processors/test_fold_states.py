"""The status of a session: its steps, and every row of the status table."""

import pytest

from foldline.processors.rules import legal_in
from foldline.schemas.events import (
    EVENT_TYPES,
    KnownEvent,
    SessionCancelled,
    SessionCompleted,
    SessionFailed,
    SessionReopened,
    SessionResumed,
    SessionSuspended,
    TurnEnded,
)
from foldline.schemas.state import ENDED, STATUSES
from foldline.schemas.verdicts import ACCEPTED, CLOSED
from tests import happenings as h
from tests.samples import SAMPLES
from tests.story import Story

SUSPEND = SessionSuspended(reason="overnight")
RESUME = SessionResumed(reason="morning")


def in_status(status: str) -> Story:
    """An owned session in a status."""
    story = {
        "CREATED": h.session,
        "IDLE": lambda: h.in_turn().given(h.turn_ends()),
        "RUNNING": h.in_turn,
        "WAITING_APPROVAL": h.waiting,
        "SUSPENDED": lambda: h.in_turn().given(SUSPEND),
        "COMPLETED": lambda: h.in_turn().given(SessionCompleted()),
        "FAILED": lambda: h.in_turn().given(SessionFailed(error_type="E")),
        "CANCELLED": lambda: h.in_turn().given(SessionCancelled(reason="r")),
    }[status]()
    assert story.state.status == status
    return story


def legal(story: Story, event: KnownEvent) -> bool:
    """Whether the status, whatever else, lets the event happen."""
    claim = isinstance(event, SessionResumed | SessionReopened)
    verdict = story.take("next", event) if claim else story.when(event)
    return verdict.kind != CLOSED and verdict.rule != "status"


@pytest.mark.parametrize("name", sorted(EVENT_TYPES.keys() - {"SessionCreated"}))
def test_an_event_happens_in_the_statuses_of_the_table_and_in_no_other(
    name: str,
) -> None:
    """Each cell of the table in docs/states.md, tried."""
    statuses = {s for s in STATUSES if legal(in_status(s), SAMPLES[name])}
    assert statuses == legal_in(name)


def test_a_turn_takes_a_session_from_created_to_running_to_idle_and_back() -> None:
    """Nobody need be alive in IDLE."""
    story = h.session()
    events = (h.turn(), h.turn_ends(), h.turn(), h.turn_ends("ABORTED"))
    seen = [story.state.status, *(story.given(e).state.status for e in events)]
    assert seen == ["CREATED", "RUNNING", "IDLE", "RUNNING", "IDLE"]
    assert story.state.turn is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("CREATED", "IDLE"),
        ("IDLE", "IDLE"),
        ("RUNNING", "RUNNING"),
        ("WAITING_APPROVAL", "WAITING_APPROVAL"),
    ],
)
def test_a_suspended_session_resumes_as_what_it_was(before: str, after: str) -> None:
    """With the turn that was open, and with its requests."""
    story = in_status(before)
    turn, requests = story.state.turn, story.state.requests
    story.given(SUSPEND)
    assert (story.state.status, story.state.reason) == ("SUSPENDED", "overnight")
    assert story.take("next", RESUME).kind == ACCEPTED
    assert (story.state.status, story.state.reason) == (after, "")
    assert (story.state.turn, story.state.requests) == (turn, requests)


@pytest.mark.parametrize("status", [s for s in STATUSES if s not in ENDED])
def test_a_session_is_taken_over_in_every_open_status_and_keeps_its_turn(
    status: str,
) -> None:
    """That is crash recovery."""
    story = in_status(status)
    turn = story.state.turn
    assert story.take("next", RESUME).kind == ACCEPTED
    assert (story.state.owner, story.state.epoch) == ("next", 2)
    assert story.state.turn == turn


def test_waiting_is_derived_a_turn_is_open_a_request_pends_and_nothing_runs() -> None:
    """It is never stepped, so it cannot be forgotten."""
    story = h.waiting()
    events = (
        h.model_starts(),
        h.model_completes(),
        h.request("m:1"),
        h.start("m:1"),
        h.done("m:1"),
        h.grant(),
    )
    seen = [story.state.status, *(story.given(e).state.status for e in events)]
    waits = "WAITING_APPROVAL"
    runs = "RUNNING"
    assert seen == [waits, runs, waits, waits, runs, waits, runs]


def test_what_an_earlier_turn_left_running_does_not_hide_that_the_agent_waits() -> None:
    """A person must see that somebody waits for an answer."""
    story = h.running().given(h.timed_out(), h.turn_ends(), h.turn())
    story.given(h.request("m:1"), h.ask("r", "m:1"))
    assert story.state.status == "WAITING_APPROVAL"


def test_a_turns_end_takes_its_requests_grants_and_calls_never_begun_along() -> None:
    """A grant for the session stays."""
    story = h.waiting().given(h.grant(scope="TURN", grant_id="turn"))
    story.given(h.request("b"), h.ask("r", "b"), h.grant("r", "b", scope="SESSION"))
    story.given(h.request("c"), h.ask("r", "c"), h.question())
    story.given(h.cancel("TURN"), h.turn_ends("ABORTED"))
    state = story.state
    assert not state.requests
    assert not state.calls
    assert {c.status for c in state.finished.values()} == {"ABANDONED"}
    assert set(state.grants) == {"g"}
    assert state.cancellation is None


def test_an_end_in_the_middle_of_a_turn_closes_the_turn_and_keeps_what_runs() -> None:
    """The facts of what was open are still to come."""
    story = h.running().given(h.model_starts(), h.retry(), h.cancel("SESSION"))
    story.given(SessionFailed(error_type="OutOfBudget"))
    state = story.state
    assert (state.status, state.reason, state.turn) == ("FAILED", "OutOfBudget", None)
    assert set(state.calls) == {h.CALL}
    assert set(state.model_calls) == {"m"}
    assert not state.retries
    assert state.cancellation is None


def test_a_reopened_session_is_idle_with_a_new_owner() -> None:
    """A new epoch, as with every claim."""
    story = in_status("CANCELLED")
    assert story.take("next", SessionReopened(reason="more")).kind == ACCEPTED
    state = story.state
    assert (state.status, state.reason) == ("IDLE", "")
    assert (state.owner, state.epoch) == ("next", 2)


def test_a_mirror_takes_steps_that_no_table_has() -> None:
    """Its source may begin a turn after the end: shown, named, not mended."""
    story = h.session(mode="MIRRORED").given(h.turn(), h.turn(), SessionCompleted())
    story.given(h.turn(), TurnEnded(outcome="DONE"), h.turn_ends())
    assert story.state.status == "IDLE"
    assert story.state.anomalies == {"turn_in_turn": 1, "end_without_turn": 1}


def test_a_turn_takes_its_scheduled_retries_with_it() -> None:
    """A mirror's source never says that the retried call began: its turn's end does."""
    for mode in ("OWNED", "MIRRORED"):
        story = h.session(mode=mode).given(h.turn(), h.retry("m"))
        assert story.state.retries
        story.given(h.turn_ends())
        assert not story.state.retries
