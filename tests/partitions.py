"""A partition of the log without Kafka: topics are lists, the table is a dictionary.

    broker = Broker()
    broker.control()
    broker.send(append)
    worker = Worker(broker)
    worker.run()

`Broker` keeps `appends`, `events`, `rejected`, `verdicts` and `snapshots` as a committed
reader sees them, with gaps in the offsets where markers lie. `Worker` is the loop of a
worker around one `Partition`, which can abort, lose its memory and be restored.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from foldline.processors.fold import copy_of
from foldline.processors.kafka_records import (
    Headers,
    Incoming,
    Outgoing,
    append_offset_of,
    decode_verdict,
    encode_append,
)
from foldline.processors.partition import (
    Flush,
    Limits,
    Partition,
    Position,
    RecordIds,
    Rules,
)
from foldline.schemas.avsc import without_docs
from foldline.schemas.codec import Codec, unframe
from foldline.schemas.events import EVENT_TYPES, type_of
from foldline.schemas.frozen import modelled
from foldline.schemas.record_codec import RecordCodec, frame_record
from foldline.schemas.recorded import Append
from foldline.schemas.snapshots import decode_snapshot
from foldline.schemas.state import SessionState
from foldline.schemas.topic_records import (
    CONTROL_KEY,
    LOST_KEY,
    LOW_WATER_KEY,
    DeadLetter,
    LostSession,
    LowWater,
    RefusedAppend,
    RulesInForce,
)
from foldline.schemas.verdicts import Verdict

BEGIN_US = 1_700_000_000_000_000
CLIENT = "client"
BEGINNING = Position(0, 0, Rules())
LIMITS = Limits(cached_sessions=100, snapshot_lag_events=50)


class Registry:
    """Every record's schema under an id; what `unknown` names it does not know."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._ids: dict[str, int] = {}
        self.unknown: set[int] = set()
        for name, schema in modelled().items():
            self._ids[name] = self.add(json.dumps(without_docs(schema)))

    def add(self, text: str) -> int:
        """Take in a schema."""
        self._texts.append(text)
        return len(self._texts)

    def id_of(self, name: str) -> int:
        """The id for writing."""
        return self._ids[name]

    def schema_of(self, schema_id: int) -> str:
        """The text for reading."""
        if schema_id in self.unknown or not 0 < schema_id <= len(self._texts):
            raise KeyError(schema_id)
        return self._texts[schema_id - 1]


@dataclass
class Broker:
    """The topics of one partition."""

    index: int = 0
    partitions: int = 1
    registry: Registry = field(default_factory=Registry)
    appends: list[Incoming] = field(default_factory=list[Incoming])
    events: dict[int, Outgoing] = field(default_factory=dict[int, Outgoing])
    rejected: list[Outgoing] = field(default_factory=list[Outgoing])
    verdicts: list[Outgoing] = field(default_factory=list[Outgoing])
    snapshots: dict[bytes, bytes] = field(default_factory=dict[bytes, bytes])
    end: int = 0
    committed: int = 0

    def __post_init__(self) -> None:
        self.codec = Codec(self.registry)
        self.records = RecordCodec(self.registry)
        self.ids = RecordIds.of(self.registry.id_of)

    def put(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Headers | None = None,
        *,
        timestamp_us: int | None = None,
    ) -> int:
        """A record of `appends`; gives its offset."""
        offset = len(self.appends)
        if timestamp_us is None:
            timestamp_us = BEGIN_US + offset * 1000
        self.appends.append(Incoming(offset, timestamp_us, key, value, headers))
        return offset

    def control(self, *, rules_version: int = 1, more: Sequence[int] = ()) -> int:
        """A control record: every event type is in force, and `more` ids."""
        ids = [self.registry.id_of(name) for name in EVENT_TYPES]
        rules = RulesInForce(
            rules_version=rules_version,
            schema_ids=(*ids, *more),
            partitions=self.partitions,
        )
        value = frame_record(self.registry.id_of("RulesInForce"), rules)
        return self.put(CONTROL_KEY, value)

    def send(self, *appends: Append, timestamp_us: int | None = None) -> None:
        """Appends, as a client encodes them."""
        for append in appends:
            schema_id = self.registry.id_of(append.schema_name or type_of(append.event))
            value, headers = encode_append(append, schema_id=schema_id, reply_to=CLIENT)
            key = append.envelope.session_id.encode()
            self.put(key, value, headers, timestamp_us=timestamp_us)

    def publish(self, events: Sequence[Outgoing]) -> list[int]:
        """Events of a transaction; gives their offsets. A marker lies behind them."""
        offsets = list(range(self.end, self.end + len(events)))
        self.events.update(zip(offsets, events, strict=True))
        self.end += len(events) + bool(events)
        return offsets

    def bodies(self, session_id: str) -> list[bytes]:
        """The events of a session, without their frames."""
        key = session_id.encode()
        return [unframe(e.value)[1] for e in self.events.values() if e.key == key]

    def answers(self) -> list[Verdict]:
        """Every verdict, in order."""
        return [decode_verdict(record.value, self.records) for record in self.verdicts]

    def letters(self) -> list[DeadLetter]:
        """Every dead letter, in order."""
        return [
            self.records.unframe_record(DeadLetter, record.value)
            for record in self.rejected
            if unframe(record.value, max_bytes=2_000_000)[0] == self.ids.dead_letter
        ]

    def pointers(self) -> list[RefusedAppend]:
        """Every pointer to a refused append, in order."""
        return [
            self.records.unframe_record(RefusedAppend, record.value)
            for record in self.rejected
            if unframe(record.value, max_bytes=2_000_000)[0] == self.ids.refused_append
        ]

    def low_water(self) -> LowWater | None:
        """The newest low-water record."""
        value = self.snapshots.get(LOW_WATER_KEY)
        return self.records.unframe_record(LowWater, value) if value else None

    def snapshot_states(self) -> dict[str, SessionState]:
        """The newest published state of each session."""
        found: dict[str, SessionState] = {}
        for key, value in self.snapshots.items():
            if key != LOW_WATER_KEY and not key.startswith(LOST_KEY):
                state = decode_snapshot(unframe(value)[1])
                assert state is not None
                found[key.decode()] = state
        return found


@dataclass
class Table:
    """The table as a dictionary."""

    states: dict[str, SessionState] = field(default_factory=dict[str, SessionState])
    position: Position = BEGINNING
    dirty: dict[str, int] = field(default_factory=dict[str, int])
    gone: dict[str, LostSession] = field(default_factory=dict[str, LostSession])
    reads: int = 0

    def get(self, session_id: str) -> SessionState | None:
        """A state."""
        self.reads += 1
        state = self.states.get(session_id)
        return copy_of(state) if state else None

    def lost(self, session_id: str) -> LostSession | None:
        """What is missing of a lost session."""
        return self.gone.get(session_id)

    @property
    def lost_sessions(self) -> int:
        """How many are lost."""
        return len(self.gone)

    def write(self, flush: Flush) -> None:
        """One WriteBatch."""
        self.gone |= {lost.session_id: lost for lost in flush.lost}
        for session_id in self.gone:
            self.states.pop(session_id, None)
        self.states |= {s.session_id: copy_of(s) for s in flush.states}
        self.dirty |= flush.dirty
        for session_id in flush.clean:
            self.dirty.pop(session_id, None)
        self.position = flush.position


class Worker:
    """The loop of a worker, step by step."""

    def __init__(
        self, broker: Broker, *, limits: Limits = LIMITS, table: Table | None = None
    ) -> None:
        self.broker = broker
        self.limits = limits
        self.table = table or Table()
        self.partition = self._made()
        self.blocked = ""

    def _made(self) -> Partition:
        return Partition(
            self.broker.index,
            partitions=self.broker.partitions,
            position=self.table.position,
            table=self.table,
            codec=self.broker.codec,
            ids=self.broker.ids,
            limits=self.limits,
            dirty=self.table.dirty,
        )

    def run(self, *, batch: int = 500) -> "Worker":
        """Everything in `appends`, batch by batch."""
        self.blocked = ""
        while self.pending() and not self.blocked:
            self.step(batch)
        return self

    def pending(self) -> list[Incoming]:
        """What is not answered yet."""
        return self.broker.appends[self.partition.position.input_offset :]

    def step(self, size: int, *, cut: int | None = None) -> None:
        """One transaction; with `cut` the batch is admitted in two calls."""
        records = self.pending()[:size]
        parts = [records] if cut is None else [records[:cut], records[cut:]]
        outcomes = [self.partition.admit(part) for part in parts]
        snapshots = self.partition.due_snapshots()
        broker = self.broker
        offsets = broker.publish([e for outcome in outcomes for e in outcome.events])
        self.partition.delivered(offsets)
        self.partition.commit()
        broker.committed = outcomes[-1].input_offset
        for outcome in outcomes:
            broker.rejected.extend(outcome.rejected)
            broker.verdicts.extend(outcome.verdicts)
            self.blocked = self.blocked or outcome.blocked
        broker.snapshots |= {record.key: record.value for record in snapshots}

    def abort(self, size: int) -> list[bytes]:
        """A transaction that is aborted; gives the values it would have published."""
        outcome = self.partition.admit(self.pending()[:size])
        snapshots = self.partition.due_snapshots()
        self.partition.drop()
        out = (*outcome.events, *outcome.rejected, *outcome.verdicts, *snapshots)
        return [record.value for record in out]

    def flush(self) -> None:
        """Write the table behind."""
        flush = self.partition.flush()
        if flush is not None:
            self.table.write(flush)
            self.partition.flushed()

    def lose_memory(self) -> None:
        """The process dies; the table is what it was at the last flush."""
        self.partition = self._made()
        self._refold()

    def lose_everything(self) -> None:
        """The disk is gone too: snapshots and the low-water record are what is left."""
        low = self.broker.low_water()
        self.table = Table()
        if low is not None:
            rules = Rules(low.rules_version, frozenset(low.schema_ids))
            self.table.position = Position(low.input_offset, low.low, rules)
            self.table.states = self.broker.snapshot_states()
        self.partition = self._made()
        self._refold()

    def _refold(self) -> None:
        start = self.partition.position.event_offset
        for offset, record in self.broker.events.items():
            if offset >= start:
                schema_id, body = unframe(record.value)
                ao = append_offset_of(record.headers)
                self.partition.refold(schema_id, body, offset, ao)
        low = self.broker.low_water()
        rules = low and Rules(low.rules_version, frozenset(low.schema_ids))
        self.partition.resume(self.broker.committed, rules=rules or None)

    def state(self, session_id: str) -> SessionState | None:
        """What the partition holds of a session, after everything was flushed."""
        self.flush()
        return self.table.states.get(session_id)
