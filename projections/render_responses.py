"""A context as a request to OpenAI's Responses API. Pure.

What that API wants, beyond its types: reasoning goes back encrypted, with its id, before
the item that came of it; each call has its output; arguments are the text of an object.
What its own tools did goes back as an item only together with the reasoning before it.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, cast

from foldline.projections.calls import NO_OUTPUT_TEXT
from foldline.projections.context import Context, Message, Part
from foldline.projections.dialogue import Dialogue
from foldline.projections.wire import (
    GLUED,
    GO_ON,
    FormatLimits,
    Image,
    Json,
    Wire,
    arguments_text,
    joined,
    parsed_item,
    system_text,
)
from foldline.projections.wire_tools import tools_of

LIMITS = FormatLimits(id_max=64, name_max=64, image_bytes_max=20_000_000)

REASONING = frozenset({"type", "id", "summary", "encrypted_content", "status"})
"""The fields of reasoning that the API takes back; harnesses add others."""


COMPACTION = "compaction"
COMPACTIONS = frozenset({COMPACTION, "compaction_summary"})
"""What a history is called that the provider compacted and encrypted itself."""


class Fields(NamedTuple):
    """The fields of an item that the API takes back, beside its type."""

    needed: frozenset[str]
    optional: frozenset[str] = frozenset()


SERVER_ITEMS: dict[str, Fields] = {
    "web_search_call": Fields(frozenset({"id", "action", "status"})),
    "file_search_call": Fields(
        frozenset({"id", "queries", "status"}), frozenset({"results"})
    ),
    "code_interpreter_call": Fields(
        frozenset({"id", "code", "container_id", "outputs", "status"})
    ),
    "mcp_list_tools": Fields(
        frozenset({"id", "server_label", "tools"}), frozenset({"error"})
    ),
    "mcp_call": Fields(
        frozenset({"id", "arguments", "name", "server_label"}),
        frozenset({"approval_request_id", "error", "output", "status"}),
    ),
}
"""Items of the provider's own tools that can go back."""

SEARCHES: dict[str, Fields] = {
    "search": Fields(frozenset(), frozenset({"query", "queries", "sources"})),
    "open_page": Fields(frozenset(), frozenset({"url"})),
    "find_in_page": Fields(frozenset({"pattern", "url"})),
}
"""What a web search can have done."""


def responses_body(context: Context, wire: Wire) -> Json:
    """The instructions, the tools and the input of a request."""
    tools = [
        {
            "type": "function",
            "name": tool.name,
            **({"description": tool.description} if tool.description.strip() else {}),
            "parameters": tool.schema,
            "strict": False,
        }
        for tool in tools_of(context.tools, wire)
    ]
    dialogue = _Dialogue(wire)
    for message in context.messages:
        dialogue.add(message)
    dialogue.show_below()
    body: Json = {"tools": tools} if tools else {}
    body |= {"instructions": text} if (text := system_text(context, wire)) else {}
    said = dialogue.said
    if not said or said[0].get("role") != "user":
        said.insert(0, dialogue.go_on())
    return body | {"input": said}


class _Dialogue(Dialogue):
    def __init__(self, wire: Wire) -> None:
        super().__init__(wire)
        self._used: set[str] = set()

    def _say(self, content: list[Json]) -> None:
        if content:
            self.said.append(_message("user", content))

    def _ask(self, parts: Iterable[Part]) -> None:
        """What a user said, and in its place what the provider compacted itself."""
        said: list[Part] = []
        for part in parts:
            item = self._compaction(part)
            if item is None:
                said.append(part)
            else:
                self._say(self._shown(said))
                self.said.append(item)
                said = []
        self._say(self._shown(said))

    def _compaction(self, part: Part) -> Json | None:
        """An encrypted history as it came, to the model whose it is; nothing else."""
        if self._wire.version == GLUED or not self._wire.is_own(part):
            return None
        item = parsed_item(part.opaque)
        secret: object = item.get("encrypted_content")
        if item.get("type") not in COMPACTIONS or not isinstance(secret, str) or not secret:
            return None
        if "id" in item and not self._is_new(item):
            return None
        named = {"id": item["id"]} if "id" in item else {}
        return {"type": COMPACTION, **named, "encrypted_content": secret}

    def _answer(self, message: Message) -> None:
        """The items of an answer, in the order in which they were said."""
        thoughts = {
            index: item
            for index, part in enumerate(message.parts)
            if part.kind == "reasoning"
            and (item := self._reasoning(part) or self._compaction(part))
        }
        thought = sum(part.kind == "reasoning" for part in message.parts)
        items: list[Json] = []
        for index, part in enumerate(message.parts):
            if part.kind == "call":
                items.append(self._call(part))
            elif part.kind == "reasoning":
                items.extend([thoughts[index]] if index in thoughts else [])
            elif item := self._server_item(part) if thought == len(thoughts) else None:
                items.append(item)
            elif text := joined([self._hoisted(part, "the message above")]):
                _append_text(items, text)
        while items and items[-1]["type"] == "reasoning":
            items.pop()
        self.said.extend(items)

    def _reasoning(self, part: Part) -> Json | None:
        """Reasoning as it came, to the model whose it is; nothing else."""
        item = parsed_item(part.opaque) if self._wire.is_own(part) else {}
        whole = item.get("type") == "reasoning" and isinstance(item.get("summary"), list)
        secret: object = item.get("encrypted_content")
        if not whole or not isinstance(secret, str) or not secret:
            return None
        known = {key: item[key] for key in item if key in REASONING}
        if not isinstance(item.get("status"), str):
            known.pop("status", None)
        return known if self._is_new(item) else None

    def _server_item(self, part: Part) -> Json | None:
        if part.kind != "server_tool" or not self._wire.is_own(part):
            return None
        item = parsed_item(part.text if part.opaque is None else part.opaque)
        known = _known(item)
        return known if known is not None and self._is_new(known) else None

    def _is_new(self, item: Json) -> bool:
        """Whether an item has an id that no other has."""
        item_id: object = item.get("id")
        if not isinstance(item_id, str) or not item_id or item_id in self._used:
            return False
        self._used.add(item_id)
        return True

    def _call(self, part: Part) -> Json:
        return {
            "type": "function_call",
            "call_id": self._wire.ids[part.call_id],
            "name": self._wire.name(part.tool),
            "arguments": arguments_text(part.text),
        }

    def _result(self, part: Part) -> Json:
        shown = self._shown(part.parts)
        if any(piece["type"] != "input_text" for piece in shown):
            output: object = shown
        else:
            said = self._wire.lines(self._wire.text(inner) for inner in part.parts)
            output = said or NO_OUTPUT_TEXT
        call_id = self._wire.ids[part.call_id]
        return {"type": "function_call_output", "call_id": call_id, "output": output}

    def go_on(self) -> Json:
        """What stands first where no user said anything."""
        return _message("user", [self._text(GO_ON)])

    @staticmethod
    def _text(text: str) -> Json:
        return {"type": "input_text", "text": text}

    @staticmethod
    def _image(image: Image) -> Json:
        return {"type": "input_image", "detail": "auto", "image_url": image.url}


def _known(item: Json, kinds: Mapping[str, Fields] = SERVER_ITEMS) -> Json | None:
    """An item with the fields that the API takes; None where one is missing."""
    fields = kinds.get(str(item.get("type")))
    if fields is None or not fields.needed <= item.keys():
        return None
    optional = {key for key in fields.optional if item.get(key) is not None}
    known = {key: item[key] for key in item if key in {"type", *fields.needed, *optional}}
    if not isinstance(known.get("status", ""), str):
        return None
    if "action" in known:
        action: object = known["action"]
        known["action"] = (
            _known(cast("Json", action), SEARCHES) if isinstance(action, dict) else None
        )
        return known if known["action"] else None
    return known


def _append_text(items: list[Json], text: str) -> None:
    """What was said in a row is one message."""
    if items and items[-1]["type"] == "message":
        items[-1]["content"] += text
    else:
        items.append(_message("assistant", text))


def _message(role: str, content: object) -> Json:
    return {"type": "message", "role": role, "content": content}
