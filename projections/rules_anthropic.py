"""What Anthropic's Messages API would refuse of a request, beyond its types. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import cast

from foldline.projections.rules_of_all import (
    ID_MAX,
    NAME,
    an_object,
    blocks,
    image,
    is_id,
    objects,
    said,
    tools,
)
from foldline.projections.wire import Json

_THINKING = frozenset({"thinking", "redacted_thinking"})

BREAKPOINTS_MAX = 4
"""How many cache breakpoints the API takes."""

THINKING_MIN = 1024
"""How much a model that thinks must be allowed to, in tokens."""

IMAGE_CHARS_MAX = 5 * 1024 * 1024
"""How long an image may be in base64."""


def anthropic(request: Json) -> Iterator[str]:
    """What the Messages API would refuse."""
    messages = objects(request.get("messages"))
    yield from _room(request)
    for block in blocks(request.get("system")):
        yield from said(block, "system")
    yield from tools(request, "input_schema")
    roles = [message.get("role") for message in messages]
    if roles[:1] != ["user"] or roles[-1:] != ["user"]:
        yield "the user has neither the first word nor the last"
    for place, (one, two) in enumerate(pairwise(roles)):
        if one == two:
            yield f"messages {place} and {place + 1} are both of {one}"
    seen: set[str] = set()
    waiting: list[str] = []
    for place, message in enumerate(messages):
        where = f"message {place}"
        content = blocks(message.get("content"))
        if not content:
            yield f"{where} is empty"
        if message.get("role") == "assistant":
            yield from _answer(content, where, seen)
            waiting = _values(content, "tool_use", "id")
        else:
            yield from _question(content, where, waiting)
            waiting = []
    if waiting:
        yield f"calls {waiting} have no results"
    yield from _thought(request, messages)
    yield from _breakpoints(request)


def _room(request: Json) -> Iterator[str]:
    """How much the model may write; what it thinks is a part of that."""
    most: object = request.get("max_tokens")
    if not isinstance(most, int):
        yield "max_tokens is not said"
        return
    thinking = _thinking(request)
    if thinking is None:
        return
    tokens: object = thinking.get("budget_tokens")
    if not isinstance(tokens, int) or tokens < THINKING_MIN:
        yield f"thinking of {tokens} tokens: at least {THINKING_MIN} are wanted"
    elif tokens >= most:
        yield f"thinking of {tokens} tokens, where max_tokens is {most}"


def _thinking(request: Json) -> Json | None:
    """What is said of thinking, where it is asked for."""
    told = an_object(request.get("thinking"))
    return told if told.get("type") == "enabled" else None


def _values(items: Iterable[Json], kind: str, key: str) -> list[str]:
    return [str(item.get(key)) for item in items if item.get("type") == kind]


def _answer(content: Sequence[Json], where: str, seen: set[str]) -> Iterator[str]:
    if content and content[-1].get("type") in _THINKING:
        yield f"{where} ends with thinking"
    called: set[str] = set()
    answered: set[str] = set()
    for block in content:
        kind = str(block.get("type"))
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
    if any(block.get("type") != "tool_result" for block in content[: len(answered)]):
        yield f"{where} does not begin with its results"
    for block in content:
        kind = block.get("type")
        if kind == "text":
            yield from said(block, where)
        elif kind == "image":
            yield from _source(block, where)
        elif kind == "tool_result":
            yield from _result(block, where)
        else:
            yield f"{where}: {kind} in a question"


def _result(block: Json, where: str) -> Iterator[str]:
    inner = blocks(block.get("content"))
    if not inner:
        yield f"{where}: an empty result"
    for item in inner:
        if item.get("type") == "text":
            yield from said(item, where)
        elif block.get("is_error"):
            yield f"{where}: {item.get('type')} in a result that is an error"
        elif item.get("type") == "image":
            yield from _source(item, where)


def _source(block: Json, where: str) -> Iterator[str]:
    source = cast("Json", block.get("source") or {})
    url = f"data:{source.get('media_type')};base64,{source.get('data')}"
    yield from image(url, where)
    if len(str(source.get("data"))) > IMAGE_CHARS_MAX:
        yield f"{where}: an image of more than {IMAGE_CHARS_MAX} characters"


def _thought(request: Json, messages: Sequence[Json]) -> Iterator[str]:
    """Complain where thinking is asked for, and the open turn did not begin with it."""
    if _thinking(request) is None:
        return
    begin = len(messages)
    while begin and (
        messages[begin - 1].get("role") == "assistant"
        or _values(blocks(messages[begin - 1].get("content")), "tool_result", "tool_use_id")
    ):
        begin -= 1
    turn = [m for m in messages[begin:] if m.get("role") == "assistant"]
    first = blocks(turn[0].get("content"))[:1] if turn else []
    if first and first[0].get("type") not in _THINKING:
        yield "thinking is asked for in the middle of a turn without it"


def _breakpoints(request: Json) -> Iterator[str]:
    found = [*objects(request.get("tools")), *blocks(request.get("system"))]
    for message in objects(request.get("messages")):
        found += blocks(message.get("content"))
    marked = [block for block in found if "cache_control" in block]
    if len(marked) > BREAKPOINTS_MAX:
        yield f"{len(marked)} cache breakpoints"
    for block in marked:
        if block.get("type") in _THINKING:
            yield f"a cache breakpoint at {block['type']}"
