"""A context as a request to OpenAI's Chat Completions API. Pure.

What that API wants, beyond its types: each result is a message of its own, in the order
of the calls and right behind them; ids have at most 40 characters; arguments are the
text of an object; a message says something. There is no place for reasoning, nor for
images in results: these are shown in a user's message behind them.
"""

from foldline.projections.calls import NO_OUTPUT_TEXT
from foldline.projections.context import Context, Message, Part
from foldline.projections.dialogue import Dialogue
from foldline.projections.wire import (
    GO_ON,
    FormatLimits,
    Image,
    Json,
    Wire,
    arguments_text,
    joined,
    system_text,
)
from foldline.projections.wire_tools import tools_of

LIMITS = FormatLimits(id_max=40, name_max=64, image_bytes_max=20_000_000)


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
    system = system_text(context, wire)
    dialogue = _Dialogue(wire)
    for message in context.messages:
        dialogue.add(message)
    dialogue.show_below()
    said = dialogue.said
    if not said or said[0]["role"] != "user":
        said.insert(0, {"role": "user", "content": GO_ON})
    return [*([{"role": "system", "content": system}] if system else []), *said]


class _Dialogue(Dialogue):
    def _say(self, content: list[Json]) -> None:
        """One text where there is nothing else: every server takes that."""
        if any(part["type"] != "text" for part in content):
            self.said.append({"role": "user", "content": content})
        elif text := self._wire.lines(part["text"] for part in content):
            self.said.append({"role": "user", "content": text})

    def _answer(self, message: Message) -> None:
        calls = [part for part in message.parts if part.kind == "call"]
        said = [part for part in message.parts if part.kind != "call"]
        text = joined([self._hoisted(part, "the message above") for part in said])
        answer: Json = {"role": "assistant", "content": text or None}
        if calls:
            answer["tool_calls"] = [self._call(part) for part in calls]
        if text or calls:
            self.said.append(answer)

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
        above = f"the result of {call_id}"
        said = self._wire.lines([self._hoisted(inner, above) for inner in part.parts])
        return {
            "role": "tool",
            "tool_call_id": call_id,
            "content": said or NO_OUTPUT_TEXT,
        }

    @staticmethod
    def _text(text: str) -> Json:
        return {"type": "text", "text": text}

    @staticmethod
    def _image(image: Image) -> Json:
        return {"type": "image_url", "image_url": {"url": image.url}}
