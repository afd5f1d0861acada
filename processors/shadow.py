"""A new fold version's snapshots, built beside the workers of the version before.

A worker of a new fold version finds no snapshots of its own, and folds every event of a
partition before it takes it over. `foldline worker --shadow`, run before the workers are
rolled, does that beforehand: it folds `events` into tables of its own, and publishes
the state of every session and a low-water record to its version's topic, until no
partition is more than `snapshot_lag_events` behind. Then a restore is as short as ever.

Two that publish to one topic would let an older state replace a newer one. So:

1. The shadow takes its transactional.id, then looks at the group: a member of its own
   fold version, and it ends.
2. A worker joins the group, then takes the same id (`fence_shadow`) before its first
   restore. Whichever came first in taking it, one of the two sees the other.
"""

import logging
import shutil
from collections.abc import Sequence
from threading import Event

from foldline.errors import LogUnavailableError, WorkerFailedError
from foldline.kafka import Cluster, OnError, fold_mark
from foldline.kafka_ready import group_members
from foldline.processors.kafka_records import Outgoing
from foldline.processors.partition import Flush, Position, Rules
from foldline.processors.partition_answers import lost_record
from foldline.processors.partition_restore import restore_partition
from foldline.processors.partition_source import PartitionSource, RestoreCancelledError
from foldline.processors.restore_ways import Progress, Restored
from foldline.processors.table import Table
from foldline.processors.worker_publisher import (
    LostProducerError,
    Publisher,
    TornBatchError,
)
from foldline.processors.worker_setup import Setup
from foldline.processors.worker_watch import Watch
from foldline.schemas.codec import frame
from foldline.schemas.record_codec import frame_record
from foldline.schemas.snapshots import encode_snapshot
from foldline.schemas.state import FOLD_VERSION
from foldline.schemas.topic_records import LOW_WATER_KEY, LostSession, LowWater
from foldline.settings import Settings

SHADOW_SLOT = f"shadow-{FOLD_VERSION}"
"""The slot of the one shadow of this fold version."""

PUBLISH_SESSIONS = 500
PUBLISH_BYTES = 8 * 1024 * 1024
"""How much one transaction publishes."""

PASSES_MAX = 100
"""How often it looks at every partition; then the log grows faster than it folds."""

_logger = logging.getLogger("foldline.worker")


def fence_shadow(
    cluster: Cluster, settings: Settings, *, on_error: OnError, watch: Watch
) -> None:
    """End a shadow of this fold version, before anything is restored.

    Raises:
        LogUnavailableError: no answer; to be tried again.
    """
    publisher = Publisher(
        cluster,
        settings,
        transactional_id=f"{cluster.prefix}{SHADOW_SLOT}",
        on_error=on_error,
        watch=watch,
    )
    try:
        if not publisher.open():
            raise LogUnavailableError(cluster.url, "no transactions yet")
    except LostProducerError as error:  # another worker did it at the same time
        if not error.fenced:
            raise LogUnavailableError(cluster.url, error.reason) from error
    finally:
        publisher.drop()


class Shadow:
    """Builds one fold version's snapshots. `setup` holds the slot SHADOW_SLOT."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._ways = setup.ways
        self._names = setup.cluster.names
        self._topic = self._names.snapshots(FOLD_VERSION)
        self._limit = setup.settings.snapshot_lag_events
        self._stopped = Event()

    def stop(self) -> None:
        """Ask `build` to end; what it has published stays."""
        self._stopped.set()

    def build(self) -> bool:
        """Publish until every partition is near enough to its end; False: stopped before.

        Raises:
            WorkerFailedError: workers of this fold version are there, or the log grows
                faster than this.
            LogUnavailableError: the brokers do not say who is in the group.
        """
        watch = Watch()
        publisher = self._setup.publisher(_ignore, watch)
        try:
            self._take_id(publisher)
            self._refuse_beside_workers()
            for _ in range(PASSES_MAX):
                lags = [self._pass(i, publisher) for i in range(self._ways.partitions)]
                if max(lags) <= self._limit:
                    self._remove_tables()
                    return True
        except RestoreCancelledError:
            return False
        except (TornBatchError, LostProducerError) as error:
            reason = f"the shadow of fold version {FOLD_VERSION} was ended: {error}"
            raise WorkerFailedError(reason) from error
        finally:
            publisher.drop()
            watch.close()
        raise WorkerFailedError(f"{PASSES_MAX} passes did not reach the end of the log")

    def _remove_tables(self) -> None:
        """They have done their work: what is published is what a restore begins with.

        The slot's folder stays, with the lock that this process holds.
        """
        for folder in self._ways.folder.iterdir():
            if folder.is_dir():
                shutil.rmtree(folder, ignore_errors=True)

    def _take_id(self, publisher: Publisher) -> None:
        while not publisher.open():
            if self._stopped.wait(1):
                raise RestoreCancelledError

    def _refuse_beside_workers(self) -> None:
        members = group_members(self._setup.cluster, self._setup.settings)
        mark = fold_mark(FOLD_VERSION)
        if any(client_id.endswith(mark) for client_id in members):
            raise WorkerFailedError(
                f"workers of fold version {FOLD_VERSION} run already: they need no shadow"
            )

    def _pass(self, index: int, publisher: Publisher) -> int:
        """Bring one partition near its end; how far behind it is then, in events."""
        progress = Progress()
        restored = restore_partition(
            index, self._ways, cancelled=self._stopped, progress=progress
        )
        table = restored.table
        try:
            position = _written(restored)
            dirty = list(table.dirty())
            self._publish(index, table, dirty, publisher)
            self._publish_lost(restored.partition.owed, publisher)
            self._publish_mark(index, position, publisher)
            table.write(Flush(position=position, states=[], dirty={}, clean=dirty))
        finally:
            table.close()
        source = PartitionSource(
            self._setup.cluster,
            self._setup.settings,
            index=index,
            cancelled=self._stopped,
        )
        lag = source.end_offset(self._names.events) - position.event_offset
        _logger.info(
            "partition %d: %s sessions published, %s offsets behind",
            index,
            f"{len(dirty):,}",
            f"{lag:,}",
        )
        return lag

    def _publish(
        self, index: int, table: Table, session_ids: list[str], publisher: Publisher
    ) -> None:
        """States as they are now, some in each transaction."""
        batch: list[Outgoing] = []
        size = 0
        for session_id in session_ids:
            state = table.get(session_id)
            if state is None:
                continue
            value = frame(self._ways.ids.snapshot, encode_snapshot(state))
            batch.append(Outgoing(index, session_id.encode(), value))
            size += len(value)
            if len(batch) >= PUBLISH_SESSIONS or size >= PUBLISH_BYTES:
                self._commit(batch, publisher)
                batch, size = [], 0
        self._commit(batch, publisher)

    def _publish_lost(self, lost: Sequence[LostSession], publisher: Publisher) -> None:
        """Publish lost sessions before a mark lies beyond what is missing of them."""
        schema_id = self._ways.ids.lost_session
        records = [lost_record(one, schema_id) for one in lost]
        for begin in range(0, len(records), PUBLISH_SESSIONS):
            self._commit(records[begin : begin + PUBLISH_SESSIONS], publisher)

    def _publish_mark(self, index: int, position: Position, publisher: Publisher) -> None:
        """Only now: every event below the position is in a published state."""
        rules: Rules = position.rules
        mark = LowWater(
            partition=index,
            fold_version=FOLD_VERSION,
            low=position.event_offset,
            input_offset=position.input_offset,
            rules_version=rules.version,
            schema_ids=tuple(sorted(rules.schema_ids)),
        )
        value = frame_record(self._ways.ids.low_water, mark)
        self._commit([Outgoing(index, LOW_WATER_KEY, value)], publisher)

    def _commit(self, batch: list[Outgoing], publisher: Publisher) -> None:
        if not batch:
            return
        publisher.begin()
        publisher.send(self._topic, batch)
        publisher.deliver()
        publisher.commit()


def _written(restored: Restored) -> Position:
    """Write what the restore folded; the position of the table then."""
    flush = restored.partition.flush()
    if flush is not None:
        restored.table.write(flush)
        restored.partition.flushed()
    return restored.partition.position


def _ignore(_: object) -> None:
    """What librdkafka could not mend shows as the failure of a transaction."""
