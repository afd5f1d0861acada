"""The one checker of a log on Kafka: what stands in its topics is what must stand there.

`check(log, answers)` reads every partition as a committed reader sees it and asserts:

1. `events` equals a pure re-run of `appends`, byte for byte: the memory log's answer to
   the same appends, in their order, at their log times.
2. A session's seqs are dense from the first, no event stands twice, the chain of hashes
   holds, each event's `ao` rises.
3. What was acknowledged is in the log, at the seq that the verdict said; what was
   refused for good is not.
4. The state at the head is the same by refold, by snapshot and tail, by the memory log,
   and in every table of a worker that stands at the end (`tables`).
5. Readers that see open and aborted transactions, and drop `seq <= last`, read the same.

It knows the topics' format, and nothing of a worker's code.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, cast

from confluent_kafka import KafkaError, TopicPartition

from foldline.errors import DecodeError
from foldline.kafka import reader_consumer
from foldline.kafka_meta import read_meta
from foldline.processors.fold import copy_of, fold_in, initial
from foldline.processors.kafka_records import (
    append_offset_of,
    decode_append,
    headers_of,
    incoming_of,
)
from foldline.processors.memory_log import MemoryLog
from foldline.processors.table import Table
from foldline.schemas.codec import Codec, unframe
from foldline.schemas.record_codec import RecordCodec
from foldline.schemas.recorded import Recorded
from foldline.schemas.snapshots import decode_snapshot, state_hash
from foldline.schemas.state import FOLD_VERSION, SessionState
from foldline.schemas.topic_records import (
    CONTROL_KEY,
    LOST_KEY,
    LOW_WATER_KEY,
    LowWater,
    RulesInForce,
)
from foldline.schemas.verdicts import ACCEPTED, DUPLICATE, TOO_OLD, Verdict
from foldline.settings import Settings
from foldline.topics import partition_for
from tests.cluster.logs import FreshLog

READ_S = 30.0

Isolation = Literal["read_committed", "read_uncommitted"]


@dataclass(slots=True)
class Checked:
    """What was found: for a test that wants to know more."""

    sessions: dict[str, list[Recorded]] = field(default_factory=dict[str, list[Recorded]])
    states: dict[str, SessionState] = field(default_factory=dict[str, SessionState])
    verdicts: dict[int, dict[int, Verdict]] = field(
        default_factory=dict[int, dict[int, Verdict]]
    )
    """The memory log's answers, by partition and offset in `appends`."""

    snapshots: int = 0
    aborted: int = 0
    """Events that only an uncommitted reader saw."""

    tables: int = 0

    @property
    def events(self) -> int:
        """How many there are."""
        return sum(len(events) for events in self.sessions.values())


def check(
    log: FreshLog,
    answers: Mapping[str, Verdict] | None = None,
    *,
    tables: list[Path] | None = None,
) -> Checked:
    """Check a whole log; see the module.

    Args:
        log: nothing is under way in it.
        answers: final verdicts that clients got, by event_id.
        tables: state folders of workers that have ended.
    """
    checked = Checked()
    for index in range(log.partitions):
        _check_partition(log, index, checked)
    _check_answers(checked, answers or {})
    for state_dir in tables or []:
        _check_tables(log, state_dir, checked)
    return checked


def read(
    log: FreshLog, topic: str, index: int, *, isolation: Isolation = "read_committed"
) -> list[Any]:
    """Every record of a partition, as a reader of this kind sees it."""
    uncommitted: Any = reader_consumer(
        log.cluster, log.settings, isolation="read_uncommitted"
    )
    partition = TopicPartition(topic, index)
    low, end = uncommitted.get_watermark_offsets(partition, timeout=10)
    uncommitted.close()
    reader: Any = reader_consumer(
        log.cluster, log.settings, isolation=isolation, fetch_wait_ms=10
    )
    try:
        return list(_records(reader, TopicPartition(topic, index, low), end))
    finally:
        reader.close()


def _records(reader: Any, start: TopicPartition, end: int) -> Iterator[Any]:
    if start.offset >= end:
        return
    reader.assign([start])
    while True:
        first = reader.poll(READ_S)
        assert first is not None, f"{start} gives nothing"
        for message in [first, *reader.consume(500, 0)]:
            error = message.error()
            if error is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF and message.offset() >= end:
                return


# --- one partition -------------------------------------------------------------------


def _check_partition(log: FreshLog, index: int, checked: Checked) -> None:
    codec = Codec(log.registry)
    events = read(log, log.names.events, index)
    found: defaultdict[str, list[Recorded]] = defaultdict(list)
    offsets: dict[tuple[str, int], int] = {}
    last_append = -1
    for message in events:
        schema_id, body = unframe(message.value())
        recorded = codec.decode_structure(schema_id, body)
        session_id = recorded.envelope.session_id
        assert message.key() == session_id.encode()
        append_offset = append_offset_of(headers_of(message))
        assert append_offset > last_append, (index, append_offset, last_append)
        last_append = append_offset
        found[session_id].append(recorded)
        offsets[session_id, recorded.seq] = message.offset()
    for session_id, session in found.items():
        _check_chain(session_id, session)
    oracle = _rerun(log, index, checked)
    for session_id in set(found) | oracle.keys():
        ours = [event.body for event in found[session_id]]
        theirs = oracle.get(session_id, [])
        assert ours == theirs, f"{session_id}: {len(ours)} events, re-run {len(theirs)}"
    checked.sessions.update(found)
    _check_states(log, index, found, offsets, checked)
    _check_uncommitted(log, index, codec, found, checked)


def _check_chain(session_id: str, session: list[Recorded]) -> None:
    """2. Dense, none twice, chained."""
    ids = [event.envelope.event_id for event in session]
    assert len(set(ids)) == len(ids), f"{session_id}: an event stands twice"
    for before, event in pairwise(session):
        assert event.seq == before.seq + 1, (session_id, before.seq, event.seq)
        digest = hashlib.sha256(before.body).digest()
        assert event.envelope.prev_hash == digest, (session_id, event.seq)
        assert event.envelope.recorded_at >= before.envelope.recorded_at


def _rerun(log: FreshLog, index: int, checked: Checked) -> dict[str, list[bytes]]:
    """1. The memory log's answer to the same appends; gives its events' bodies."""
    now_us = 0
    memory = MemoryLog(settings=Settings(), clock=lambda: now_us)
    codec = Codec(log.registry)
    answers = checked.verdicts.setdefault(index, {})
    sessions: set[str] = set()
    for message in read(log, log.names.appends, index):
        if message.key() == CONTROL_KEY:
            _put_in_force(log, memory, message)
            continue
        now_us = message.timestamp()[1] * 1000
        try:
            append = decode_append(incoming_of(message), codec)
        except DecodeError:
            continue  # a dead letter
        session_id = append.envelope.session_id
        if session_id.encode() != message.key():
            continue
        if partition_for(session_id, log.partitions) != index:
            continue  # misrouted
        sessions.add(session_id)
        (answers[message.offset()],) = memory.append([append])
    checked.states.update(
        {s: state for s in sessions if (state := memory.state(s)) is not None}
    )
    return {s: [event.body for event in memory.stored_events(s)] for s in sessions}


def _put_in_force(log: FreshLog, memory: MemoryLog, message: Any) -> None:
    """From here on the memory log judges by these rules, too."""
    rules = RecordCodec(log.registry).unframe_record(RulesInForce, message.value())
    memory.put_in_force(rules.rules_version)


# --- states --------------------------------------------------------------------------


def _check_states(
    log: FreshLog,
    index: int,
    found: Mapping[str, list[Recorded]],
    offsets: Mapping[tuple[str, int], int],
    checked: Checked,
) -> None:
    """4. By refold, and by snapshot and tail from the low-water mark."""
    low, snapshots = read_snapshots(log, index)
    checked.snapshots += len(snapshots)
    for session_id, session in found.items():
        wanted = state_hash(checked.states[session_id])
        whole = initial(session_id)
        for event in session:
            fold_in(whole, event)
        assert state_hash(whole) == wanted, f"{session_id}: refold"
        if low is None:
            continue
        state = copy_of(snapshots.get(session_id) or initial(session_id))
        for event in session:
            if offsets[session_id, event.seq] >= low.low and event.seq > state.seq:
                assert event.seq == state.seq + 1 or not state.seq, (session_id, event.seq)
                fold_in(state, event)
        assert state_hash(state) == wanted, f"{session_id}: snapshot and tail"
    assert set(snapshots) <= set(found)


def read_snapshots(
    log: FreshLog, index: int
) -> tuple[LowWater | None, dict[str, SessionState]]:
    """The newest low-water record of a partition, and its newest snapshots."""
    records = RecordCodec(log.registry)
    low: LowWater | None = None
    states: dict[str, SessionState] = {}
    for message in read(log, log.names.snapshots(FOLD_VERSION), index):
        if message.key() == LOW_WATER_KEY:
            low = records.unframe_record(LowWater, message.value())
            continue
        if message.key().startswith(LOST_KEY) or message.value() is None:
            continue
        state = decode_snapshot(unframe(message.value())[1])
        assert state is not None
        states[cast("bytes", message.key()).decode()] = state
    return low, states


def _check_uncommitted(
    log: FreshLog,
    index: int,
    codec: Codec,
    found: Mapping[str, list[Recorded]],
    checked: Checked,
) -> None:
    """5. A reader that cannot skip aborted records stays right by dropping repeats."""
    seen: defaultdict[str, list[bytes]] = defaultdict(list)
    last: defaultdict[str, int] = defaultdict(int)
    for message in read(log, log.names.events, index, isolation="read_uncommitted"):
        schema_id, body = unframe(message.value())
        recorded = codec.decode_structure(schema_id, body)
        session_id = recorded.envelope.session_id
        if recorded.seq <= last[session_id]:
            checked.aborted += 1
            continue
        last[session_id] = recorded.seq
        seen[session_id].append(body)
    assert dict(seen) == {s: [event.body for event in found[s]] for s in found}


def _check_tables(log: FreshLog, state_dir: Path, checked: Checked) -> None:
    """4. What a worker held when it ended in order."""
    log_id = read_meta(log.cluster, log.settings, schemas=log.registry).log_id
    for folder in sorted((state_dir / "workers" / log_id).glob("*/*/")):
        if not folder.name.isdecimal():
            continue
        index = int(folder.name)
        table = Table.open(folder, log_id=log_id, partition=index)
        try:
            table.check()
            _check_table(log, index, table, checked)
        finally:
            table.close()


def _check_table(log: FreshLog, index: int, table: Table, checked: Checked) -> None:
    position = table.position()
    events = read(log, log.names.events, index)
    if position is None or (events and position.event_offset <= events[-1].offset()):
        return  # another worker went on from here
    checked.tables += 1
    for session_id in {cast("bytes", message.key()).decode() for message in events}:
        held = table.get(session_id)
        assert held is not None, session_id
        assert state_hash(held) == state_hash(checked.states[session_id]), session_id


# --- answers -------------------------------------------------------------------------


def _check_answers(checked: Checked, answers: Mapping[str, Verdict]) -> None:
    """3. Acknowledged is a subset of the log, at the seq that was said."""
    places = {
        event.envelope.event_id: (session_id, event.seq)
        for session_id, session in checked.sessions.items()
        for event in session
    }
    for event_id, verdict in answers.items():
        if verdict.kind in {ACCEPTED, DUPLICATE}:
            place = (verdict.session_id, verdict.seq)
            assert places.get(event_id) == place, (event_id, verdict)
        elif verdict.kind != TOO_OLD:  # that one says: look whether it is there
            assert event_id not in places, (event_id, verdict)
