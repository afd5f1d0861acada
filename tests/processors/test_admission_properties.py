"""Admission on random appends: it always answers, and always the same."""

from hypothesis import given, settings
from hypothesis import strategies as st

from foldline.processors.admission import admit
from foldline.processors.rules import RULES
from foldline.schemas.codec import (
    MAX_EVENT_BYTES,
    encode_content,
    encode_envelope,
)
from foldline.schemas.envelope import Envelope
from foldline.schemas.events import KnownEvent, SessionCreated
from foldline.schemas.recorded import Append
from foldline.schemas.snapshots import decode_snapshot, encode_snapshot, state_hash
from foldline.schemas.verdicts import ACCEPTED, DUPLICATE, VERDICT_KINDS
from tests.story import Story
from tests.strategies import appends, envelopes, events

MODEST = settings(max_examples=200, deadline=None)
NOW = 1_700_000_000_000_000


def told(sent: list[Append], *, mode: str = "OWNED") -> Story:
    """A session to which these were sent, each by a writer that had read the head."""
    story = Story().given(SessionCreated(agent="a", mode=mode))
    for append in sent:
        story.send(append._replace(known_seq=story.seq))
    return story


@MODEST
@given(st.lists(appends(), max_size=30), appends())
def test_admission_answers_every_append_on_every_state(
    sent: list[Append], append: Append
) -> None:
    """It never raises, and what it answers is one of the verdicts."""
    state = told(sent).state_or_none
    verdict = admit(state, append, now=NOW).verdict
    assert verdict.kind in VERDICT_KINDS
    assert verdict.kind != "ILLEGAL" or verdict.rule in RULES


@MODEST
@given(envelopes(), events(), st.integers(), st.none() | st.integers())
def test_admission_answers_any_envelope_on_no_session_and_on_one(
    envelope: Envelope, event: KnownEvent, known_seq: int, expected_seq: int | None
) -> None:
    """Whatever a decoder may give is answered, and what is taken in fits out."""
    append = Append(
        envelope, event, encode_content(event), known_seq, expected_seq=expected_seq
    )
    for state in (None, told([]).state, told([], mode="MIRRORED").state):
        decision = admit(state, append, now=NOW)
        if decision.envelope is not None:
            body = encode_envelope(decision.envelope) + append.content
            assert len(body) <= MAX_EVENT_BYTES


@MODEST
@given(st.lists(appends(), max_size=30), appends())
def test_admission_is_deterministic_also_on_a_state_from_a_snapshot(
    sent: list[Append], append: Append
) -> None:
    """Two processes with the same log answer alike."""
    state = told(sent).state
    other = decode_snapshot(encode_snapshot(state))
    append = append._replace(known_seq=state.seq)
    assert admit(state, append, now=NOW) == admit(other, append, now=NOW)


@MODEST
@given(st.lists(appends(), max_size=30), appends())
def test_admission_leaves_the_state_as_it_is(sent: list[Append], append: Append) -> None:
    """Deciding changes nothing."""
    state = told(sent).state
    before = encode_snapshot(state)
    admit(state, append, now=NOW)
    assert encode_snapshot(state) == before


@MODEST
@given(st.lists(appends(), max_size=40))
def test_a_duplicate_delivery_of_any_suffix_changes_nothing(
    sent: list[Append],
) -> None:
    """Each is answered with the seq that it has."""
    story = told(sent)
    before = state_hash(story.state)
    accepted = {v.event_id: v.seq for v in story.verdicts if v.kind == ACCEPTED}
    for append in list(story.appends):
        if append.envelope.event_id in accepted:
            verdict = story.send(append)
            assert verdict.kind == DUPLICATE
            assert verdict.seq == accepted[append.envelope.event_id]
    assert state_hash(story.state) == before


@MODEST
@given(st.lists(appends(), max_size=40), st.sampled_from(("OWNED", "MIRRORED")))
def test_seqs_are_dense_and_no_event_is_recorded_twice(
    sent: list[Append], mode: str
) -> None:
    """1, 2, 3 and so on, each event once."""
    story = told(sent + sent, mode=mode)
    assert [e.seq for e in story.events] == list(range(1, len(story.events) + 1))
    ids = [e.envelope.event_id for e in story.events]
    assert len(set(ids)) == len(ids)


@MODEST
@given(st.lists(appends(), max_size=30))
def test_a_mirrored_session_accepts_all_that_is_new(sent: list[Append]) -> None:
    """What another harness did is a fact: no rule, epoch, limit or seq applies."""
    story = told(sent, mode="MIRRORED")
    kinds = {
        verdict.kind
        for append, verdict in zip(story.appends, story.verdicts, strict=True)
        if not isinstance(append.event, SessionCreated)
    }
    assert kinds <= {ACCEPTED, DUPLICATE}
    assert story.state.epoch == 0
    assert story.state.owner == ""
