"""The tool by which a model reads an event again that its context shows no more.

References and summaries name events by their numbers. What the tool shows is of this
session and its ancestors, no other, and not more at once than `CHARACTERS_MAX`.
"""

from typing import Any

from foldline.errors import BlobError
from foldline.producers.session import SessionView
from foldline.producers.tools import Tool, ToolContext, ToolError
from foldline.projections.calls import end_of
from foldline.projections.context import text_blobs
from foldline.projections.reopening import READ_EVENT, event_text
from foldline.schemas.events import ToolCallRequested
from foldline.schemas.recorded import Recorded

CHARACTERS_MAX = 20_000
"""How many characters of an event one call shows."""

RESULT_EVENTS_MAX = 500
"""How far behind a request its result is looked for."""

DESCRIPTION = (
    "Read an event of this session again, whole: what a person said, a tool's arguments "
    "or its whole output. A reference or a summary names events by their numbers. A long "
    "one is read in parts, from an offset in characters."
)

_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "seq": {"type": "integer", "minimum": 1, "description": "the event's number"},
        "offset": {"type": "integer", "minimum": 0, "description": "where to begin"},
        "limit": {
            "type": "integer",
            "minimum": 1,
            "maximum": CHARACTERS_MAX,
            "description": "how many characters",
        },
    },
    "required": ["seq"],
}


def read_event_tool(session: SessionView) -> Tool:
    """The tool, for this session; put it into its toolbox and declare it.

    Args:
        session: whose events the model may read, those of its ancestors included.
    """

    async def read_event(arguments: dict[str, Any], _context: ToolContext) -> str:
        seq = _number(arguments, "seq", 1)
        offset = _number(arguments, "offset", 0, default=0)
        limit = _number(arguments, "limit", 1, default=CHARACTERS_MAX)
        text = await _text_of(session, seq)
        return _part(text, offset, min(limit, CHARACTERS_MAX))

    return Tool(
        read_event,
        name=READ_EVENT,
        effect="READ_ONLY",
        cancellable=True,
        description=DESCRIPTION,
        input_schema=_SCHEMA,
    )


def _number(
    arguments: dict[str, Any], name: str, least: int, *, default: int | None = None
) -> int:
    value = arguments.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        msg = f"{name} must be a whole number of at least {least}, not {value!r}"
        raise ToolError(msg, executed="NO")
    return value


async def _text_of(session: SessionView, seq: int) -> str:
    found = [r async for r in session.events(seq - 1, upto_seq=seq)]
    if not found:
        msg = f"this session has no event {seq}: its last is {(await session.state()).seq}"
        raise ToolError(msg, executed="NO")
    if await session.is_taken_back(seq):
        return f"[event {seq} was taken back: it is not part of the conversation any more]"
    texts: dict[bytes, str] = {}
    for sha256, blob in text_blobs(found).items():
        try:
            texts[sha256] = (await session.blob(blob)).decode("utf-8", "replace")
        except BlobError:
            continue  # it is gone; its preview is in the event
    text = event_text(found[0], texts)
    result = await _result_of(session, found[0])
    return f"{text}\n[its result is event {result}]" if result else text


async def _result_of(session: SessionView, asked: Recorded) -> int:
    """The event that a call ended with; 0 where it is no call or has no end nearby."""
    request = asked.event
    if not isinstance(request, ToolCallRequested):
        return 0
    upto_seq = asked.seq + RESULT_EVENTS_MAX
    async for recorded in session.events(asked.seq, upto_seq=upto_seq):
        event = recorded.event
        if getattr(event, "call_id", None) == request.call_id and end_of(event):
            return recorded.seq
    return 0


def _part(text: str, offset: int, limit: int) -> str:
    part = text[offset : offset + limit]
    left = len(text) - offset - len(part)
    if left > 0:
        return f"{part}\n[{left} more characters, from offset {offset + len(part)}]"
    return part or f"[nothing: it has {len(text)} characters]"
