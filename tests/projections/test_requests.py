"""Requests at every cut: checked, of the providers' own types, with a stable prefix."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldline.projections.building import build
from foldline.projections.context import Context, Sources
from foldline.projections.render import FORMATS, render, request_bytes
from foldline.projections.render_anthropic import Caching
from foldline.projections.render_rules import breaches
from foldline.projections.wire import GO_ON, compact
from foldline.schemas.blocks import Blob, Block, json_block, text_block
from foldline.schemas.events import (
    AssistantMessage,
    ContextPruned,
    HistoryRewound,
    KnownEvent,
    PermissionDenied,
    ToolDeclaration,
    ToolExecutionCompleted,
    ToolsDeclared,
    UserMessage,
)
from tests.happenings import in_turn, request, start
from tests.projections.test_context import ADDING, CUTTING, KEYS, OFTEN, freeze
from tests.provider_types import validate
from tests.story import Story

MODELS = ("claude-x", "gpt-x")
PNG = Blob(sha256=b"p" * 32, size=4, media_type="image/jpeg")
IMAGE = Block(kind="image", body=PNG)
SEARCH = '{"type":"server_tool_use","id":"s","name":"web_search","input":{}}'
FOUND = '{"type":"web_search_tool_result","tool_use_id":"s","content":[]}'
ENCRYPTED = '{"type":"reasoning","id":"rs%d","summary":[],"encrypted_content":"e"}'
COMPACTED = '{"type":"compaction","id":"cm%d","encrypted_content":"e"}'
SEARCHED = (
    '{"type":"web_search_call","id":"ws%d","status":"completed",'
    '"action":{"type":"search","query":"q","url":null}}'
)


def thought(**fields: Any) -> Block:
    """Reasoning of a model at Anthropic."""
    return Block(kind="reasoning", provider="anthropic", model="claude-x", **fields)


def at_openai(kind: str, text: str, number: int) -> Block:
    """What a model at OpenAI thought, or what the provider did for it."""
    said = text % number
    body, opaque = ("", said) if kind == "reasoning" else (said, None)
    return Block(kind=kind, provider="openai", model="gpt-x", body=body, opaque=opaque)


def server_tool(opaque: str) -> Block:
    """Something that Anthropic's own tools said."""
    return Block(kind="server_tool", provider="anthropic", model="claude-x", opaque=opaque)


ANSWERS: dict[str, Callable[[int], tuple[Block, ...]]] = {
    "signed": lambda _: (thought(body="hm", signature="s"), text_block("so")),
    "redacted": lambda _: (
        thought(opaque='{"type":"redacted_thinking","data":"d"}'),
        text_block("so"),
    ),
    "thought": lambda _: (thought(body="hm", signature="s"),),
    "encrypted": lambda seq: (at_openai("reasoning", ENCRYPTED, seq), text_block("so")),
    "compacted": lambda seq: (at_openai("reasoning", COMPACTED, seq), text_block("on")),
    "encrypted last": lambda seq: (at_openai("reasoning", ENCRYPTED, seq),),
    "searched": lambda seq: (
        at_openai("reasoning", ENCRYPTED, seq),
        at_openai("server_tool", SEARCHED, seq),
        text_block("found"),
    ),
    "found": lambda _: (server_tool(SEARCH), server_tool(FOUND), text_block("found")),
    "paused": lambda _: (text_block("wait"), server_tool(SEARCH)),
    "found alone": lambda _: (server_tool(FOUND), text_block("found")),
    "drawn": lambda _: (text_block("look"), IMAGE),
    "blank": lambda _: (text_block(" \n"),),
    "torn": lambda _: (thought(body="cut \ud83d", signature="s"), text_block("\ud83d!")),
}
CALLS: dict[str, tuple[str, str, str]] = {
    "twice": ("X", "t", "{}"),
    "long id": ("call_" + "x" * 50, "t", '{"a": 1.50}'),
    "bad id": ("a b/c", "server.tool/with spaces", "{}"),
    "no json": ("", "t", '{"a": '),
    "no object": ("", "t" * 90, "[1]"),
    "infinite": ("", "t", '{"a": 1e999}'),
    "no number": ("", "t", '{"a": NaN}'),
    "surrogate": ("", "t", '{"d": "\\ud99c", "e": "\\ud83d\\ude00"}'),
    "deep": ("", "t", '{"a":' + "[" * 200 + "]" * 200 + "}"),
    "empty": ("", "", ""),
}
OUTPUTS: dict[str, tuple[Block, ...]] = {
    "text": (text_block("out \ud83d"),),
    "nothing": (),
    "image": (text_block("see"), IMAGE),
    "only an image": (IMAGE,),
}


def _answer(name: str) -> Callable[[Story, str], object]:
    def step(story: Story, key: str) -> None:
        del key
        blocks = ANSWERS[name](story.seq)
        story.when(AssistantMessage(message_id=f"m{story.seq}", blocks=blocks))

    return step


def _call(name: str) -> Callable[[Story, str], object]:
    """Two calls of one answer; one is denied or both run, the second ends first."""

    def step(story: Story, key: str) -> None:
        provider_id, tool, arguments = CALLS[name]
        message = f"m{story.seq}"
        blocks = ANSWERS["signed" if key > "m" else "encrypted"](story.seq)
        story.when(AssistantMessage(message_id=message, blocks=blocks))
        calls = [f"{message}:{place}" for place in range(2)]
        for call_id in calls:
            fields = {"provider_call_id": provider_id, "tool": tool}
            asked = (json_block(arguments),)
            story.when(request(call_id, message_id=message, arguments=asked, **fields))
        for place, call_id in enumerate(reversed(calls)):
            story.when(_end(story, call_id, list(OUTPUTS)[(ord(key) + place) % 4], key))

    return step


def _end(story: Story, call_id: str, output: str, key: str) -> KnownEvent:
    if key == "x":
        said = (text_block("use nix"),)
        return PermissionDenied(call_id=call_id, decided_by="PERSON", feedback=said)
    story.when(start(call_id))
    failed = 2 if key < "m" else 0
    return ToolExecutionCompleted(call_id=call_id, exit_code=failed, output=OUTPUTS[output])


def _show(story: Story, key: str) -> None:
    blocks = (text_block(key), IMAGE, Block(kind="file", body=PNG))
    story.when(UserMessage(message_id=f"u{story.seq}", blocks=blocks))


def _prune(story: Story, key: str) -> None:
    calls = sorted(story.state.finished)
    target = calls[ord(key) % len(calls)] if calls else "none"
    story.when(ContextPruned(rule="r", targets=(target,)))


def _declare(story: Story, key: str) -> None:
    named = (key, "server.tool/with spaces", "server.tool/with spaces")
    schemas = ('{"type":"object"}', "no schema", '{"anyOf":[{}],"required":["a"]}')
    tools = tuple(
        ToolDeclaration(name=name, effect="READ_ONLY", input_schema=schema)
        for name, schema in zip(named, schemas, strict=True)
    )
    story.when(ToolsDeclared(tools=tools))


BEHIND = (
    ADDING
    | {f"answer {name}": _answer(name) for name in ANSWERS}
    | {f"call {name}": _call(name) for name in CALLS}
    | {"show": _show}
)
ALL = BEHIND | CUTTING | {"prune": _prune, "declare": _declare}


def steps(kinds: dict[str, Callable[[Story, str], object]], most: int) -> Any:
    """Some steps of these kinds, in any order."""
    names = st.sampled_from((*OFTEN, *sorted(kinds), *sorted(kinds)))
    return st.lists(st.tuples(names, KEYS), max_size=most)


def rendered(context: Context, wanted: str, *, cached: bool = False) -> dict[str, Any]:
    """A request to the format's own model."""
    return render(
        context,
        wanted,
        model=MODELS[wanted != "anthropic"],
        read_blob=lambda _: b"\x89PNG",
        caching=Caching() if cached else None,
    )


def check(story: Story) -> None:
    """At each cut: sound, accepted, the same again; caching only adds breakpoints."""
    for cut in range(len(story.events) + 1):
        context = build(Sources(story.events[:cut]))
        for wanted in FORMATS:
            body = rendered(context, wanted, cached=True)
            assert breaches(body, wanted) == [], (wanted, cut)
            validate(body, wanted)
            if cut % 8 == 0:
                again = rendered(build(Sources(story.events[:cut])), wanted)
                assert request_bytes(_uncached(body)) == request_bytes(again)


def _uncached(body: Any) -> Any:
    if isinstance(body, dict):
        return {k: _uncached(v) for k, v in body.items() if k != "cache_control"}  # type: ignore[reportUnknownVariableType]
    return [_uncached(item) for item in body] if isinstance(body, list) else body  # type: ignore[reportUnknownVariableType]


@given(happenings=steps(ALL, 12))
@settings(max_examples=15, deadline=None)
def test_every_cut_of_every_history_gives_requests_that_the_apis_take(
    happenings: list[tuple[str, str]],
) -> None:
    """Whatever was said, run, denied, interrupted, torn, pruned or compacted."""
    story = in_turn()
    for name, key in happenings:
        ALL[name](story, key)
    check(story)


@pytest.mark.parametrize("key", ["a", "x"])
def test_all_that_can_happen_in_one_session_gives_requests_that_the_apis_take(
    key: str,
) -> None:
    """Each kind of answer and call once; at each cut, and after each cut's rewind."""
    story = in_turn()
    _declare(story, key)
    for name in BEHIND:
        if name.startswith(("answer", "call", "show")):
            BEHIND[name](story, key)
    check(story)
    for to_seq in range(2, story.seq, 11):
        events = [*story.events]
        events.append(_rewound(story, to_seq))
        for wanted in FORMATS:
            body = rendered(build(Sources(events)), wanted)
            assert breaches(body, wanted) == []


def _rewound(story: Story, to_seq: int) -> Any:
    last = story.events[-1]
    return last._replace(event=HistoryRewound(to_seq=to_seq))


# --- the prefix ----------------------------------------------------------------------


def flat(body: dict[str, Any]) -> bytes:
    """The conversation block by block; what only asks the model to go on is left out."""
    messages = body.get("input") or body["messages"]
    blocks: list[Any] = []
    for message in messages:
        content = message.get("content")
        if isinstance(content, list) and "type" not in message:
            blocks += [[message["role"], block] for block in content]  # type: ignore[reportUnknownVariableType]
        else:
            blocks.append(message)
    if blocks[-1:] == [["user", {"type": "text", "text": GO_ON}]]:
        blocks.pop()
    return compact(blocks).encode()[:-1]


@given(happenings=steps(BEHIND, 12))
@settings(max_examples=40, deadline=None)
def test_a_longer_history_begins_with_the_bytes_of_a_shorter(
    happenings: list[tuple[str, str]],
) -> None:
    """In all three formats: the provider's cache holds until something is left out."""
    story = in_turn().given(UserMessage(message_id="u", blocks=(text_block("go"),)))
    before = {wanted: flat(rendered(freeze(story), wanted)) for wanted in FORMATS}
    for name, key in happenings:
        BEHIND[name](story, key)
        context = freeze(story)
        after = {wanted: flat(rendered(context, wanted)) for wanted in FORMATS}
        for wanted in FORMATS:
            assert after[wanted].startswith(before[wanted]), (wanted, name)
        before = after


def test_the_types_of_the_providers_are_strict_here() -> None:
    """A field that a provider does not know is refused; so is one that is missing."""
    context = build(Sources(in_turn().events))
    for wanted in FORMATS:
        body = rendered(context, wanted)
        validate(body, wanted)
        torn = json.loads(request_bytes(body))
        (torn.get("input") or torn["messages"])[0]["unknown"] = 1
        with pytest.raises(ValueError, match="unknown"):
            validate(torn, wanted)
