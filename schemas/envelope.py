"""The envelope: the same first fields in every event, filled in two steps. Pure.

A writer fills what it knows. Admission fills `seq`, `recorded_at`, `rules_version` and
`prev_hash`. In Avro the envelope is one contiguous run of fields whose last is
`prev_hash`; a field that comes later goes before it, with a default.
"""

from typing import Annotated

from foldline.schemas.record import TIMESTAMP_MICROS, UUID, Record

RECORDED = "RECORDED"
INFERRED = "INFERRED"


class Actor(Record):
    """Who acts. `kind` is AGENT, PERSON, POLICY, SERVICE or HARNESS."""

    kind: str
    id: str


class Source(Record):
    """Where a mirrored fact was read: system, stream, position in it, hash of the record.

    `sha256` is of the raw record before redaction.
    """

    system: str
    stream: str
    position: str
    sha256: bytes


class Envelope(Record):
    """What every event carries beside its own fields.

    `event_id` is a UUID in lower case (v7, or v8 derived from the source for mirrored
    facts). `occurred_at` and `recorded_at` are microseconds since 1970 UTC: the writer's
    clock, and log time. `seq` and `recorded_at` are 0 until admitted. `epoch` is 0 for
    writers that do not own the session. `prev_hash` is the SHA-256 of the previous
    event's Avro body.
    """

    event_id: Annotated[str, UUID]
    session_id: str
    tenant: str = "default"
    seq: int = 0
    schema_version: int = 1
    occurred_at: Annotated[int | None, TIMESTAMP_MICROS] = None
    recorded_at: Annotated[int, TIMESTAMP_MICROS] = 0
    writer: str
    epoch: int = 0
    actor: Actor
    turn_id: str | None = None
    branch: str | None = None
    parent_event_id: str | None = None
    correlation_id: str | None = None
    batch_id: str | None = None
    traceparent: str | None = None
    certainty: str = RECORDED
    source: Source | None = None
    rules_version: int = 0
    prev_hash: bytes | None = None
