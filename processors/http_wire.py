"""What the read service and foldline's own client say to each other, in bytes.

People and other languages speak JSON with the same routes; these forms are for whoever
decodes Avro anyway:

| media type | what it is |
| --- | --- |
| `EVENTS` | frames one behind the other: seq, schema id, length, Avro body |
| `SNAPSHOTS` | the same of snapshots: seq, length of the digest, length, digest, body |
| `STATE` | the Avro body of a Snapshot record |
| `APPENDS`, `VERDICTS`, `INDEX`, `SOURCES` | MessagePack of the structures here |

A schema is named by the SHA-256 of its text: ids differ between logs.
"""

import re
import struct
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from foldline.errors import DecodeError
from foldline.processors.log import ListPlace
from foldline.processors.stored import StoredEvent, StoredSession, StoredSnapshot
from foldline.schemas.verdicts import Verdict

API = "/foldline/v1"

EVENTS = "application/vnd.foldline.events"
SNAPSHOTS = "application/vnd.foldline.snapshots"
STATE = "application/vnd.foldline.state"
APPENDS = "application/vnd.foldline.appends+msgpack"
VERDICTS = "application/vnd.foldline.verdicts+msgpack"
INDEX = "application/vnd.foldline.index+msgpack"
SOURCES = "application/vnd.foldline.sources+msgpack"
BYTES = "application/octet-stream"

MORE = "foldline-more"
NEXT = "foldline-next-after-seq"
"""The header of a page behind which there is more."""

APPENDS_MAX = 500
"""How many appends one request takes."""

INT64_MAX = 2**63 - 1

_EVENT = struct.Struct(">qII")
_SNAPSHOT = struct.Struct(">qII")
_PLAIN_ID = re.compile(r"[A-Za-z0-9._:-]{1,256}")
_CODED = "~"


class WireAppend(msgspec.Struct):
    """One append: the Avro of envelope and content, and how it is to be admitted.

    `fingerprint` is the SHA-256 of the published schema that `content` follows.
    """

    fingerprint: bytes
    envelope: bytes
    content: bytes
    known_seq: int
    expected_seq: int | None = None
    requires: tuple[str, ...] = ()


class WireSources(msgspec.Struct):
    """What the next context of a session is built from; its events as frames.

    `set_up` are the events that hold what was in force at `base_seq`, and `base` is the
    state there (a Snapshot), where a fork's creation is among them. `events` are those
    behind it, as far as one answer goes: less than `upto_seq` means that the others are
    to be read. `texts` are the bytes of blobs, those that fit.
    """

    base_seq: int
    upto_seq: int
    set_up: bytes = b""
    base: bytes = b""
    events: bytes = b""
    texts: tuple[bytes, ...] = ()


_appends = msgspec.msgpack.Decoder(list[WireAppend])
_verdicts = msgspec.msgpack.Decoder(list[dict[str, Any]])
_index = msgspec.msgpack.Decoder(list[StoredSession])
_sources = msgspec.msgpack.Decoder(WireSources)


def list_cursor(place: ListPlace) -> str:
    """A place in a listing as whoever pages through it gives it back."""
    return urlsafe_b64encode(f"{place[0]} {place[1]}".encode()).decode()


def of_list_cursor(cursor: str) -> ListPlace:
    """The place that a cursor stands for.

    Raises:
        DecodeError: it is none of `list_cursor`.
    """
    try:
        text = b64decode(cursor, altchars=b"-_", validate=True).decode()
        time, _, session_id = text.partition(" ")
        place = int(time), session_id
    except ValueError as error:
        raise DecodeError("no cursor of this service") from error
    if not -INT64_MAX <= place[0] <= INT64_MAX:
        raise DecodeError("no cursor of this service")
    return place


def path_part(name: str) -> str:
    """An id as one part of a path: itself, or `~` and base64url of its UTF-8."""
    if _PLAIN_ID.fullmatch(name) and name.strip("."):
        return name
    coded = urlsafe_b64encode(name.encode("utf-8", "surrogatepass")).decode()
    return _CODED + coded.rstrip("=")


def of_path_part(part: str) -> str:
    """The id that a part of a path stands for.

    Raises:
        DecodeError: `~` and what is no base64url of UTF-8.
    """
    if not part.startswith(_CODED):
        return part
    coded = part.removeprefix(_CODED)
    try:
        padded = coded + "=" * (-len(coded) % 4)
        data = b64decode(padded, altchars=b"-_", validate=True)
        return data.decode("utf-8", "surrogatepass")
    except ValueError as error:
        raise DecodeError("no base64url of UTF-8 behind ~") from error


def pack_events(events: Iterable[StoredEvent]) -> bytes:
    """Events as frames."""
    parts: list[bytes] = []
    for event in events:
        parts.append(_EVENT.pack(event.seq, event.schema_id, len(event.body)))
        parts.append(event.body)
    return b"".join(parts)


def unpack_events(data: bytes) -> Iterator[StoredEvent]:
    """The events of frames.

    Raises:
        DecodeError: the frames are cut.
    """
    at = 0
    while at < len(data):
        (seq, schema_id, length), at = _head(_EVENT, data, at)
        yield StoredEvent(seq, schema_id, _taken(data, at, length))
        at += length


def pack_snapshots(snapshots: Iterable[StoredSnapshot]) -> bytes:
    """Snapshots as frames."""
    parts: list[bytes] = []
    for kept in snapshots:
        parts.append(_SNAPSHOT.pack(kept.seq, len(kept.digest), len(kept.body)))
        parts.extend((kept.digest, kept.body))
    return b"".join(parts)


def unpack_snapshots(data: bytes) -> Iterator[StoredSnapshot]:
    """The snapshots of frames.

    Raises:
        DecodeError: the frames are cut.
    """
    at = 0
    while at < len(data):
        (seq, digest, length), at = _head(_SNAPSHOT, data, at)
        body = _taken(data, at + digest, length)
        yield StoredSnapshot(seq, body, _taken(data, at, digest))
        at += digest + length


def _head(form: struct.Struct, data: bytes, at: int) -> tuple[tuple[int, int, int], int]:
    try:
        first, second, third = form.unpack_from(data, at)
    except struct.error as error:
        raise DecodeError("a frame is cut") from error
    return (first, second, third), at + form.size


def _taken(data: bytes, at: int, length: int) -> bytes:
    taken = data[at : at + length]
    if len(taken) != length:
        raise DecodeError("a frame is cut")
    return taken


def pack_appends(appends: Sequence[WireAppend]) -> bytes:
    """Appends as the body of a request."""
    return msgspec.msgpack.encode(appends)


def unpack_appends(data: bytes) -> list[WireAppend]:
    """The appends of a request.

    Raises:
        DecodeError: no MessagePack of appends.
    """
    try:
        return _appends.decode(data)
    except (msgspec.DecodeError, ValueError) as error:
        raise DecodeError(f"no appends: {error}") from error


def pack_verdicts(verdicts: Sequence[Verdict]) -> bytes:
    """Verdicts as the body of an answer."""
    return msgspec.msgpack.encode([verdict.__dict__ for verdict in verdicts])


def unpack_verdicts(data: bytes) -> list[Verdict]:
    """The verdicts of an answer; what a newer service says besides is left out.

    Raises:
        DecodeError: no MessagePack of verdicts.
    """
    try:
        return [
            Verdict.model_validate(fields, extra="ignore")
            for fields in _verdicts.decode(data)
        ]
    except (msgspec.DecodeError, ValueError) as error:
        raise DecodeError(f"no verdicts: {error}") from error


def pack_index(rows: Iterable[StoredSession]) -> bytes:
    """Rows of the index as the body of an answer."""
    return msgspec.msgpack.encode(list(rows))


def unpack_index(data: bytes) -> list[StoredSession]:
    """The rows of an answer.

    Raises:
        DecodeError: no MessagePack of rows.
    """
    try:
        return _index.decode(data)
    except (msgspec.DecodeError, ValueError) as error:
        raise DecodeError(f"no index: {error}") from error


def pack_sources(sources: WireSources) -> bytes:
    """Sources as the body of an answer."""
    return msgspec.msgpack.encode(sources)


def unpack_sources(data: bytes) -> WireSources:
    """The sources of an answer.

    Raises:
        DecodeError: no MessagePack of sources.
    """
    try:
        return _sources.decode(data)
    except (msgspec.DecodeError, ValueError) as error:
        raise DecodeError(f"no sources: {error}") from error
