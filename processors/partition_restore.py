"""How a worker gets a partition's state back: `events` is the changelog.

The order of the four steps of `restore_partition` is what keeps a seq from being given
twice: see there. Step 3 begins at what needs the least folding and cannot be wrong; what
turns out to be wrong is set aside, never patched, and the next one is tried:

| basis | not used |
| --- | --- |
| the table | none; corrupt; of another log or version; beyond the end of `events` or of \
`appends`; older than the low-water mark |
| snapshots, from the low-water mark on | none; a mark beyond the end of `events`; a state \
that does not fit the events after it |
| `events` alone | never: a hole stops the partition; so do deleted events, where there \
were snapshots that did not fit |

A single snapshot that is no good costs that session a fold from its first event. Events
that were deleted above where step 3 begins cost the sessions that had them, and no
others (`foldline.processors.partition_losses`).
"""

import hashlib
import logging
import time
from collections.abc import Callable
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
from foldline.processors.kafka_records import append_offset_of, headers_of
from foldline.processors.partition import Flush, Partition, Position, Rules
from foldline.processors.partition_losses import Losses
from foldline.processors.partition_source import PartitionSource
from foldline.processors.restore_ways import Progress, Restored, RestoreWays
from foldline.processors.rules_lookup import find_rules
from foldline.processors.snapshot_topic import SnapshotTopic, fold_versions_of
from foldline.processors.table import (
    KNOWN_PER_CACHED,
    Table,
    open_table,
    set_aside_table,
)
from foldline.schemas.codec import unframe
from foldline.schemas.record_codec import RecordCodec
from foldline.schemas.state import FOLD_VERSION
from foldline.schemas.topic_records import LowWater

if TYPE_CHECKING:
    from confluent_kafka import Message

SAY_EVERY_MS = 2_000
"""How often a long restore says how far it is."""

TABLE, SNAPSHOTS, EVENTS = range(3)
"""What step 3 begins with, the quickest first."""

_logger = logging.getLogger("foldline.worker")


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
        LogTruncatedError: events are gone, and what they led to is not to be trusted.
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
    table = open_table(
        ways.folder / str(index),
        log_id=ways.log_id,
        partition=index,
        known_max=KNOWN_PER_CACHED * ways.limits.cached_sessions,
    )
    steps = _Restore(index, ways, source, progress, committed=committed, end=end)
    partition, table = steps.run(table)  # steps 3 and 4
    crash_point("CP_RESTORE_AFTER_REFOLD")
    took_ms = round((time.monotonic() - began_s) * 1000)
    return Restored(partition, table, steps.refolded, took_ms, steps.skipped)


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
        self._said_s = time.monotonic()
        self._table: Table
        self._basis = TABLE
        self._heads: dict[bytes, bytes] | None = None
        self._losses: Losses | None = None
        self._is_misfit = False
        self.refolded = self.skipped = 0

    def run(self, table: Table) -> tuple[Partition, Table]:
        """Restore over the first basis that fits; gives the table that is open then."""
        self._table = table
        try:
            while True:
                try:
                    return self._over_basis(), self._table
                except (TableCorruptError, LogFormatError) as error:
                    if self._basis == EVENTS:
                        raise
                    self._warn(f"{error}; begun again with less")
                    self._is_misfit = True
                    self._set_aside("it does not fit")
                    self._basis += 1
        except BaseException:
            self._table.close()
            raise

    def _over_basis(self) -> Partition:
        """Refold, and say where `appends` goes on."""
        first = self._source.first_offset(self._names.events)
        topic = self._snapshot_topic()
        low = topic.newest_low_water()
        position = self._of_table(low) or self._of_snapshots(topic)
        rules = self._rules(position, low)
        self._ways.schemas.fetch(rules.schema_ids)
        self._ways.codec.warm_up(rules.schema_ids)
        partition = self._begun(position, low)
        if topic.bad and self._basis == SNAPSHOTS:
            self._refold_sessions(partition, topic.bad, first, position.event_offset)
        if position.event_offset < first:
            self._cut(partition, position, first, low, rules)
        partition.begins_at(first)
        self._refold(partition, max(position.event_offset, first))
        self._settle(partition)
        self._check_heads(partition)
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
        end = self._source.end_offset(self._names.appends)
        if input_offset > end:
            where = f"{self._names.appends} [{self._index}]"
            reason = f"it ends at {end}, but was admitted up to {input_offset}"
            raise LogFormatError(where, f"{reason}: the topic was made again")

    # --- where to begin --------------------------------------------------------------

    def _of_table(self, low: LowWater | None) -> Position | None:
        """The table's position; None after setting aside one that cannot be right."""
        position = self._table.position() if self._basis == TABLE else None
        if position is None:
            self._basis = max(self._basis, SNAPSHOTS)
            return None
        input_end = self._source.end_offset(self._names.appends)
        if position.event_offset > self._end or position.input_offset > input_end:
            reason = "newer than the log"
        elif low is not None and position.event_offset < low.low <= self._end:
            reason = "older than the low-water mark"
        else:
            return position
        if position.event_offset > self._end:
            lost = f"{self._end} to {position.event_offset - 1}"
            self._warn(
                f"{self._names.events} ends at {self._end}, its table had folded more: "
                f"acknowledged events, offsets {lost}, are gone from the topic"
            )
        self._say(f"its table is {reason}")
        self._set_aside(reason)
        self._basis = SNAPSHOTS
        return None

    def _of_snapshots(self, topic: SnapshotTopic) -> Position:
        """Fill the empty table with snapshots; the position that their mark says.

        A session whose newest snapshot is no good keeps the good one before it.
        """
        if self._basis == SNAPSHOTS:
            first, end = topic.bounds()
            self._begin("snapshots", end - first)
            self._table.load(topic.states(self._step))
            if topic.low is not None and topic.low.low <= self._end:
                self._heads = {}
                self._table.lose(topic.lost.values())
                for session_id in topic.lost:
                    topic.bad.pop(session_id, None)
                rules = Rules(topic.low.rules_version, frozenset(topic.low.schema_ids))
                return Position(topic.low.input_offset, topic.low.low, rules)
            if self._table.sessions:
                self._warn("its snapshots are of another log, or without a mark: ignored")
                self._is_misfit = True
                self._set_aside("snapshots of another log")
            self._basis = EVENTS
        self._heads = None
        return Position(0, 0, Rules())

    def _rules(self, position: Position, low: LowWater | None) -> Rules:
        """Those in force where `appends` goes on: of the newest record that says so.

        A control record leaves a low-water record in the topic of the fold version of
        whoever took it: in a rolling upgrade that may be an older one, or a newer.
        """
        marks = [*self._marks_of_other_folds(), *([low] if low else [])]
        newest = max(marks, key=lambda mark: mark.input_offset, default=None)
        if newest is not None and newest.input_offset >= position.input_offset:
            return Rules(newest.rules_version, frozenset(newest.schema_ids))
        if position.rules.version or not (self._end or self._committed):
            return position.rules
        return find_rules(
            self._source,
            cluster=self._ways.cluster,
            settings=self._ways.settings,
            registry=self._ways.registry,
            upto=max(self._committed, position.input_offset),
        )

    def _marks_of_other_folds(self) -> list[LowWater]:
        versions = fold_versions_of(self._source, self._names)
        topics = [self._snapshot_topic(v) for v in versions if v != FOLD_VERSION]
        marks = [topic.newest_low_water() for topic in topics]
        return [mark for mark in marks if mark is not None]

    def _snapshot_topic(self, fold_version: int = FOLD_VERSION) -> SnapshotTopic:
        self._progress.step = "low-water mark"
        return SnapshotTopic(
            self._source,
            self._names,
            self._index,
            records=RecordCodec(self._ways.registry),
            warn=self._warn,
            fold_version=fold_version,
        )

    def _set_aside(self, reason: str) -> None:
        self._table = set_aside_table(self._table, reason=reason)

    # --- what was deleted ------------------------------------------------------------

    def _cut(
        self,
        partition: Partition,
        position: Position,
        first: int,
        low: LowWater | None,
        rules: Rules,
    ) -> None:
        """Find the sessions that had events between the position and the first event.

        Raises:
            LogTruncatedError: there are states of these events somewhere, which this
                restore cannot or must not use: nobody is lost for that.
        """
        needed = position.event_offset
        if self._basis == EVENTS and (self._is_misfit or self._marks_of_other_folds()):
            raise LogTruncatedError(self._names.events, self._index, needed, first)
        start = low.low_input_offset if low is not None else 0
        if self._basis == TABLE:
            start = position.input_offset
        first_append = self._source.first_offset(self._names.appends)
        self._warn(f"{self._names.events} begins at {first}, {needed} is needed")
        self._losses = losses = Losses(
            partition,
            self._ways.codec,
            from_offset=needed,
            to_offset=first,
            is_complete=first_append <= start,
            warn=self._warn,
        )
        upto = self._answered_upto(first, position)
        self._begin("appends", max(upto - start, 0))
        start = max(start, first_append)
        for message in self._source.records(self._names.appends, start, upto=upto):
            offset = cast("int", message.offset())
            self._step(offset - start)
            if offset >= upto:
                break
            losses.judge(message, rules.schema_ids)

    def _answered_upto(self, first: int, position: Position) -> int:
        """Where the appends begin whose events are left, if they were accepted."""
        for message in self._source.records(self._names.events, first, upto=self._end):
            try:
                return append_offset_of(headers_of(message))
            except DecodeError:
                continue  # no worker wrote it
        return max(self._committed, position.input_offset)

    def _settle(self, partition: Partition) -> None:
        losses = self._losses
        if losses is None:
            return
        crash_point("CP_CUT_BEFORE_SETTLE")
        losses.settle(self._table.session_ids())
        self._flush(partition)
        self._losses = None
        self._table.write(Flush(partition.position, (), {}, ()))
        self._warn(f"{losses.count} sessions are UNRECOVERABLE: events were deleted")

    # --- events ----------------------------------------------------------------------

    def _begun(self, position: Position, low: LowWater | None) -> Partition:
        """The partition at its position, with what is known of `appends` and losses."""
        partition = self._partition(position)
        if low is not None and low.low <= position.event_offset:
            partition.note_inputs(low.low, low.low_input_offset)
        if self._basis == TABLE:
            partition.note_inputs(position.event_offset, position.input_offset)
            for lost in self._table.all_lost():
                partition.owe(lost)  # whether others know it is not known here
        return partition

    def _partition(self, position: Position) -> Partition:
        return Partition(
            self._index,
            partitions=self._ways.partitions,
            position=position,
            table=self._table,
            codec=self._ways.codec,
            ids=self._ways.ids,
            limits=self._ways.limits,
            dirty=self._table.dirty(),
        )

    def _refold_sessions(
        self, partition: Partition, bad: dict[str, str], first: int, upto: int
    ) -> None:
        """Fold these sessions again from their first event: their snapshots are no good.

        Nobody knows where their events lie: the partition is read from its beginning. If
        that was deleted, only those can be folded that began later.
        """
        self._say(f"{len(bad)} sessions have no good snapshot: folded from the beginning")
        keys = {session_id.encode() for session_id in bad}
        losses = Losses(
            partition,
            self._ways.codec,
            from_offset=0,
            to_offset=first,
            is_complete=True,
            warn=self._warn,
        )
        self._losses = losses if first else None
        self._refold(partition, first, upto=upto, wanted=lambda m: m.key() in keys)
        if first:
            losses.lose_all(bad, "its snapshot is no good, and its first events are gone")
            self._flush(partition)
        self._losses = None

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
            if partition.flush_wanted or partition.events_since_flush >= flush_at:
                self._flush(partition)
        self._flush(partition)

    def _fold(self, partition: Partition, message: "Message", offset: int) -> None:
        where = f"{self._names.events} [{self._index}] offset {offset}"
        try:
            append_offset = append_offset_of(headers_of(message))
        except DecodeError as error:
            self._warn(f"{where}: {error.reason}: no worker wrote it; skipped")
            self.skipped += 1
            return  # as every reader does: what others put there stops nothing
        try:
            schema_id, body = unframe(message.value() or b"")
        except DecodeError as error:
            raise LogFormatError(where, error.reason) from error
        self.refolded += 1
        if self._losses is not None:
            self._look(self._losses, schema_id, body)
        if self._heads is not None:
            self._heads[message.key() or b""] = hashlib.sha256(body).digest()
        try:
            partition.refold(schema_id, body, offset, append_offset)
        except RegistryUnavailableError:
            self._ways.schemas.fetch([schema_id])
            partition.refold(schema_id, body, offset, append_offset)

    def _look(self, losses: Losses, schema_id: int, body: bytes) -> None:
        try:
            losses.look(schema_id, body)
        except RegistryUnavailableError:
            self._ways.schemas.fetch([schema_id])
            losses.look(schema_id, body)

    def _check_heads(self, partition: Partition) -> None:
        """Compare states over snapshots with the last events that were seen of them.

        A snapshot of events that the log does not have would skip those it has.

        Raises:
            LogFormatError: a state that did not see its session's last event.
        """
        for key, head in (self._heads or {}).items():
            if partition.lost(key.decode()) is not None:
                continue
            state = self._table.get(key.decode())
            if state is None or state.chain_head != head:
                where = f"{self._names.events} [{self._index}]"
                reason = f"session {key.decode()!r}: its snapshot is beyond its last event"
                raise LogFormatError(where, reason)

    def _flush(self, partition: Partition) -> None:
        flush = partition.flush()
        if flush is None:
            return
        if self._losses is None:
            self._table.write(flush)
        else:  # if it ended here, the next restore would begin behind the gap
            self._table.write_early(flush)
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

    def _warn(self, text: str) -> None:
        _logger.warning("partition %d: %s", self._index, text)

    def _say(self, text: str) -> None:
        _logger.info("partition %d: %s", self._index, text)
