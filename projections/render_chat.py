"""A context as a request to OpenAI's Chat Completions API. Pure.

What that API wants, beyond its types: each result is a message of its own, in the order
of the calls and right behind them; ids have at most 40 characters; arguments are the
text of an object; a message says something. There is no place for reasoning, nor for
images in results: these are shown in a user's message behind them.
"""

from collections.abc import Iterable

from foldline.projections.calls import NO_OUTPUT_TEXT
from foldline.projections.context import Context, Message, Part
from foldline.projections.wire import (
    GO_ON,
    Json,
    Limits,
    Wire,
    arguments_text,
    joined,
    system_text,
    text_of,
    tools_of,
)

LIMITS = Limits(id_max=40, name_max=64, image_bytes_max=20_000_000)


def chat_body(context: Context, wire: Wire) -> Json:
    """The messages and the tools of a request."""
    tools = [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                **({"description": tool.description} if tool.description.strip() else {}),
                "parameters": tool.schema,
            },
        }
        for tool in tools_of(context.tools, wire)
    ]
    body: Json = {"tools": tools} if tools else {}
    return body | {"messages": chat_messages(context, wire)}


def chat_messages(context: Context, wire: Wire) -> list[Json]:
    """The messages, led by the system's."""
    system = system_text(context)
    dialogue = _Dialogue(wire)
    for message in context.messages:
        dialogue.add(message)
    dialogue.show_below()
    said = dialogue.messages
    if not said or said[0]["role"] != "user":
        said.insert(0, {"role": "user", "content": GO_ON})
    return [*([{"role": "system", "content": system}] if system else []), *said]


class _Dialogue:
    def __init__(self, wire: Wire) -> None:
        self.messages: list[Json] = []
        self._wire = wire
        self._below: list[Json] = []

    def add(self, message: Message) -> None:
        """Add a message of the context."""
        if message.role == "tool":
            self.messages.extend(self._result(part) for part in message.parts)
            self.show_below()
        elif message.role == "assistant":
            self.show_below()
            self._answer(message)
        elif message.role == "user":
            self.show_below()
            self._say(self._shown(message.parts))

    def show_below(self) -> None:
        """Show the images that had no place where they belong."""
        shown, self._below = self._below, []
        self._say(shown)

    def _say(self, content: list[Json]) -> None:
        """One text where there is nothing else: every server takes that."""
        if any(part["type"] != "text" for part in content):
            self.messages.append({"role": "user", "content": content})
        elif text := joined(part["text"] for part in content):
            self.messages.append({"role": "user", "content": text})

    def _shown(self, parts: Iterable[Part]) -> list[Json]:
        content: list[Json] = []
        for part in parts:
            image = self._wire.image(part)
            if image is not None:
                content.append({"type": "image_url", "image_url": {"url": image.url}})
            elif text := joined([text_of(part)]):
                content.append({"type": "text", "text": text})
        return content

    def _hoisted(self, parts: Iterable[Part], of: str) -> str:
        texts: list[str] = []
        for part in parts:
            image = self._wire.image(part)
            texts.append(text_of(part, below=image is not None))
            if image is not None:
                self._below.append({"type": "text", "text": f"Image of {of}:"})
                self._below.append({"type": "image_url", "image_url": {"url": image.url}})
        return joined(texts)

    def _answer(self, message: Message) -> None:
        calls = [part for part in message.parts if part.kind == "call"]
        said = [part for part in message.parts if part.kind != "call"]
        text = self._hoisted(said, "the message above")
        answer: Json = {"role": "assistant", "content": text or None}
        if calls:
            answer["tool_calls"] = [self._call(part) for part in calls]
        if text or calls:
            self.messages.append(answer)

    def _call(self, part: Part) -> Json:
        return {
            "id": self._wire.ids[part.call_id],
            "type": "function",
            "function": {
                "name": self._wire.name(part.tool),
                "arguments": arguments_text(part.text),
            },
        }

    def _result(self, part: Part) -> Json:
        call_id = self._wire.ids[part.call_id]
        said = self._hoisted(part.parts, f"the result of {call_id}")
        return {
            "role": "tool",
            "tool_call_id": call_id,
            "content": said or NO_OUTPUT_TEXT,
        }
