"""A budget by the count of whoever is asked, as the calls of a session go by."""

from foldline.projections.building import build
from foldline.projections.calibrating import Calibrating
from foldline.projections.context import Context, Sources
from foldline.projections.token_count import Reader, context_tokens
from foldline.schemas.blocks import text_block
from foldline.schemas.events import Usage, UserMessage
from tests.happenings import in_turn
from tests.words import Words

WORDS = Words()
READER = Reader("p", "m")


def said(words: int) -> Context:
    """A context with so many words."""
    blocks = (text_block("word " * words),)
    message = UserMessage(message_id="u", blocks=blocks)
    return build(Sources(in_turn().given(message).events))


def answered(calibrating: Calibrating, *words: int) -> None:
    """A model that counts twice answers to contexts of so many words."""
    for count in words:
        context = said(count)
        tokens = 2 * context_tokens(context, WORDS)
        calibrating.answered(context, READER, Usage(input_tokens=tokens))
        calibrating.budget(1, WORDS, READER)


def test_a_budget_becomes_smaller_where_a_provider_counts_more() -> None:
    calibrating = Calibrating()
    answered(calibrating, 100, 200, 300)
    assert calibrating.budget(1_000, WORDS, READER) == 1_000
    answered(calibrating, 400)
    assert calibrating.budget(1_000, WORDS, READER) == 500
    assert calibrating.budget(1_000, WORDS, Reader("p", "another")) == 1_000


def test_a_provider_that_said_nothing_changes_nothing() -> None:
    calibrating = Calibrating()
    for count in (100, 200, 300, 400, 500):
        calibrating.answered(said(count), READER, None)
        assert calibrating.budget(1_000, WORDS, READER) == 1_000


def test_the_last_calls_count() -> None:
    """A model may be another behind the same name."""
    calibrating = Calibrating()
    answered(calibrating, 100, 200, 300, 400)
    for count in (100, 200, 300, 400, 500, 600, 700, 800):
        context = said(count)
        usage = Usage(input_tokens=context_tokens(context, WORDS))
        calibrating.answered(context, READER, usage)
        found = calibrating.budget(1_000, WORDS, READER)
    assert found == 1_000
