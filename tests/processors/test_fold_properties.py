"""The laws of the fold, on random events: total, the same from every snapshot, small."""

import hashlib

from hypothesis import given, settings
from hypothesis import strategies as st

from foldline.processors.fold import evolve, fold_in, initial, replay
from foldline.processors.listing import LIMITS
from foldline.schemas.events import KnownEvent, SessionCreated
from foldline.schemas.recorded import Append, Recorded
from foldline.schemas.snapshots import decode_snapshot, encode_snapshot, state_hash
from foldline.schemas.state import FINISHED_KEPT, WINDOW, SessionState
from tests.story import Story
from tests.strategies import appends, colliding_events, events

MODEST = settings(max_examples=150, deadline=None)

MIRRORS = st.lists(colliding_events() | events(), max_size=25)


def mirrored(happened: list[KnownEvent]) -> Story:
    """A mirrored session in which all this happened, in this order."""
    story = Story().given(SessionCreated(agent="a", mode="MIRRORED"))
    return story.given(*(e for e in happened if not isinstance(e, SessionCreated)))


def as_decoded(story: Story) -> list[Recorded]:
    """The story's events as a log reads them for folding: without content."""
    codec = story.codec
    return [codec.decode_structure(e.schema_id, e.body) for e in story.events]


def through_bytes(state: SessionState) -> SessionState:
    """The state as another process reads it from its snapshot."""
    decoded = decode_snapshot(encode_snapshot(state))
    assert decoded is not None
    return decoded


@MODEST
@given(MIRRORS)
def test_the_fold_takes_any_mirrored_events_in_any_order(
    happened: list[KnownEvent],
) -> None:
    """What another harness did is a fact, legal or not: nothing raises."""
    story = mirrored(happened)
    assert through_bytes(story.state) == story.state


@MODEST
@given(MIRRORS)
def test_folding_the_structure_gives_the_state_of_folding_the_whole(
    happened: list[KnownEvent],
) -> None:
    """A fold reads no content, so it need not be decoded."""
    story = mirrored(happened)
    assert replay(initial("session"), as_decoded(story)) == story.state


@MODEST
@given(MIRRORS, st.data())
def test_a_snapshot_and_its_tail_give_the_state_of_the_whole_at_any_split(
    happened: list[KnownEvent], data: st.DataObject
) -> None:
    """`replay(all) == replay(tail, snapshot)`, by hash and by equality."""
    story = mirrored(happened)
    split = data.draw(st.integers(min_value=0, max_value=len(story.events)))
    recorded = as_decoded(story)
    before = replay(initial("session"), recorded[:split])
    after = replay(through_bytes(before), recorded[split:])
    assert after == story.state
    assert state_hash(after) == state_hash(story.state)


@MODEST
@given(st.lists(appends(), max_size=40))
def test_the_same_holds_for_an_owned_session_at_every_split(
    sent: list[Append],
) -> None:
    """Whatever admission lets through, at every position."""
    story = Story().given(SessionCreated(agent="a"))
    for append in sent:
        story.send(append._replace(known_seq=story.seq))
    recorded = as_decoded(story)
    state = initial("session")
    for split, one in enumerate(recorded, start=1):
        state = through_bytes(evolve(state, one))
        assert replay(state, recorded[split:]) == story.state


@MODEST
@given(MIRRORS)
def test_evolve_leaves_the_given_state_as_it_was(happened: list[KnownEvent]) -> None:
    """A state that was handed out does not change under its reader."""
    story = mirrored([])
    states: list[tuple[SessionState, bytes]] = []
    for event in happened:
        if not isinstance(event, SessionCreated):
            states.append((story.state, encode_snapshot(story.state)))
            story.given(event)
    for state, encoded in states:
        assert encode_snapshot(state) == encoded


@MODEST
@given(MIRRORS)
def test_folding_in_place_gives_the_state_of_evolve(happened: list[KnownEvent]) -> None:
    """A log's cache folds in place, everybody else gets a copy."""
    story = mirrored(happened)
    state = initial("session")
    for recorded in story.events:
        fold_in(state, recorded)
    assert state == story.state


@MODEST
@given(MIRRORS)
def test_the_hash_does_not_depend_on_log_times(happened: list[KnownEvent]) -> None:
    """Two logs that took the same appends at other times agree on the hash."""
    story, later = mirrored(happened), Story(clock_us=7)
    for append in story.appends:
        later.send(append)
        later.wait_ms(10_000_000)
    assert state_hash(later.state) == state_hash(story.state)


@MODEST
@given(MIRRORS)
def test_every_list_of_a_state_keeps_its_bound(happened: list[KnownEvent]) -> None:
    """What is full is counted, so a state is small whatever happened."""
    state = mirrored(happened * 4).state
    assert len(state.event_ids) <= WINDOW
    assert len(state.finished) <= FINISHED_KEPT
    assert len(state.model_usage) <= FINISHED_KEPT
    assert len(state.calls) <= LIMITS["open_calls"] + FINISHED_KEPT


@MODEST
@given(MIRRORS)
def test_the_chain_head_is_the_hash_of_the_last_body(
    happened: list[KnownEvent],
) -> None:
    """Each event names the hash of the one before it; the first names none."""
    story = mirrored(happened)
    previous: bytes | None = None
    for recorded in story.events:
        assert recorded.envelope.prev_hash == previous
        previous = hashlib.sha256(recorded.body).digest()
    assert story.state.chain_head == previous
