"""Where a compaction cuts that somebody asks for, also behind an earlier one."""

from dataclasses import replace

from foldline.projections.building import build
from foldline.projections.context import SUMMARY, Message, Part, Sources
from foldline.projections.grouping import Group, cut_of
from foldline.projections.policy import FULL
from foldline.projections.shaping import EXTRACTIVE, Compact, compaction
from foldline.schemas.blocks import text_block
from foldline.schemas.events import (
    CompactionCompleted,
    CompactionStarted,
    GoalSet,
    KnownEvent,
)
from tests.happenings import in_turn
from tests.projections.test_shaping import WORDS, acts
from tests.story import Story


def compacts(story: Story, step: Compact) -> tuple[KnownEvent, KnownEvent]:
    """A compaction, as its owner records it."""
    name = f"c{story.seq}"
    return (
        CompactionStarted(
            compaction_id=name, base_seq=story.seq, reason="asked", token_before=None
        ),
        CompactionCompleted(
            compaction_id=name,
            from_seq=1,
            to_seq=step.to_seq,
            base_seq=story.seq,
            strategy=EXTRACTIVE,
            token_before=step.tokens_before,
            token_after=None,
            kept=step.kept,
            blocks=(text_block(f"up to {step.to_seq}"),),
        ),
    )


def test_a_second_cut_goes_where_it_is_asked_for_behind_the_first() -> None:
    """Also between what the first summary stands for and where it was recorded."""
    story = in_turn().given(GoalSet(blocks=(text_block("mend it"),)))
    for number in range(12):
        acts(story, str(number), output=f"end{number}.py")
    for to_seq in (12, 24, 36):
        context = build(Sources(story.events))
        step = compaction(context, policy=FULL, counter=WORDS, to_seq=to_seq)
        assert step is not None
        assert to_seq - 4 < step.to_seq <= to_seq
        story.given(*compacts(story, step))
        shown = build(Sources(story.events)).messages
        assert [m.last_seq for m in shown if m.origin == SUMMARY] == [step.to_seq]
        assert min(m.seq for m in shown if m.role == "assistant") > step.to_seq
    again = build(Sources(story.events))
    assert compaction(again, policy=FULL, counter=WORDS, to_seq=20) is None


def test_what_a_kept_message_stands_between_is_cut_by_the_summary_and_not_by_it() -> None:
    """A pinned message stays behind the summary, and the next cut goes over both."""
    story = in_turn()
    for number in range(12):
        acts(story, str(number))
    pinned = replace(FULL, pinned=("call 1",))
    for to_seq in (20, 40):
        context = build(Sources(story.events))
        step = compaction(context, policy=pinned, counter=WORDS, to_seq=to_seq)
        assert step is not None
        assert to_seq - 4 < step.to_seq <= to_seq
        assert step.kept
        story.given(*compacts(story, step))
    shown = build(Sources(story.events)).messages
    assert [m.origin == SUMMARY for m in shown[:3]] == [True, False, False]
    assert [m.last_seq > 40 for m in shown].index(True) == 3


def test_the_cut_of_a_long_context_is_found_in_one_look_at_each_group() -> None:
    """Where steering waits from the beginning, no cut can go anywhere."""
    looked = [looks_for_cut(length) for length in (200, 400)]
    assert looked[1] <= 2 * looked[0] + 8


def looks_for_cut(length: int) -> int:
    """How often a cut looks at the messages of a context."""
    looks = 0

    class Looked(Message):
        __slots__ = ()

        def __getattribute__(self, name: str) -> object:
            nonlocal looks
            looks += name == "last_seq"
            return super().__getattribute__(name)

    part = (Part("text", text="word"),)
    groups = [
        Group((Looked("assistant", part, (str(n),), seq=n, last_seq=n),), 1)
        for n in range(10, length + 10)
    ]
    assert cut_of(groups, length, 5) == 0
    assert cut_of(groups, length, None) == length
    return looks
