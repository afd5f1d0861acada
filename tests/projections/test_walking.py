"""What one walk through a history makes of it: calls that are asked for twice, forms."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldline.projections.building import build
from foldline.projections.calls import GRANTED, GRANTED_TEXT
from foldline.projections.context import Context, Sources
from foldline.projections.invariants import check
from foldline.schemas.blocks import Block, text_block
from foldline.schemas.events import (
    AssistantMessage,
    CompactionCompleted,
    ContextCleared,
    KnownEvent,
    MessageRetracted,
    ToolCallRequested,
    ToolExecutionCompleted,
    ToolResultProjected,
    UserMessage,
)
from tests.happenings import ask, deny, expired, grant, in_turn, request, session, start
from tests.happenings import turn as begins
from tests.story import Story


def says(message: str, *calls: str) -> AssistantMessage:
    """The model says something, and names calls in it."""
    named = tuple(Block(kind="tool_call", body="{}", call_id=call) for call in calls)
    return AssistantMessage(message_id=message, blocks=(text_block(message), *named))


def ends(call: str) -> ToolExecutionCompleted:
    """A call ends."""
    return ToolExecutionCompleted(call_id=call, output=(text_block(f"output {call}"),))


def mirrored(*events: KnownEvent) -> Story:
    """A session of another harness, which may record anything."""
    return session(mode="MIRRORED").given(begins(), *events)


def asked_in(context: Context) -> list[tuple[str, str]]:
    """Each call that is shown, and what its message says."""
    return [
        (part.call_id, message.parts[0].text)
        for message in context.messages
        for part in message.parts
        if part.kind == "call"
    ]


@pytest.mark.parametrize(
    "events",
    [
        [says("m"), request("c"), says("n"), request("c", message_id="n")],
        [says("m", "c"), request("c"), says("n", "c"), request("c", message_id="n")],
        [says("m", "c", "c"), request("c"), request("c")],
        [says("m", "c"), request("c"), ends("c"), says("n", "c")],
        [says("m"), request("c"), ends("c"), says("n"), request("c", message_id="n")],
    ],
)
def test_a_call_that_is_asked_for_twice_is_shown_where_it_was_first(
    events: list[KnownEvent],
) -> None:
    """Another harness may repeat ids; its session is shown for all that."""
    story = mirrored(*events, ends("c"))
    assert asked_in(build(Sources(story.events))) == [("c", "m")]


def test_a_call_whose_first_message_is_compacted_is_shown_where_it_is_asked_again() -> None:
    """In a context from the first event on as in one from the base on."""
    story = mirrored(says("m"), request("c"), ends("c"))
    to_seq = story.seq
    story.given(says("n"), request("c", message_id="n"), ends("c"))
    story.given(
        CompactionCompleted(
            compaction_id="k", from_seq=1, to_seq=to_seq, base_seq=story.seq, strategy="s"
        )
    )
    whole = build(Sources(story.events))
    assert asked_in(whole) == [("c", "n")]
    behind = build(Sources(story.events[to_seq:], base_seq=to_seq))
    assert behind.messages == whole.messages


NAMES = st.sampled_from("ab")


@st.composite
def answers(draw: st.DrawFn) -> AssistantMessage:
    """The model says something, and may name calls."""
    return says(draw(NAMES), *draw(st.lists(NAMES, max_size=2)))


@st.composite
def requests(draw: st.DrawFn) -> ToolCallRequested:
    """A call is asked for, perhaps again, perhaps under another message."""
    return request(draw(NAMES), message_id=draw(NAMES))


def retracts(message: str) -> MessageRetracted:
    """A message is taken back."""
    return MessageRetracted(message_ids=(message,))


ANYTHING = st.one_of(
    answers(),
    requests(),
    NAMES.map(ends),
    NAMES.map(start),
    NAMES.map(retracts),
    st.just(ContextCleared()),
    st.just(UserMessage(message_id="u", blocks=(text_block("go on"),))),
)


@given(st.lists(ANYTHING, max_size=20), st.integers(0, 20))
@settings(max_examples=200, deadline=None)
def test_every_mirrored_history_gives_a_sound_context(
    events: list[KnownEvent], cut: int
) -> None:
    """Whatever ids it repeats, and wherever it is compacted."""
    story = mirrored()
    for place, event in enumerate(events):
        story.when(event)
        if place == cut:
            seq = max(story.seq // 2, 1)
            story.when(
                CompactionCompleted(
                    compaction_id="k",
                    from_seq=1,
                    to_seq=seq,
                    base_seq=story.seq,
                    strategy="s",
                    blocks=(text_block("so far"),),
                )
            )
        check(build(Sources(story.events)))


# --- a call that was permitted and did not begin ----------------------------------------


def form_of(story: Story) -> str:
    """What the result of the one call rests on."""
    (message,) = [m for m in build(Sources(story.events)).messages if m.role == "tool"]
    return message.parts[0].form


def test_a_call_that_is_permitted_waits_for_nobody_any_more() -> None:
    """It did not begin yet, and that is what the model is told."""
    story = in_turn().given(says("m"), request(), ask())
    assert form_of(story) == "WAITING"
    story.given(grant())
    assert form_of(story) == GRANTED
    (message,) = [m for m in build(Sources(story.events)).messages if m.role == "tool"]
    assert message.parts[0].parts[0].text == GRANTED_TEXT
    story.given(start())
    assert form_of(story) == "UNKNOWN"


def test_what_was_shown_before_it_was_permitted_stays_as_it_was_shown() -> None:
    story = in_turn().given(says("m"), request(), ask())
    (shown,) = build(Sources(story.events)).stand_ins
    story.given(
        ToolResultProjected(call_id=shown.call_id, form=shown.form, blocks=shown.blocks)
    )
    before = build(Sources(story.events))
    story.given(grant())
    assert build(Sources(story.events)).messages == before.messages


@pytest.mark.parametrize(
    ("events", "form"),
    [
        ([ask(), expired()], "EXPIRED"),
        ([ask(), deny(may_request_again=True)], "DENIED"),
        ([grant(None, decided_by="POLICY")], "NOT_RUN"),
    ],
)
def test_a_call_that_waits_for_no_permission_is_told_as_before(
    events: list[KnownEvent], form: str
) -> None:
    assert form_of(in_turn().given(says("m"), request(), *events)) == form
