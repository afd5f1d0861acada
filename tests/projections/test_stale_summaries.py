"""Words that are taken back after a summary was made of them: it is made anew."""

import pytest

from foldline.projections.building import build
from foldline.projections.context import Context, Sources
from foldline.projections.explain import A_STALE_SUMMARY, explain
from foldline.projections.policy import FULL
from foldline.projections.shaper import Shaper
from foldline.projections.shaping import Compact, plan
from foldline.schemas.blocks import text_block
from foldline.schemas.events import (
    CompactionCompleted,
    ContextCleared,
    HistoryRewound,
    KnownEvent,
    MessageRetracted,
    UserMessage,
)
from tests.happenings import in_turn
from tests.projections.test_shaping import TINY, WORDS, acts, text_of
from tests.story import Story


def said(name: str, words: str, replaces: str | None = None) -> UserMessage:
    """A person says something."""
    return UserMessage(message_id=name, blocks=(text_block(words),), replaces=replaces)


def compacted(to_seq: int, base_seq: int) -> CompactionCompleted:
    """A compaction up to a seq."""
    return CompactionCompleted(
        compaction_id=f"k{base_seq}",
        from_seq=1,
        to_seq=to_seq,
        base_seq=base_seq,
        strategy="s",
        blocks=(text_block("they said the SECRET"),),
    )


def told() -> Story:
    """What a person said is in a summary; what they said since is not."""
    story = in_turn().given(said("u", "the SECRET"), said("v", "other words"))
    acts(story, "1", output="fine")
    to_seq = story.seq
    story.given(said("w", "since"))
    return story.given(compacted(to_seq, story.seq))


def shown(story: Story) -> Context:
    """The context from the first event on, which is that from its base on."""
    whole = build(Sources(story.events))
    base = whole.base_seq or next(
        r.event.to_seq for r in story.events if isinstance(r.event, CompactionCompleted)
    )
    behind = build(Sources(story.events[base:], base_seq=base))
    assert behind.shaped.stale_seq == whole.shaped.stale_seq
    return whole


RETRACTED = MessageRetracted(message_ids=("u",))


@pytest.mark.parametrize("event", [RETRACTED, said("x", "instead", "u")])
def test_a_summary_of_what_was_taken_back_is_made_anew_by_any_policy(
    event: KnownEvent,
) -> None:
    """Before a model sees it again; until then the context says that it is not true."""
    story = told()
    assert shown(story).shaped.stale_seq == 0
    story.given(event)
    context = shown(story)
    assert context.shaped.stale_seq == story.seq
    explained = explain(context, story.events, WORDS)
    assert explained.messages[0].why == A_STALE_SUMMARY
    step = plan(context, policy=FULL, counter=WORDS, seen_seq=story.seq)
    assert isinstance(step, Compact)
    assert step.renews
    story.given(compacted(step.to_seq, story.seq))
    assert shown(story).shaped.stale_seq == 0


@pytest.mark.parametrize(
    "events",
    [
        [MessageRetracted(message_ids=("w",))],
        [said("x", "instead", "w")],
        [said("x", "one more")],
        [RETRACTED, ContextCleared()],
    ],
)
def test_what_no_summary_tells_makes_none_anew(events: list[KnownEvent]) -> None:
    """It is taken back where it stands, or the summary is not shown any more."""
    story = told().given(*events)
    context = shown(story)
    assert context.shaped.stale_seq == 0
    assert plan(context, policy=FULL, counter=WORDS) is None


def test_a_rewind_behind_the_summary_does_not_bring_the_words_back() -> None:
    """A message that was retracted stays retracted."""
    story = told()
    seq = story.seq
    story.given(RETRACTED, HistoryRewound(to_seq=seq))
    assert shown(story).shaped.stale_seq == seq + 1


@pytest.mark.parametrize("policy", [TINY, FULL])
def test_a_history_that_is_shaped_as_it_grows_forgets_what_was_taken_back(
    policy: object,
) -> None:
    """As its owner would have: `Shaper` for a policy, the session's own otherwise."""
    story = in_turn().given(said("u", "the SECRET word"))
    shaper = Shaper(TINY, WORDS)
    for number in range(8):
        shaper.shape(story.events)
        acts(story, str(number), output=f"{'word ' * 60} end{number}.py")
    assert "SECRET" in text_of(shaper.shape(story.events))
    if policy is FULL:
        shaper.policy = FULL
    story.given(RETRACTED)
    context = shaper.shape(story.events)
    assert "SECRET" not in text_of(context)
    assert "Summary of events" in text_of(context)
    assert context.shaped.stale_seq == 0
