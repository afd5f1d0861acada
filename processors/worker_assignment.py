"""The partitions that the group gave a worker, from their restore to their revocation.

| phase | fetched | means |
| --- | --- | --- |
| restoring | no | a thread brings its state back |
| restored | no | its state is back; it waits for a producer |
| running | yes | batches take its records |
| blocked | no | it waits for a schema, a newer foldline, or room for its table |
| failed | no | `events` cannot be trusted as they are: an operator has to look; it is \
restored again every `failed_retry_ms` |
"""

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, KafkaException, TopicPartition

from foldline.errors import FoldlineError, LogUnavailableError, TableCorruptError
from foldline.faults import crash_point
from foldline.processors.partition import Partition
from foldline.processors.partition_source import RestoreCancelledError
from foldline.processors.restore_ways import Progress, Restored, RestoreWays
from foldline.processors.table import Table, set_aside_table
from foldline.processors.worker_membership import Membership
from foldline.processors.worker_restores import Restores

BACK_OFF_MS = 100
"""The first pause before something that failed is tried again; then twice as long."""

BACK_OFF_MAX_MS = 10_000

RESTORING = "restoring"
RESTORED = "restored"
RUNNING = "running"
BLOCKED = "blocked"
FAILED = "failed"

_WAITING = frozenset({BLOCKED, RESTORED, FAILED})

_logger = logging.getLogger("foldline.worker")


@dataclass(slots=True)
class Owned:
    """One partition of this worker."""

    index: int
    phase: str = RESTORING
    reason: str = ""
    partition: Partition | None = None
    table: Table | None = None
    progress: Progress = field(default_factory=Progress)
    flushed_s: float = 0.0
    retry_s: float = 0.0
    back_off_ms: int = BACK_OFF_MS

    @property
    def shown(self) -> str:
        """The phase for people: one that is only tried again is still blocked."""
        return BLOCKED if self.phase == RUNNING and self.reason else self.phase

    @property
    def why(self) -> str:
        """What it does or waits for: a restore that is tried again also says why."""
        doing = self.progress.step if self.phase == RESTORING else ""
        return "; ".join(filter(None, (doing, self.reason)))

    def wait(self) -> None:
        """Set when it is tried again, each time after a longer pause."""
        self.retry_s = time.monotonic() + self.back_off_ms / 1000
        self.back_off_ms = min(self.back_off_ms * 2, BACK_OFF_MAX_MS)


class Assignment:
    """Called from the poll loop's thread only, as the group's callbacks are."""

    def __init__(
        self,
        consumer: Any,
        ways: RestoreWays,
        *,
        incremental: bool,
        membership: Membership,
        before_restores: Callable[[], None],
        on_drop: Callable[[Partition], None],
        on_restore: Callable[[Restored], None],
    ) -> None:
        self._consumer = consumer
        self._ways = ways
        self._settings = ways.settings
        self._topic = ways.cluster.names.appends
        self._incremental = incremental
        self._membership = membership
        self._on_drop = on_drop
        self._on_restore = on_restore
        self._restores = Restores(ways, before=before_restores)
        self.owned: dict[int, Owned] = {}

    # --- the group's callbacks -------------------------------------------------------

    def given(self, consumer: Any, partitions: Iterable[TopicPartition]) -> None:
        """Take partitions over: nothing is fetched until each is restored.

        Partitions that somebody added to the topic are no part of the log: they stay
        paused, or a worker would wait for ever for what is not there.
        """
        self._membership.given()
        indices = sorted(partition.partition for partition in partitions)
        positions = [TopicPartition(self._topic, i, OFFSET_BEGINNING) for i in indices]
        (consumer.incremental_assign if self._incremental else consumer.assign)(positions)
        if not positions:
            return
        consumer.pause(positions)
        _logger.info("given partitions %s", _listed(indices))
        for index in indices:
            if index < self._ways.partitions:
                self._restore(index)
            else:
                self._ignore(index)

    def _ignore(self, index: int) -> None:
        _logger.warning(
            "partition %d of %s is none of the log's %d: what is written there is never "
            "answered",
            index,
            self._topic,
            self._ways.partitions,
        )

    def revoked(self, _consumer: Any, partitions: Iterable[TopicPartition]) -> None:
        """Give partitions up: what is committed is written, the rest forgotten."""
        indices = sorted(partition.partition for partition in partitions)
        if indices:
            _logger.info("partitions %s are revoked", _listed(indices))
        for index in indices:
            self._give_up(index, write=True)
        if indices and not self.owned:
            self._membership.emptied()

    def lost(self, _consumer: Any, partitions: Iterable[TopicPartition]) -> None:
        """Forget partitions that the group has given to another worker already."""
        indices = sorted(partition.partition for partition in partitions)
        _logger.warning("partitions %s are lost", _listed(indices))
        for index in indices:
            self._give_up(index, write=True)
        self._membership.left()

    # --- for the batch ---------------------------------------------------------------

    def running(self, index: int) -> Partition | None:
        """The partition, if records of it may be taken."""
        owned = self.owned.get(index)
        return owned.partition if owned and owned.phase == RUNNING else None

    def owing(self) -> list[int]:
        """The partitions that have something to publish though no append comes."""
        return [
            index
            for index in self.owned
            if (partition := self.running(index)) is not None and partition.owes
        ]

    def next_offset(self, index: int) -> int | None:
        """The offset of `appends` to admit next, if records of it may be taken."""
        partition = self.running(index)
        return None if partition is None else partition.input_offset

    def rewind(self, index: int) -> None:
        """Fetch again from where the partition stands: its batch was dropped."""
        owned = self.owned.get(index)
        if owned is not None and owned.partition is not None and owned.phase == RUNNING:
            offset = owned.partition.position.input_offset
            self._consumer.seek(TopicPartition(self._topic, index, offset))

    def block(self, index: int, reason: str) -> None:
        """Pause a partition at its position; it is tried again by and by."""
        owned = self.owned[index]
        if owned.reason != reason:
            _logger.warning("partition %d is blocked: %s", index, reason)
        owned.phase, owned.reason = BLOCKED, reason
        owned.wait()
        self._consumer.pause([TopicPartition(self._topic, index)])

    def went_on(self, index: int) -> None:
        """Note that a batch of the partition was committed without being blocked."""
        owned = self.owned[index]
        if owned.reason:
            _logger.info("partition %d goes on", index)
            owned.reason = ""

    def forget(self, index: int, reason: str, *, corrupt: bool = False) -> None:
        """Drop what is in memory of a partition, and restore it.

        Args:
            index: the partition.
            reason: why, for the log.
            corrupt: whether its table is damaged: it is set aside, too.
        """
        _logger.warning("partition %d is restored again: %s", index, reason)
        self._consumer.pause([TopicPartition(self._topic, index)])
        owned = self.owned[index]
        if corrupt and owned.table is not None:
            owned.table = set_aside_table(owned.table, reason="corrupt")
        self._give_up(index, write=False)
        self._restore(index)

    def forget_all(self, reason: str) -> None:
        """Drop everything that is in memory, and restore it.

        What is not restored yet was part of no batch: its restore goes on.
        """
        for owned in list(self.owned.values()):
            if owned.partition is not None:
                self.forget(owned.index, reason)

    # --- between batches -------------------------------------------------------------

    def tend(self, *, open_for_work: bool) -> None:
        """Take in what is restored, try again what waits, write tables behind.

        Args:
            open_for_work: whether there is a producer; without one nothing is resumed.
        """
        for index, result in self._restores.collect():
            if index in self.owned:
                self._take_in(self.owned[index], result)
        now_s = time.monotonic()
        for owned in list(self.owned.values()):
            if owned.phase in _WAITING and now_s >= owned.retry_s:
                self._unblock(owned, open_for_work=open_for_work)
        self._write_behind(now_s)

    def close(self) -> None:
        """Write every table, and end every restore."""
        for index in list(self.owned):
            self._give_up(index, write=True)
        self._restores.close()

    def _restore(self, index: int) -> None:
        owned = self.owned[index] = Owned(index)
        owned.progress = self._restores.begin(index)

    def _take_in(self, owned: Owned, result: Restored | BaseException) -> None:
        match result:
            case Restored():
                owned.partition, owned.table = result.partition, result.table
                owned.phase, owned.reason = RESTORED, ""
                owned.flushed_s = time.monotonic()
                self._on_restore(result)
                _logger.info(
                    "partition %d: restored in %d ms, %s events folded, appends from %d",
                    owned.index,
                    result.took_ms,
                    f"{result.refolded:,}",
                    result.partition.position.input_offset,
                )
            case FoldlineError(retryable=False):
                self._fail(owned, str(result))
            case FoldlineError() | KafkaException():
                self._restore_later(owned, str(result))
            case RestoreCancelledError():
                self._restore_later(owned, "cancelled")
            case _:
                raise result

    def _fail(self, owned: Owned, reason: str) -> None:
        """Leave it alone for long: it is read whole each time, mostly for nothing."""
        retry_ms = self._settings.failed_retry_ms
        _logger.error("partition %d is stopped: %s", owned.index, reason)
        owned.phase = FAILED
        owned.reason = f"{reason}; it is tried again every {retry_ms / 1000:.0f} s"
        owned.retry_s = time.monotonic() + retry_ms / 1000

    def _restore_later(self, owned: Owned, reason: str) -> None:
        _logger.warning("partition %d cannot be restored now: %s", owned.index, reason)
        owned.phase, owned.reason = BLOCKED, f"it cannot be restored now: {reason}"
        owned.wait()

    def _unblock(self, owned: Owned, *, open_for_work: bool) -> None:
        if owned.partition is None:
            owned.phase = RESTORING  # its reason still says why, until that worked
            owned.progress = self._restores.begin(owned.index)
            return
        if not open_for_work:
            return
        owned.phase = RUNNING
        self.rewind(owned.index)
        self._consumer.resume([TopicPartition(self._topic, owned.index)])

    # --- tables ----------------------------------------------------------------------

    def _write_behind(self, now_s: float) -> None:
        """Write the tables that are full, and of those whose time has come the oldest.

        One in each turn: all at once would keep every partition's next batch waiting.
        """
        overdue_s = now_s - self._settings.table_flush_ms / 1000
        running = [owned for owned in self.owned.values() if owned.phase == RUNNING]
        waits = True
        for owned in sorted(running, key=_flushed_s):
            if self._is_full(owned) or (waits and owned.flushed_s <= overdue_s):
                waits = not self._flush(owned) and waits

    def _is_full(self, owned: Owned) -> bool:
        partition = owned.partition
        return partition is not None and (
            partition.flush_wanted
            or partition.events_since_flush >= self._settings.table_flush_events
        )

    def _flush(self, owned: Owned) -> bool:
        """Write a table behind, if there is something to write; whether there was.

        A full disk blocks the partition until there is room.

        The truth is in `events`: nothing is lost by a table that is not written, but
        memory would follow the number of sessions.
        """
        if owned.partition is None or owned.table is None:
            return False
        owned.flushed_s = time.monotonic()
        flush = owned.partition.flush()
        if flush is None:
            return False
        try:
            crash_point("CP_WORKER_BEFORE_TABLE")
            owned.table.write(flush)
            crash_point("CP_WORKER_AFTER_TABLE")
        except LogUnavailableError as error:
            self.lay_off(owned.index, f"its table cannot be written: {error.reason}")
            return True
        except TableCorruptError as error:
            self.forget(owned.index, str(error), corrupt=True)
            return True
        owned.partition.flushed()
        owned.back_off_ms = BACK_OFF_MS
        return True

    def lay_off(self, index: int, reason: str) -> None:
        """Let a partition's table and memory go, and restore it when that works again.

        RocksDB takes no more writes after some of its errors, until it is opened anew.
        """
        owned = self.owned[index]
        _logger.error("partition %d is blocked: %s", index, reason)
        self._consumer.pause([TopicPartition(self._topic, index)])
        self._close(owned, write=False)
        owned.phase, owned.reason = BLOCKED, reason
        owned.wait()

    def _give_up(self, index: int, *, write: bool) -> None:
        self._restores.cancel(index)
        owned = self.owned.pop(index, None)
        if owned is not None:
            self._close(owned, write=write)

    def _close(self, owned: Owned, *, write: bool) -> None:
        if owned.partition is None or owned.table is None:
            return
        owned.partition.drop()
        if write:
            self._write_last(owned.partition, owned.table)
        owned.table.close()
        self._on_drop(owned.partition)
        owned.partition = owned.table = None

    def _write_last(self, partition: Partition, table: Table) -> None:
        """Write what is committed; if it fails, the next restore folds a little more."""
        flush = partition.flush()
        if flush is None:
            return
        try:
            table.write(flush)
        except (LogUnavailableError, TableCorruptError) as error:
            _logger.warning("a table was not written at the end: %s", error)


def _flushed_s(owned: Owned) -> float:
    return owned.flushed_s


def _listed(indices: list[int]) -> str:
    return ", ".join(str(index) for index in indices) or "none"
