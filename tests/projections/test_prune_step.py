"""Which results and arguments become references: images, and what is pinned."""

from dataclasses import replace

import pytest

from foldline.projections.building import build
from foldline.projections.context import Sources
from foldline.projections.grouping import groups_of
from foldline.projections.prune_step import Prune, prune
from foldline.projections.token_count import ANY_IMAGE_TOKENS, ANYBODY, Reader
from foldline.schemas.blocks import Blob, Block, json_block, text_block, text_of
from foldline.schemas.events import AssistantMessage, ToolExecutionCompleted
from tests.happenings import in_turn, request, start
from tests.projections.test_shaping import LONG, TINY, WORDS, acts
from tests.story import Story

IMAGE = Block(kind="image", body=Blob(sha256=b"i" * 32, size=9, media_type="image/png"))


def looks(*output: Block) -> Story:
    """One call with an output, and one that is newer."""
    story = in_turn()
    story.given(AssistantMessage(message_id="m", blocks=(text_block("look"),)))
    asked = (json_block('{"path": "a.png"}'),)
    story.given(request("c", message_id="m", tool="look", arguments=asked), start("c"))
    story.given(ToolExecutionCompleted(call_id="c", output=output))
    acts(story, "new", output="ok")
    return story


def pruned(story: Story, *, reader: Reader = ANYBODY, **changes: object) -> Prune | None:
    """What is pruned of all that a story shows."""
    policy = replace(TINY, **changes)
    groups = groups_of(build(Sources(story.events)).messages, WORDS, reader)
    return prune(groups, policy, WORDS, reader)


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ((IMAGE, IMAGE, IMAGE), f"[look, event 6, 3 images: {3 * ANY_IMAGE_TOKENS} tokens"),
        ((text_block(LONG), IMAGE), "[look, event 6, 1 image: "),
        ((text_block(LONG),), "[look, event 6: 60 tokens"),
    ],
)
def test_images_in_a_result_count_and_its_reference_names_them(
    output: tuple[Block, ...], said: str
) -> None:
    step = pruned(looks(*output))
    assert step is not None
    (target,), (block,) = step.targets, step.blocks
    assert target == "c"
    assert text_of((block,)).startswith(said)


def test_an_image_counts_by_the_rule_of_whom_the_context_is_for() -> None:
    steps = [
        pruned(looks(IMAGE), reader=Reader(provider, "m"))
        for provider in ("anthropic", "openai")
    ]
    (most, least) = [step.tokens_saved for step in steps if step]
    assert most > least > 700


def test_what_is_pinned_by_its_event_its_message_or_a_call_is_not_pruned() -> None:
    """The message and the results of its calls, as through a compaction."""
    story = looks(text_block(LONG))
    assert pruned(story) is not None
    said = next(r for r in story.events if r.type == "AssistantMessage")
    asked = next(r for r in story.events if r.type == "ToolCallRequested")
    done = next(r for r in story.events if r.type == "ToolExecutionCompleted")
    for name in (
        said.envelope.event_id,
        asked.envelope.event_id,
        done.envelope.event_id,
        "m",
        "c",
    ):
        assert pruned(story, pinned=(name,)) is None
    assert pruned(story, pinned=("n", "another")) is not None
