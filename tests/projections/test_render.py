"""Contexts as three APIs take them: paired, with ids that fit, the same every time."""

import json
from typing import Any

import pytest

from foldline.errors import SettingsError
from foldline.projections.building import build
from foldline.projections.context import Context, Sources
from foldline.projections.render import (
    FORMATS,
    render,
    request_bytes,
    to_anthropic_messages,
    to_openai_messages,
)
from foldline.projections.render_anthropic import Caching
from foldline.projections.render_rules import breaches
from foldline.projections.wire import GO_ON
from foldline.schemas.blocks import Blob, Block, json_block, text_block
from foldline.schemas.events import (
    AssistantMessage,
    CompactionCompleted,
    ContextPruned,
    InstructionsSet,
    KnownEvent,
    ToolDeclaration,
    ToolExecutionCompleted,
    ToolsDeclared,
    UserMessage,
)
from foldline.schemas.recorded import Recorded
from tests.happenings import request, session, start, turn
from tests.story import Story

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
    assert messages[1]["content"][0] == {"type": "w", "id": 1}
    assert to_openai_messages(context)[1]["content"] == "so"


def test_images_are_shown_where_their_bytes_can_be_read_and_named_elsewhere() -> None:
    """The blob store is handed in; this room opens nothing."""
    context = build(Sources(history(())))
    named = to_openai_messages(context)[1]["content"]
    assert named == "what is this?\n[image: 4 bytes of image/png]"
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
    assert messages[1]["content"][0]["input"] == {"_unparsed": raw}


def test_a_failed_result_is_marked_as_an_error() -> None:
    """Where the API has a place for it."""
    events = called("m:1", "a")
    events[3] = ToolExecutionCompleted(
        call_id="m:1", exit_code=2, output=(text_block("no such file"),)
    )
    context = build(Sources(session().given(turn(), *events).events))
    _, messages = to_anthropic_messages(context)
    assert messages[-1]["content"][0]["is_error"]


# --- whole requests ------------------------------------------------------------------


def answered(*blocks: Block) -> Context:
    """The context of one answer."""
    message = AssistantMessage(message_id="m", blocks=blocks)
    return build(Sources(session().given(turn(), message).events))


def reasoned(item_id: str = "rs", **fields: Any) -> Block:
    """Reasoning of a model at OpenAI, encrypted."""
    item = f'{{"type":"reasoning","id":"{item_id}","summary":[],"encrypted_content":"e"}}'
    named: dict[str, Any] = {"provider": "openai", "model": "gpt-x", "opaque": item}
    return Block(kind="reasoning", **named | fields)


@pytest.mark.parametrize(
    ("asked", "goes"),
    [
        ({"model": "gpt-x"}, True),
        ({"model": "gpt-x-2026-01-02"}, True),
        ({"model": "gpt-y"}, False),
        ({"model": "gpt-x", "provider": "azure"}, False),
    ],
)
def test_encrypted_reasoning_goes_back_to_its_provider_and_model_only(
    asked: dict[str, str],
    goes: bool,  # noqa: FBT001 - a column of the table
) -> None:
    """A model is the same under its name with and without a date."""
    context = answered(reasoned(), text_block("so"))
    items = render(context, "openai-responses", **asked)["input"]  # type: ignore[arg-type]
    assert ("reasoning" in [item["type"] for item in items]) is goes
    assert items[-1] == {"type": "message", "role": "assistant", "content": "so"}


@pytest.mark.parametrize(
    "blocks",
    [
        (reasoned(), reasoned()),
        (reasoned(opaque="[sealed]"),),
        (reasoned(opaque='{"type":"reasoning","summary":[],"encrypted_content":"e"}'),),
        (reasoned(opaque='{"type":"reasoning","id":"rs","summary":[]}'),),
    ],
)
def test_reasoning_that_cannot_go_back_as_it_came_is_dropped(
    blocks: tuple[Block, ...],
) -> None:
    """Twice the same, no id, not encrypted, nothing that came of it."""
    context = answered(*blocks, text_block("so"))
    items = render(context, "openai-responses", model="gpt-x")["input"]
    kept = [item["id"] for item in items if item["type"] == "reasoning"]
    assert kept in ([], ["rs"])
    assert len(kept) == len(blocks) - 1
    alone = render(answered(reasoned()), "openai-responses", model="gpt-x")["input"]
    assert [item["type"] for item in alone] == ["message"]


@pytest.mark.parametrize(
    "body",
    [
        "the key is \u2039secret:github-pat:7f3a91c2\u203a",
        "cut \ufffd",
        "begins\n[70000 bytes of text/plain, not shown]",
    ],
)
def test_thinking_that_is_not_as_it_was_signed_is_dropped(body: str) -> None:
    """Redacted, repaired or shortened: its signature no longer fits."""
    thought = Block(
        kind="reasoning", body=body, provider="anthropic", model="x", signature="s"
    )
    context = answered(thought, text_block("so"))
    content = render(context, "anthropic", model="x")["messages"][1]["content"]
    assert content == [{"type": "text", "text": "so"}]


def test_there_is_room_for_an_answer_beside_what_is_thought() -> None:
    """Thinking counts as a part of what the model may write."""
    context = build(Sources(history(())))
    thinking = {"thinking": {"type": "enabled", "budget_tokens": 8_000}}
    found = render(context, "anthropic", model="x", parameters=thinking)
    assert (found["max_tokens"], breaches(found, "anthropic")) == (12_096, [])
    before = render(context, "anthropic", model="x", parameters=thinking, version=1)
    assert before["max_tokens"] == 4_096
    given = render(
        context, "anthropic", model="x", parameters={**thinking, "max_tokens": 9_000}
    )
    assert given["max_tokens"] == 9_000


@pytest.mark.parametrize("wanted", FORMATS)
def test_texts_that_are_apart_stay_apart(wanted: str) -> None:
    """Two blocks of a result, a question or the instructions are no single word."""
    two = (text_block("one.py"), text_block("two.py"), text_block("\nthree.py"))
    story = session().given(
        InstructionsSet(role="system", blocks=two),
        turn(),
        UserMessage(message_id="u", blocks=two),
        *called("m:1", "c"),
    )
    result = story.events[-1]
    told = ToolExecutionCompleted(call_id="m:1", output=two)
    events = [*story.events[:-1], result._replace(event=told)]
    data = request_bytes(render(build(Sources(events)), wanted, model="m")).decode()
    assert "one.pytwo" not in data
    assert data.count("one.py\\ntwo.py\\nthree.py") >= 2


def test_what_a_harness_put_in_the_place_of_its_history_says_who_said_it() -> None:
    """And what the provider encrypted goes back to its own model, in its place."""
    said = [
        text_block(f"of {role}").model_copy(update={"name": role})
        for role in ("user", "assistant")
    ]
    for kind in ("compaction", "compaction_summary"):
        secret = Block(
            kind="reasoning",
            provider="openai",
            model="x",
            opaque=json.dumps({"type": kind, "encrypted_content": "gAAA", "summary": []}),
        )
        context = build(Sources(replaced((said[0], secret, said[1])).events))
        own = render(context, "openai-responses", model="x")
        assert [item["type"] for item in own["input"]] == [
            "message",
            "compaction",
            "message",
        ]
        assert own["input"][1] == {"type": "compaction", "encrypted_content": "gAAA"}
        assert breaches(own, "openai-responses") == []
        other = render(context, "openai-responses", model="y")
        assert [item["type"] for item in other["input"]] == ["message"]
        for wanted in FORMATS:
            found = str(render(context, wanted, model="x"))
            assert "user: of user" in found
            assert "assistant: of assistant" in found


def replaced(blocks: tuple[Block, ...]) -> Story:
    """A history that its harness compacted into these blocks."""
    event = CompactionCompleted(
        compaction_id="c", from_seq=1, to_seq=3, base_seq=3, strategy="codex", blocks=blocks
    )
    asked = UserMessage(message_id="u", blocks=(text_block("go"),))
    return session().given(turn(), asked, event)


def test_thinking_is_not_asked_for_in_the_middle_of_a_turn_without_it() -> None:
    """The model was changed between a call and its result."""
    context = build(Sources(history(("a",))))
    thinking = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2048}
    assert "thinking" in render(context, "anthropic", model="x", parameters=thinking)
    assert "thinking" not in render(context, "anthropic", model="y", parameters=thinking)


def with_image(exit_code: int) -> Context:
    """A call whose output is a text and an image."""
    events = called("m:1", "a")
    output = (text_block("see "), Block(kind="image", body=PNG))
    events[3] = ToolExecutionCompleted(call_id="m:1", exit_code=exit_code, output=output)
    return build(Sources(session().given(turn(), *events).events))


def test_images_of_results_stand_where_a_format_has_a_place_for_them() -> None:
    """In the result; in Chat, and in Anthropic's errors, in the user's next message."""
    for failed in (0, 2):
        bodies = {
            wanted: render(
                with_image(failed), wanted, model="x", read_blob=lambda _: b"\x89PNG"
            )
            for wanted in FORMATS
        }
        result, *behind = bodies["anthropic"]["messages"][-1]["content"]
        assert [block["type"] for block in behind] == (["text", "image"] if failed else [])
        assert isinstance(result["content"], str) is bool(failed)
        tool, user = bodies["openai-chat"]["messages"][-2:]
        named = "see [image: 4 bytes of image/png, shown below]"
        assert (tool["content"], user["role"]) == (named, "user")
        assert [part["type"] for part in user["content"]] == ["text", "image_url"]
        output = bodies["openai-responses"]["input"][-1]["output"]
        assert [piece["type"] for piece in output] == ["input_text", "input_image"]


@pytest.mark.parametrize("data", [b"<svg/>", b""])
def test_what_no_api_shows_as_an_image_is_named(data: bytes) -> None:
    """Its bytes say what it is, whatever it was called."""
    context = build(Sources(history(())))
    for wanted in FORMATS:
        body = render(context, wanted, model="x", read_blob=lambda _: data)
        assert b"[image: 4 bytes of image/png]" in request_bytes(body)


def test_tools_are_declared_as_each_format_wants_them() -> None:
    """Each once, with a schema of an object and a name that every API takes."""
    schema = '{"type":"object","properties":{"a":{"type":"string"}},"oneOf":[{}]}'
    tool = ToolDeclaration(
        name="a.b", effect="READ_ONLY", description="does", input_schema=schema
    )
    events = session().given(ToolsDeclared(tools=(tool, tool))).events
    bodies = {w: render(build(Sources(events)), w, model="x") for w in FORMATS}
    (anthropic,) = bodies["anthropic"]["tools"]
    assert anthropic["input_schema"] == {
        "type": "object",
        "properties": {"a": {"type": "string"}},
    }
    assert anthropic["name"].startswith("a_b_")
    (chat,) = bodies["openai-chat"]["tools"]
    assert chat["function"]["parameters"] == anthropic["input_schema"]
    (responses,) = bodies["openai-responses"]["tools"]
    assert (responses["name"], responses["description"]) == (anthropic["name"], "does")


def test_cache_breakpoints_stand_behind_tools_system_summary_and_end() -> None:
    """At most four; what was pruned last counts like a summary."""
    tool = ToolDeclaration(name="t", effect="READ_ONLY")
    story = session().given(
        InstructionsSet(role="system", blocks=(text_block("be brief"),)),
        ToolsDeclared(tools=(tool, tool)),
        turn(),
        UserMessage(message_id="u", blocks=(text_block("one"),)),
    )
    story.given(
        CompactionCompleted(
            compaction_id="c",
            from_seq=1,
            to_seq=story.seq,
            base_seq=story.seq,
            strategy="s",
            blocks=(text_block("so far"),),
        ),
        UserMessage(message_id="v", blocks=(text_block("two"),)),
        *called("m:1", "a"),
    )
    plain = render(build(Sources(story.events)), "anthropic", model="x")
    cached = cached_at(story.events)
    assert cached == ["t", "be brief", "so far", "ok"]
    assert b"cache_control" not in request_bytes(plain)
    story.given(ContextPruned(rule="r", targets=("m:1",)))
    story.given(UserMessage(message_id="w", blocks=(text_block("three"),)))
    assert cached_at(story.events)[2:] == [
        "[This output is no longer shown. The session's log has it.]",
        "three",
    ]


def cached_at(events: list[Recorded]) -> list[str]:
    """What the blocks say that end a cached prefix."""
    caching = Caching(ttl="1h")
    body = render(build(Sources(events)), "anthropic", model="x", caching=caching)
    blocks = [*body["tools"], *body["system"]]
    for message in body["messages"]:
        blocks += message["content"]
    marked = [block for block in blocks if "cache_control" in block]
    assert all(b["cache_control"] == {"type": "ephemeral", "ttl": "1h"} for b in marked)
    return [b.get("name") or b.get("text") or b["content"] for b in marked]


def test_the_user_has_the_first_word_and_at_anthropic_the_last() -> None:
    """No API is asked with nothing, or to go on within its own answer."""
    for wanted in FORMATS:
        nothing = render(build(Sources(session().events)), wanted, model="x")
        assert GO_ON.encode() in request_bytes(nothing)
    said = render(answered(text_block("so")), "anthropic", model="x")["messages"]
    assert [m["role"] for m in said] == ["user", "assistant", "user"]


def test_parameters_complete_a_request_and_replace_nothing() -> None:
    """In one order, whatever order they came in; the provider's own tools are added."""
    context = build(Sources(history(())))
    search = {"type": "web_search_20250305", "name": "web_search"}
    one = {"temperature": 0.5, "max_tokens": 9, "tools": [search]}
    other = dict(reversed(one.items()))
    bodies = [render(context, "anthropic", model="x", parameters=p) for p in (one, other)]
    assert request_bytes(bodies[0]) == request_bytes(bodies[1])
    assert bodies[0]["tools"] == [search]
    with pytest.raises(SettingsError, match="messages"):
        render(context, "anthropic", model="x", parameters={"messages": []})
    with pytest.raises(SettingsError, match="format"):
        render(context, "morse", model="x")
