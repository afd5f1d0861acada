"""Contexts as two APIs take them: paired, with ids that fit, the same every time."""

import pytest

from foldline.projections.building import build
from foldline.projections.context import Sources
from foldline.projections.render import to_anthropic_messages, to_openai_messages
from foldline.schemas.blocks import Blob, Block, json_block, text_block
from foldline.schemas.events import (
    AssistantMessage,
    InstructionsSet,
    KnownEvent,
    ToolExecutionCompleted,
    UserMessage,
)
from foldline.schemas.recorded import Recorded
from tests.happenings import request, session, start, turn

PNG = Blob(sha256=b"p" * 32, size=4, media_type="image/png")


def history(
    provider_ids: tuple[str, ...] = ("call-1", "call-1", "", "bad id"),
) -> list[Recorded]:
    """Instructions, a question with an image, and one call for each id."""
    story = session().given(
        InstructionsSet(role="system", blocks=(text_block("be brief"),)),
        turn(),
        UserMessage(
            message_id="u",
            blocks=(text_block("what is this?"), Block(kind="image", body=PNG)),
        ),
    )
    for number, provider_id in enumerate(provider_ids):
        story.given(*called(f"m{number}:1", provider_id))
    return story.events


def called(call_id: str, provider_id: str) -> list[KnownEvent]:
    """A message that thinks, speaks and calls; and its result."""
    message = call_id.partition(":")[0]
    blocks = (
        Block(
            kind="reasoning", body="hm", provider="anthropic", model="x", signature="sig"
        ),
        Block(kind="tool_call", call_id=call_id),
    )
    return [
        AssistantMessage(message_id=message, blocks=blocks),
        request(
            call_id,
            provider_call_id=provider_id,
            message_id=message,
            arguments=(json_block('{"a": 1}'),),
        ),
        start(call_id),
        ToolExecutionCompleted(call_id=call_id, output=(text_block("ok"),)),
    ]


def test_openai_messages_have_one_result_per_call_with_its_id() -> None:
    """Empty, repeated and impossible ids become ours, on both ends."""
    messages = to_openai_messages(build(Sources(history())))
    assert [message["role"] for message in messages] == [
        "system",
        "user",
        *["assistant", "tool"] * 4,
    ]
    ids = [m["tool_calls"][0]["id"] for m in messages if m["role"] == "assistant"]
    assert ids == ["call-1", "call_m1_1", "call_m2_1", "call_m3_1"]
    assert [m["tool_call_id"] for m in messages if m["role"] == "tool"] == ids
    assert messages[2]["content"] is None
    assert messages[2]["tool_calls"][0]["function"] == {
        "name": "send_mail",
        "arguments": '{"a": 1}',
    }


def test_anthropic_messages_alternate_and_lead_with_results() -> None:
    """The system text stands apart; what two events said in a row is one message."""
    events = history(("a",))
    story_end = UserMessage(message_id="v", blocks=(text_block("and now?"),))
    events.append(Recorded(events[-1].envelope, story_end, b"", 0))
    system, messages = to_anthropic_messages(build(Sources(events)), model="x")
    assert system == "be brief"
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    assert [item["type"] for item in messages[1]["content"]] == ["thinking", "tool_use"]
    assert [item["type"] for item in messages[2]["content"]] == ["tool_result", "text"]
    assert messages[1]["content"][1]["input"] == {"a": 1}


def test_signed_reasoning_goes_back_to_its_own_model_only() -> None:
    """Verbatim, or not at all."""
    context = build(Sources(history(("a",))))
    _, own = to_anthropic_messages(context, model="x")
    _, other = to_anthropic_messages(context, model="y")
    assert own[1]["content"][0] == {
        "type": "thinking",
        "thinking": "hm",
        "signature": "sig",
    }
    assert [item["type"] for item in other[1]["content"]] == ["tool_use"]


def test_what_a_provider_sent_opaque_goes_back_as_it_came() -> None:
    """Encrypted reasoning, server tools."""
    item = Block(
        kind="server_tool", provider="anthropic", model="x", opaque='{"type": "w", "id": 1}'
    )
    message = AssistantMessage(message_id="m", blocks=(item, text_block("so")))
    context = build(Sources(session().given(turn(), message).events))
    _, messages = to_anthropic_messages(context, model="x")
    assert messages[0]["content"][0] == {"type": "w", "id": 1}
    assert to_openai_messages(context)[0]["content"] == "so"


def test_images_are_shown_where_their_bytes_can_be_read_and_named_elsewhere() -> None:
    """The blob store is handed in; this room opens nothing."""
    context = build(Sources(history(())))
    named = to_openai_messages(context)[1]["content"]
    assert named == "what is this?[image: 4 bytes of image/png]"
    shown = to_openai_messages(context, read_blob=lambda _: b"\x89PNG")[1]["content"]
    assert shown[1]["image_url"]["url"] == "data:image/png;base64,iVBORw=="
    _, messages = to_anthropic_messages(context, read_blob=lambda _: b"\x89PNG")
    assert messages[0]["content"][1]["source"]["data"] == "iVBORw=="


@pytest.mark.parametrize("raw", ['{"a": ', "[1]", "17"])
def test_arguments_that_are_no_object_are_shown_as_the_model_wrote_them(raw: str) -> None:
    """Case B13: an API that wants an object gets one."""
    events = called("m:1", "a")
    events[1] = request("m:1", message_id="m", arguments=(json_block(raw),))
    context = build(Sources(session().given(turn(), *events).events))
    _, messages = to_anthropic_messages(context)
    assert messages[0]["content"][0]["input"] == {"_unparsed": raw}


def test_a_failed_result_is_marked_as_an_error() -> None:
    """Where the API has a place for it."""
    events = called("m:1", "a")
    events[3] = ToolExecutionCompleted(
        call_id="m:1", exit_code=2, output=(text_block("no such file"),)
    )
    context = build(Sources(session().given(turn(), *events).events))
    _, messages = to_anthropic_messages(context)
    assert messages[-1]["content"][0]["is_error"]
