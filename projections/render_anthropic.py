"""A context as a request to Anthropic's Messages API. Pure.

What that API wants, beyond its types: the user's messages and the model's take turns,
beginning and ending with the user's; results lead the message behind their calls; no
text is blank; thinking is signed, and never the last of a message; what a server tool
said stands with its call; a result that is an error holds only text.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from foldline.projections.calls import NO_OUTPUT_TEXT
from foldline.projections.context import SUMMARY, Context, Message, Part
from foldline.projections.wire import (
    GO_ON,
    FormatLimits,
    Json,
    Wire,
    arguments_object,
    is_whole,
    joined,
    parsed_item,
    system_text,
)
from foldline.projections.wire_tools import tools_of

LIMITS = FormatLimits(id_max=64, name_max=64, image_bytes_max=3_932_160)
"""An image may have 5 MiB in base64."""

MAX_TOKENS = 4096
"""What the model may write where the caller does not say, besides what it thinks: every
model can."""

THINKING = frozenset({"thinking", "redacted_thinking"})


@dataclass(frozen=True, slots=True)
class Caching:
    """Where the provider's cache of prompts may end: at most four places.

    Behind the tools, behind the system text, behind the last message that was compacted
    or pruned, and at the end. `ttl` is how long it is kept: 5m or 1h; None: as usual.
    """

    ttl: str | None = None

    def mark(self, items: Sequence[Json]) -> None:
        """Set a breakpoint at the end of these tools or blocks."""
        if items:
            ttl = {} if self.ttl is None else {"ttl": self.ttl}
            items[-1]["cache_control"] = {"type": "ephemeral", **ttl}


def anthropic_body(context: Context, wire: Wire, *, caching: Caching | None = None) -> Json:
    """The system text, the tools and the messages of a request."""
    dialogue = Dialogue(wire)
    for message in context.messages:
        dialogue.add(message)
    dialogue.end()
    system = (
        [{"type": "text", "text": text}] if (text := system_text(context, wire)) else []
    )
    tools = [
        _tool(tool.name, tool.description, tool.schema)
        for tool in tools_of(context.tools, wire)
    ]
    if caching is not None:
        for items in (tools, system, dialogue.settled, dialogue.messages[-1]["content"]):
            caching.mark(items)
    body: Json = {"tools": tools} if tools else {}
    body |= {"system": system} if system else {}
    return body | {"messages": dialogue.messages}


def _tool(name: str, description: str, schema: Json) -> Json:
    said = {"description": description} if description.strip() else {}
    return {"name": name, **said, "input_schema": schema}


class Dialogue:
    """The messages as they take turns.

    `settled` ends with the block that the last summary or pruned message ends with.
    """

    def __init__(self, wire: Wire) -> None:
        self.messages: list[Json] = []
        self.settled: Sequence[Json] = ()
        self._wire = wire
        self._below: list[Json] = []

    def add(self, message: Message) -> None:
        """Add a message of the context."""
        if message.role == "system":
            return
        if message.role == "tool":
            results = [self._result(part) for part in message.parts]
            self._say("user", [*results, *self._from_below()])
        else:
            self.end_of_turn()
            if message.role == "assistant":
                self._say("assistant", self._answer(message))
            else:
                self._say("user", self._shown(message.parts))
        if self.messages and _is_settled(message):
            self.settled = self.messages[-1]["content"][-1:]

    def end_of_turn(self) -> None:
        """Show what had no place in the message before."""
        self._say("user", self._from_below())

    def end(self) -> None:
        """Leave the last word to the user: no model is asked to go on within its own."""
        self.end_of_turn()
        if not self.messages or self.messages[-1]["role"] == "assistant":
            self._say("user", [_text(GO_ON)])

    def _say(self, role: str, content: list[Json]) -> None:
        if not content:
            return
        last = self.messages[-1]["role"] if self.messages else "assistant"
        if role == last == "user":
            self.messages[-1]["content"].extend(content)
            return
        if role == last:
            self.messages.append({"role": "user", "content": [_text(GO_ON)]})
        self.messages.append({"role": role, "content": content})

    def _from_below(self) -> list[Json]:
        shown, self._below = self._below, []
        return shown

    # --- what a message holds --------------------------------------------------------

    def _shown(self, parts: Iterable[Part]) -> list[Json]:
        """Text, and images in their place."""
        blocks: list[Json] = []
        for part in parts:
            image = self._wire.image(part)
            if image is not None:
                source = {"type": "base64", **image._asdict()}
                blocks.append({"type": "image", "source": source})
            elif text := joined([self._wire.text(part)]):
                blocks.append(_text(text))
        return blocks

    def _hoisted(self, parts: Iterable[Part], of: str) -> str:
        """Text; images are shown in the user's next message, and only named here."""
        texts: list[str] = []
        for part in parts:
            shown = [block for block in self._shown([part]) if block["type"] == "image"]
            texts.append(self._wire.text(part, below=bool(shown)))
            if shown:
                self._below += [_text(f"Image of {of}:"), *shown]
        return self._wire.lines(texts)

    def _answer(self, message: Message) -> list[Json]:
        """What the model said, as it may go back to it."""
        blocks: list[Json] = []
        for part in message.parts:
            if part.kind == "call":
                blocks.append(self._call(part))
            elif part.kind == "reasoning":
                blocks.extend(self._thinking(part))
            elif part.kind == "server_tool" and part.opaque is not None:
                blocks.extend(self._server_item(part))
            elif text := self._hoisted([part], "the message above"):
                blocks.append(_text(text))
        blocks = _paired(blocks)
        while blocks and blocks[-1]["type"] in THINKING:
            blocks.pop()
        return blocks

    def _call(self, part: Part) -> Json:
        return {
            "type": "tool_use",
            "id": self._wire.ids[part.call_id],
            "name": self._wire.name(part.tool),
            "input": arguments_object(part.text),
        }

    def _thinking(self, part: Part) -> list[Json]:
        """Thinking as it came, to the model whose it is; nothing else."""
        if not self._wire.is_own(part):
            return []
        if part.opaque is not None:
            item = parsed_item(part.opaque)
            return [item] if item.get("type") in THINKING else []
        if not part.signature or not is_whole(part.text):
            return []
        return [{"type": "thinking", "thinking": part.text, "signature": part.signature}]

    def _server_item(self, part: Part) -> list[Json]:
        item = parsed_item(part.opaque) if self._wire.is_own(part) else {}
        if item.get("type"):
            return [item]
        text = joined([self._wire.text(part)])
        return [_text(text)] if text else []

    def _result(self, part: Part) -> Json:
        call_id = self._wire.ids[part.call_id]
        result: Json = {"type": "tool_result", "tool_use_id": call_id}
        if part.error:
            said = self._hoisted(part.parts, f"the result of {call_id}")
            return result | {"content": said or NO_OUTPUT_TEXT, "is_error": True}
        shown = self._shown(part.parts)
        if any(block["type"] == "image" for block in shown):
            return result | {"content": shown}
        said = self._wire.lines(self._wire.text(inner) for inner in part.parts)
        return result | {"content": said or NO_OUTPUT_TEXT}


def _text(text: str) -> Json:
    return {"type": "text", "text": text}


def _is_settled(message: Message) -> bool:
    pruned = any(part.form == "PRUNED" for part in message.parts)
    return pruned or message.origin == SUMMARY


def _paired(blocks: list[Json]) -> list[Json]:
    """What a server tool said stands behind its call in one message, or neither does."""
    called: set[str] = set()
    answered: set[str] = set()
    for block in blocks:
        if is_server_call(block):
            called.add(str(block.get("id")))
        elif is_server_result(block) and block.get("tool_use_id") in called:
            answered.add(str(block["tool_use_id"]))
    kept: list[Json] = []
    seen: set[tuple[str, bool]] = set()
    for block in blocks:
        if is_server_call(block) or is_server_result(block):
            is_call = is_server_call(block)
            name = str(block.get("id" if is_call else "tool_use_id"))
            legal = name in answered and (is_call or (name, True) in seen)
            if not legal or (name, is_call) in seen:
                continue
            seen.add((name, is_call))
        kept.append(block)
    return kept


def is_server_call(block: Json) -> bool:
    """Whether a block is a call that the provider answers itself."""
    return str(block["type"]).endswith("_tool_use")


def is_server_result(block: Json) -> bool:
    """Whether a block is what a tool of the provider answered."""
    return str(block["type"]).endswith("_tool_result")


def may_think(messages: Sequence[Json]) -> bool:
    """Whether a request can ask for thinking: not in the middle of a turn without it.

    The turn is everything since the last message of the user that holds no result.
    """
    first: Json | None = None
    for message in reversed(messages):
        if message["role"] == "assistant":
            first = message
        elif not any(block["type"] == "tool_result" for block in message["content"]):
            break
    return first is None or first["content"][0]["type"] in THINKING
