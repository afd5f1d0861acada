"""What every append passes, in this order and nowhere else.

1. *Check*: it is an event that this foldline knows.
2. *Clean*: lone surrogates become U+FFFD.
3. *Lift* binary media out of data URLs, so that no text rule mangles it; what is text in
   one is opened, so that every rule sees it.
4. *Redact*: before the hash, before a blob, before the first durable byte. It fails
   closed: an event that the redactor could not judge is not recorded. A secret that
   begins in the record before is known by its beginning.
5. *Hash* the arguments of a call as they will be stored.
6. *Store* media, opened ones too, and bodies above the inline limit, as blobs.
7. *Encode*.

What was redacted is counted in a RedactionApplied that follows in the same batch.
"""

import base64
import binascii
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, cast

import rfc8785

from foldline.errors import AnswerRefusedError, EncodeError
from foldline.processors.admission import MAX_CONTENT_BYTES
from foldline.processors.blobs import BlobStore
from foldline.producers.identity import derived_id
from foldline.producers.redaction_streams import Tails
from foldline.schemas.blocks import Blob, Block, Blocks, Body, clean_text, text_of
from foldline.schemas.codec import clean_record, encode_content
from foldline.schemas.envelope import Envelope
from foldline.schemas.events import (
    KnownEvent,
    PermissionGranted,
    RedactionApplied,
    RuleCount,
    ToolCallRequested,
    ToolDeclaration,
    type_of,
)
from foldline.schemas.record import Record

PREVIEW_CHARS = 1_000
"""How much of a body that went to the blob store stays readable in the event."""

TEXT = "text/plain; charset=utf-8"

SMALLEST_INLINE_BYTES = 512
"""Where making an event smaller stops: what is still too large is answered TOO_LARGE."""

_OPENED = "\0opened "
"""What the media type of an opened medium begins with: no writer's does."""

_MEDIA_KINDS = frozenset({"image", "file", "audio", "video"})


class Redacts(Protocol):
    """What the redactor of a client does."""

    def redact_event(self, event: KnownEvent) -> tuple[KnownEvent, Mapping[str, int]]:
        """The event without what must not be recorded, and how often each rule fired.

        Raises:
            RedactionError: it cannot tell; nothing of the event may be recorded.
        """
        ...


@dataclass(frozen=True, slots=True)
class Draft:
    """An event on its way to the log, as its writer made it.

    `expected_seq` and `requires` are those of the append. `sent_before` says that its
    event_id may be in the log already, from whenever and whomever.
    """

    envelope: Envelope
    event: KnownEvent
    expected_seq: int | None = None
    requires: tuple[str, ...] = ()
    sent_before: bool = False


@dataclass(frozen=True, slots=True)
class Prepared:
    """A draft as it goes into the log: redacted, hashed, its large bodies stored."""

    envelope: Envelope
    event: KnownEvent
    content: bytes
    expected_seq: int | None
    requires: tuple[str, ...]
    redacted: bool = False
    sent_before: bool = False


@dataclass(frozen=True, slots=True)
class Preparer:
    """Prepares the drafts of one client. Called in one thread."""

    redactor: Redacts
    blobs: BlobStore
    inline_max_bytes: int
    tails: Tails = field(default_factory=Tails)

    def remember(self, draft: Draft) -> None:
        """Take note of an event that is recorded already and not prepared again."""
        self.tails.remember(draft.envelope, _cleaned(draft.event))

    def prepare(self, draft: Draft) -> list[Prepared]:
        """The draft's append, and that of its RedactionApplied if there is one.

        Raises:
            RedactionError: the redactor failed.
            EncodeError: a value that no Avro bytes can hold.
            LogUnavailableError: a blob could not be stored.
        """
        event = _cleaned(_checked(draft.event))
        media: dict[bytes, bytes] = {}
        lifted = _each_block(event, lambda block: _lift_media(block, media))
        clean, counts = redacted(draft.envelope, lifted, self.redactor, self.tails)
        if lifted is not event:
            clean = _each_block(clean, lambda block: _closed(block, media))
        event = _hashed(clean)
        for data in media.values():
            self.blobs.put(data)
        event, content = self._fit(event)
        main = Prepared(
            draft.envelope,
            event,
            content,
            draft.expected_seq,
            draft.requires,
            redacted=bool(counts),
            sent_before=draft.sent_before,
        )
        return [main, _redaction(draft.envelope, counts)] if counts else [main]

    def _fit(self, event: KnownEvent) -> tuple[KnownEvent, bytes]:
        """Move large bodies out; if the whole is still too large, smaller ones too."""
        content = encode_content(event)
        limit = self.inline_max_bytes
        if len(content) <= limit:
            return event, content  # so is every body in it
        stored = self._stored(event, limit)
        content = encode_content(stored)
        while len(content) > MAX_CONTENT_BYTES and limit > SMALLEST_INLINE_BYTES:
            limit //= 2
            stored = self._stored(stored, limit)
            content = encode_content(stored)
        return stored, content

    def _stored(self, event: KnownEvent, limit: int) -> KnownEvent:
        return _each_block(
            _each_declaration(event, lambda body: self._body(body, TEXT, limit)),
            lambda block: self._stored_block(block, limit),
        )

    def _stored_block(self, block: Block, limit: int) -> Block:
        media_type = block.media_type or TEXT
        body = self._body(block.body, media_type, limit)
        opaque = block.opaque and self._body(block.opaque, TEXT, limit)
        if body is block.body and opaque is block.opaque:
            return block
        return block.model_copy(update={"body": body, "opaque": opaque})

    def _body(self, body: Body, media_type: str, limit: int) -> Body:
        """The body, as a blob if it is above the limit; previews shrink with it."""
        preview_max = min(PREVIEW_CHARS, limit // 4)
        if isinstance(body, Blob) and len(body.preview or "") > preview_max:
            return body.model_copy(update={"preview": (body.preview or "")[:preview_max]})
        if not isinstance(body, str) or len(body) * 4 <= limit:
            return body
        data = body.encode()
        if len(data) <= limit:
            return body
        return Blob(
            sha256=self.blobs.put(data),
            size=len(data),
            media_type=media_type,
            preview=body[:preview_max],
        )


def redacted(
    envelope: Envelope, event: KnownEvent, redactor: Redacts, tails: Tails
) -> tuple[KnownEvent, Counter[str]]:
    """4. An event without its secrets, also those that began in the record before it.

    Raises:
        RedactionError: the redactor failed.
    """
    rest, ends = tails.continued(envelope, event, redactor)
    tails.remember(envelope, event)
    clean, counts = redactor.redact_event(rest)
    return clean, Counter(counts) + Counter(ends)


def check_edit(event: KnownEvent, redactor: Redacts) -> None:
    """Refuse a grant that would be stored with other arguments than the person meant.

    For who answers a request: an importer's grant was given elsewhere, and is a fact.

    Raises:
        AnswerRefusedError: a secret is in them.
        RedactionError: the redactor cannot tell.
    """
    if not isinstance(event, PermissionGranted) or not event.edited_arguments:
        return
    clean, _ = redactor.redact_event(event)
    if getattr(clean, "edited_arguments", ()) != event.edited_arguments:
        reason = "the edited arguments hold a secret, which is never stored"
        advice = "leave it out: a tool is given secrets by what it declares"
        raise AnswerRefusedError(event.request_id or "", reason, advice)


def args_hash(arguments: Blocks) -> str:
    """SHA-256, in hex, over the RFC 8785 form of arguments.

    It is over their bytes as they are where they do not parse, or hold what that form
    cannot.
    """
    text = text_of(arguments)
    try:
        data = rfc8785.dumps(json.loads(text))
    except (ValueError, RecursionError):
        data = text.encode("utf-8", "replace")
    return hashlib.sha256(data).hexdigest()


def _checked(event: KnownEvent) -> KnownEvent:
    """1. Only what the models know is written; an UnknownEvent is only ever read."""
    if not isinstance(cast("object", event), Record):
        raise EncodeError(type_of(event), "it is of no type that foldline writes")
    return event


def _cleaned(event: KnownEvent) -> KnownEvent:
    """2. Lone surrogates out, before a rule or a hash sees them."""
    return cast("KnownEvent", clean_record(event)) if _has_surrogates(event) else event


def _has_surrogates(value: object) -> bool:
    if value is None or isinstance(value, (int, float, bytes)):
        return False
    if isinstance(value, str):
        return not value.isascii() and clean_text(value)[0] != value
    if isinstance(value, tuple):
        return any(_has_surrogates(item) for item in cast("tuple[object, ...]", value))
    if isinstance(value, Record):
        return any(_has_surrogates(item) for item in value.__dict__.values())
    return False


def _each_block(event: KnownEvent, change: Callable[[Block], Block]) -> KnownEvent:
    """The event with every block changed, wherever it stands."""
    return cast("KnownEvent", _mapped(event, Block, change))


def _each_declaration(event: KnownEvent, change: Callable[[Body], Body]) -> KnownEvent:
    """The event with the bodies of its tool declarations changed."""

    def both(tool: ToolDeclaration) -> ToolDeclaration:
        bodies = {
            "description": change(tool.description),
            "input_schema": change(tool.input_schema),
        }
        return tool.model_copy(update=bodies)

    return cast("KnownEvent", _mapped(event, ToolDeclaration, both))


def _mapped(value: object, kind: type, change: Callable[..., object]) -> object:
    """A record with every record of a kind in it changed; itself if nothing was."""
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, tuple):
        items = cast("tuple[object, ...]", value)
        changed = tuple(_mapped(item, kind, change) for item in items)
        same = all(new is old for new, old in zip(changed, items, strict=True))
        return items if same else changed
    if not isinstance(value, Record):
        return value
    update: dict[str, object] = {}
    for name, before in value.__dict__.items():
        if isinstance(before, (tuple, Record)):
            old = cast("object", before)
            new = _mapped(old, kind, change)
            if new is not old:
                update[name] = new
    return value.model_copy(update=update) if update else value


def _lift_media(block: Block, media: dict[bytes, bytes]) -> Block:
    """3. A data URL of an image or file becomes a Blob over its decoded bytes.

    Bytes that are text are opened first: a secret in them is one like any other.
    """
    body = block.body
    if block.kind not in _MEDIA_KINDS or not isinstance(body, str):
        return block
    head, comma, encoded = body.partition(",")
    if not comma or not head.startswith("data:") or not head.endswith(";base64"):
        return block
    try:
        data = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return block  # no base64 after all: kept as the text that it is
    media_type = block.media_type or head[len("data:") : -len(";base64")]
    text = _text_in(data)
    if text is not None:
        opened = {"body": text, "media_type": _OPENED + media_type}
        return block.model_copy(update=opened)
    blob = _blob_of(data, media_type, media)
    return block.model_copy(update={"body": blob, "media_type": media_type})


def _text_in(data: bytes) -> str | None:
    """The text that bytes are; None for what is binary."""
    try:
        return None if b"\0" in data else data.decode()
    except UnicodeDecodeError:
        return None


def _closed(block: Block, media: dict[bytes, bytes]) -> Block:
    """6. An opened medium becomes a Blob, of what the rules left of its text."""
    media_type = (block.media_type or "").removeprefix(_OPENED)
    if media_type == (block.media_type or "") or not isinstance(block.body, str):
        return block
    blob = _blob_of(block.body.encode(), media_type, media)
    return block.model_copy(update={"body": blob, "media_type": media_type})


def _blob_of(data: bytes, media_type: str, media: dict[bytes, bytes]) -> Blob:
    sha256 = hashlib.sha256(data).digest()
    media[sha256] = data
    return Blob(sha256=sha256, size=len(data), media_type=media_type)


def _hashed(event: KnownEvent) -> KnownEvent:
    """5. The hash of arguments as stored; one that the writer gave is kept."""
    match event:
        case ToolCallRequested(args_hash=""):
            return event.model_copy(update={"args_hash": args_hash(event.arguments)})
        case PermissionGranted(edited_args_hash=None) if event.edited_arguments:
            edited = args_hash(event.edited_arguments)
            return event.model_copy(update={"edited_args_hash": edited})
        case _:
            return event


def _redaction(target: Envelope, counts: Mapping[str, int]) -> Prepared:
    rules = tuple(
        RuleCount(rule=rule, count=count) for rule, count in sorted(counts.items())
    )
    event = RedactionApplied(target_event_id=target.event_id, rules=rules)
    # A resent target brings its redaction again: under the same id.
    event_id = derived_id("redaction", target.session_id, target.event_id)
    envelope = target.model_copy(update={"event_id": event_id})
    return Prepared(envelope, event, encode_content(event), None, (target.event_id,))


Said = str | Block | Sequence[Block]


def blocks_of(said: Said) -> Blocks:
    """What somebody said, as blocks."""
    if isinstance(said, str):
        return (Block(kind="text", body=said),)
    return (said,) if isinstance(said, Block) else tuple(said)
