"""The fleet's Faust table: rows in RocksDB, never ahead of their changelog.

Faust writes a row to RocksDB when it is set, and its changelog record when the broker gets
to it: after a kill the disk would have what no other worker can restore. Here

1. a row that is set stays in memory, over the one on disk;
2. its changelog record is acknowledged, in the order in which rows were set;
3. the row and the offset of its record go to disk, in one batch.

So the disk is at every moment a prefix of the changelog and knows which. A folder that is
damaged is set aside and restored from the changelog.
"""
# pyright: reportUnknownMemberType=false
# Faust's types are partly unknown to others.

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import faust
from faust.stores import base
from faust.types import TP
from yarl import URL

from foldline.processors.rocks import Batch, MetaRow, Rocks, open_or_set_aside, read_meta

_Store: Any = base.SerializedStore
_Table: Any = faust.Table

OFFSET = b"o"
"""The row with the offset of the last changelog record that is on disk."""

ROWS_HAVE_PARTITIONS = "rows are read and set by partition, not by the event under way"


class FleetStore(_Store):
    """The rows of all partitions of a process; each has a database of its own."""

    def __init__(self, url: Any, app: Any, table: Any, *, folder: Path, **kw: Any) -> None:
        super().__init__(url, app, table, **kw)
        self._folder = folder
        self._open: dict[int, Rocks] = {}
        self._unacknowledged: dict[int, dict[bytes, list[bytes | None]]] = {}

    # --- rows ------------------------------------------------------------------------

    def row(self, partition: int, key: bytes) -> bytes | None:
        """A row as it was set last."""
        waiting = self._unacknowledged.get(partition, {}).get(key)
        return waiting[-1] if waiting else self._rocks(partition).get(key)

    def set_row(self, partition: int, key: bytes, value: bytes | None) -> None:
        """Step 1: keep a row in memory."""
        waiting = self._unacknowledged.setdefault(partition, {})
        waiting.setdefault(key, []).append(value)

    def stored(
        self, partition: int, start: bytes, end: bytes
    ) -> Iterator[tuple[bytes, bytes]]:
        """The rows on disk with start <= key < end: all of them once one was restored."""
        return self._rocks(partition).scan(start, end)

    def acknowledged(self, tp: TP, offset: int, key: bytes, value: bytes | None) -> None:
        """Step 3: what the changelog has goes to disk."""
        waiting = self._unacknowledged.get(tp.partition, {})
        rows = waiting.get(key, [])
        del rows[:1]
        if not rows:
            waiting.pop(key, None)
        if tp.partition in self._open:
            self._write(tp.partition, offset, [(key, value)])

    def _write(
        self, partition: int, offset: int, rows: Iterable[tuple[bytes, bytes | None]]
    ) -> None:
        batch = Batch()
        for key, value in rows:
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        batch.put(OFFSET, b"%d" % offset)
        self._rocks(partition).write(batch)

    def _rocks(self, partition: int) -> Rocks:
        rocks = self._open.get(partition)
        if rocks is None:
            folder = self._folder / f"p{partition}"
            rocks = open_or_set_aside(folder, lambda: self._opened(folder, partition))
            self._open[partition] = rocks
        return rocks

    def _opened(self, folder: Path, partition: int) -> Rocks:
        rocks = Rocks(folder)
        try:
            read_meta(rocks, MetaRow, f"{self.app.conf.id} {partition}")
        except BaseException:
            rocks.close()
            raise
        return rocks

    # --- what Faust asks of a store --------------------------------------------------

    def persisted_offset(self, tp: TP) -> int | None:
        """The offset of the changelog up to which rows are on disk."""
        found = self._rocks(tp.partition).get(OFFSET)
        return None if found is None else int(found)

    def set_persisted_offset(self, tp: TP, offset: int) -> None:
        """Nothing: offsets go to disk with their rows."""

    async def need_active_standby_for(self, tp: TP) -> bool:
        """Nobody stands by: a partition that moves is restored."""
        del tp
        return False

    def apply_changelog_batch(
        self,
        batch: Iterable[Any],
        to_key: Callable[[Any], Any],
        to_value: Callable[[Any], Any],
    ) -> None:
        """Restore: records of the changelog go to disk."""
        del to_key, to_value  # raw bytes
        found: dict[int, list[tuple[bytes, bytes | None]]] = {}
        ends: dict[int, int] = {}
        for event in batch:
            message = event.message
            found.setdefault(message.partition, []).append((message.key, message.value))
            ends[message.partition] = message.offset
        for partition, rows in found.items():
            self._write(partition, ends[partition], rows)

    async def on_rebalance(
        self,
        assigned: set[TP],
        revoked: set[TP],
        newly_assigned: set[TP],
        generation_id: int = 0,
    ) -> None:
        """Let go of what others have now."""
        del newly_assigned, generation_id
        topics = self.table.changelog_topic.topics
        kept = {tp.partition for tp in assigned if tp.topic in topics}
        for tp in revoked:
            if tp.topic in topics and tp.partition not in kept:
                self._let_go(tp.partition)

    async def on_stop(self) -> None:
        """Let go of everything."""
        for partition in list(self._open):
            self._let_go(partition)

    def _let_go(self, partition: int) -> None:
        self._unacknowledged.pop(partition, None)
        rocks = self._open.pop(partition, None)
        if rocks is not None:
            rocks.close()

    async def backup_partition(self, *args: Any, **named: Any) -> None:
        """Nothing: the changelog is the copy."""
        del args, named

    def restore_backup(self, *args: Any, **named: Any) -> None:
        """Nothing: see above."""
        del args, named

    def reset_state(self) -> None:
        """Nothing: Faust would delete the folders of other tables with this one's."""

    def _get(self, key: bytes) -> bytes | None:
        raise NotImplementedError(ROWS_HAVE_PARTITIONS)

    def _set(self, key: bytes, value: bytes | None) -> None:
        raise NotImplementedError(ROWS_HAVE_PARTITIONS)

    def _del(self, key: bytes) -> None:
        raise NotImplementedError(ROWS_HAVE_PARTITIONS)

    def _contains(self, key: bytes) -> bool:
        raise NotImplementedError(ROWS_HAVE_PARTITIONS)

    def _iteritems(self) -> Iterator[tuple[bytes, bytes]]:
        raise NotImplementedError(ROWS_HAVE_PARTITIONS)

    def _iterkeys(self) -> Iterator[bytes]:
        raise NotImplementedError(ROWS_HAVE_PARTITIONS)

    def _itervalues(self) -> Iterator[bytes]:
        raise NotImplementedError(ROWS_HAVE_PARTITIONS)

    def _size(self) -> int:
        raise NotImplementedError(ROWS_HAVE_PARTITIONS)

    def _clear(self) -> None:
        raise NotImplementedError(ROWS_HAVE_PARTITIONS)


class FleetTable(_Table):
    """A table of raw rows, one database and one changelog partition for each partition.

    `on_restored` is told the partitions whose rows are all on disk.
    """

    def __init__(
        self,
        app: Any,
        *,
        folder: Path,
        on_restored: Callable[[set[int]], None],
        **kw: Any,
    ) -> None:
        super().__init__(app, key_type=bytes, value_type=bytes, **kw)
        self._folder = folder
        self._on_restored = on_restored

    @property
    def rows(self) -> FleetStore:
        """Its store."""
        return cast("FleetStore", self.data)

    def row(self, partition: int, key: bytes) -> bytes | None:
        """A row as it was set last."""
        return self.rows.row(partition, key)

    def set_row(self, partition: int, key: bytes, value: bytes | None) -> None:
        """Set a row, or delete it, and send its changelog record."""
        self.rows.set_row(partition, key, value)
        self.send_changelog(
            partition, key, value, key_serializer="raw", value_serializer="raw"
        )

    def _new_store(self) -> Any:
        return FleetStore(
            URL("foldline://"),
            self.app,
            self,
            folder=self._folder,
            table_name=self.name,
            key_type=bytes,
            value_type=bytes,
            key_serializer="raw",
            value_serializer="raw",
            loop=self.loop,
        )

    def _on_changelog_sent(self, fut: Any) -> None:
        sent, message = fut.result(), fut.message
        self.rows.acknowledged(
            sent.topic_partition, sent.offset, message.key, message.value
        )

    async def on_recovery_completed(
        self, active_tps: set[TP], standby_tps: set[TP]
    ) -> None:
        """Say that the rows are there."""
        await super().on_recovery_completed(active_tps, standby_tps)
        topics = self.changelog_topic.topics
        self._on_restored({tp.partition for tp in active_tps if tp.topic in topics})
