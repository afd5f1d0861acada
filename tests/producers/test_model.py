"""What three APIs send as a model's answer, in neutral form and back again."""

from typing import Any

from foldline.producers.model import (
    ToolRequest,
    from_anthropic,
    from_openai,
    from_responses,
)
from foldline.producers.tools import Tool, Toolbox, ToolContext
from foldline.projections.render import render
from foldline.projections.render_rules import breaches
from foldline.schemas.blocks import Block
from tests.harness import client, memory


def echo(arguments: dict[str, object], context: ToolContext) -> object:
    """Say it again."""
    assert context.attempt == 1
    return arguments.get("say")


TOOLS = Toolbox(Tool(echo, effect="READ_ONLY"))


def test_an_openai_completion_becomes_blocks_and_requests() -> None:
    """With its usage, as the provider counts it."""
    response = from_openai(
        {
            "id": "r",
            "model": "m",
            "choices": [
                {
                    "finish_reason": "tool_calls",
                    "message": {
                        "content": "let me see",
                        "tool_calls": [
                            {"id": "c", "function": {"name": "t", "arguments": "{}"}},
                            {"function": {"name": "u"}},
                        ],
                    },
                }
            ],
            "usage": {
                "prompt_tokens": 5,
                "completion_tokens": 7,
                "prompt_tokens_details": {"cached_tokens": 3},
            },
        }
    )
    assert response.parts == [
        Block(kind="text", body="let me see"),
        ToolRequest("t", "{}", "c"),
        ToolRequest("u", "{}", ""),
    ]
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.cache_read_input_tokens) == (5, 3)
    assert (response.finish_reason, response.response_id) == ("tool_calls", "r")
    assert from_openai({}).parts == []


def test_an_anthropic_message_keeps_signed_reasoning_and_what_it_does_not_know() -> None:
    """Both go back to the same model, verbatim, or nowhere."""
    response = from_anthropic(
        {
            "id": "r",
            "model": "m",
            "stop_reason": "tool_use",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "redacted_thinking", "data": "abc"},
                {"type": "text", "text": "so"},
                {"type": "tool_use", "id": "c", "name": "t", "input": {"a": "ü"}},
                {"type": "server_tool_use", "id": "w"},
            ],
            "usage": {"input_tokens": 1, "cache_creation_input_tokens": 2},
        }
    )
    kinds = [part.kind if isinstance(part, Block) else part for part in response.parts]
    request = ToolRequest("t", '{"a": "ü"}', "c")
    assert kinds == ["reasoning", "reasoning", "text", request, "server_tool"]
    assert response.usage is not None
    assert response.usage.cache_write_input_tokens == 2


def test_thinking_that_was_cut_before_its_signature_has_none() -> None:
    """A stream begins it with an empty one."""
    cut = {"type": "thinking", "thinking": "", "signature": ""}
    (part,) = from_anthropic({"model": "m", "content": [cut]}).parts
    assert isinstance(part, Block)
    assert part.signature is None


RESPONSE: dict[str, Any] = {
    "id": "resp",
    "model": "gpt-x-2026-01-01",
    "status": "completed",
    "incomplete_details": None,
    "output": [
        {"type": "compaction", "id": "cmp", "encrypted_content": "gAAA"},
        {
            "type": "reasoning",
            "id": "rs",
            "summary": [{"type": "summary_text", "text": "hm"}],
            "content": None,
            "encrypted_content": "gBBB",
            "status": None,
        },
        {
            "type": "web_search_call",
            "id": "ws",
            "status": "completed",
            "action": {"type": "search", "query": "q"},
        },
        {
            "type": "message",
            "id": "msg",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "let me see", "annotations": []}],
        },
        {
            "type": "function_call",
            "id": "fc",
            "call_id": "c",
            "name": "echo",
            "arguments": '{"say": "ü"}',
            "status": "completed",
        },
    ],
    "usage": {
        "input_tokens": 5,
        "output_tokens": 7,
        "input_tokens_details": {"cached_tokens": 3},
        "output_tokens_details": {"reasoning_tokens": 2},
    },
}


def test_a_response_becomes_blocks_and_requests() -> None:
    """What was cut off says why."""
    response = from_responses(RESPONSE)
    kinds = [part.kind if isinstance(part, Block) else part for part in response.parts]
    asked = ToolRequest("echo", '{"say": "ü"}', "c")
    assert kinds == ["reasoning", "reasoning", "server_tool", "text", asked]
    used = response.usage
    assert used is not None
    assert (used.input_tokens, used.cache_read_input_tokens) == (5, 3)
    assert (used.output_tokens, used.reasoning_output_tokens) == (7, 2)
    assert (response.finish_reason, response.response_id) == ("completed", "resp")
    cut = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    assert from_responses(cut).finish_reason == "max_output_tokens"


async def test_what_a_response_said_goes_back_to_its_model_as_it_came() -> None:
    """Encrypted items with their ids, the provider's tools, the call with its id."""
    async with client(memory()) as own:
        owned = await own.create(agent="a")
        async with owned.turn("go") as turn:
            context = await turn.context()
            async with turn.model_call(context, model="gpt-x", provider="openai") as call:
                calls = await call.complete(from_responses(RESPONSE))
            await turn.run_tools(calls, TOOLS)
            context = await turn.context()
    found = render(context, "openai-responses", model="gpt-x")
    assert breaches(found, "openai-responses") == []
    question, compacted, thought, searched, said, asked, _ = found["input"]
    assert question["role"] == "user"
    assert compacted == RESPONSE["output"][0]
    assert thought["encrypted_content"] == "gBBB"
    assert searched == RESPONSE["output"][2]
    assert said["content"] == "let me see"
    assert (asked["call_id"], asked["arguments"]) == ("c", '{"say": "ü"}')
    other = render(context, "openai-responses", model="another")
    assert not {"reasoning", "compaction"} & {item["type"] for item in other["input"]}
