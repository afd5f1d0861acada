"""Who may append what: each class of event, and the facts of fenced owners."""

import pytest

from foldline.processors.rules import LEGAL_IN, legal_in
from foldline.schemas.authority import AUTHORITY, TAKEN_WHEN_ENDED, authority_of
from foldline.schemas.events import (
    EVENT_TYPES,
    KnownEvent,
    SessionCancelled,
    SessionCompleted,
    SessionFailed,
    SessionReopened,
    SessionResumed,
    UnknownEvent,
)
from foldline.schemas.state import ENDED
from foldline.schemas.verdicts import ACCEPTED, CLOSED, FENCED
from tests import happenings as h
from tests.samples import SAMPLES
from tests.story import PERSON, Story, Writer

ZOMBIE = Writer("owner", 1)
NEXT = Writer("next", 2)
IMPOSTOR = Writer("impostor", 2)
CROSSED = Writer("next", 1)


def taken_over(story: Story) -> Story:
    """`next` has taken the session over from `owner`, in epoch 2."""
    assert story.take("next", SessionResumed(reason="crash")).kind == ACCEPTED
    return story


def test_every_event_type_has_a_class_and_nothing_else_has() -> None:
    """One table, complete."""
    assert AUTHORITY.keys() == EVENT_TYPES.keys()


def test_what_is_taken_when_ended_is_legal_then_and_the_other_way_round() -> None:
    """Two tables that say one thing."""
    when_ended = {name for name in EVENT_TYPES if legal_in(name) & ENDED}
    assert when_ended == TAKEN_WHEN_ENDED
    assert LEGAL_IN.keys() <= EVENT_TYPES.keys()


@pytest.mark.parametrize("name", sorted(EVENT_TYPES))
def test_a_class_admits_those_whom_it_names_and_nobody_else(name: str) -> None:
    """Tried with the owner, its predecessor, a stranger, and the right name of old."""
    event = SAMPLES[name]
    if name == "SessionCreated":
        return
    fenced = {
        by: taken_over(h.in_turn()).when(event, by=by).kind == FENCED
        for by in (NEXT, ZOMBIE, IMPOSTOR, CROSSED, PERSON)
    }
    match authority_of(event):
        case "decision":
            assert fenced == {by: by != NEXT for by in fenced}
        case "fact":  # nothing of this kind was begun by anyone but the owner
            assert fenced == {by: by != NEXT for by in fenced}
        case "claim":
            assert all(fenced.values())  # none names epoch 3
        case "external":
            assert not any(fenced.values())


def test_an_answer_is_external_by_a_person_and_a_decision_by_anything_else() -> None:
    """A policy speaks through the owner."""
    story = h.waiting()
    stranger = Writer("stranger", 0, "POLICY")
    for decided_by in ("POLICY", "EARLIER_GRANT", "MOON"):
        assert story.when(h.grant(decided_by=decided_by), by=stranger).kind == FENCED
        assert story.when(h.deny(decided_by=decided_by), by=PERSON).kind == FENCED
    assert story.when(h.grant(), by=Writer("stranger", 0, "PERSON")).kind == ACCEPTED


def test_what_nobody_knows_is_the_owners_alone() -> None:
    """An unknown type might decide anything."""
    assert authority_of(UnknownEvent("MoonPhaseChanged", {})) == "decision"


@pytest.mark.parametrize(
    "fact",
    [h.done(), h.failed(), h.cancelled(), h.timed_out(), h.backgrounded()],
    ids=lambda fact: type(fact).__name__,
)
def test_a_fenced_owner_may_still_tell_how_its_own_call_ended(fact: KnownEvent) -> None:
    """The world did change. Nobody else of the old epoch may."""
    story = taken_over(h.running())
    assert story.when(fact, by=CROSSED).kind == FENCED
    assert story.when(fact, by=IMPOSTOR).kind == FENCED
    assert story.when(fact, by=ZOMBIE).kind == ACCEPTED


def test_a_fenced_owner_may_not_tell_about_what_its_successor_began() -> None:
    """It cannot know."""
    story = taken_over(h.in_turn()).given(h.request(), h.start())
    assert story.when(h.done(), by=ZOMBIE).kind == FENCED


def test_a_fenced_owner_tells_about_its_attempt_while_the_next_one_runs() -> None:
    """Its outcome is named late, and does not end the attempt of its successor."""
    story = taken_over(h.running(effect="IDEMPOTENT"))
    story.given(h.start(attempt=2, effect="IDEMPOTENT"))
    assert story.when(h.done(attempt=2), by=ZOMBIE).kind == FENCED
    verdict = story.when(h.done(attempt=1), by=ZOMBIE)
    assert (verdict.kind, verdict.anomalies) == (ACCEPTED, ("late",))
    assert story.state.calls[h.CALL].status == "RUNNING"
    assert story.when(h.failed(attempt=1), by=ZOMBIE).kind == FENCED
    assert story.when(h.done(attempt=2)).kind == ACCEPTED


def test_a_fenced_owner_tells_about_its_attempt_after_the_call_was_closed() -> None:
    """Late, once, and only about what has no confirmed end."""
    story = taken_over(h.running(effect="IDEMPOTENT"))
    story.given(h.start(attempt=2, effect="IDEMPOTENT"), h.done(attempt=2))
    verdict = story.when(h.done(attempt=1), by=ZOMBIE)
    assert (verdict.kind, verdict.anomalies) == (ACCEPTED, ("late",))
    assert story.when(h.done(attempt=1), by=ZOMBIE).kind == FENCED


def test_what_a_fenced_owners_call_cost_is_charged_though_another_ended_it() -> None:
    """The tokens were spent: they are a fact of whoever began the call."""
    story = taken_over(h.in_turn().given(h.model_starts()))
    story.given(h.model_fails())
    corrected = h.usage_corrected(input_tokens=70)
    assert story.when(corrected, by=IMPOSTOR).kind == FENCED
    assert story.when(corrected, by=ZOMBIE).kind == ACCEPTED
    assert story.state.usage.input_tokens == 70


def test_a_fenced_owner_may_end_its_open_model_call_and_its_background_work() -> None:
    """And nothing twice."""
    story = h.running().given(h.backgrounded(), h.model_starts())
    taken_over(story)
    for fact in (h.model_completes(), h.background_ends()):
        assert story.when(fact, by=IMPOSTOR).kind == FENCED
        assert story.when(fact, by=ZOMBIE).kind == ACCEPTED
        assert story.when(fact, by=ZOMBIE).kind == FENCED
    assert h.CALL in story.state.finished


@pytest.mark.parametrize(
    "end",
    [SessionCompleted(), SessionFailed(error_type="E"), SessionCancelled(reason="r")],
    ids=lambda end: type(end).__name__,
)
def test_an_ended_session_takes_only_what_it_must(end: KnownEvent) -> None:
    """Facts of what was open, background ends, feedback, labels, findings; reopening."""
    story = h.running().given(h.backgrounded(), h.model_starts())
    story.given(end)
    for name in sorted(EVENT_TYPES.keys() - TAKEN_WHEN_ENDED - {"SessionCreated"}):
        assert story.when(SAMPLES[name], by=story.owner).kind == CLOSED, name
    story.given(h.model_completes(), h.background_ends(), h.usage_corrected())
    story.given(SAMPLES["UserFeedback"], SAMPLES["LabelsSet"])
    story.given(SAMPLES["LoopDetected"], SAMPLES["PolicyViolation"])
    assert story.when(SessionResumed(reason="r"), expected_seq=story.seq).kind == CLOSED
    assert story.take("next", SessionReopened(reason="more")).kind == ACCEPTED
    assert (story.state.status, story.state.epoch) == ("IDLE", 2)
    story.given(h.turn())
