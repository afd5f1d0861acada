"""Why a context is as it is, and what two of them share."""

from dataclasses import dataclass

import pytest

from foldline.projections.building import build
from foldline.projections.context import Sources
from foldline.projections.explain import Explanation, explain
from foldline.projections.model_calls import asked_of
from foldline.projections.prefix import Difference, common_bytes, difference
from foldline.schemas.blocks import Block, json_block, text_block
from foldline.schemas.events import (
    AssistantMessage,
    BackgroundEnded,
    CompactionCompleted,
    ContextCleared,
    ContextPruned,
    GoalSet,
    MessageRetracted,
    ModelCallStarted,
    RequestRef,
    SeqRange,
    ToolBackgrounded,
    ToolExecutionCompleted,
    ToolResultProjected,
    Usage,
    UserMessage,
)
from tests.happenings import (
    in_turn,
    model_completes,
    model_starts,
    request,
    rewind,
    start,
    turn,
    turn_ends,
    usage_corrected,
)
from tests.story import Story


@dataclass(frozen=True)
class Letters:
    """Counts letters."""

    name: str = "letters"

    def count(self, text: str) -> int:
        return len(text)


def text(words: str) -> tuple[Block, ...]:
    return (text_block(words),)


def says(words: str) -> UserMessage:
    return UserMessage(message_id=words, blocks=text(words))


def calls(*call_ids: str) -> Story:
    """A session in which the model asked for calls."""
    story = in_turn().given(says("go"), AssistantMessage(message_id="m", blocks=text("so")))
    for call_id in call_ids:
        arguments = (json_block("{}"),)
        story.given(request(call_id, message_id="m", tool="t", arguments=arguments))
    return story


def ran(call_id: str, words: str) -> list[ToolExecutionCompleted]:
    return [ToolExecutionCompleted(call_id=call_id, output=text(words))]


def explained(story: Story) -> Explanation:
    return explain(build(Sources(story.events)), story.events, Letters())


def reasons(found: Explanation) -> list[tuple[str, int, int | None]]:
    """Why events of a model's interest are left out: reason, how many, by which."""
    return [
        (left.why, left.events, left.by_seq)
        for left in found.left_out
        if left.why != "not for the model"
    ]


# --- what is shown ---------------------------------------------------------------------


def test_each_message_knows_its_events_tokens_and_reason() -> None:
    story = calls("c").given(start("c"), *ran("c", "four"))
    story.given(GoalSet(blocks=text("win")))
    found = explained(story)
    told = [(m.role, m.why, [s.type for s in m.sources]) for m in found.messages]
    assert told == [
        ("user", "in full", ["UserMessage"]),
        ("assistant", "in full", ["AssistantMessage", "ToolCallRequested"]),
        ("tool", "in full", ["ToolExecutionCompleted"]),
        ("user", "note", ["GoalSet"]),
    ]
    seqs = {s.event_id: s.seq for message in found.messages for s in message.sources}
    assert seqs == {
        recorded.envelope.event_id: recorded.seq
        for recorded in story.events
        if recorded.envelope.event_id in seqs
    }
    assert sum(m.tokens for m in found.messages) == found.sizes.total
    assert [part.tokens for part in found.messages[2].parts] == [4]


def test_results_say_what_they_rest_on() -> None:
    """Each in its own way, side by side in one message."""
    story = calls("full", "pruned", "frozen", "running").given(
        start("full"), *ran("full", "x"), start("pruned"), *ran("pruned", "y" * 99)
    )
    story.given(
        start("frozen"),
        ToolResultProjected(call_id="frozen", form="UNKNOWN", blocks=text("who knows")),
        start("running"),
        ContextPruned(rule="r", targets=("pruned",), blocks=text("see event 9")),
    )
    results = explained(story).messages[-1]
    assert [(part.call_id, part.why, part.form) for part in results.parts] == [
        ("full", "in full", "OUTCOME"),
        ("pruned", "pruned", "PRUNED"),
        ("frozen", "as it was shown", "PROJECTED"),
        ("running", "stand-in", "UNKNOWN"),
    ]
    assert results.why == "in full, pruned, as it was shown, stand-in"
    assert results.parts[3].source is None


def test_a_late_outcome_is_a_note_of_its_own_event() -> None:
    story = calls("c").given(start("c"), ToolBackgrounded(call_id="c", handle="h"))
    blocks = text("it goes on")
    story.given(ToolResultProjected(call_id="c", form="BACKGROUND", blocks=blocks))
    story.given(BackgroundEnded(handle="h", outcome="COMPLETED", output=text("done")))
    late = explained(story).messages[-1]
    assert (late.why, [s.type for s in late.sources]) == ("note", ["BackgroundEnded"])


# --- what is not -----------------------------------------------------------------------


def test_what_was_compacted_is_left_out_by_the_compaction() -> None:
    story = in_turn().given(says("one"), says("two"), says("three"))
    seq = story.seq
    compaction = CompactionCompleted(
        compaction_id="c",
        from_seq=1,
        to_seq=seq - 1,
        base_seq=seq,
        strategy="s",
        blocks=text("two things"),
    )
    found = explained(story.given(compaction))
    assert [(m.why, m.text) for m in found.messages] == [
        ("summary", "two things"),
        ("in full", "three"),
    ]
    assert reasons(found) == [("compacted", 2, story.seq)]


def test_events_before_the_base_are_left_out_without_being_read() -> None:
    story = in_turn().given(says("one"), says("two"))
    compaction = CompactionCompleted(
        compaction_id="c",
        from_seq=1,
        to_seq=story.seq,
        base_seq=story.seq,
        strategy="s",
        blocks=text("two things"),
    )
    base_seq = story.seq
    events = story.given(compaction).events[base_seq:]
    found = explain(build(Sources(events, base_seq)), events, Letters())
    (left,) = [left for left in found.left_out if left.why == "compacted"]
    assert (left.from_seq, left.to_seq, left.events) == (1, base_seq, base_seq)
    assert (left.by_seq, left.types) == (story.seq, None)


def test_what_was_cleared_rewound_and_retracted_says_so() -> None:
    story = in_turn().given(says("one"))
    story.given(ContextCleared())
    cleared = story.seq
    story.given(says("two"), turn_ends(), turn(), says("three"), turn_ends())
    story.given(rewind(to_seq=cleared + 2))
    rewound = story.seq
    story.given(MessageRetracted(message_ids=("two",)))
    assert reasons(explained(story)) == [
        ("cleared", 1, cleared),
        ("overtaken", 1, None),
        ("rewound", 1, rewound),
    ]


def test_what_outlasts_a_rewind_is_shown_or_was_overtaken() -> None:
    """A goal that was set since is in force; one that it replaced was not rewound."""
    story = in_turn().given(says("one"))
    early = story.seq
    story.given(GoalSet(blocks=text("first")), says("two"), rewind(to_seq=early))
    assert reasons(explained(story)) == [("rewound", 1, story.seq)]
    story.given(GoalSet(blocks=text("second")), ContextCleared())
    assert reasons(explained(story)) == [
        ("cleared", 2, story.seq),
        ("rewound", 1, early + 3),
    ]


def test_every_event_is_shown_or_left_out_once() -> None:
    story = calls("c").given(start("c"), *ran("c", "x"), ContextCleared(), says("again"))
    found = explained(story)
    shown = {s.event_id for message in found.messages for s in message.sources}
    assert len(shown) + sum(left.events for left in found.left_out) == story.seq


# --- two of them -----------------------------------------------------------------------


def between(story: Story, from_seq: int) -> Difference:
    before = build(Sources(story.events[:from_seq]))
    after = build(Sources(story.events))
    return difference(before, after, Letters(), events=story.events)


def test_a_context_that_only_grew_begins_with_the_earlier_one() -> None:
    story = in_turn().given(says("one"))
    seq = story.seq
    found = between(story.given(says("two"), says("three")), seq)
    assert found.only_grew
    assert (found.before_seq, found.after_seq) == (seq, story.seq)
    assert (found.same_messages, found.same_tokens) == (1, found.before_tokens)
    assert [(m.place, m.text) for m in found.new] == [(1, "two"), (2, "three")]
    assert found.before_bytes - found.same_bytes == len("]]")


def test_a_pruned_result_ends_what_two_contexts_share() -> None:
    story = calls("c").given(start("c"), *ran("c", "x" * 50), says("and"))
    seq = story.seq
    story.given(ContextPruned(rule="r", targets=("c",), blocks=text("gone")))
    found = between(story, seq)
    assert (found.same_messages, found.only_grew) == (2, False)
    assert [m.why for m in found.dropped] == ["in full"]
    assert [(m.why, m.text) for m in found.new] == [("pruned", "gone ")]
    assert found.after_tokens == found.before_tokens - 50 + len("gone")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [(b"", b"", 0), (b"a", b"", 0), (b"abc", b"abd", 2), (b"ab", b"abc", 2)],
)
def test_common_bytes_are_those_of_the_beginning(
    one: bytes, other: bytes, same: int
) -> None:
    assert common_bytes(one, other) == common_bytes(other, one) == same


# --- model calls -----------------------------------------------------------------------


def test_a_call_saw_what_its_reference_says() -> None:
    story = in_turn().given(says("one"))
    reference = RequestRef(
        ranges=(SeqRange(from_seq=1, to_seq=2),),
        renderer="r",
        renderer_version=1,
        policy="p",
        policy_version=1,
        instructions_event_ids=(),
        parameters_json="{}",
        sha256=b"",
    )
    story.given(model_starts("a", request=reference))
    story.given(model_completes("a", usage=Usage(input_tokens=1)))
    story.given(usage_corrected("a", input_tokens=2), model_starts("b"))
    first, second = asked_of(story.events)
    assert (first.upto_seq, second.upto_seq) == (2, second.seq - 1)
    assert first.usage is not None
    assert first.usage.input_tokens == 2
    assert isinstance(first.started, ModelCallStarted)


def test_a_call_of_which_only_the_answer_is_known_began_before_it() -> None:
    block = Block(kind="text", body="hi", provider="anthropic", model="x")
    story = in_turn().given(says("one"))
    seq = story.seq
    message = AssistantMessage(message_id="m", model_call_id="c", blocks=(block,))
    (call,) = asked_of(story.given(message).events)
    assert (call.upto_seq, call.model, call.provider) == (seq, "x", "anthropic")
    assert call.started is None
