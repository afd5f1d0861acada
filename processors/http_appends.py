"""Appends on their way through the service: as bytes, and back.

The client names the schema of an event's content by its fingerprint. The service knows
every schema that this foldline ever published, so an older client is understood: what
it wrote is written anew in the newest version, whose further fields have defaults. A
newer client is told to wait: services are upgraded before clients, as workers are.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from foldline.errors import DecodeError
from foldline.processors.admission import MAX_CONTENT_BYTES
from foldline.processors.http_wire import INT64_MAX, WireAppend
from foldline.schemas.avsc import without_docs
from foldline.schemas.codec import (
    Codec,
    decode_envelope,
    encode_content,
    encode_envelope,
)
from foldline.schemas.envelope import Envelope
from foldline.schemas.events import EVENT_TYPES, UnknownEvent, type_of
from foldline.schemas.frozen import FOLDER, load, path_of, versions_of
from foldline.schemas.recorded import Append
from foldline.schemas.registry import (
    LocalRegistry,
    SchemaTable,
    fingerprint_of,
    published_text,
)
from foldline.schemas.verdicts import TOO_LARGE, UNDECODABLE, Verdict

NO_FINGERPRINT = b""
"""Said of a schema that the client itself does not know."""


@dataclass(frozen=True, slots=True)
class _Schemas:
    """Every schema ever published, by fingerprint; `newest` are today's."""

    codec: Codec
    ids: dict[bytes, int]
    newest: frozenset[bytes]


@cache
def _schemas() -> _Schemas:
    table = SchemaTable()
    ids: dict[bytes, int] = {}
    for name in EVENT_TYPES:
        for version in versions_of(FOLDER, name):
            schema = without_docs(load(path_of(FOLDER, name, version)))
            text = json.dumps(schema, separators=(",", ":"))
            fingerprint = fingerprint_of(text)
            ids[fingerprint] = table.add(name, version, fingerprint, text)
        text = published_text(name)
        fingerprint = fingerprint_of(text)
        ids[fingerprint] = table.add(name, 1, fingerprint, text)
    newest = frozenset(fingerprint_of(published_text(name)) for name in EVENT_TYPES)
    return _Schemas(Codec(LocalRegistry(table)), ids, newest)


@cache
def _fingerprint_of(name: str) -> bytes:
    if name not in EVENT_TYPES:
        return NO_FINGERPRINT
    return fingerprint_of(published_text(name))


def wired(append: Append) -> WireAppend:
    """An append as it is sent to the service.

    Raises:
        EncodeError: an envelope that Avro cannot hold.
    """
    name = append.schema_name or type_of(append.event)
    expected = append.expected_seq
    return WireAppend(
        fingerprint=_fingerprint_of(name),
        envelope=encode_envelope(append.envelope),
        content=append.content,
        known_seq=_in_64_bits(append.known_seq),
        expected_seq=None if expected is None else _in_64_bits(expected),
        requires=append.requires,
    )


def _in_64_bits(number: int) -> int:
    """A seq that no session has is answered the same, however far beyond it is."""
    return max(-1, min(number, INT64_MAX))


def appended(
    wire: WireAppend, *, stamp: Callable[[Envelope], Envelope]
) -> Append | Verdict:
    """An append that was sent, or the verdict of one that is none.

    Args:
        wire: what was sent.
        stamp: gives the envelope what the service knows better than the client.
    """
    schemas = _schemas()
    try:
        envelope = decode_envelope(wire.envelope)
    except DecodeError as error:
        return Verdict(kind=UNDECODABLE, session_id="", event_id="", detail=error.reason)
    if len(wire.content) > MAX_CONTENT_BYTES:
        detail = f"{len(wire.content)} bytes, MAX_CONTENT_BYTES is {MAX_CONTENT_BYTES}"
        return _refused(envelope, TOO_LARGE, detail)
    schema_id = schemas.ids.get(wire.fingerprint)
    if schema_id is None:
        detail = "a schema that this service does not know: upgrade it first"
        return _refused(envelope, UNDECODABLE, detail)
    try:
        event = schemas.codec.decode(schema_id, wire.envelope + wire.content).event
    except DecodeError as error:
        return _refused(envelope, UNDECODABLE, error.reason)
    if isinstance(event, UnknownEvent):
        return _refused(envelope, UNDECODABLE, f"no event type {event.type}")
    newest = wire.fingerprint in schemas.newest
    return Append(
        stamp(envelope),
        event,
        wire.content if newest else encode_content(event),
        known_seq=wire.known_seq,
        expected_seq=wire.expected_seq,
        requires=wire.requires,
    )


def _refused(envelope: Envelope, kind: str, detail: str) -> Verdict:
    return Verdict(
        kind=kind,
        session_id=envelope.session_id,
        event_id=envelope.event_id,
        detail=detail,
    )
