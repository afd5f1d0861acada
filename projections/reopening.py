"""An event as a model reads it again, once it has left the context. Pure."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, cast

from foldline.projections.context import is_text
from foldline.schemas.blocks import Blob, Block, Sealed, clean_text
from foldline.schemas.events import AnyEvent
from foldline.schemas.record import Record
from foldline.schemas.recorded import Recorded

READ_EVENT = "read_event"
"""The tool by which a model does so."""


def event_text(recorded: Recorded, texts: Mapping[bytes, str]) -> str:
    """What an event says, in full: its head, its fields, and all of its text.

    Args:
        recorded: the event.
        texts: the whole text of blobs, by their hash; of others the preview is shown.
    """
    envelope = recorded.envelope
    actor = f"{envelope.actor.kind} {envelope.actor.id}".strip()
    told = [f"[event {recorded.seq}: {recorded.type}, by {actor}]"]
    for name, value in _fields(recorded.event):
        said = _said(value, texts)
        if said:
            told.append(said if _is_text_of(value) else f"{name}: {said}")
    return clean_text("\n".join(told))[0]


def _fields(event: AnyEvent) -> Iterable[tuple[str, object]]:
    """The fields of an event, what it says last: one reads a head first."""
    found = list(event.__dict__.items()) if isinstance(event, Record) else []
    found = [(name, value) for name, value in found if _tells(name)]
    return sorted(found, key=lambda item: _is_text_of(item[1]))


def _tells(name: str) -> bool:
    """Whether a field tells a model anything; most ids are for machines."""
    return name == "call_id" or not name.endswith(("_id", "_hash"))


def _is_text_of(value: object) -> bool:
    blocks = cast("tuple[object, ...]", value) if isinstance(value, tuple) else ()
    return bool(blocks) and all(isinstance(block, Block) for block in blocks)


def _said(value: object, texts: Mapping[bytes, str]) -> str:
    match value:
        case None | "" | ():
            return ""
        case str():
            return value
        case bytes():
            return value.hex()
        case Block():
            return _said(value.body, texts) or f"[{value.kind}]"
        case Blob() if value.sha256 in texts:
            return texts[value.sha256]
        case Blob():
            size = f"[{value.size} bytes of {value.media_type}]"
            return f"{value.preview}\n{size}" if value.preview and is_text(value) else size
        case Sealed():
            return "[sealed]"
        case tuple():
            parts = cast("tuple[object, ...]", value)
            return "\n".join(filter(None, (_said(part, texts) for part in parts)))
        case Record():
            parts = {k: _said(v, texts) for k, v in cast("Any", value).__dict__.items()}
            return json.dumps({k: v for k, v in parts.items() if v}, ensure_ascii=False)
        case _:
            return str(value)
