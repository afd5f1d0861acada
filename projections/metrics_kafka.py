"""Counting a log on Kafka: the events topic, read from the positions of a small store.

One round, in numbered steps:

1. Records are polled, of all partitions of this process.
2. Each is counted; one whose seq is known is a repeat and dropped.
3. Counts, sessions and positions are stored in one transaction, then shown.

No offset is committed anywhere else: a killed process goes on where its counts are.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException

from foldline.errors import LogFormatError, LogTruncatedError, ReadUnavailableError
from foldline.faults import crash_point
from foldline.kafka import Cluster
from foldline.processors.event_intake import EventRecord
from foldline.processors.replica_source import ASK_TIMEOUT_MS, EventsTopic, polled_of
from foldline.processors.restore import decoded
from foldline.processors.stored import StoredEvent
from foldline.projections.metrics_counting import Counting
from foldline.projections.metrics_store import MetricsStore
from foldline.schemas.codec import Codec
from foldline.settings import Settings


class KafkaCounter:
    """Counts the events of some partitions. For one thread, but `counting.shown`."""

    def __init__(
        self,
        cluster: Cluster,
        settings: Settings,
        *,
        codec: Codec,
        partitions: Sequence[int],
        path: Path,
    ) -> None:
        """Open the store and begin to read behind what it has.

        Args:
            cluster: the brokers.
            settings: of the log.
            codec: decodes its events.
            partitions: which of them are counted here.
            path: the store's file; another topic or other partitions begin it anew.

        Raises:
            ReadUnavailableError: the brokers do not answer.
            LogTruncatedError: records were deleted that are not counted yet.
        """
        self._codec = codec
        with ExitStack() as opening:
            self._topic = EventsTopic(cluster, settings)
            opening.callback(self._topic.close)
            listed = ",".join(map(str, partitions))
            identity = f"{self._topic.url} {self._topic.topic_id()} {listed}"
            store = MetricsStore(path, identity=identity)
            opening.callback(store.close)
            self.counting = Counting(store)
            self._positions = dict.fromkeys(partitions, 0) | store.positions()
            for partition in partitions:
                self._begin(partition)
            self._closing = opening.pop_all()

    def _begin(self, partition: int) -> None:
        """Read on behind what is counted.

        Raises:
            LogTruncatedError: what comes next was deleted.
        """
        low, end = self._bounds(partition)
        position = self._positions[partition]
        if position == 0:
            position = self._positions[partition] = low
        if position < low:
            raise LogTruncatedError(self._topic.name, partition, position, low)
        self.counting.lag[partition] = max(end - position, 0)
        self._topic.assign(partition, position)

    def _bounds(self, partition: int) -> tuple[int, int]:
        return self._topic.stable_bounds(partition, timeout_s=ASK_TIMEOUT_MS / 1000)

    def count_some(self) -> int:
        """One round; gives how many records it had.

        Raises:
            LogFormatError: a record that is no event; nothing of its round is kept.
            LogTruncatedError: records were deleted that are not counted yet.
            ReadUnavailableError: the brokers do not answer; the next round goes on.
        """
        try:
            polled = self._topic.poll()
        except KafkaException as error:
            raise ReadUnavailableError(self._topic.url, str(error)) from error
        crash_point("CP_METRICS_AFTER_POLL")
        found = 0
        for partition, messages in polled.items():
            found += self._take_in(partition, messages)
        if polled:
            positions = {partition: self._positions[partition] for partition in polled}
            self._look_how_far(polled)
            self.counting.commit(positions)
        return found

    def _take_in(self, partition: int, messages: Sequence[Any]) -> int:
        polled = polled_of(f"{self._topic.name} [{partition}]", messages)
        for record in polled.records:
            self._count(partition, record)
        self.counting.skipped += len(polled.skipped)
        self._positions[partition] = max(self._positions[partition], polled.end)
        if polled.error:
            self._topic.unassign(partition)
            self._begin(partition)
        return len(polled.records)

    def _count(self, partition: int, record: EventRecord) -> None:
        if record.offset < self._positions[partition]:
            return
        session_id = record.key.decode(errors="replace")
        stored = StoredEvent(0, record.schema_id, record.body)
        recorded = decoded(
            self._codec.decode_structure,
            stored,
            url=f"{self._topic.name} [{partition}] offset {record.offset}",
            session_id=session_id,
        )
        if recorded.envelope.session_id != session_id:
            reason = f"offset {record.offset} is of another session than its key"
            raise LogFormatError(self._topic.name, reason)
        self.counting.take(recorded)

    def _look_how_far(self, polled: dict[int, list[Any]]) -> None:
        for partition in polled:
            end = self._topic.seen_end(partition)
            self.counting.lag[partition] = max(end - self._positions[partition], 0)

    @property
    def lag(self) -> int:
        """How many records of all partitions are not counted, as far as is known."""
        return sum(self.counting.lag.values())

    def close(self) -> None:
        """Let go of the connections and the file."""
        self._closing.close()
