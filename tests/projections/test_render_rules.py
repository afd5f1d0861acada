"""The checker says what an API would refuse, whoever made the request."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from foldline.errors import SettingsError
from foldline.projections.render_rules import breaches

Body = dict[str, Any]

ANTHROPIC: Body = {
    "max_tokens": 9,
    "tools": [{"name": "t", "input_schema": {"type": "object"}}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "go"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "tool_use", "id": "a", "name": "t", "input": {}},
                {"type": "tool_use", "id": "b", "name": "t", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "one"},
                {"type": "tool_result", "tool_use_id": "b", "content": "two"},
            ],
        },
    ],
}
CHAT: Body = {
    "messages": [
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "a", "function": {"name": "t", "arguments": "{}"}},
                {"id": "b", "function": {"name": "t", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "one"},
        {"role": "tool", "tool_call_id": "b", "content": "two"},
    ]
}
RESPONSES: Body = {
    "input": [
        {"type": "message", "role": "user", "content": "go"},
        {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "e"},
        {"type": "function_call", "call_id": "a", "name": "t", "arguments": "{}"},
        {"type": "function_call", "call_id": "b", "name": "t", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "one"},
        {"type": "function_call_output", "call_id": "b", "output": "two"},
    ]
}
SOUND = {"anthropic": ANTHROPIC, "openai-chat": CHAT, "openai-responses": RESPONSES}


@pytest.mark.parametrize("wanted", SOUND)
def test_a_sound_request_breaks_nothing(wanted: str) -> None:
    """An empty list."""
    assert breaches(SOUND[wanted], wanted) == []


def at(*path: Any) -> Callable[[Body], Any]:
    """What lies at a path of a body."""

    def find(body: Body) -> Any:
        found: Any = body
        for step in path:
            found = found[step]
        return found

    return find


Spoil = Callable[[Body], object]
ANSWER, RESULTS = at("messages", 1, "content"), at("messages", 2, "content")
IMAGE = {"type": "image", "source": {"media_type": "image/png", "data": "iVBORw=="}}
SVG = {"type": "image", "source": {"media_type": "image/svg", "data": "iVBORw=="}}
SERVER = {"type": "server_tool_use", "id": "s"}
EPHEMERAL = {"cache_control": {"type": "ephemeral"}}

SPOILT: list[tuple[str, Spoil, str]] = [
    ("anthropic", lambda b: RESULTS(b).reverse(), "have the results"),
    ("anthropic", lambda b: RESULTS(b).pop(), "have the results"),
    ("anthropic", lambda b: b["messages"].pop(), "neither the first"),
    ("anthropic", lambda b: b["messages"].pop(0), "neither the first"),
    ("anthropic", lambda b: b["messages"].insert(0, b["messages"][0]), "both of user"),
    ("anthropic", lambda b: RESULTS(b).insert(0, {"type": "text", "text": "x"}), "begin"),
    ("anthropic", lambda b: RESULTS(b)[0].update(content=" "), "blank"),
    ("anthropic", lambda b: RESULTS(b)[0].update(content=[]), "empty result"),
    (
        "anthropic",
        lambda b: RESULTS(b)[0].update(content=[IMAGE], is_error=True),
        "an error",
    ),
    ("anthropic", lambda b: RESULTS(b).append(SVG), "cannot be shown"),
    ("anthropic", lambda b: ANSWER(b).append(ANSWER(b)[0]), "ends with thinking"),
    ("anthropic", lambda b: ANSWER(b)[0].pop("signature"), "signature"),
    ("anthropic", lambda b: ANSWER(b).append(IMAGE), "in an answer"),
    ("anthropic", lambda b: ANSWER(b).append(SERVER), "without results"),
    (
        "anthropic",
        lambda b: ANSWER(b).append({"type": "w_tool_result", "tool_use_id": "s"}),
        "without its call",
    ),
    ("anthropic", lambda b: ANSWER(b)[1].update(id="a b"), "cannot be one"),
    ("anthropic", lambda b: ANSWER(b)[2].update(id="a"), "used twice"),
    ("anthropic", lambda b: ANSWER(b)[1].update(input="{}"), "no object"),
    ("anthropic", lambda b: ANSWER(b)[1].update(name="a.b"), "no tool"),
    ("anthropic", lambda b: b["tools"].append(b["tools"][0]), "there twice"),
    ("anthropic", lambda b: b["tools"][0].update(input_schema={}), "no object"),
    ("anthropic", lambda b: b.pop("max_tokens"), "max_tokens"),
    (
        "anthropic",
        lambda b: b.update(
            thinking={"type": "enabled", "budget_tokens": 8_000}, max_tokens=4_096
        ),
        "where max_tokens is 4096",
    ),
    (
        "anthropic",
        lambda b: b.update(thinking={"type": "enabled", "budget_tokens": 9}),
        "at least 1024",
    ),
    ("anthropic", lambda b: ANSWER(b)[0].update(EPHEMERAL), "breakpoint at thinking"),
    (
        "anthropic",
        lambda b: b.update(system=[{"text": "x", **EPHEMERAL}] * 5),
        "5 cache breakpoints",
    ),
    (
        "anthropic",
        lambda b: (b.update(thinking={"type": "enabled"}), ANSWER(b).pop(0)),
        "in the middle of a turn",
    ),
    ("openai-chat", lambda b: b["messages"].pop(), "no results"),
    ("openai-chat", lambda b: b["messages"].reverse(), "a result"),
    ("openai-chat", lambda b: b["messages"].pop(0), "the user says nothing"),
    ("openai-chat", lambda b: b["messages"][2].update(tool_call_id="b"), "waited for"),
    ("openai-chat", lambda b: b["messages"][0].update(content=" "), "blank"),
    ("openai-chat", lambda b: b["messages"][0].update(content=None), "says nothing"),
    ("openai-chat", lambda b: b["messages"][0].update(content=[]), "is empty"),
    (
        "openai-chat",
        lambda b: at("messages", 1, "tool_calls", 0)(b).update(id="x" * 41),
        "cannot be one",
    ),
    (
        "openai-chat",
        lambda b: at("messages", 1, "tool_calls", 0, "function")(b).update(
            arguments='{"a": NaN}'
        ),
        "no object",
    ),
    (
        "openai-chat",
        lambda b: b["messages"].append({"role": "system", "content": "x"}),
        "does not lead",
    ),
    (
        "openai-chat",
        lambda b: b["messages"][3].update(content=[{"type": "image_url"}]),
        "of tool",
    ),
    ("openai-responses", lambda b: b["input"].pop(), "no outputs"),
    ("openai-responses", lambda b: b["input"].pop(0), "the user says nothing"),
    ("openai-responses", lambda b: b["input"].pop(2), "waited for"),
    ("openai-responses", lambda b: b["input"][4].update(output=""), "blank"),
    ("openai-responses", lambda b: b["input"][4].update(output=[]), "is empty"),
    ("openai-responses", lambda b: b["input"].append(b["input"][1]), "used twice"),
    (
        "openai-responses",
        lambda b: b["input"].insert(2, {**b["input"][0]}),
        "without what came of it",
    ),
    ("openai-responses", lambda b: b["input"][1].pop("encrypted_content"), "encrypted"),
    ("openai-responses", lambda b: b["input"][2].update(arguments="["), "no object"),
    ("openai-responses", lambda b: b["input"].append({"type": "compaction"}), "encrypted"),
    (
        "openai-responses",
        lambda b: b["input"][0].update(role="assistant", content=[]),
        "no text",
    ),
]


@pytest.mark.parametrize(("wanted", "spoil", "problem"), SPOILT)
def test_each_breach_is_said(wanted: str, spoil: Spoil, problem: str) -> None:
    """One sentence, with where it is."""
    body = copy.deepcopy(SOUND[wanted])
    spoil(body)
    assert any(problem in breach for breach in breaches(body, wanted))


BRIEF: list[tuple[str, Body]] = [
    (
        "anthropic",
        {"max_tokens": 9, "system": "s", "messages": [{"role": "user", "content": "go"}]},
    ),
    ("openai-chat", {"messages": [{"role": "user", "content": "go"}]}),
    ("openai-responses", {"input": "go"}),
    ("openai-responses", {"input": [{"role": "user", "content": "go"}]}),
    (
        "openai-responses",
        {
            "input": [
                {"role": "user", "content": "go"},
                {
                    "type": "message",
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": "I go"}],
                },
            ]
        },
    ),
]


@pytest.mark.parametrize(("wanted", "body"), BRIEF)
def test_what_an_api_takes_in_short_is_no_breach(wanted: str, body: Body) -> None:
    """A text for a list of one, a message without its type."""
    assert breaches(body, wanted) == []


@pytest.mark.parametrize("odd", [None, 5, "text", [1], {"a": 1}])
@pytest.mark.parametrize("wanted", SOUND)
def test_any_request_is_judged(wanted: str, odd: object) -> None:
    """Whoever wrote it, in whatever place something odd stands."""
    names = ("messages", "input", "tools", "system", "thinking", "max_tokens")
    for name in names:
        breaches(SOUND[wanted] | {name: odd}, wanted)
    for place in range(3):
        body = copy.deepcopy(SOUND[wanted])
        said = body["messages" if "messages" in body else "input"]
        for name in ("role", "content", "type", "tool_calls", "output"):
            said[place] = {**said[place], name: odd}
            breaches(body, wanted)


@pytest.mark.parametrize("value", ["\ud83d", float("nan"), {1, 2}])
def test_what_is_no_json_in_utf8_is_a_breach_of_every_format(value: object) -> None:
    """Case B38: a lone surrogate anywhere makes every later request fail."""
    for wanted, sound in SOUND.items():
        (found,) = breaches(sound | {"metadata": value}, wanted)
        assert found.startswith("no JSON in UTF-8")


def test_a_format_that_there_is_not_is_an_error() -> None:
    """And not a request without breaches."""
    with pytest.raises(SettingsError, match="format"):
        breaches({}, "morse")
