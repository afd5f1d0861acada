"""How a worker gets a partition's state back: `events` is the changelog.

The order of the four steps of `restore_partition` is what keeps a seq from being given
twice: see there. What a table or a snapshot says is used only if it cannot be wrong:

| found | then |
| --- | --- |
| no table, a corrupt one, one of another log or version | snapshots, from low-water on |
| a table beyond the end of `events` or of the input | set aside, as above |
| a table older than the low-water mark | set aside, as above |
| a snapshot that does not match its hash, or of another fold version | that session is \
folded again from its first event |
| a low-water mark beyond the end of `events` | snapshots of another log: all again |
| events that are needed and were deleted | LogTruncatedError: the partition stops |
"""

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, cast

from foldline.errors import (
    DecodeError,
    LogFormatError,
    LogTruncatedError,
    RegistryUnavailableError,
    TableCorruptError,
)
from foldline.faults import crash_point
from foldline.kafka import Cluster
from foldline.processors.kafka_records import Headers, append_offset_of
from foldline.processors.partition import Limits, Partition, Position, RecordIds, Rules
from foldline.processors.partition_source import PartitionSource
from foldline.processors.rules_lookup import find_rules
from foldline.processors.table import Table, open_table, set_aside_table
from foldline.processors.worker_schemas import FetchedSchemas
from foldline.schemas.codec import Codec, unframe
from foldline.schemas.record_codec import RecordCodec
from foldline.schemas.registry_client import RegistryClient
from foldline.schemas.snapshots import decode_snapshot
from foldline.schemas.state import FOLD_VERSION, SessionState
from foldline.schemas.topic_records import LOW_WATER_KEY, LowWater
from foldline.settings import Settings

if TYPE_CHECKING:
    from confluent_kafka import Message

SAY_EVERY_MS = 2_000
"""How often a long restore says how far it is."""

TAIL_RECORDS = 256
"""How far back from its end the snapshot topic is first read for a low-water record;
then ever further."""

_logger = logging.getLogger("foldline.worker")


@dataclass(frozen=True, slots=True)
class RestoreWays:
    """What every restore of a worker shares."""

    cluster: Cluster
    settings: Settings
    log_id: str
    partitions: int
    folder: Path
    registry: RegistryClient
    schemas: FetchedSchemas
    codec: Codec
    ids: RecordIds


@dataclass(slots=True)
class Progress:
    """How far a restore is; written by its thread, read by others."""

    step: str = "waiting"
    done: int = 0
    total: int = 0


@dataclass(frozen=True, slots=True)
class Restored:
    """A partition as good as if it had never been elsewhere, and its open table."""

    partition: Partition
    table: Table
    refolded: int
    took_ms: int


@dataclass(slots=True)
class _Snapshots:
    """What the snapshot topic says: the newest low-water record, and what is no good."""

    low: LowWater | None = None
    bad: dict[str, str] = field(default_factory=dict[str, str])


def restore_partition(
    index: int, ways: RestoreWays, *, cancelled: Event, progress: Progress
) -> Restored:
    """Restore one partition.

    1. The group's *stable* committed input offset. While a predecessor's transaction is
       open there is none: it is asked for again until the broker has decided.
    2. Only then the end of `events`, uncommitted records included. Whatever the
       predecessor published before step 1 lies below it; what it publishes later is
       refused, because the group has given the partition to us.
    3. Committed events are folded again, from the table's position, or from the
       low-water mark over the snapshots, until the partition has ended at or beyond
       that end. An earlier end is only an open transaction.
    4. `appends` goes on at the larger of step 1 and the last event's `ao` + 1, so that
       refusals are decided on the same states even if the group's offsets are gone.

    Any other order gives a seq twice: an end that is read before the offset is stable
    misses the events that the offset covers.

    Raises:
        LogTruncatedError: events are gone that are needed.
        LogFormatError: a hole in `events`, or a record that is none.
        LogUnavailableError, RegistryUnavailableError: not now; to be tried again.
        RestoreCancelledError: the partition is not ours any more.
    """
    began_s = time.monotonic()
    source = PartitionSource(ways.cluster, ways.settings, index=index, cancelled=cancelled)
    progress.step = "stable offset"
    committed = source.committed_offset()  # step 1
    crash_point("CP_RESTORE_AFTER_OFFSET")
    end = source.end_offset(ways.cluster.names.events)  # step 2
    table = open_table(ways.folder / str(index), log_id=ways.log_id, partition=index)
    steps = _Restore(index, ways, source, progress, committed=committed, end=end)
    partition, table = _with_table(steps, table)  # steps 3 and 4
    crash_point("CP_RESTORE_AFTER_REFOLD")
    took_ms = round((time.monotonic() - began_s) * 1000)
    return Restored(partition, table, steps.refolded, took_ms)


def _with_table(steps: "_Restore", table: Table) -> tuple[Partition, Table]:
    """Restore over a table; if it turns out not to fit, it is set aside, once."""
    steps.table = table
    try:
        try:
            return steps.run(), steps.table
        except (TableCorruptError, LogFormatError) as error:
            if isinstance(error, LogFormatError) and not steps.over_table:
                raise
            _logger.warning("%s: the table is set aside", error)
            steps.table = set_aside_table(steps.table, reason="corrupt")
            return steps.run(), steps.table
    except BaseException:
        steps.table.close()
        raise


class _Restore:
    """Steps 3 and 4 of one restore."""

    def __init__(
        self,
        index: int,
        ways: RestoreWays,
        source: PartitionSource,
        progress: Progress,
        *,
        committed: int,
        end: int,
    ) -> None:
        self._index = index
        self._ways = ways
        self._source = source
        self._progress = progress
        self._committed = committed
        self._end = end
        self._names = ways.cluster.names
        self._records = RecordCodec(ways.registry)
        self._said_s = time.monotonic()
        self.table: Table
        self.over_table = False
        self.refolded = 0

    def run(self) -> Partition:
        """Refold, and say where `appends` goes on."""
        first = self._source.first_offset(self._names.events)
        found = _Snapshots(low=self._newest_low_water())
        position = self._trusted(found.low)
        self.over_table = position is not None
        if position is None:
            found = self._load_snapshots()
            position = self._from_low_water(found.low)
        rules = self._rules(position, found.low)
        self._ways.schemas.fetch(rules.schema_ids)
        self._ways.codec.warm_up(rules.schema_ids)
        partition = self._partition(position)
        if found.bad:
            self._refold_sessions(partition, found.bad, first, position.event_offset)
        self._need(first, position.event_offset)
        self._refold(partition, position.event_offset)
        partition.resume(self._next_input(position), rules=rules)
        self._check_input(partition.position.input_offset)
        return partition

    def _next_input(self, position: Position) -> int:
        """Where `appends` goes on by what was committed, or by what is still there."""
        known = max(self._committed, position.input_offset)
        first = self._source.first_offset(self._names.appends)
        if first > known:
            lost = f"{known} to {first - 1} were deleted before they were admitted"
            self._warn(f"appends {lost}: their writers got no verdict")
        return max(known, first)

    def _check_input(self, input_offset: int) -> None:
        """Refuse an `appends` that ends before what was taken from it.

        Raises:
            LogFormatError: the topic was made again.
        """
        end = self._input_end()
        if input_offset > end:
            where = f"{self._names.appends} [{self._index}]"
            reason = f"it ends at {end}, but was admitted up to {input_offset}"
            raise LogFormatError(where, f"{reason}: the topic was made again")

    # --- where to begin --------------------------------------------------------------

    def _trusted(self, low: LowWater | None) -> Position | None:
        """The table's position; None after setting aside one that cannot be right."""
        position = self.table.position()
        if position is None:
            return None
        reason = ""
        if position.event_offset > self._end or position.input_offset > self._input_end():
            reason = "newer than the log"
        elif low is not None and position.event_offset < low.low <= self._end:
            reason = "older than the low-water mark"
        if not reason:
            return position
        self._say(f"its table is {reason}: it is set aside")
        self.table = set_aside_table(self.table, reason=reason)
        return None

    def _input_end(self) -> int:
        return self._source.end_offset(self._names.appends)

    def _newest_low_water(self) -> LowWater | None:
        """Read the snapshot topic backwards, in ever larger steps, for the newest mark."""
        self._progress.step = "low-water mark"
        topic = self._names.snapshots(FOLD_VERSION)
        first, end = self._source.first_offset(topic), self._source.end_offset(topic)
        back, start = TAIL_RECORDS, end
        while start > first:
            upto, start = start, max(first, end - back)
            mark: LowWater | None = None
            for message in self._source.records(topic, start, upto=end):
                if cast("int", message.offset()) >= upto:
                    break
                mark = self._low_water(message) or mark
            if mark is not None:
                return mark
            back *= 8
        return None

    def _low_water(self, message: "Message") -> LowWater | None:
        if message.key() != LOW_WATER_KEY:
            return None
        try:
            mark = self._records.unframe_record(LowWater, message.value())
        except DecodeError as error:
            self._ignore(message, error.reason)
            return None
        if (mark.partition, mark.fold_version) != (self._index, FOLD_VERSION):
            self._ignore(message, "it is of another partition or fold version")
            return None
        return mark

    def _from_low_water(self, low: LowWater | None) -> Position:
        if low is None:
            return Position(0, 0, Rules())
        rules = Rules(low.rules_version, frozenset(low.schema_ids))
        return Position(low.input_offset, low.low, rules)

    def _rules(self, position: Position, low: LowWater | None) -> Rules:
        """Those in force where `appends` goes on: of the newest record that says so."""
        if low is not None and low.input_offset >= position.input_offset:
            return Rules(low.rules_version, frozenset(low.schema_ids))
        if position.rules.version or not (self._end or self._committed):
            return position.rules
        return find_rules(
            self._source,
            cluster=self._ways.cluster,
            settings=self._ways.settings,
            registry=self._ways.registry,
            upto=max(self._committed, position.input_offset),
        )

    # --- snapshots -------------------------------------------------------------------

    def _load_snapshots(self) -> _Snapshots:
        """Fill the empty table with the newest good snapshot of every session.

        A session whose newest one is no good keeps the good one before it, and is
        folded on from there.
        """
        found = _Snapshots()
        topic = self._names.snapshots(FOLD_VERSION)
        first, end = self._source.first_offset(topic), self._source.end_offset(topic)
        self._begin("snapshots", end - first)
        self.table.load(self._states(topic, first, end, found))
        if found.low is not None and found.low.low > self._end:
            self._say("its snapshots are of another log: they are ignored")
            self.table = set_aside_table(self.table, reason="snapshots of another log")
            return _Snapshots()
        if found.low is None:
            found.bad.clear()  # everything is folded again
        return found

    def _states(
        self, topic: str, first: int, end: int, found: _Snapshots
    ) -> Iterator[SessionState]:
        for message in self._source.records(topic, first, upto=end):
            self._step(cast("int", message.offset()) - first)
            if message.key() == LOW_WATER_KEY:
                found.low = self._low_water(message) or found.low
                continue
            session_id = (message.key() or b"").decode(errors="replace")
            state = self._state(message, session_id, found)
            if state is not None:
                found.bad.pop(session_id, None)
                yield state

    def _state(
        self, message: "Message", session_id: str, found: _Snapshots
    ) -> SessionState | None:
        """The state of a snapshot that can be trusted; a bad one is noted with why."""
        try:
            _, body = unframe(message.value() or b"")
            state = decode_snapshot(body)
        except DecodeError as error:
            reason = error.reason
        else:
            if state is not None and state.session_id == session_id:
                return state
            reason = "it is of another session or fold version"
        found.bad[session_id] = reason
        self._ignore(message, reason)
        return None

    # --- events ----------------------------------------------------------------------

    def _partition(self, position: Position) -> Partition:
        return Partition(
            self._index,
            partitions=self._ways.partitions,
            position=position,
            table=self.table,
            codec=self._ways.codec,
            ids=self._ways.ids,
            limits=Limits.of(self._ways.settings),
            dirty=self.table.dirty(),
        )

    def _need(self, first: int, needed: int) -> None:
        """Refuse to go on without events that were deleted.

        Raises:
            LogTruncatedError: they were.
        """
        if needed < first and needed < self._end:
            raise LogTruncatedError(self._names.events, self._index, needed, first)

    def _refold_sessions(
        self, partition: Partition, bad: dict[str, str], first: int, upto: int
    ) -> None:
        """Fold these sessions again from their first event: their snapshots are no good.

        Nobody knows where their events lie: the partition is read from its beginning.
        """
        self._say(f"{len(bad)} sessions have no good snapshot: folded from the beginning")
        self._need(first, 0)
        keys = {session_id.encode() for session_id in bad}
        self._refold(partition, 0, upto=upto, wanted=lambda m: m.key() in keys)

    def _refold(
        self,
        partition: Partition,
        start: int,
        *,
        upto: int | None = None,
        wanted: Callable[["Message"], bool] = lambda _: True,
    ) -> None:
        upto = self._end if upto is None else upto
        topic = self._names.events
        self._begin("events", max(upto - start, 0))
        flush_at = self._ways.settings.table_flush_events
        for message in self._source.records(topic, start, upto=upto):
            offset = cast("int", message.offset())
            self._step(offset - start)
            if offset >= upto and upto != self._end:
                return
            if not wanted(message):
                continue
            self._fold(partition, message, offset)
            self.refolded += 1
            if partition.flush_wanted or partition.events_since_flush >= flush_at:
                self._flush(partition)
        self._flush(partition)

    def _fold(self, partition: Partition, message: "Message", offset: int) -> None:
        where = f"{self._names.events} [{self._index}] offset {offset}"
        try:
            schema_id, body = unframe(message.value() or b"")
            append_offset = append_offset_of(cast("Headers | None", message.headers()))
        except DecodeError as error:
            raise LogFormatError(where, error.reason) from error
        try:
            partition.refold(schema_id, body, offset, append_offset)
        except RegistryUnavailableError:
            self._ways.schemas.fetch([schema_id])
            partition.refold(schema_id, body, offset, append_offset)

    def _flush(self, partition: Partition) -> None:
        flush = partition.flush()
        if flush is not None:
            self.table.write(flush)
            partition.flushed()

    # --- saying ----------------------------------------------------------------------

    def _begin(self, step: str, total: int) -> None:
        self._progress.step, self._progress.done, self._progress.total = step, 0, total

    def _step(self, done: int) -> None:
        progress = self._progress
        progress.done = done
        now_s = time.monotonic()
        if now_s - self._said_s >= SAY_EVERY_MS / 1000:
            self._said_s = now_s
            self._say(f"{done:,} of {progress.total:,} {progress.step}")

    def _ignore(self, message: "Message", reason: str) -> None:
        self._warn(f"the snapshot record at offset {message.offset()} is ignored: {reason}")

    def _warn(self, text: str) -> None:
        _logger.warning("partition %d: %s", self._index, text)

    def _say(self, text: str) -> None:
        _logger.info("partition %d: %s", self._index, text)
