"""What OpenAI's two APIs would refuse of a request, beyond their types. Pure."""

import json
from collections.abc import Iterator, Sequence

from foldline.projections.rules_of_all import (
    ID_MAX,
    NAME,
    an_object,
    image,
    is_id,
    objects,
    said,
    tools,
)
from foldline.projections.wire import Json

_ANSWERS = frozenset({"output_text", "refusal"})

CHAT_ID_MAX = 40
"""How long the id of a call may be in Chat Completions."""


def chat(request: Json) -> Iterator[str]:
    """What Chat Completions would refuse."""
    yield from tools(request, "parameters")
    messages = objects(request.get("messages"))
    if not any(message.get("role") == "user" for message in messages):
        yield "the user says nothing"
    waiting: list[str] = []
    seen: set[str] = set()
    for place, message in enumerate(messages):
        where, role = f"message {place}", message.get("role")
        if role == "system" and place:
            yield f"{where}: the system's message does not lead"
        if role == "tool":
            if waiting[:1] != [message.get("tool_call_id")]:
                yield f"{where}: a result, where {waiting} are waited for"
            waiting = waiting[1:]
        elif waiting:
            yield f"{where}: calls {waiting} have no results"
            waiting = []
        calls = objects(message.get("tool_calls"))
        for call in calls:
            function = an_object(call.get("function"))
            yield from _function(call.get("id"), function, where, seen, CHAT_ID_MAX)
        waiting += [str(call.get("id")) for call in calls]
        yield from _content(message, where, may_be_none=bool(calls))
    if waiting:
        yield f"calls {waiting} have no results"


def _content(message: Json, where: str, *, may_be_none: bool) -> Iterator[str]:
    content = message.get("content")
    if content is None:
        if not may_be_none:
            yield f"{where} says nothing"
    elif isinstance(content, str):
        yield from said({"text": content}, where)
    else:
        yield from _pieces(objects(content), message.get("role"), where)


def _pieces(pieces: Sequence[Json], role: object, where: str) -> Iterator[str]:
    for part in pieces:
        if part.get("type") == "text":
            yield from said(part, where)
        elif role != "user":
            yield f"{where}: {part.get('type')} of {role}"
        else:
            url = an_object(part.get("image_url")).get("url")
            yield from image(str(url), where)
    if not pieces:
        yield f"{where} is empty"


def _function(
    call_id: object, function: Json, where: str, seen: set[str], longest: int
) -> Iterator[str]:
    name = str(call_id)
    if not is_id(name, longest) or name in seen:
        yield f"{where}: the id {name!r} is used twice, or cannot be one"
    seen.add(name)
    if not NAME.fullmatch(str(function.get("name"))):
        yield f"{where}: no tool can be called {function.get('name')!r}"
    if not _is_object(str(function.get("arguments"))):
        yield f"{where}: the arguments of {name} are no object"


def _is_object(text: str) -> bool:
    """Whether a strict parser reads an object in it."""
    try:
        value: object = json.loads(text)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict)


# --- Responses ----------------------------------------------------------------


def responses(request: Json) -> Iterator[str]:
    """What the Responses API would refuse."""
    yield from tools(request, "parameters")
    items = _items(request.get("input"))
    if not any(item.get("role") == "user" for item in items):
        yield "the user says nothing"
    waiting: list[str] = []
    answering = False
    seen: set[str] = set()
    ids: set[str] = set()
    for place, item in enumerate(items):
        where, kind = f"item {place}", _kind(item)
        if kind == "function_call_output":
            answering = True
            if waiting[:1] != [item.get("call_id")]:
                yield f"{where}: an output, where {waiting} are waited for"
            waiting = waiting[1:]
            yield from _output(item.get("output"), where)
            continue
        if waiting and (answering or item.get("role") == "user"):
            yield f"{where}: calls {waiting} have no outputs"
            waiting = []
        answering = False
        if kind == "function_call":
            yield from _function(item.get("call_id"), item, where, seen, ID_MAX)
            waiting.append(str(item.get("call_id")))
        elif kind == "message":
            yield from _message(item, where)
        else:
            yield from _item(item, where, ids, items[place + 1 : place + 2])
    if waiting:
        yield f"calls {waiting} have no outputs"


def _items(given: object) -> list[Json]:
    """What is put in: a text alone is what the user says."""
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    return objects(given)


def _kind(item: Json) -> str:
    """The type of an item; a message may leave it out."""
    said_by = "message" if "role" in item and "content" in item else ""
    return str(item.get("type") or said_by)


def _message(item: Json, where: str) -> Iterator[str]:
    content = item.get("content")
    if item.get("role") != "assistant" or isinstance(content, str):
        yield from _output(content, where)
        return
    pieces = objects(content)
    if not pieces or any(piece.get("type") not in _ANSWERS for piece in pieces):
        yield f"{where}: an answer that is no text"
    for piece in pieces:
        yield from said({"text": piece.get("text", piece.get("refusal"))}, where)


def _output(content: object, where: str) -> Iterator[str]:
    if isinstance(content, str):
        yield from said({"text": content}, where)
        return
    pieces = objects(content)
    if not pieces:
        yield f"{where} is empty"
    for piece in pieces:
        if piece.get("type") == "input_image":
            yield from image(str(piece.get("image_url")), where)
        else:
            yield from said(piece, where)


def _item(item: Json, where: str, ids: set[str], behind: Sequence[Json]) -> Iterator[str]:
    """Reasoning, what a tool of the provider did, or what the provider compacted."""
    item_id = item.get("id")
    if item.get("type") == "compaction":
        if not item.get("encrypted_content"):
            yield f"{where}: a compaction that is not encrypted"
        if item_id is None:
            return
    if not item_id or str(item_id) in ids:
        yield f"{where}: the id {item_id!r} is used twice, or is none"
    ids.add(str(item_id))
    if item.get("type") != "reasoning":
        return
    if not item.get("encrypted_content"):
        yield f"{where}: reasoning that is not encrypted"
    ends = not behind or behind[0].get("role") == "user"
    if ends or behind[0].get("type") == "function_call_output":
        yield f"{where}: reasoning without what came of it"
