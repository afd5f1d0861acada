"""The tokens of a context: by section, for whom, and as its provider counts them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldline.projections.building import build
from foldline.projections.context import Message, Part, Sources
from foldline.projections.model_calls import Asked
from foldline.projections.render import FORMATS
from foldline.projections.request import Form
from foldline.projections.token_count import (
    ANY_IMAGE_TOKENS,
    CALL_TOKENS,
    IMAGE_TOKENS,
    MESSAGE_TOKENS,
    RATIO_MAX,
    TOOL_TOKENS,
    TRUSTED_CALLS,
    Calibration,
    Ratio,
    Reader,
    Sample,
    Sizes,
    calibrate,
    context_tokens,
    input_tokens,
    message_tokens,
    samples_of,
    sizes_of,
)
from foldline.schemas.blocks import Block, json_block, text_block
from foldline.schemas.events import (
    AssistantMessage,
    InstructionsSet,
    ToolDeclaration,
    ToolExecutionCompleted,
    ToolsDeclared,
    Usage,
    UserMessage,
)
from tests.happenings import compaction, in_turn, request, start
from tests.story import Story
from tests.words import Words


def words(count: int) -> tuple[Block, ...]:
    return (text_block("word " * count),)


def told() -> Story:
    """One of each: instructions 3, tools 4, user 5, assistant 6, arguments 1, result 7."""
    story = in_turn()
    tool = ToolDeclaration(name="t", effect="SAFE", description="two words")
    return story.given(
        InstructionsSet(role="system", blocks=words(3)),
        ToolsDeclared(tools=(tool,)),
        UserMessage(message_id="u", blocks=words(5)),
        AssistantMessage(message_id="m", blocks=words(6)),
        request("c", message_id="m", tool="t", arguments=(json_block("{}"),)),
        start("c"),
        ToolExecutionCompleted(call_id="c", output=words(7)),
    )


def test_each_section_has_its_tokens() -> None:
    context = build(Sources(told().events))
    sizes = sizes_of(context, Words())
    assert sizes == Sizes(
        system=MESSAGE_TOKENS + 3,
        tools=TOOL_TOKENS + 4,
        user=MESSAGE_TOKENS + 5,
        assistant=MESSAGE_TOKENS + 6,
        calls=CALL_TOKENS + 2,
        results=MESSAGE_TOKENS + CALL_TOKENS + 7,
    )
    assert sizes.total == context_tokens(context, Words()) == sum(sizes.as_dict().values())
    told_apart = sum(message_tokens(message, Words()) for message in context.messages)
    assert told_apart == sizes.total - sizes.tools


def test_a_summary_is_a_section_of_its_own() -> None:
    story = told()
    blocks = words(9)
    whole = compaction(story.seq, story.seq).model_copy(update={"blocks": blocks})
    story.given(whole)
    sizes = sizes_of(build(Sources(story.events)), Words())
    assert (sizes.summary, sizes.user, sizes.results) == (MESSAGE_TOKENS + 9, 0, 0)


def test_reasoning_costs_only_whom_it_goes_back_to() -> None:
    own = Part("reasoning", "a b c", provider="anthropic", model="x")
    message = Message("assistant", (own, Part("text", "d")), ("e",))
    counts = {
        reader: message_tokens(message, Words(), reader=reader)
        for reader in (Reader(), Reader("anthropic", "x"), Reader("anthropic", "y"))
    }
    assert [count - MESSAGE_TOKENS for count in counts.values()] == [4, 4, 1]


def test_reasoning_goes_back_to_a_model_by_any_of_its_names() -> None:
    """As in requests; without a provider the model alone decides."""
    dated = Part("reasoning", "a b", provider="anthropic", model="claude-x-20250929")
    readers = {
        Reader("anthropic", "claude-x"): True,
        Reader("", "claude-x"): True,
        Reader("bedrock", "claude-x"): False,
        Reader("anthropic", "claude-y"): False,
        Reader("", "claude-y"): False,
    }
    for reader, kept in readers.items():
        assert reader.keeps(dated) == kept
        assert not reader.keeps(Part("reasoning", "a b"))


@pytest.mark.parametrize("name", FORMATS)
def test_a_form_without_a_provider_is_for_the_one_whose_format_it_is(name: str) -> None:
    """What is counted is what the request has."""
    whose = name.partition("-")[0]
    assert Form(name, "m").reader == Reader(whose, "m")
    assert Form(name, "m", "p").reader == Reader("p", "m")


def test_encrypted_reasoning_is_estimated_by_its_length() -> None:
    message = Message("assistant", (Part("reasoning", opaque="x" * 100),), ("e",))
    assert message_tokens(message, Words()) == MESSAGE_TOKENS + 20


@pytest.mark.parametrize(
    ("provider", "tokens"), [*IMAGE_TOKENS.items(), ("somebody", ANY_IMAGE_TOKENS)]
)
def test_an_image_counts_by_its_providers_rule(provider: str, tokens: int) -> None:
    result = Part("result", parts=(Part("image"),))
    for part in (Part("image"), result):
        message = Message("user", (part,), ("e",))
        borders = MESSAGE_TOKENS + (CALL_TOKENS if part is result else 0)
        count = message_tokens(message, Words(), reader=Reader(provider))
        assert count - borders == tokens


# --- what providers say --------------------------------------------------------------


@pytest.mark.parametrize(
    ("usage", "provider", "tokens"),
    [
        (Usage(), "anthropic", 0),
        (Usage(input_tokens=7), "", 7),
        (Usage(input_tokens=100, cache_read_input_tokens=60), "openai", 100),
        (Usage(input_tokens=100, cache_read_input_tokens=60), "anthropic", 160),
        (Usage(input_tokens=3, cache_read_input_tokens=60), "", 63),
        (Usage(input_tokens=3, cache_write_input_tokens=60), "", 63),
    ],
)
def test_what_was_cached_is_input_too(usage: Usage, provider: str, tokens: int) -> None:
    assert input_tokens(usage, provider=provider) == tokens


def test_a_model_that_never_said_anything_counts_as_here() -> None:
    calibration = calibrate([Sample("x", 100, 120)])
    assert calibration.tokens(100, model="y") == calibration.counted(100, model="y") == 100
    assert calibration.of("y") == Ratio()


def test_the_last_calls_of_each_model_say_how_it_counts() -> None:
    samples = [Sample("x", 1, 9), Sample("y", 10, 10)]
    samples += [Sample("x", count, round(count * 1.5)) for count in (100, 300, 700, 900)]
    calibration = calibrate(samples, last=4)
    assert calibration.ratios == {"x": Ratio(1.5, 0, 4), "y": Ratio(1.0, 0, 1)}
    assert calibration.tokens(1_000, model="x") == 1_500
    assert calibration.counted(1_500, model="x") == 1_000


def test_a_budget_holds_by_both_counts_and_few_calls_are_no_proof() -> None:
    """A provider that counts less than here makes no budget larger."""
    few = [Sample("x", count, count * 2) for count in (100, 300, 700)]
    assert calibrate(few).counted(1_000, model="x") == 1_000
    assert calibrate([*few, Sample("x", 900, 1_800)]).counted(1_000, model="x") == 500
    less = [Sample("x", count, count // 2) for count in (100, 300, 700, 900)]
    assert calibrate(less).counted(1_000, model="x") == 1_000


def test_what_a_harness_adds_and_does_not_record_is_no_ratio() -> None:
    """Instructions and tools of an imported session are in every request, unseen."""
    samples = [Sample("x", count, 20_000 + count * 12 // 10) for count in (10, 500, 900)]
    calibration = calibrate(samples)
    assert calibration.of("x").ratio == pytest.approx(1.2, abs=0.01)
    assert calibration.tokens(2_000, model="x") == pytest.approx(22_400, rel=0.001)
    more = calibrate([*samples, Sample("x", 700, 20_840)])
    assert more.counted(12_000, model="x") == pytest.approx(10_000, rel=0.01)


@given(
    st.lists(
        st.builds(Sample, st.just("x"), st.integers(0, 10**7), st.integers(0, 10**7)),
        max_size=20,
    ),
    st.integers(0, 10**7),
)
def test_whatever_providers_say_the_ratio_stays_within_its_bounds(
    samples: list[Sample], count: int
) -> None:
    calibration = calibrate(samples)
    found = calibration.of("x")
    assert 0.5 <= found.ratio <= RATIO_MAX
    assert found.unseen >= 0
    within = calibration.counted(count, model="x")
    assert within <= count
    if found.samples >= TRUSTED_CALLS:
        assert within * found.ratio <= count + 1


def test_only_calls_that_were_counted_and_reported_are_samples() -> None:
    said = Usage(input_tokens=50)
    asked = Asked("a", 3, 2, "x", "p", usage=said)
    calls = [asked, replace(asked, model_call_id="b", usage=None)]
    calls += [replace(asked, model_call_id="c")]
    assert samples_of(calls, {"a": 40, "b": 40}) == [Sample("x", 40, 50)]
    assert Calibration().ratios == {}
