"""The first difference of two requests, answers and sets of tools, and its cause."""

import hashlib
from typing import Any

import pytest

from foldline.projections.recorded_steps import RecordedCall
from foldline.projections.replay import (
    CAUSES,
    MODEL,
    SHOWN_CHARS,
    TOOL_SCHEMA,
    TOOL_SET,
    AskedFor,
    answer_difference,
    tools_difference,
)
from foldline.schemas.blocks import Blob, json_block, text_block
from foldline.schemas.events import ModelCallStarted, ToolCallRequested, ToolDeclaration

SEND = ToolDeclaration(name="send", effect="UNSAFE", input_schema='{"type":"object"}')
NOTE = ToolDeclaration(name="note", effect="READ_ONLY")


def test_the_same_tools_in_another_order_are_the_same_tools() -> None:
    assert tools_difference(7, (SEND, NOTE), (NOTE, SEND)) is None
    assert tools_difference(7, (), ()) is None


@pytest.mark.parametrize(
    ("made", "cause", "detail"),
    [
        ((SEND,), TOOL_SET, "without note"),
        ((NOTE,), TOOL_SET, "without send"),
        ((SEND, NOTE, ToolDeclaration(name="x", effect="")), TOOL_SET, "with x"),
        ((), TOOL_SET, "without note, without send"),
    ],
)
def test_a_tool_more_or_less_is_another_set(
    made: tuple[ToolDeclaration, ...], cause: str, detail: str
) -> None:
    found = tools_difference(7, (SEND, NOTE), made)
    assert found is not None
    assert (found.seq, found.cause, found.detail) == (7, cause, detail)


@pytest.mark.parametrize(
    "changed",
    [
        {"effect": "IDEMPOTENT"},
        {"cancellable": True},
        {"timeout_ms": 5},
        {"description": "Sends."},
        {"input_schema": '{"type":"string"}'},
    ],
)
def test_whatever_a_tool_says_of_itself_is_its_schema(changed: dict[str, Any]) -> None:
    found = tools_difference(7, (SEND, NOTE), (SEND.model_copy(update=changed), NOTE))
    assert found is not None
    assert found.cause == TOOL_SCHEMA
    assert found.detail == f"{next(iter(changed))} of send"
    assert found.cause in CAUSES


def test_a_text_is_the_same_wherever_it_is_stored() -> None:
    text = "x" * 1_000
    blob = Blob(
        sha256=hashlib.sha256(text.encode()).digest(), size=1_000, media_type="text/plain"
    )
    stored = SEND.model_copy(update={"description": blob})
    inline = SEND.model_copy(update={"description": text})
    assert tools_difference(7, (stored,), (inline,)) is None
    assert tools_difference(7, (stored,), (SEND,)) is not None


def answered(*texts: str) -> RecordedCall:
    """A recorded call with some texts, and at last a request for a tool."""
    request = ToolCallRequested(
        call_id="m:9",
        tool="send",
        args_hash="hash",
        message_id="a",
        position=9,
        arguments=(json_block("{}"),),
    )
    asked = text_block("").model_copy(update={"kind": "tool_call", "call_id": "m:9"})
    return RecordedCall(
        seq=5,
        started=ModelCallStarted(model_call_id="m", provider="p", model="m"),
        upto_seq=4,
        end_seq=8,
        blocks=(*(text_block(text) for text in texts), asked),
        requests={"m:9": request},
    )


def test_an_answer_is_compared_part_by_part() -> None:
    call = answered("One.", "Two.")
    asked = AskedFor("send", "hash", "{}")
    same = [text_block("One."), text_block("Two."), asked]
    assert answer_difference(call, same) is None
    for made in (
        [text_block("One."), text_block("Other."), asked],
        same[:-1],
        [*same, text_block("Three.")],
        [*same[:-1], AskedFor("send", "other", '{"to":"bob"}')],
        [*same[:-1], AskedFor("note", "hash", "{}")],
        [],
    ):
        found = answer_difference(call, made)
        assert found is not None
        assert (found.seq, found.cause) == (5, MODEL)
        assert found.recorded != found.replayed


def test_a_difference_in_a_long_text_is_shown_from_a_little_before_it() -> None:
    long = "a" * 5_000
    call = answered(f"{long}b{long}")
    found = answer_difference(call, [text_block(f"{long}c{long}")])
    assert found is not None
    assert len(found.recorded) == len(found.replayed) == SHOWN_CHARS
    assert "b" in found.recorded
    assert "c" in found.replayed
