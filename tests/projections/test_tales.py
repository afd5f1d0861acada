"""What is told of a call that was denied by its request, tried again, or taken back."""

from foldline.projections.base import reaches_back
from foldline.projections.building import build
from foldline.projections.calls import DENIED_TEXT, EXPIRED_TEXT, WAITING_TEXT
from foldline.projections.context import Sources
from foldline.projections.tales import Names
from foldline.schemas.events import (
    AssistantMessage,
    MessageRetracted,
    ToolExecutionCompleted,
)
from tests.happenings import (
    ask,
    background_ends,
    backgrounded,
    deny,
    expired,
    failed,
    in_turn,
    model_starts,
    rewind,
    start,
)
from tests.projections.test_context import asks_for, compact, done, says, shown, text
from tests.story import Story


def answers(words: str, message: str) -> AssistantMessage:
    """The model says something."""
    return AssistantMessage(message_id=message, final=True, blocks=text(words))


def second(words: str) -> ToolExecutionCompleted:
    """The second attempt of call a succeeds."""
    return ToolExecutionCompleted(call_id="a", attempt=2, output=text(words))


# --- permission ------------------------------------------------------------------------


def asked_for() -> Story:
    """A call waits for permission."""
    return in_turn().given(*asks_for("a"), ask("r", "a"))


def test_a_denial_that_names_only_its_request_is_the_result_of_the_call() -> None:
    story = asked_for().given(deny("r", feedback=text("use nix")))
    told = f"{DENIED_TEXT}\nuse nix"
    assert shown(story.events) == [("assistant", "a"), ("a", told)]
    assert build(Sources(story.events)).stand_ins == ()


def test_nobody_answered_in_time_until_somebody_is_asked_again() -> None:
    story = asked_for().given(expired("r"))
    assert shown(story.events)[1] == ("a", EXPIRED_TEXT)
    story.given(ask("again", "a"))
    assert shown(story.events)[1] == ("a", WAITING_TEXT)
    story.given(deny("again"))
    assert shown(story.events)[1] == ("a", DENIED_TEXT)


def test_a_denial_of_no_call_says_nothing_to_the_model() -> None:
    story = in_turn().given(says("one"), ask("r", None), deny("r"))
    assert shown(story.events) == [("user", "one")]


def test_a_denial_behind_a_base_names_its_call() -> None:
    """Which call it is only the request says, so all events are needed."""
    story = asked_for()
    compact(story, story.seq)
    base = story.seq - 1
    story.given(deny("r"))
    assert shown(story.events) == [
        ("user", "so far"),
        ("user", f"Late result of the earlier call a: {DENIED_TEXT}"),
    ]
    assert reaches_back(story.events[base:], base)


def test_a_denial_outlasts_a_rewind_to_after_its_call_was_asked_for() -> None:
    story = in_turn().given(*asks_for("a"))
    early = story.seq
    story.given(ask("r", "a"), deny("r"), ask("none", None), deny("none"), rewind(early))
    assert shown(story.events) == [("assistant", "a"), ("a", DENIED_TEXT)]


# --- what is tried again -----------------------------------------------------------------


def test_what_the_model_was_shown_of_a_failure_stays_when_it_is_tried_again() -> None:
    """It was shown when the model answered, or was asked, after it."""
    for shows in (answers("it failed", "n"), model_starts()):
        story = in_turn().given(*asks_for("a"), start("a"), failed("a", executed="NO"))
        before = build(Sources(story.events)).messages
        story.given(shows, start("a", 2), second("it works"))
        after = build(Sources(story.events)).messages
        assert after[: len(before)] == before
        assert shown(story.events)[-1] == (
            "user",
            "Late result of the earlier call a: it works",
        )


def test_a_failure_that_nobody_was_shown_is_overtaken_by_the_next_attempt() -> None:
    """The rest of its own message, and a model that summarises, show nothing of it."""
    first, asks = asks_for("a")
    more = asks_for("b")[1]
    story = in_turn().given(first, asks, start("a"), failed("a", executed="NO"))
    story.given(answers("and", "m").model_copy(update={"part": 1}), more)
    story.given(model_starts("s", purpose="COMPACTION"))
    story.given(start("a", 2), second("it works"))
    assert shown(story.events)[1] == ("a", "it works")


def test_an_answer_that_was_taken_back_shows_nothing() -> None:
    story = in_turn().given(*asks_for("a"), start("a"), failed("a", executed="NO"))
    early = story.seq
    story.given(answers("it failed", "n"), rewind(early), start("a", 2), second("2nd"))
    assert shown(story.events) == [("assistant", "a"), ("a", "2nd")]


# --- what is taken back ------------------------------------------------------------------


def test_what_became_of_a_call_goes_with_the_message_that_asked_for_it() -> None:
    """However its end names it, before the retraction or after."""
    story = in_turn().given(says("one"), *asks_for("a", "b", "c", "d", message="m"))
    story.given(start("a"), done("a"), start("b"), backgrounded("h", "b"))
    story.given(background_ends("h"), ask("r", "c"), deny("r"), start("d"))
    story.given(*asks_for("e", message="n"), start("e"), done("e"))
    story.given(MessageRetracted(message_ids=("m",)), done("d"))
    assert shown(story.events) == [
        ("user", "one"),
        ("assistant", "e"),
        ("e", "output of e"),
    ]


def test_a_retraction_behind_a_base_finds_the_ends_of_its_calls() -> None:
    """Which call was of the message only the events before the base say."""
    story = in_turn().given(*asks_for("a"), start("a"))
    compact(story, story.seq)
    base = story.seq - 1
    story.given(done("a"))
    assert not reaches_back(story.events[base:], base)
    assert len(shown(story.events)) == 2
    story.given(MessageRetracted(message_ids=("m",)))
    assert reaches_back(story.events[base:], base)
    assert shown(story.events) == [("user", "so far")]


# --- names -------------------------------------------------------------------------------


def test_an_event_is_about_the_call_of_its_handle_or_request() -> None:
    names = Names()
    assert names.about(background_ends("h")) == ("", 0)
    names.learn(backgrounded("h", "a", 2))
    names.learn(ask("r", "b"))
    assert names.about(background_ends("h")) == ("a", 2)
    assert names.about(deny("r")) == ("b", 1)
    assert names.about(expired("none")) == ("", 1)
