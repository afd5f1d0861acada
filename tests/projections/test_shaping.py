"""Making a context smaller: what goes, what stays, and that it is the same on a rebuild."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldline.errors import SettingsError
from foldline.projections.building import build
from foldline.projections.context import SUMMARY, Context, Sources
from foldline.projections.context_views import policy_wanted
from foldline.projections.items import PRUNED
from foldline.projections.policy import FULL, LEAN, POLICIES, ROOMY, ContextPolicy, ToolRule
from foldline.projections.prune_step import Prune
from foldline.projections.shaper import Shaper
from foldline.projections.shaping import Compact, plan
from foldline.projections.token_count import message_tokens
from foldline.schemas.blocks import json_block, text_block
from foldline.schemas.events import (
    AssistantMessage,
    GoalSet,
    SteeringReceived,
    ToolExecutionCompleted,
    UserMessage,
)
from tests.happenings import constraint, in_turn, request, start, steering_applied, turn
from tests.projections.test_context import ADDING, CUTTING, KEYS, OFTEN
from tests.story import Story
from tests.words import Words

WORDS = Words()
TINY = ContextPolicy(
    "tiny",
    budget_tokens=400,
    window_tokens=10,
    prune_step_tokens=40,
    compact_step_tokens=120,
    apart_calls=1,
    summary_tokens=100,
    reference_tokens=4,
    prune_result_tokens=12,
    prune_argument_tokens=20,
)
LONG = "word " * 60


def acts(
    story: Story, name: str, *, output: str = LONG, arguments: str = '{"path": "a.py"}'
) -> None:
    """The model calls a tool, which ends."""
    call_id = f"call {name}"
    asked = (json_block(arguments),)
    story.when(AssistantMessage(message_id=f"m {name}", blocks=(text_block(name),)))
    story.when(request(call_id, message_id=f"m {name}", arguments=asked, tool="look"))
    story.when(start(call_id))
    story.when(ToolExecutionCompleted(call_id=call_id, output=(text_block(output),)))


def text_of(context: Context) -> str:
    """All that is shown."""
    pieces = [p for m in context.messages for p in m.parts]
    return "\n".join(
        text for p in pieces for text in (p.text, *(inner.text for inner in p.parts))
    )


def called(story: Story, count: int, policy: ContextPolicy = TINY) -> Shaper:
    """So many calls, with the context shaped before each of them."""
    shaper = Shaper(policy, WORDS)
    for number in range(count):
        shaper.shape(story.events)
        acts(story, str(number), output=f"{LONG} end{number}.py")
    return shaper


def test_old_outputs_become_references_that_name_what_they_had() -> None:
    """And the newest, which the model has not seen, is there in full."""
    story = in_turn()
    shaper = called(story, 3)
    context = shaper.shape(story.events)
    results = [p for m in context.messages for p in m.parts if p.kind == "result"]
    assert [part.form for part in results] == [PRUNED, PRUNED, "OUTCOME"]
    assert "end0.py" in results[0].parts[0].text
    assert "event 6" in results[0].parts[0].text
    assert LONG.strip() in results[2].parts[0].text


def test_what_the_model_has_not_seen_stays_whatever_its_size() -> None:
    """A batch of outputs is larger than every limit, and all of it is shown once."""
    story = in_turn()
    shaper = Shaper(TINY, WORDS)
    shaper.shape(story.events)
    for number in range(4):
        acts(story, str(number), output=LONG * 10)
    context = shaper.shape(story.events)
    assert text_of(context).count("word") >= 4 * 600
    assert shaper.steps == 0


def test_long_arguments_are_shortened_and_stay_the_same_json() -> None:
    """Short strings, numbers and names of fields are as they were."""
    story = in_turn()
    arguments = '{"path": "src/a.py", "text": "%s", "n": [1, true]}' % ("long " * 80)
    shaper = Shaper(TINY, WORDS)
    shaper.shape(story.events)
    acts(story, "write", arguments=arguments)
    for number in range(2):
        shaper.shape(story.events)
        acts(story, str(number))
    context = shaper.shape(story.events)
    call = next(p for m in context.messages for p in m.parts if p.call_id == "call write")
    assert call.text.startswith('{"path": "src/a.py", "text": "[event')
    assert call.text.endswith('"n": [1, true]}')


def test_kept_tools_and_pinned_calls_are_not_pruned() -> None:
    """By a glob of the tool's name, by the id of the call."""
    kept = (ToolRule("other"), ToolRule("lo*", keep=True), ToolRule("look"))
    for policy in (replace(TINY, tools=kept), replace(TINY, pinned=("call 0",))):
        story = in_turn()
        shaper = called(story, 3, replace(policy, compact_step_tokens=0, budget_tokens=0))
        context = shaper.shape(story.events)
        first = next(p for m in context.messages for p in m.parts if p.kind == "result")
        assert first.form == "OUTCOME"


def test_what_is_older_becomes_one_summary_and_the_rest_stays_as_it_is() -> None:
    """It stands in front, behind the instructions, and says what was done."""
    story = in_turn().given(UserMessage(message_id="u", blocks=(text_block("mend b.py"),)))
    shaper = called(story, 12)
    context = shaper.shape(story.events)
    summaries = [m for m in context.messages if m.origin == SUMMARY]
    assert context.messages.index(summaries[0]) == 0
    assert len(summaries) == 1
    told = summaries[0].parts[0].text
    assert "mend b.py" in told
    assert "look" in told
    assert sum(message_tokens(m, WORDS) for m in context.messages) < TINY.budget_tokens


def test_goal_and_constraints_survive_a_compaction() -> None:
    """They are in force, whoever said them, however long ago."""
    story = in_turn()
    story.given(GoalSet(blocks=(text_block("mend it"),)), constraint("no network"))
    shaper = called(story, 12)
    assert any(m.origin == SUMMARY for m in shaper.shape(story.events).messages)
    system = shaper.shape(story.events).messages[0]
    assert system.role == "system"
    assert "mend it" in "".join(part.text for part in system.parts)


def test_no_cut_goes_behind_a_call_whose_result_may_still_come() -> None:
    """It stays in the context with its stand-in until the model was asked again."""
    story = in_turn()
    called(story, 10)
    story.when(AssistantMessage(message_id="open", blocks=(text_block("and"),)))
    story.when(request("open call", message_id="open"))
    story.when(start("open call"))
    for number in range(6):
        story.when(UserMessage(message_id=f"u{number}", blocks=(text_block("wait " * 40),)))
    context = Shaper(TINY, WORDS).shape(story.events)
    calls = [p for m in context.messages for p in m.parts if p.kind == "call"]
    assert "open call" in [part.call_id for part in calls]


def test_no_cut_goes_behind_steering_that_was_not_applied() -> None:
    """Its text is still needed when it is."""
    story = in_turn()
    called(story, 4)
    blocks = (text_block("use the other file"),)
    story.when(SteeringReceived(mode="NEXT_TURN", blocks=blocks))
    steering = story.events[-1]
    shaper = called(story, 10)
    context = shaper.shape(story.events)
    step = plan(context, policy=replace(TINY, compact_step_tokens=1), counter=WORDS)
    assert not isinstance(step, Compact) or step.to_seq < steering.seq
    story.when(turn())
    story.when(steering_applied(steering.envelope.event_id))
    assert "use the other file" in text_of(shaper.shape(story.events))


def test_a_policy_without_budgets_leaves_everything() -> None:
    """Whatever the history holds."""
    story = in_turn()
    shaper = called(story, 12, FULL)
    assert shaper.shape(story.events) == build(Sources(story.events))
    assert shaper.steps == 0


def test_what_was_just_done_is_not_done_again() -> None:
    """Without new content there is no next step: it cannot cause itself."""
    story = in_turn()
    shaper = called(story, 12)
    context = shaper.shape(story.events)
    steps = shaper.steps
    for _ in range(3):
        assert shaper.shape(story.events) == context
    assert shaper.steps == steps


def test_the_prefix_changes_only_where_something_was_recorded() -> None:
    """Between two steps a context only grows."""
    story = in_turn()
    shaper = Shaper(TINY, WORDS)
    before: tuple[object, ...] = ()
    for number in range(20):
        steps = shaper.steps
        context = shaper.shape(story.events)
        if shaper.steps == steps:
            assert context.messages[: len(before)] == before
        before = context.messages
        acts(story, str(number), output=f"{'word ' * 20} {number}")
    assert 2 < shaper.steps < 16


def test_a_summary_is_made_of_originals_and_of_no_summary() -> None:
    """The second one says what the first had left out."""
    story = in_turn().given(UserMessage(message_id="u", blocks=(text_block("begin x.py"),)))
    shaper = called(story, 30)
    context = shaper.shape(story.events)
    told = next(m for m in context.messages if m.origin == SUMMARY).parts[0].text
    assert told.count("[Summary of") == 1
    assert "begin x.py" in told


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_a_policy_within_a_budget_keeps_to_it(policy: ContextPolicy) -> None:
    """Its parts shrink with it, and nothing grows."""
    small = policy.within(1_000)
    assert small.budget_tokens == 1_000
    assert small.summary_tokens <= 500
    assert small.window_tokens <= policy.window_tokens


def test_a_budget_is_at_least_a_token() -> None:
    for budget in (0, -5):
        with pytest.raises(SettingsError, match="from 1"):
            LEAN.within(budget)


def test_a_small_budget_is_no_reason_to_do_nothing() -> None:
    """A step of no tokens would be no limit."""
    small = LEAN.within(3)
    assert 0 not in {small.prune_step_tokens, small.compact_step_tokens}
    assert FULL.within(3).prune_step_tokens == FULL.prune_step_tokens


def test_a_budget_that_is_asked_for_is_that_of_a_turn() -> None:
    assert policy_wanted("roomy", 8_000) == ROOMY.within(8_000)
    assert policy_wanted("", 8_000) == LEAN.within(8_000)


STEPS = ADDING | CUTTING


@given(
    steps=st.lists(
        st.tuples(st.sampled_from((*OFTEN, *sorted(ADDING), "clear", "rewind")), KEYS),
        max_size=20,
    )
)
@settings(max_examples=60, deadline=None)
def test_every_legal_history_is_shaped_at_every_cut(steps: list[tuple[str, str]]) -> None:
    """Sound at each (every build is checked), and the same from the whole history.

    Rewinds and clearings come in between; what an owner reads since the last compaction
    gives what the whole history gives.
    """
    policy = replace(
        TINY, window_tokens=2, prune_step_tokens=3, compact_step_tokens=8, summary_tokens=20
    )
    policy = replace(policy, prune_result_tokens=1, budget_tokens=60)
    story = in_turn()
    shaper = Shaper(policy, WORDS)
    for name, key in steps:
        STEPS[name](story, key)
        context = shaper.shape(story.events)
        assert build(Sources(shaper.merged)).messages == context.messages
        again = Shaper(policy, WORDS).shape(story.events)
        assert again == Shaper(policy, WORDS).shape(story.events)


def test_pruning_is_planned_once_it_saves_enough() -> None:
    """Not for each output: every pruning costs the provider's cached prefix."""
    story = in_turn()
    acts(story, "one", output="word " * 30)
    acts(story, "two")
    context = build(Sources(story.events))
    assert plan(context, policy=TINY, counter=WORDS) is None
    acts(story, "three")
    acts(story, "four")
    step = plan(build(Sources(story.events)), policy=TINY, counter=WORDS)
    assert isinstance(step, Prune)
    assert len(step.targets) == len(step.blocks)
    assert step.tokens_saved > 0


def test_the_default_policy_has_every_limit() -> None:
    """Nothing of it is without bound."""
    assert min(LEAN.budget_tokens, LEAN.prune_step_tokens, LEAN.compact_step_tokens) > 0
