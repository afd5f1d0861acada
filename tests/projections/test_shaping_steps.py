"""When a context is made smaller again, by how much, and at what cost."""

import json
import re
from dataclasses import replace
from itertools import pairwise

import pytest

from foldline.projections.building import build
from foldline.projections.context import Sources
from foldline.projections.policy import FULL, LEAN, ROOMY, ContextPolicy
from foldline.projections.prune_step import Prune
from foldline.projections.shaper import Shaper
from foldline.projections.shaping import Compact, plan
from foldline.projections.summarising import Originals, summary_of
from foldline.projections.token_count import message_tokens
from foldline.schemas.blocks import text_block, text_of
from foldline.schemas.events import (
    CompactionCompleted,
    Constraint,
    GoalSet,
    HistoryRewound,
    Inherited,
)
from foldline.schemas.recorded import Recorded
from tests.happenings import constraint, in_turn, session, turn
from tests.projections.test_shaping import TINY, WORDS, acts, called
from tests.projections.test_shaping import text_of as text_of_context
from tests.story import Story


def words(count: int, name: str) -> str:
    """An output of so many words."""
    return f"{name}.py {'word ' * count}"


@pytest.mark.parametrize("policy", [LEAN, ROOMY], ids=["lean", "roomy"])
def test_between_two_changes_of_the_prefix_the_model_answers_a_few_times(
    policy: ContextPolicy,
) -> None:
    """Outputs that are each as large as a step of the policy."""
    story = in_turn()
    shaper = Shaper(policy, WORDS)
    steps: list[int] = []
    before: tuple[object, ...] = ()
    for number in range(40):
        context = shaper.shape(story.events)
        if not steps or shaper.steps == steps[-1]:
            assert context.messages[: len(before)] == before
        steps.append(shaper.steps)
        before = context.messages
        acts(story, str(number), output=words(3_700, f"f{number}"))
    changes = [i for i in range(1, 40) if steps[i] != steps[i - 1]]
    assert 1 < len(changes) <= 40 / policy.apart_calls
    apart = [b - a for a, b in pairwise(changes)]
    assert min(apart) >= policy.apart_calls


def test_above_the_budget_nothing_waits() -> None:
    """A compaction that brings the context within it comes at once, and leaves room."""
    policy = replace(LEAN, budget_tokens=8_000, apart_calls=100, summary_tokens=8_000)
    story = in_turn()
    shaper = Shaper(policy, WORDS)
    for number in range(12):
        context = shaper.shape(story.events)
        assert sum(message_tokens(m, WORDS) for m in context.messages) <= 8_000
        acts(story, str(number), output=words(1_500, f"f{number}"))
    assert 2 <= shaper.steps < 10


def test_what_a_compaction_cannot_bring_within_the_budget_is_not_compacted_each_time() -> (
    None
):
    """Instructions are larger than the budget: the prefix stays for a few calls."""
    story = in_turn().given(GoalSet(blocks=(text_block("goal " * 500),)))
    policy = replace(TINY, prune_step_tokens=0, compact_step_tokens=0, apart_calls=4)
    shaper = called(story, 20, policy)
    assert 0 < shaper.steps <= 5


def test_a_compaction_that_failed_is_planned_again_on_a_larger_context_only() -> None:
    """By the share that it has grown, whoever plans."""
    story = in_turn()
    for number in range(4):
        acts(story, str(number))
    context = build(Sources(story.events))
    policy = replace(TINY, prune_step_tokens=0)
    step = plan(context, policy=policy, counter=WORDS)
    assert isinstance(step, Compact)
    for failed, planned in ((step.tokens_before, None), (step.tokens_before / 2, step)):
        past = replace(context.shaped, failed_tokens=int(failed))
        again = replace(context, shaped=past)
        assert plan(again, policy=policy, counter=WORDS) == planned


def test_a_summary_leaves_room_and_makes_something_smaller() -> None:
    """It never has all that the budget leaves, nor all that it stands for."""
    story = in_turn()
    for number in range(8):
        acts(story, str(number))
    policy = replace(TINY, prune_step_tokens=0, summary_tokens=10_000)
    step = plan(build(Sources(story.events)), policy=policy, counter=WORDS)
    assert isinstance(step, Compact)
    assert step.summary_tokens <= policy.budget_tokens / 2


@pytest.mark.parametrize(
    "arguments",
    [
        json.dumps({"text": " ".join(f"name_{n}.py" for n in range(20_000))}),
        json.dumps([" ".join(f"name_{m}_{n}.py" for n in range(500)) for m in range(40)]),
    ],
)
def test_a_reference_has_a_cap_however_large_what_it_stands_for(arguments: str) -> None:
    """Of an output, and of arguments with one long string or many."""
    policy = replace(TINY, mention_share=0.5, mention_tokens=50)
    story = in_turn()
    acts(story, "0", output=arguments, arguments=arguments)
    for number in range(1, 4):
        acts(story, str(number), output="short")
    step = plan(build(Sources(story.events)), policy=policy, counter=WORDS)
    assert isinstance(step, Prune)
    assert len(step.targets) == 2
    for block in step.blocks:
        told = re.findall(r"It mentions: ([^\"\\]*)", str(block.body))
        assert 0 < sum(map(WORDS.count, told)) <= policy.mention_tokens


def test_long_arguments_of_short_strings_are_no_saving() -> None:
    """Nothing of them becomes shorter, so they are no reason to change the prefix."""
    story = in_turn()
    many = json.dumps({f"k{n}": "four short words here" for n in range(100)})
    acts(story, "many", output="word " * 20, arguments=many)
    for number in range(3):
        acts(story, str(number), output="short")
    context = build(Sources(story.events))
    policy = replace(TINY, compact_step_tokens=0, budget_tokens=0)
    assert plan(context, policy=policy, counter=WORDS) is None


def test_a_history_that_grows_is_summarised_as_one_that_is_given_at_once() -> None:
    """Each event is looked at once; what is told of them is the same."""
    story = in_turn()
    shaper = called(story, 16)
    told = [r.event for r in shaper.merged if isinstance(r.event, CompactionCompleted)]
    assert len(told) > 2
    for done in told:
        originals = Originals(story.events, done.to_seq, {})
        again = {
            summary_of(originals, policy=replace(TINY, summary_tokens=n), counter=WORDS)
            for n in range(40, 101)
        }
        assert text_of(done.blocks) in again


class Counting:
    """Counts words, and how much it was given to count."""

    name = "counting"

    def __init__(self) -> None:
        self.characters = 0

    def count(self, text: str) -> int:
        """How many words a text has."""
        self.characters += len(text)
        return len(text.split())


@pytest.mark.parametrize("policy", [TINY, LEAN, FULL], ids=["tiny", "lean", "full"])
def test_a_session_of_twice_the_length_is_shaped_in_about_twice_the_work(
    policy: ContextPolicy,
) -> None:
    """What is counted stands for the work: each event is told once, however many follow."""
    work: list[int] = []
    for length in (60, 120):
        story, counter = in_turn(), Counting()
        shaper = Shaper(policy, counter)
        for number in range(length):
            shaper.shape(story.events)
            acts(story, str(number), output=words(200, f"f{number}"))
        work.append(counter.characters)
    assert work[1] <= 3 * work[0]


def test_a_rewind_makes_no_later_call_slower() -> None:
    """Behind the next compaction what lies before it is not needed any more."""
    story = in_turn()
    acts(story, "wrong", output="word")
    story.given(HistoryRewound(to_seq=2))
    shaper = called(story, 30)
    assert shaper.sources().base_seq > story.seq // 2
    context = shaper.shape(story.events)
    assert build(Sources(shaper.merged)).messages == context.messages


def test_a_fork_is_shaped_from_its_last_compaction_on() -> None:
    """What its creation says is in force leads it, and nothing else of its parent's."""
    parent = in_turn().given(constraint("gone"))
    shaper = called(parent, 6)
    goes_on = Constraint(constraint_id="k", blocks=(text_block("no network"),))
    inherited = Inherited(goal=(text_block("all green"),), constraints=(goes_on,))
    inherits = ("goal", "constraint:k")
    child = session(inherits=inherits, inherited=inherited).given(turn())
    for number in range(30):
        context = shaper.shape(joined(parent, child))
        assert build(Sources(shaper.merged)).messages == context.messages
        acts(child, f"later {number}", output=words(60, f"f{number}"))
    assert shaper.sources().base_seq > parent.seq
    shown = text_of_context(build(shaper.sources()))
    assert ("all green" in shown, "no network" in shown) == (True, True)


def joined(parent: Story, child: Story) -> list[Recorded]:
    """The events of a child behind those of its parent."""
    behind = [
        recorded._replace(
            envelope=recorded.envelope.model_copy(
                update={
                    "seq": parent.seq + recorded.seq,
                    "event_id": f"child {recorded.envelope.event_id}",
                }
            )
        )
        for recorded in child.events
    ]
    return [*parent.events, *behind]


def test_a_rewind_before_a_compaction_brings_back_what_it_stood_for() -> None:
    """And what an earlier compaction stands for stays a summary."""
    story = in_turn()
    shaper = called(story, 30)
    shaper.shape(story.events)
    done = [r for r in shaper.merged if isinstance(r.event, CompactionCompleted)]
    assert len(done) > 1
    story.given(HistoryRewound(to_seq=done[-1].seq - 1))
    shaper.shape(story.events)
    context = shaper.shape(story.events)
    assert build(Sources(shaper.merged)).messages == context.messages
