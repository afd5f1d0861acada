"""Rules for tools, and budgets of sections: what becomes a reference, and what is told."""

from dataclasses import replace

import pytest

from foldline.projections.context import Context
from foldline.projections.items import PRUNED
from foldline.projections.policy import (
    FULL,
    NO_SECTIONS,
    ContextPolicy,
    SectionBudgets,
    ToolRule,
)
from foldline.projections.pruning import PRUNED_MARK
from foldline.projections.sections import above
from foldline.projections.shaper import Shaper
from foldline.projections.shaping import Compact, compaction
from foldline.projections.token_count import message_sizes, sizes_of
from foldline.schemas.blocks import Block, json_block, text_block
from foldline.schemas.events import (
    AssistantMessage,
    ToolExecutionCompleted,
    UserMessage,
)
from tests.happenings import in_turn, request, start
from tests.story import Story
from tests.words import Words

WORDS = Words()
LONG = "word " * 60
QUIET = ContextPolicy(
    "quiet",
    window_tokens=10,
    apart_calls=1,
    reference_tokens=4,
    mention_share=0.0,
    prune_result_tokens=12,
    prune_argument_tokens=20,
)
"""It does nothing by itself."""


def shaped(
    policy: ContextPolicy, count: int, *, tools: tuple[str, ...] = ("look",)
) -> Context:
    """So many calls, of these tools by turns, shaped before each of them."""
    story = in_turn()
    shaper = Shaper(policy, WORDS)
    for number in range(count):
        shaper.shape(story.events)
        called(story, number, tools[number % len(tools)])
    return shaper.shape(story.events)


def called(story: Story, number: int, tool: str) -> None:
    message, call_id = f"m{number}", f"call {number}"
    asked = (json_block('{"text": "%s"}' % ("long " * 80)),)
    story.when(AssistantMessage(message_id=message, blocks=(text_block("so"),)))
    story.when(request(call_id, message_id=message, tool=tool, arguments=asked))
    story.when(start(call_id))
    story.when(ToolExecutionCompleted(call_id=call_id, output=(text_block(LONG),)))


def forms(context: Context) -> list[str]:
    return [p.form for m in context.messages for p in m.parts if p.kind == "result"]


def arguments(context: Context) -> list[bool]:
    """Of each call whether its arguments are there in full."""
    parts = [p for m in context.messages for p in m.parts if p.kind == "call"]
    return [PRUNED_MARK not in part.text for part in parts]


# --- rules of tools -------------------------------------------------------------------


def test_the_first_rule_that_fits_a_tool_says_how_it_is_pruned() -> None:
    """What it does not say is as for all others."""
    rules = (
        ToolRule("read_*", keep=True),
        ToolRule("*_big", prune_result_tokens=1_000),
        ToolRule("*", mention_share=0.9, prune_argument_tokens=1_000),
    )
    policy = replace(QUIET, prune_step_tokens=40, tools=rules)
    context = shaped(policy, 5, tools=("read_big", "run_big", "look"))
    assert forms(context) == ["OUTCOME", "OUTCOME", PRUNED, "OUTCOME", "OUTCOME"]
    assert arguments(context)[:3] == [False, False, True]
    assert policy.of("read_big").mention_share == QUIET.mention_share
    assert policy.of("look").mention_share == 0.9
    assert QUIET.of("look") is QUIET


def test_a_rule_says_how_much_of_a_reference_is_shown() -> None:
    long = ToolRule("look", reference_tokens=40)
    texts: list[str] = []
    for rules in ((), (long,)):
        policy = replace(QUIET, prune_step_tokens=40, tools=rules)
        context = shaped(policy, 3)
        first = next(p for m in context.messages for p in m.parts if p.form == PRUNED)
        texts.append(first.parts[0].text)
    assert len(texts[1]) > len(texts[0]) + 60


# --- budgets of sections --------------------------------------------------------------


@pytest.mark.parametrize("section", ["results", "calls"])
def test_a_section_above_its_budget_is_pruned_at_once_oldest_first(section: str) -> None:
    """Whatever the steps say; the other section, and the newest, are as they were."""
    budgets = SectionBudgets(**{section: 330})
    context = shaped(replace(QUIET, sections=budgets), 6)
    results = [form == PRUNED for form in forms(context)]
    asked = [not whole for whole in arguments(context)]
    pruned, others = (results, asked) if section == "results" else (asked, results)
    assert pruned[0]
    assert sorted(pruned, reverse=True) == pruned
    assert not pruned[-1]
    assert not any(others)
    sizes = message_sizes(context.messages, WORDS)
    assert above(sizes, replace(QUIET, sections=budgets)) == {}


def test_one_change_of_the_prefix_makes_room_for_more_than_the_next_call() -> None:
    """Each costs what a provider has cached."""
    story = in_turn()
    shaper = Shaper(replace(QUIET, sections=SectionBudgets(results=700)), WORDS)
    steps: list[int] = []
    for number in range(30):
        shaper.shape(story.events)
        called(story, number, "look")
        steps.append(shaper.steps)
    assert 0 < steps[-1] <= 15


def test_what_cannot_be_pruned_stays_and_is_told() -> None:
    """Words of people and of the model, what it has not seen, what is too small."""
    policy = replace(QUIET, sections=SectionBudgets(user=5, assistant=5, results=5))
    story = in_turn()
    said = (text_block("so many words are no output of any tool"),)
    story.when(UserMessage(message_id="u", blocks=said))
    story.when(AssistantMessage(message_id="m", blocks=said))
    shaper = Shaper(policy, WORDS)
    context = shaper.shape(story.events)
    called(story, 0, "look")
    context = shaper.shape(story.events)
    assert shaper.steps == 0
    over = above(sizes_of(context, WORDS).as_dict(), policy)
    assert list(over) == ["user", "assistant", "results"]
    assert min(over.values()) > 0


def test_a_summary_is_made_no_larger_than_its_section_may_be() -> None:
    policy = replace(QUIET, sections=SectionBudgets(summary=30))
    context = shaped(FULL, 6)
    step = compaction(context, policy=policy, counter=WORDS)
    assert isinstance(step, Compact)
    assert step.summary_tokens <= 30


def test_reasoning_is_a_section_of_its_own() -> None:
    thought = Block(kind="reasoning", body="hm hm hm", provider="p", model="m")
    message = AssistantMessage(message_id="m", blocks=(thought, text_block("so")))
    story = in_turn().given(message)
    context = Shaper(FULL, WORDS).shape(story.events)
    sizes = sizes_of(context, WORDS)
    assert (sizes.reasoning, sizes.messages) == (3, sizes.total)


def test_a_budget_of_all_bounds_those_of_sections() -> None:
    policy = replace(QUIET, sections=SectionBudgets(results=900, user=7)).within(100)
    assert policy.budgets == {"messages": 100, "user": 7, "results": 100}
    assert QUIET.budgets == {}
    assert QUIET.within(100).sections == NO_SECTIONS
