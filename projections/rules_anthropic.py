"""What Anthropic's Messages API would refuse of a request, beyond its types. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import cast

from foldline.projections.rules_of_all import ID_MAX, NAME, image, is_id, said, tools
from foldline.projections.wire import Json

_THINKING = frozenset({"thinking", "redacted_thinking"})

BREAKPOINTS_MAX = 4
"""How many cache breakpoints the API takes."""

IMAGE_CHARS_MAX = 5 * 1024 * 1024
"""How long an image may be in base64."""


def anthropic(request: Json) -> Iterator[str]:
    """What the Messages API would refuse."""
    messages = cast("list[Json]", request.get("messages") or [])
    if not isinstance(request.get("max_tokens"), int):
        yield "max_tokens is not said"
    for block in cast("list[Json]", request.get("system") or []):
        yield from said(block, "system")
    yield from tools(request, "input_schema")
    roles = [message["role"] for message in messages]
    if roles[:1] != ["user"] or roles[-1:] != ["user"]:
        yield "the user has neither the first word nor the last"
    for place, (one, two) in enumerate(pairwise(roles)):
        if one == two:
            yield f"messages {place} and {place + 1} are both of {one}"
    seen: set[str] = set()
    waiting: list[str] = []
    for place, message in enumerate(messages):
        where = f"message {place}"
        content = cast("list[Json]", message["content"])
        if not content:
            yield f"{where} is empty"
        if message["role"] == "assistant":
            yield from _answer(content, where, seen)
            waiting = _values(content, "tool_use", "id")
        else:
            yield from _question(content, where, waiting)
            waiting = []
    if waiting:
        yield f"calls {waiting} have no results"
    yield from _thought(request, messages)
    yield from _breakpoints(request)


def _values(items: Iterable[Json], kind: str, key: str) -> list[str]:
    return [str(item.get(key)) for item in items if item.get("type") == kind]


def _answer(content: Sequence[Json], where: str, seen: set[str]) -> Iterator[str]:
    if content and content[-1]["type"] in _THINKING:
        yield f"{where} ends with thinking"
    called: set[str] = set()
    answered: set[str] = set()
    for block in content:
        kind = str(block["type"])
        if kind in ("image", "document", "tool_result"):
            yield f"{where}: {kind} in an answer"
        elif kind == "tool_use":
            yield from _call(block, where, seen)
        elif kind == "text":
            yield from said(block, where)
        elif kind == "thinking" and not (
            block.get("signature") and isinstance(block.get("thinking"), str)
        ):
            yield f"{where}: thinking without a signature"
        elif kind == "redacted_thinking" and not isinstance(block.get("data"), str):
            yield f"{where}: redacted thinking without data"
        elif kind.endswith("_tool_use"):
            called.add(str(block.get("id")))
        elif kind.endswith("_tool_result"):
            answered.add(str(block.get("tool_use_id")))
            if str(block.get("tool_use_id")) not in called:
                yield f"{where}: {kind} without its call before it"
    if called - answered:
        yield f"{where}: server tools {sorted(called - answered)} without results"


def _call(block: Json, where: str, seen: set[str]) -> Iterator[str]:
    call_id = str(block.get("id"))
    if not is_id(call_id, ID_MAX) or call_id in seen:
        yield f"{where}: the id {call_id!r} is used twice, or cannot be one"
    seen.add(call_id)
    if not NAME.fullmatch(str(block.get("name"))):
        yield f"{where}: no tool can be called {block.get('name')!r}"
    if not isinstance(block.get("input"), dict):
        yield f"{where}: the input of {call_id} is no object"


def _question(content: Sequence[Json], where: str, waiting: list[str]) -> Iterator[str]:
    answered = _values(content, "tool_result", "tool_use_id")
    if answered != waiting:
        yield f"{where}: the calls {waiting} have the results {answered}"
    if any(block["type"] != "tool_result" for block in content[: len(answered)]):
        yield f"{where} does not begin with its results"
    for block in content:
        kind = block["type"]
        if kind == "text":
            yield from said(block, where)
        elif kind == "image":
            yield from _source(block, where)
        elif kind == "tool_result":
            yield from _result(block, where)
        else:
            yield f"{where}: {kind} in a question"


def _result(block: Json, where: str) -> Iterator[str]:
    content = block.get("content")
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    inner = cast("list[Json]", content or [])
    if not inner:
        yield f"{where}: an empty result"
    for item in inner:
        if item["type"] == "text":
            yield from said(item, where)
        elif block.get("is_error"):
            yield f"{where}: {item['type']} in a result that is an error"
        elif item["type"] == "image":
            yield from _source(item, where)


def _source(block: Json, where: str) -> Iterator[str]:
    source = cast("Json", block.get("source") or {})
    url = f"data:{source.get('media_type')};base64,{source.get('data')}"
    yield from image(url, where)
    if len(str(source.get("data"))) > IMAGE_CHARS_MAX:
        yield f"{where}: an image of more than {IMAGE_CHARS_MAX} characters"


def _thought(request: Json, messages: Sequence[Json]) -> Iterator[str]:
    """Where thinking is asked for, the turn that goes on must have begun with it."""
    if cast("Json", request.get("thinking") or {}).get("type") != "enabled":
        return
    begin = len(messages)
    while begin and (
        messages[begin - 1]["role"] == "assistant"
        or _values(messages[begin - 1]["content"], "tool_result", "tool_use_id")
    ):
        begin -= 1
    turn = [m for m in messages[begin:] if m["role"] == "assistant"]
    if turn and turn[0]["content"][0]["type"] not in _THINKING:
        yield "thinking is asked for in the middle of a turn without it"


def _breakpoints(request: Json) -> Iterator[str]:
    blocks: list[Json] = [*(request.get("tools") or []), *(request.get("system") or [])]
    for message in cast("list[Json]", request.get("messages") or []):
        blocks += message["content"]
    marked = [block for block in blocks if "cache_control" in block]
    if len(marked) > BREAKPOINTS_MAX:
        yield f"{len(marked)} cache breakpoints"
    for block in marked:
        if block.get("type") in _THINKING:
            yield f"a cache breakpoint at {block['type']}"
