"""Every event has a line, whatever is in it."""

from typing import Any

import pytest

from foldline.cli.content import PARTS, line_of, line_of_blocks
from foldline.schemas.blocks import Blob, Block, Sealed, text_block
from foldline.schemas.events import (
    EVENT_TYPES,
    AssistantMessage,
    Label,
    LabelsSet,
    ModelCallCompleted,
    ToolExecutionCompleted,
    ToolExecutionFailed,
    UnknownEvent,
    Usage,
    UserFeedback,
)


def test_every_event_type_says_what_its_line_shows() -> None:
    assert set(PARTS) == set(EVENT_TYPES)


@pytest.mark.parametrize("name", sorted(PARTS))
def test_a_line_names_only_fields_that_the_event_has(name: str) -> None:
    fields = dict.fromkeys(EVENT_TYPES[name].model_fields)
    assert line_of(EVENT_TYPES[name].trusted(fields)) == ""


def test_what_is_not_known_is_left_out_of_the_line() -> None:
    known = ToolExecutionCompleted(call_id="c", exit_code=3, output=())
    assert line_of(known) == "exit 3"


def test_an_exit_code_of_zero_is_something_known() -> None:
    assert line_of(ToolExecutionCompleted(call_id="c", exit_code=0, output=())) == (
        "exit 0"
    )


def test_tokens_are_told_by_kind() -> None:
    usage = Usage(input_tokens=1234, output_tokens=5, cache_read_input_tokens=1000)
    event = ModelCallCompleted(model_call_id="m", finish_reason="stop", usage=usage)
    assert line_of(event) == "stop in 1,234 cached 1,000 out 5"


def test_a_failure_says_whether_the_effect_happened() -> None:
    event = ToolExecutionFailed(call_id="c", layer="TOOL", error_type="Boom")
    assert line_of(event) == "TOOL Boom executed UNKNOWN"


def test_labels_and_scores_are_readable() -> None:
    assert line_of(LabelsSet(labels=(Label(key="env", value="prod"),))) == "env=prod"
    assert line_of(UserFeedback(target="m1", score=0.5)) == "score 0.5 on m1:"


@pytest.mark.parametrize(
    ("block", "line"),
    [
        (text_block("hi\nthere"), "hi there"),
        (Block(kind="reasoning", body="hm"), "[reasoning] hm"),
        (
            Block(
                kind="image",
                media_type="image/png",
                body=Blob(sha256=b"x" * 32, size=2048, media_type="image/png"),
            ),
            "[image image/png] [image/png, 2.0 KB]",
        ),
        (
            Block(kind="text", body=Sealed(key_id="k", nonce=b"n", ciphertext=b"1234")),
            "[sealed, 4 B]",
        ),
    ],
)
def test_a_block_that_is_no_text_is_named(block: Block, line: str) -> None:
    assert line_of_blocks((block,)) == line


def test_of_many_blocks_the_first_are_shown_and_the_rest_counted() -> None:
    blocks = tuple(text_block(str(n)) for n in range(20))
    assert line_of_blocks(blocks).endswith("7 [12 more blocks]")


def test_a_type_that_nobody_knows_shows_its_fields_cleanly() -> None:
    fields: dict[str, Any] = {"text": "\x1b[2J", "raw": b"\x00"}
    line = line_of(UnknownEvent("Newer", fields))
    assert "\x1b" not in line
    assert '"text": "\\u001b[2J"' in line


def test_markup_of_the_printing_library_is_text_like_any_other() -> None:
    blocks = (text_block("[bold red]:smile:[/]"),)
    assert line_of(AssistantMessage(message_id="m", blocks=blocks)) == (
        "[bold red]:smile:[/]"
    )
