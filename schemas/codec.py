"""The codec: events to Avro bytes and back, at one choke point.

On write, an event's own fields are encoded once, by its author; admission encodes the
envelope and puts it in front: Avro concatenates fields, so the two runs are the record.
On read there are two depths: `decode` gives whole validated models, `decode_structure`
stops before the content and validates nothing, which is what a fold needs.

Frames are Confluent's: byte 0, four bytes of schema id (big-endian), the Avro body.
"""

import contextlib
import struct
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, cast

from pydantic import ValidationError

from foldline.errors import DecodeError, NewerFormatError, SchemaError
from foldline.schemas.avro_io import Schema, parsed, read, write
from foldline.schemas.avsc import NAMESPACE, event_schema
from foldline.schemas.blocks import Blob, Block, Sealed, clean_text
from foldline.schemas.envelope import Envelope
from foldline.schemas.events import (
    EVENT_TYPES,
    AnyEvent,
    KnownEvent,
    RequestRef,
    UnknownEvent,
)
from foldline.schemas.intake import Intake, Like, Spans, read_whole
from foldline.schemas.readers import (
    Reader,
    as_record,
    make_intake,
    make_reader,
    plain,
    split,
)
from foldline.schemas.record import Record
from foldline.schemas.recorded import Recorded
from foldline.schemas.upcasters import MAX_CHAIN, UPCASTERS, Upcaster

MAX_EVENT_BYTES = 1_000_000
"""The largest event: below Kafka's default of 1 MiB by a margin for headers."""

FRAME_BYTES = 5
"""The size of a frame's prefix."""

READERS_KEPT = 256
"""How many readers of schemas a process keeps, whatever logs it has open."""

MAGIC = 0
_ID_BYTES = 36
_ID_PREFIX = bytes([_ID_BYTES << 1])
ID_START_BYTES = 1 + _ID_BYTES
"""Up to where a body says its event id: the envelope's first field."""

_FRAME = struct.Struct(">bI")
_TAGGED = (Sealed, Blob, RequestRef)


class SchemaSource(Protocol):
    """Where a codec finds the writer's schema of an id (a registry, or a log)."""

    def schema_of(self, schema_id: int) -> str:
        """The schema as JSON text; KeyError where the id is unknown."""
        ...


def frame(schema_id: int, body: bytes) -> bytes:
    """Put Confluent's prefix before an Avro body."""
    return _FRAME.pack(MAGIC, schema_id) + body


def unframe(data: bytes, *, max_bytes: int = MAX_EVENT_BYTES) -> tuple[int, bytes]:
    """Split a frame into schema id and body.

    Args:
        data: the frame.
        max_bytes: how large the body may be.

    Raises:
        DecodeError: too short, too large, or of another magic byte.
    """
    if len(data) < _FRAME.size:
        raise DecodeError(f"{len(data)} bytes are shorter than a frame")
    if len(data) > max_bytes + _FRAME.size:
        limit = "MAX_EVENT_BYTES" if max_bytes == MAX_EVENT_BYTES else max_bytes
        raise DecodeError(f"{len(data)} bytes, more than {limit}")
    magic, schema_id = _FRAME.unpack_from(data)
    if magic != MAGIC:
        raise DecodeError(f"magic byte {magic}, expected {MAGIC}")
    return schema_id, data[_FRAME.size :]


def event_id_of(start: bytes) -> str:
    """The event id that a body begins with, read off undecoded.

    Args:
        start: the body, or its first ID_START_BYTES.

    Raises:
        DecodeError: it begins otherwise, or is shorter.
    """
    if start[:1] != _ID_PREFIX or len(start) < ID_START_BYTES:
        raise DecodeError("it has no event id")
    return start[1:ID_START_BYTES].decode("ascii", "replace")


# --- writing -------------------------------------------------------------------------


_PLAIN = frozenset({str, int, bool, float, bytes, type(None)})


def _dump(value: Any) -> Any:
    """A model as what fastavro writes; union branches are named, never guessed."""
    if isinstance(value, Record):
        fields = {
            name: item if type(item) in _PLAIN else _dump(item)
            for name, item in value.__dict__.items()
        }
        if isinstance(value, _TAGGED):
            return (f"{NAMESPACE}.{type(value).__name__}", fields)
        return fields
    if isinstance(value, tuple):
        return [_dump(item) for item in cast("tuple[Any, ...]", value)]
    return value


def clean_record(record: Record) -> Record:
    """The record with U+FFFD for lone surrogates, blocks marked lossy."""
    cleaned = {name: _clean_value(item) for name, item in record.__dict__.items()}
    if isinstance(record, Block) and cleaned != dict(record.__dict__):
        cleaned["lossy"] = True
    return type(record).trusted(cleaned)


def _clean_value(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value)[0]
    if isinstance(value, tuple):
        return tuple(_clean_value(item) for item in cast("tuple[Any, ...]", value))
    return clean_record(value) if isinstance(value, Record) else value


_ENVELOPE_SCHEMA = parsed(
    as_record("Envelope_", split(plain(event_schema(EVENT_TYPES["ContextCleared"])))[0])
)
_writers: dict[type, Any] = {}


def _writer_schema(event_class: type[KnownEvent]) -> Any:
    if event_class not in _writers:
        own = split(plain(event_schema(event_class)))[1]
        _writers[event_class] = parsed(as_record(f"{event_class.__name__}_", own))
    return _writers[event_class]


def encode_content(event: KnownEvent) -> bytes:
    """The Avro of an event's own fields: what follows the envelope.

    Lone surrogates become U+FFFD and mark their block lossy.

    Raises:
        EncodeError: a value that Avro cannot hold.
    """
    return write_record(_writer_schema(type(event)), event)


def encode_envelope(envelope: Envelope) -> bytes:
    """The Avro of an envelope."""
    return write_record(_ENVELOPE_SCHEMA, envelope)


def decode_envelope(data: bytes) -> Envelope:
    """The envelope of its Avro, as today's writers write it.

    Raises:
        DecodeError: no envelope, or more than one.
    """
    fields = read(_ENVELOPE_SCHEMA, data)
    try:
        return Envelope.model_validate(fields)
    except ValidationError as error:
        raise DecodeError(f"envelope: {error}") from error


def write_record(schema: Schema, record: Record) -> bytes:
    """A record as Avro bytes; lone surrogates become U+FFFD and mark their block lossy.

    Args:
        schema: that of its class, parsed, without logical types.
        record: the record.

    Raises:
        EncodeError: a value that Avro cannot hold.
    """
    what = type(record).__name__
    try:
        return write(schema, _dump(record), what=what)
    except UnicodeEncodeError:
        return write(schema, _dump(clean_record(record)), what=what)


# --- reading -------------------------------------------------------------------------


class Taken(NamedTuple):
    """An append as it came in: what is known of it, and how its envelope is filled.

    Its content begins at the last of `spans`.
    """

    envelope: Envelope
    event: AnyEvent
    spans: Spans
    intake: Intake
    like: Like


@lru_cache(maxsize=READERS_KEPT)
def reader_of(text: str) -> Reader:
    """How what was written with a schema is read today; the same for every log.

    Some milliseconds of work the first time: whoever forks processes does it before.

    Raises:
        SchemaError: see `make_reader`.
    """
    return make_reader(text, UPCASTERS)


class Codec:
    """Decodes the events of one log, with the writers' schemas found by id."""

    def __init__(
        self,
        schemas: SchemaSource,
        *,
        upcasters: Mapping[str, Upcaster] = UPCASTERS,
    ) -> None:
        self.schemas = schemas
        self._upcasters = upcasters
        self._readers: dict[int, Reader] = {}
        self._intakes: dict[int, tuple[Reader, Intake]] = {}

    def warm_up(self, schema_ids: Iterable[int]) -> None:
        """Work out now how to read these schemas, some milliseconds for each.

        One that cannot be read is left to whoever meets an event of it.
        """
        for schema_id in schema_ids:
            with contextlib.suppress(DecodeError):
                self._reader(schema_id)

    def schema_of(self, schema_id: int) -> str:
        """The schema that events of an id were written with; KeyError for none."""
        return self.schemas.schema_of(schema_id)

    def decode(self, schema_id: int, body: bytes) -> Recorded:
        """A whole event, validated; a type not known here becomes UnknownEvent.

        Raises:
            DecodeError: junk, truncated, trailing bytes, unknown schema id.
        """
        reader = self._reader(schema_id)
        fields = self._read(reader.whole, body)
        own = cast("dict[str, Any]", fields["own"])
        try:
            envelope = Envelope.model_validate(fields["envelope"], extra="ignore")
            event = self._event(reader, own)
        except ValidationError as error:
            raise DecodeError(f"{reader.name}: {error}") from error
        return Recorded(envelope, event, body, schema_id)

    def decode_structure(self, schema_id: int, body: bytes) -> Recorded:
        """An event without its content, for folding; nothing is validated again.

        Raises:
            DecodeError: junk, truncated, unknown schema id.
            NewerFormatError: a newer version of a known type, without an upcaster.
        """
        reader = self._readers.get(schema_id) or self._reader(schema_id)
        if reader.model is None:
            return self._unmodelled(reader, schema_id, body)
        if len(body) > MAX_EVENT_BYTES:
            raise too_large(body)
        try:
            fields, own = reader.front(body)
        except (IndexError, UnicodeDecodeError, struct.error) as error:
            raise DecodeError(repr(error)) from error
        except (LookupError, TypeError, AttributeError) as error:
            # A schema that calls itself one of ours and has another envelope.
            raise DecodeError(f"{reader.name}: a foreign schema: {error!r}") from error
        for name in reader.extra:
            del own[name]
        envelope = Envelope.trusted(fields)
        return Recorded(envelope, reader.model.trusted(own), body, schema_id, False)  # noqa: FBT003

    def take(self, schema_id: int, body: bytes, like: Like | None = None) -> Taken:
        """An append that comes from outside: checked whole, its content not built.

        Args:
            schema_id: of its writer's schema.
            body: without the frame.
            like: that of another `Taken` which this one may be like.

        Raises:
            DecodeError: junk, truncated, trailing bytes, unknown schema id.
            NewerFormatError: a newer version of a known type, without an upcaster.
        """
        reader, intake = self._intakes.get(schema_id) or self._intake(schema_id)
        if len(body) > MAX_EVENT_BYTES:
            raise too_large(body)
        fields, own, spans, like = read_whole(intake, body, like)
        if reader.model is None:
            event = self._unmodelled(reader, schema_id, body).event
        else:
            for name in reader.extra:
                del own[name]
            event = reader.model.trusted(own)
        return Taken(Envelope.trusted(fields), event, spans, intake, like)

    def _intake(self, schema_id: int) -> tuple[Reader, Intake]:
        reader = self._reader(schema_id)
        try:
            found = self._intakes[schema_id] = (reader, make_intake(reader))
        except SchemaError as error:
            raise DecodeError(f"schema {schema_id}: {error}") from error
        return found

    def _unmodelled(self, reader: Reader, schema_id: int, body: bytes) -> Recorded:
        if reader.event_type in EVENT_TYPES and reader.upcaster is None:
            raise NewerFormatError(f"event type {reader.event_type}", reader.version, 1)
        return self.decode(schema_id, body)

    def _event(self, reader: Reader, own: dict[str, Any]) -> AnyEvent:
        name, upcaster = reader.name, reader.upcaster
        for _ in range(MAX_CHAIN):
            if (model := EVENT_TYPES.get(name)) is not None:
                # A newer writer may know more fields, in nested records too.
                return model.model_validate(own, extra="ignore")
            if upcaster is None:
                return UnknownEvent(reader.event_type, own)
            name, own = upcaster(own)
            upcaster = self._upcasters.get(name)
        raise DecodeError(f"the upcasters of {reader.name} go in a circle")

    def _reader(self, schema_id: int) -> Reader:
        reader = self._readers.get(schema_id)
        if reader is None:
            try:
                text = self.schemas.schema_of(schema_id)
            except KeyError as error:
                raise DecodeError(f"unknown schema id {schema_id}") from error
            try:
                reader = self._readers[schema_id] = self._made(text)
            except SchemaError as error:
                raise DecodeError(f"schema {schema_id}: {error}") from error
        return reader

    def _made(self, text: str) -> Reader:
        if self._upcasters is UPCASTERS:
            return reader_of(text)
        return make_reader(text, self._upcasters)

    def _read(self, schema: Schema, body: bytes) -> dict[str, Any]:
        if len(body) > MAX_EVENT_BYTES:
            raise too_large(body)
        return cast("dict[str, Any]", read(schema, body))


def too_large(body: bytes) -> DecodeError:
    """The error for a body above the limit."""
    return DecodeError(f"{len(body)} bytes, more than MAX_EVENT_BYTES")
