"""A batch's states over the committed ones: dropped without a trace, or merged."""

from hypothesis import given, settings
from hypothesis import strategies as st

from foldline.processors.fold import fold_in, initial
from foldline.processors.state_overlay import StateOverlay
from foldline.schemas.events import KnownEvent, SessionCreated
from foldline.schemas.recorded import Recorded
from foldline.schemas.snapshots import encode_snapshot
from foldline.schemas.state import SessionState
from tests.partitions import Table
from tests.story import Story
from tests.strategies import colliding_events

SESSION = "session"


def fold_batch(overlay: StateOverlay, batch: list[Recorded]) -> SessionState:
    for recorded in batch:
        state = overlay.get(SESSION)
        fold_in(overlay.own(SESSION, state, recorded.event), recorded)
    state = overlay.get(SESSION)
    assert state is not None
    return state


@settings(max_examples=200, deadline=None)
@given(
    happened=st.lists(colliding_events(), max_size=30),
    at=st.integers(min_value=1, max_value=30),
)
def test_folding_a_batch_changes_no_committed_state_until_it_is_merged(
    happened: list[KnownEvent], at: int
) -> None:
    story = Story().given(SessionCreated(agent="a", mode="MIRRORED"))
    for event in happened:
        story.when(event)
    before, batch = story.events[:at], story.events[at:]
    overlay = StateOverlay(Table(), max_cached=10)
    fold_batch(overlay, before)
    overlay.commit()
    (committed,) = overlay.hand_over()
    was = encode_snapshot(committed)
    for recorded in batch:
        after = fold_batch(overlay, [recorded])
        assert after is not committed
    overlay.drop()
    assert overlay.get(SESSION) is committed
    assert encode_snapshot(committed) == was
    if batch:
        fold_batch(overlay, batch)
        overlay.commit()
    assert encode_snapshot(committed) == was
    whole = initial(SESSION)
    for recorded in story.events:
        fold_in(whole, recorded)
    assert overlay.get(SESSION) == whole


def test_a_session_that_nobody_knows_is_in_no_state() -> None:
    overlay = StateOverlay(Table(), max_cached=10)
    assert overlay.get(SESSION) is None
    assert not overlay.known(SESSION)
