"""The lines of a log of JSON lines, format version 1: made, and told from damaged ones.

1. The first line is the header: format, versions, and the marker, which is rewritten
   in place: how far the file is synced. Nobody reads beyond it.
2. A schema line comes before the first event that was written with the schema.
3. An event line holds the Avro body as base64: that is what is read. `view` is for the
   eye. `index`, on a session's last line of a batch, is what a listing shows.

`crc32` is of all that follows it in its line. `left` says how many lines of the same
batch follow: a batch without all of its lines was never recorded. A line has exactly
one spelling; one that an editor wrote anew is damaged.
"""

import base64
import binascii
import json
import re
import zlib
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

from foldline.schemas.blocks import Block
from foldline.schemas.events import UnknownEvent
from foldline.schemas.recorded import Recorded
from foldline.schemas.registry import StoredSchema

FORMAT_VERSION = 1
"""The version of the lines, in the header."""

LINE_MAX_BYTES = 4_000_000
"""The longest line: an event as base64 and its view fit twice."""

VIEW_CHARS = 400
"""What is shown of a text in a view."""

VIEW_FIELDS = 32
"""How many fields of an event a view shows."""

_MARKER = b'{"marker":"'
MARKER_AT = len(_MARKER)
MARKER_BYTES = 32
_CRC = re.compile(rb'\{"crc32":"([0-9a-f]{8})",')
_TEXT = rb'"((?:[^"\\]|\\.)*)"'
_SESSION = re.compile(rb'"session":' + _TEXT + rb',"seq":(\d{1,10}),')
_EVENT = re.compile(
    rb'"left":(\d{1,5}),"session":' + _TEXT + rb',"seq":(\d{1,10}),"schema":(\d{1,9}),'
    rb'"sha256":"([0-9a-f]{64})",'
)
_AVRO = b'"avro":"'
_INDEX = b'"index":'


class Marker(NamedTuple):
    """How far the file is synced, and how often acknowledged bytes of it were lost."""

    durable: int
    cuts: int


class EventLine(NamedTuple):
    """An event's line, its body still in base64, its `index` still JSON (or empty)."""

    left: int
    session_id: str
    seq: int
    schema_id: int
    sha256: bytes
    listing: bytes
    avro: bytes

    @property
    def body(self) -> bytes:
        """The Avro body; ValueError where it is no base64."""
        return base64.b64decode(self.avro, validate=True)


class SchemaLine(NamedTuple):
    """A schema's line."""

    left: int
    row: StoredSchema


class BadLine(NamedTuple):
    """A line that is none of this log's, why, and of which event it seems to be."""

    reason: str
    session_id: str = ""
    seq: int = 0


# --- making ------------------------------------------------------------------------------


def encode_marker(marker: Marker) -> bytes:
    """A marker in its 32 bytes, the last eight of which are a checksum."""
    text = f"{marker.durable:016x}{marker.cuts:08x}".encode()
    return text + f"{zlib.crc32(text):08x}".encode()


def header_line(fields: dict[str, Any]) -> bytes:
    """The first line of a new log; its marker is at the line's own end."""
    rest = _json({"foldline": "jsonl", "format": FORMAT_VERSION} | fields)[1:]
    size = MARKER_AT + MARKER_BYTES + len('",') + len(rest) + 1
    return _MARKER + encode_marker(Marker(size, 0)) + b'",' + rest + b"\n"


def event_line(line: EventLine, view: dict[str, Any]) -> bytes:
    """An event's line, with its end."""
    index = _INDEX + line.listing + b"," if line.listing else b""
    return _closed(
        f'"left":{line.left},"session":'.encode()
        + _json(line.session_id)
        + f',"seq":{line.seq},"schema":{line.schema_id},'.encode()
        + f'"sha256":"{line.sha256.hex()}",'.encode()
        + index
        + _AVRO
        + line.avro
        + b'","view":'
        + _json(view)
        + b"}"
    )


def schema_line(line: SchemaLine) -> bytes:
    """A schema's line, with its end."""
    row = line.row
    fields = {
        "left": line.left,
        "schema_id": row.schema_id,
        "name": row.name,
        "version": row.version,
        "sha256": row.fingerprint.hex(),
        "text": row.text,
    }
    return _closed(_json(fields)[1:])


def _closed(content: bytes) -> bytes:
    return f'{{"crc32":"{zlib.crc32(content):08x}",'.encode() + content + b"\n"


def _json(value: object) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode(errors="replace")


def index_json(fields: dict[str, Any]) -> bytes:
    """What a listing shows of a session, in a way that keeps every text as it is."""
    return json.dumps(fields, separators=(",", ":")).encode()


def view_of(recorded: Recorded) -> dict[str, Any]:
    """What a person sees of an event; nothing is read from it."""
    envelope, event = recorded.envelope, recorded.event
    own = event.fields if isinstance(event, UnknownEvent) else event.__dict__
    at = datetime.fromtimestamp(envelope.recorded_at / 1_000_000, tz=UTC)
    view = {"type": recorded.type, "at": at.isoformat(), "writer": envelope.writer}
    for name, value in list(own.items())[:VIEW_FIELDS]:
        shown = _shown(value)
        if shown:
            view[name] = shown
    return view


def _shown(value: Any) -> Any:
    """A number, a text cut short, or the texts of blocks; None for all else."""
    if isinstance(value, str):
        return value if len(value) <= VIEW_CHARS else f"{value[:VIEW_CHARS]}..."
    if isinstance(value, int):
        return value
    if isinstance(value, tuple):
        blocks = (item for item in cast("tuple[Any, ...]", value) if type(item) is Block)
        texts = [block.body for block in blocks if isinstance(block.body, str)]
        return _shown("\n".join(texts))
    return None


# --- reading -----------------------------------------------------------------------------


def decode_marker(data: bytes) -> Marker | None:
    """A marker from its bytes; None for a torn or damaged one."""
    try:
        marker = Marker(int(data[:16], 16), int(data[16:24], 16))
    except ValueError:
        return None
    return marker if encode_marker(marker) == data else None


def parse_line(data: bytes) -> EventLine | SchemaLine | BadLine:
    """What a line, without its end, holds."""
    found = _CRC.match(data)
    if found is None:
        return _bad(data, "it is no line of a log")
    if zlib.crc32(data[found.end() :]) != int(found[1], 16):
        return _bad(data, "its bytes do not match their crc32")
    try:
        event = _EVENT.match(data, found.end())
        return _schema(data) if event is None else _event(data, event)
    except (ValueError, LookupError, TypeError) as error:
        return _bad(data, f"nothing that this version knows: {error!r}")


def _event(data: bytes, found: re.Match[bytes]) -> EventLine:
    left, session, seq, schema_id, sha256 = found.groups()
    avro_at = data.index(_AVRO, found.end())
    start = avro_at + len(_AVRO)
    return EventLine(
        int(left),
        _text(session),
        int(seq),
        int(schema_id),
        bytes.fromhex(sha256.decode()),
        data[found.end() : avro_at].removeprefix(_INDEX).rstrip(b","),
        data[start : data.index(b'"', start)],
    )


def _schema(data: bytes) -> SchemaLine:
    fields = json.loads(data)
    texts = (fields["name"], fields["text"])
    numbers = (fields["left"], fields["schema_id"], fields["version"])
    if not all(isinstance(text, str) for text in texts):
        raise TypeError(texts)
    if not all(isinstance(number, int) for number in numbers):
        raise TypeError(numbers)
    fingerprint = bytes.fromhex(fields["sha256"])
    name, text = texts
    left, schema_id, version = numbers
    return SchemaLine(left, StoredSchema(schema_id, name, version, fingerprint, text))


def _bad(data: bytes, reason: str) -> BadLine:
    """A damaged line may still say whose it is: then that session's head is not known."""
    found = _SESSION.search(data)
    if found is None:
        return BadLine(reason)
    try:
        return BadLine(reason, _text(found[1]), int(found[2]))
    except ValueError:
        return BadLine(reason)


def _text(raw: bytes) -> str:
    text = raw.decode()
    return cast("str", json.loads(f'"{text}"')) if "\\" in text else text


def body_of(line: EventLine | SchemaLine | BadLine) -> bytes | None:
    """The Avro body of an event's line; None where it holds none."""
    if not isinstance(line, EventLine):
        return None
    try:
        return line.body
    except binascii.Error:
        return None
