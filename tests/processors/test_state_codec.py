"""States as private bytes: the same state comes back, junk is refused."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldline.errors import DecodeError
from foldline.processors.fold import fold_in, initial
from foldline.processors.state_codec import LAYOUT, decode_state, encode_state
from foldline.schemas.events import KnownEvent, SessionCreated
from foldline.schemas.snapshots import state_hash
from foldline.schemas.state import FOLD_VERSION
from tests.story import Story
from tests.strategies import colliding_events, events

MODEST = settings(max_examples=150, deadline=None)


@MODEST
@given(st.lists(colliding_events() | events(), max_size=25))
def test_every_state_comes_back_as_it_was(happened: list[KnownEvent]) -> None:
    story = Story().given(SessionCreated(agent="a", mode="MIRRORED"))
    story.given(*(e for e in happened if not isinstance(e, SessionCreated)))
    state = initial("session")
    for recorded in story.events:
        fold_in(state, recorded)
        again = decode_state(encode_state(state))
        assert again == state
    assert state_hash(decode_state(encode_state(state))) == state_hash(state)


def test_a_state_that_came_back_can_be_folded_on() -> None:
    story = Story().given(SessionCreated(agent="a"))
    kept = decode_state(encode_state(story.state))
    before = encode_state(kept)
    decode_state(before).counts["other"] = 1
    assert encode_state(kept) == before


@pytest.mark.parametrize("junk", [b"", b"\x00", b"junk", b"\x91\x01", b"\xc1"])
def test_junk_is_no_state(junk: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_state(junk)


@given(st.data())
def test_a_torn_state_is_no_state(data: st.DataObject) -> None:
    whole = encode_state(initial("session"))
    cut = data.draw(st.integers(min_value=0, max_value=len(whole) - 1))
    with pytest.raises(DecodeError):
        decode_state(whole[:cut])


def test_the_layout_names_the_fold_that_made_the_states() -> None:
    assert LAYOUT.split(".")[1] == str(FOLD_VERSION)
