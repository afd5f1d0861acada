"""Appends in bulk, as a client writes them, for a worker to consume.

One session is made event by event through a log in memory, which says that every append
is legal; what came out of `encode_append`, values and headers, then serves for all
sessions: their ids have the same length, so one is put in the other's place.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from broker import Filled
from workload import Script, Sizes, Step, Writer

from foldline.processors.kafka_records import encode_append
from foldline.processors.open_log import open_log
from foldline.schemas.events import type_of
from foldline.schemas.recorded import Append
from foldline.schemas.registry_client import RegistryClient
from foldline.schemas.verdicts import ACCEPTED
from foldline.topics import partition_for

SIZES = Sizes(user=300, assistant=380, arguments=200, output=640)
"""So much is said that events have about 500 bytes on average, envelope included."""

PLACE = b"5e551017"
"""Stands in every id for the session's number, in eight hexadecimal digits."""

SESSION_ID = "01980000-0000-7000-8000-0000{place}"
EVENT_ID = "01980000-0000-7000-{step:04x}-0000{place}"
REPLY_TO = "01980000-0000-7000-9000-0000{place}"
WRITER = "01980000-0000-7000-a000-0000{place}"


@dataclass(frozen=True, slots=True)
class Load:
    """The records of one session in order, to be repeated for others."""

    records: list[tuple[bytes, list[tuple[str, bytes]]]]
    body_bytes: int
    """The mean size of their bodies, without the frame."""


def _steps() -> Iterator[Step]:
    """A session without end: created, then turns of three calls."""
    script = Script(SIZES, permission_every=None)
    yield script.opening()[0]
    while True:
        yield from script.turn()


def make_load(registry: RegistryClient, *, events_per_session: int) -> Load:
    """So many appends of one session, encoded as its client would."""
    place = PLACE.decode()
    log = open_log("memory:")
    writer = Writer(log, SESSION_ID.format(place=place))
    records: list[tuple[bytes, list[tuple[str, bytes]]]] = []
    for number, step in enumerate(itertools.islice(_steps(), events_per_session)):
        append = _named(writer.prepared(step), number)
        (verdict,) = log.append([append])
        assert verdict.kind == ACCEPTED, verdict
        writer.seq = verdict.seq
        schema_id = registry.id_of(type_of(append.event), version=append.schema_version)
        reply_to = REPLY_TO.format(place=place)
        records.append(encode_append(append, schema_id=schema_id, reply_to=reply_to))
    log.close()
    size = sum(len(value) - 5 for value, _ in records) // len(records)
    return Load(records, size)


def _named(append: Append, number: int) -> Append:
    """The append with ids that have the session's place in them."""
    place = PLACE.decode()
    writer = WRITER.format(place=place)
    envelope = append.envelope
    actor = envelope.actor
    if actor.kind == "AGENT":
        actor = actor.model_copy(update={"id": writer})
    named = envelope.model_copy(
        update={
            "event_id": EVENT_ID.format(step=0x8000 + number, place=place),
            "writer": writer,
            "actor": actor,
        }
    )
    return Append(named, append.event, append.content, known_seq=append.known_seq)


def records(load: Load, *, sessions: int, partitions: int) -> Iterator[Filled]:
    """Every session's first append, then every session's second, and so on."""
    numbers = [b"%08x" % number for number in range(sessions)]
    keys = [SESSION_ID.format(place=number.decode()) for number in numbers]
    places = [partition_for(key, partitions) for key in keys]
    ids = list(zip(numbers, (key.encode() for key in keys), places, strict=True))
    for value, headers in load.records:
        for number, key, partition in ids:
            mine = [(name, text.replace(PLACE, number)) for name, text in headers]
            yield Filled(partition, key, value.replace(PLACE, number), mine)
