"""Sessions and their model calls, for the benchmark of contexts.

Every transcript that an importer knows becomes a session of a log. A call of a model has
the raw history before it, and what of that the arguments of its tools name.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from measure import say

from foldline.errors import FoldlineError
from foldline.processors.log import Log
from foldline.processors.open_log import open_log
from foldline.producers.importers import import_file
from foldline.producers.redaction import Redactor
from foldline.projections.building import build
from foldline.projections.context import Context, Message, Part, Sources, text_blobs
from foldline.projections.evidence import evidence_in, quoted_in, stands_in
from foldline.projections.model_calls import asked_of
from foldline.projections.reading import read_texts
from foldline.projections.token_count import Reader, TokenCounter, message_tokens
from foldline.projections.wire import ReadBlob
from foldline.schemas.blocks import Blob, Blocks
from foldline.schemas.events import (
    AssistantMessage,
    ModelCallCompleted,
    ToolCallRequested,
)
from foldline.schemas.recorded import Recorded
from foldline.settings import Settings

NOBODY = Reader("nobody")
"""Whom no reasoning is for."""


OWN = re.compile(
    r"\[[^\[\]\n]{0,200}: \d+ tokens, not shown any more\]"
    r"|\b[Ee]vents? \d+(?: to \d+)?|^- \[\d+\]",
    re.MULTILINE,
)
"""What references and summaries say by themselves: numbers of events and of tokens."""


ESCAPED = re.compile(r"\\[nrt]")
"""Line breaks in the arguments of calls, which are JSON: a word begins behind them."""


@dataclass(frozen=True)
class Call:
    """A model call: how many events were before it, what its answer named, who gave it."""

    events: int
    raw_tokens: int
    evidence: frozenset[str]
    model: str


@dataclass(frozen=True)
class Story:
    """A session: its events, their blobs (while its log is open), its model calls."""

    session_id: str
    events: list[Recorded]
    texts: dict[bytes, str]
    read_blob: ReadBlob
    calls: list[Call]


def imported(where: Path, database: Path) -> Log:
    """A log with a transcript, or every one below a folder, that some importer knows."""
    settings = Settings()
    log = open_log(f"sqlite:///{database}")
    redactor = Redactor()
    for path in sorted(where.rglob("*.json*")) if where.is_dir() else [where]:
        try:
            import_file(log, path, settings=settings, redactor=redactor)
        except FoldlineError as error:
            say(f"not imported: {path.name}: {error}")
    return log


def stories(log: Log, counter: TokenCounter) -> Iterator[Story]:
    """Every session that has model calls."""
    for summary in log.sessions(limit=10_000):
        everything = list(log.events(summary.session_id))
        texts = read_texts(log.blobs, text_blobs(everything))
        for events in threads(everything):
            calls = [
                call
                for at, requests, model in model_calls(events)
                if (call := call_of(events[:at], requests, texts, counter, model))
                is not None
            ]
            if calls:
                yield Story(summary.session_id, events, texts, log.blobs.get, calls)


def threads(events: Sequence[Recorded]) -> Iterator[list[Recorded]]:
    """The conversation, and each branch of it as one of its own: others saw it."""
    found: dict[str | None, list[Recorded]] = defaultdict(list)
    for recorded in events:
        main = recorded.envelope.model_copy(update={"branch": None})
        found[recorded.envelope.branch].append(recorded._replace(envelope=main))
    yield from found.values()


def model_calls(
    events: Sequence[Recorded],
) -> list[tuple[int, list[ToolCallRequested], str]]:
    """Where each model call's answer begins, the tools that it asked for, and its model."""
    models = {call.model_call_id: call.model for call in asked_of(events)}
    begins: dict[str, int] = {}
    messages: dict[str, str] = {}
    requests: dict[str, list[ToolCallRequested]] = defaultdict(list)
    for at, recorded in enumerate(events):
        event = recorded.event
        match event:
            case AssistantMessage(model_call_id=str() as call_id, message_id=message_id):
                begins.setdefault(call_id, at)
                messages[message_id] = call_id
            case ModelCallCompleted(model_call_id=call_id):
                begins.setdefault(call_id, at)
            case ToolCallRequested(message_id=message_id) if message_id in messages:
                requests[messages[message_id]].append(event)
            case _:
                pass
    return [(at, requests[one], models.get(one, "")) for one, at in begins.items()]


def call_of(
    events: Sequence[Recorded],
    requests: Iterable[ToolCallRequested],
    texts: dict[bytes, str],
    counter: TokenCounter,
    model: str,
) -> Call | None:
    """A call with a history before it."""
    context = build(Sources(events, texts=texts))
    tokens = tokens_of(context.messages, counter)
    if not tokens:
        return None
    history = Shown(context)
    arguments = "\n".join(
        text for request in requests for text in strings_in(request.arguments, texts)
    )
    named = evidence_in(arguments) | quoted_in(arguments)
    there = frozenset(one for one in named if history.has(one))
    return Call(len(events), tokens, there, model)


def strings_in(arguments: Blocks, texts: dict[bytes, str]) -> Iterator[str]:
    """Every value in arguments, as text."""
    for block in arguments:
        body = block.body
        text = texts.get(body.sha256, "") if isinstance(body, Blob) else str(body)
        try:
            yield from leaves(json.loads(text))
        except ValueError:
            yield text


def leaves(value: object) -> Iterator[str]:
    """The texts and numbers of a JSON value."""
    match value:
        case dict():
            for item in cast("dict[str, object]", value).values():
                yield from leaves(item)
        case list():
            for item in cast("list[object]", value):
                yield from leaves(item)
        case str():
            yield value
        case _:
            yield json.dumps(value)


class Shown:
    """What a context says, to look for names in it.

    A name stands there by itself, not as a part of another: 45 is not in 1456. What
    references and summaries add of their own is no place for it.
    """

    def __init__(self, context: Context) -> None:
        self._text = ESCAPED.sub(" ", OWN.sub("", text_of(context)))

    def has(self, name: str) -> bool:
        """Whether a name stands anywhere."""
        return stands_in(name, self._text)


def text_of(context: Context) -> str:
    """All that a context says, without reasoning."""
    return "\n".join(
        text for message in context.messages for p in message.parts for text in said(p)
    )


def said(part: Part) -> Iterator[str]:
    """What a part says."""
    if part.kind != "reasoning":
        yield part.text
        for inner in part.parts:
            yield from said(inner)


def tokens_of(messages: Iterable[Message], counter: TokenCounter) -> int:
    """The tokens of messages, without reasoning."""
    return sum(message_tokens(message, counter, reader=NOBODY) for message in messages)
