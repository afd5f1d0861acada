"""What the model is shown: a projection of a session's events. Pure.

    base.base_of(state, compaction)  the seq behind which the events are needed
    Sources                          these events, and what was in force before them
    building.build(sources)          the Context: messages, tools, what they stem from
    render.to_openai_messages(...)   the same as an API takes it

Here is the history since the last compaction, clearing or rewind. It is made smaller by
events only, which `foldline.projections.shaping` plans. What holds of every build, at
whatever event the history ends:

- every call has exactly one result, in call order, right behind its message;
- no result without its call, no empty message, no lone surrogate;
- what was shown stays as it was: an outcome that comes later is a note in its place;
- the same events give the same bytes, and more events only add behind, but for those
  that compact, prune, clear, rewind or retract, a message in the place of another, and
  tools that are declared anew, which stand in front.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import cast

from foldline.projections.shaped import Shaped
from foldline.schemas.blocks import (
    Blob,
    Blocks,
)
from foldline.schemas.events import ToolDeclaration
from foldline.schemas.record import Record
from foldline.schemas.recorded import Recorded

RENDERER = "foldline.context"
RENDERER_VERSION = 1


@dataclass(frozen=True, slots=True)
class Part:
    """One piece of a message: what a block said, a call, or the result of one.

    `text` is the whole text where it is known. A `call` has its arguments there, as the
    model wrote them; a `result` has parts of its own. `provider`, `model`, `signature`
    and `opaque` go back to the same provider and model only.
    """

    kind: str
    text: str = ""
    call_id: str = ""
    provider_call_id: str = ""
    tool: str = ""
    media_type: str | None = None
    blob: Blob | None = None
    provider: str | None = None
    model: str | None = None
    signature: str | None = None
    opaque: str | None = None
    error: bool = False
    parts: "tuple[Part, ...]" = ()
    form: str = field(default="", compare=False)
    """Of a result: what it rests on (`calls.Result`). PRUNED ones are references."""
    event_id: str = field(default="", compare=False)
    """Of a call and of a result: the event that has it; of a stand-in it is empty."""
    seq: int = field(default=0, compare=False)
    """Of that event."""
    speaker: str = field(default="", compare=False)
    """Of a text in what a harness put in the place of its history: who said it."""

    @property
    def spoken(self) -> str:
        """The text, and in front of it who said that where the message does not say so."""
        return f"{self.speaker}: {self.text}" if self.speaker else self.text

    @property
    def is_empty(self) -> bool:
        """Whether it holds nothing at all, neither words nor anything verbatim."""
        return not (self.text or self.blob or self.opaque or self.signature)


SAID = "SAID"
SUMMARY = "SUMMARY"
NOTE = "NOTE"


@dataclass(frozen=True, slots=True)
class Message:
    """A message to the model: role system, user, assistant or tool (all results).

    `origin` is SAID, SUMMARY (of what was compacted) or NOTE (ours, of a late outcome or
    of what came into force). It stands at `seq`, and what it shows rests on events up to
    `last_seq` (of a summary: those that it stands for); `pending` are calls whose result
    may still come, and would be another. `message_ids` are what events call it. Messages
    are equal that show the same.
    """

    role: str
    parts: tuple[Part, ...]
    event_ids: tuple[str, ...]
    seq: int = field(default=0, compare=False)
    last_seq: int = field(default=0, compare=False)
    origin: str = field(default=SAID, compare=False)
    pending: tuple[str, ...] = field(default=(), compare=False)
    message_ids: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Shown:
    """A stand-in that this context shows and nothing has frozen yet."""

    call_id: str
    form: str
    blocks: Blocks


@dataclass(frozen=True, slots=True)
class Context:
    """What the model is shown, up to `upto_seq`, and what it was made from.

    Events from `held_seq` on are still needed as they are: steering that was not applied
    yet. None: nothing waits. `shaped` is what was done to make it smaller.
    """

    messages: tuple[Message, ...]
    tools: tuple[ToolDeclaration, ...]
    base_seq: int
    upto_seq: int
    stand_ins: tuple[Shown, ...] = ()
    instructions_event_ids: tuple[str, ...] = ()
    tools_event_id: str | None = None
    held_seq: int | None = None
    shaped: Shaped = field(default=Shaped(), compare=False)

    def sha256(self) -> bytes:
        """The hash of what is shown: the same on every rebuild."""
        return hashlib.sha256(self.as_bytes()).digest()

    def as_bytes(self) -> bytes:
        """What is shown, as JSON: tools, then messages."""
        return json.dumps(
            [self.tools, self.messages],
            ensure_ascii=False,
            separators=(",", ":"),
            default=_plain,
        ).encode()


@dataclass(frozen=True, slots=True)
class Sources:
    """What a context is built from.

    `set_up` are the events that hold what was in force at `base_seq`; `events` those
    behind it. `texts` has the whole text of blobs, by their hash; of others the preview
    is shown.
    """

    events: Sequence[Recorded]
    base_seq: int = 0
    set_up: Sequence[Recorded] = ()
    texts: Mapping[bytes, str] = field(default_factory=dict[bytes, str])


def is_text(blob: Blob) -> bool:
    """Whether a blob's bytes are UTF-8 text, which the model may read."""
    return blob.media_type.startswith(("text/", "application/json"))


def text_blobs(events: Sequence[Recorded]) -> dict[bytes, Blob]:
    """The blobs of text in events, whose whole text a context shows."""
    found: dict[bytes, Blob] = {}
    for recorded in events:
        _find_blobs(recorded.event, found)
    return found


def texts_gone(sources: Sources) -> list[bytes]:
    """The blobs of text whose bytes are not there: their preview is shown."""
    wanted = text_blobs([*sources.set_up, *sources.events])
    return [sha256 for sha256 in wanted if sha256 not in sources.texts]


def bytes_with_texts(recorded: Recorded) -> int:
    """How large an event is as stored, with the whole texts that it refers to."""
    return len(recorded.body) + sum(b.size for b in text_blobs([recorded]).values())


def _find_blobs(value: object, found: dict[bytes, Blob]) -> None:
    if isinstance(value, Blob):
        if is_text(value):
            found[value.sha256] = value
    elif isinstance(value, tuple):
        _find_within(cast("tuple[object, ...]", value), found)
    elif isinstance(value, Record):
        _find_within(value.__dict__.values(), found)


def _find_within(values: Iterable[object], found: dict[bytes, Blob]) -> None:
    for value in values:
        if type(value) not in _LEAVES:
            _find_blobs(value, found)


_LEAVES: frozenset[type] = frozenset({bool, bytes, float, int, str, type(None)})
"""What most fields are: no blob is in them."""


def _plain(value: object) -> object:
    """A context's parts as JSON can hold them."""
    if isinstance(value, (Part, Message)):
        return [getattr(value, name) for name in _FIELDS[type(value)]]
    if isinstance(value, Record):
        return list(value.__dict__.values())
    return cast("bytes", value).hex()


_FIELDS: dict[type, tuple[str, ...]] = {
    Part: tuple(f.name for f in fields(Part) if f.compare),
    Message: tuple(f.name for f in fields(Message) if f.compare),
}
"""What is hashed: what is shown, not how it came to be."""
