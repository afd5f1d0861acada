"""What a restore reads: offsets of the group, ends of topics, ranges of partitions.

One instance serves one restore, in its own thread; cancelling ends it between records.
"""

import time
from collections.abc import Iterator
from concurrent.futures import Future
from threading import Event
from typing import TYPE_CHECKING, Any, cast

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import OffsetSpec  # pyright: ignore[reportPrivateImportUsage]

from foldline.errors import LogUnavailableError
from foldline.kafka import Cluster, admin, reader_consumer
from foldline.settings import Settings

if TYPE_CHECKING:
    from confluent_kafka import Message

ANSWER_TIMEOUT_MS = 5_000
"""How long a broker has for one answer; then it is asked again."""

STABLE_TIMEOUT_MS = 120_000
"""How long a group's offset may stay unstable: far beyond any transaction's time-out."""

ASK_AGAIN_MS = 100
"""The pause before an unstable offset is asked for again."""

READ_MAX = 500
"""How many records one read takes."""

READ_WAIT_MS = 200
"""How long one read waits, so that a cancelled restore ends soon."""

SILENCE_MAX_MS = 60_000
"""How long nothing may come of a partition that has not ended yet."""

_EOF = KafkaError._PARTITION_EOF  # noqa: SLF001 - named so by the library
_UNSTABLE = frozenset(
    cast("int", getattr(KafkaError, name))
    for name in (
        "_TIMED_OUT",
        "UNSTABLE_OFFSET_COMMIT",
        "REQUEST_TIMED_OUT",
        "COORDINATOR_NOT_AVAILABLE",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "NOT_COORDINATOR",
        "_TRANSPORT",
        "_WAIT_COORD",
    )
)


class RestoreCancelledError(Exception):
    """Raised when the partition was revoked, or the worker ends, during a restore."""


class PartitionSource:
    """Reads for one restore of one partition."""

    def __init__(
        self, cluster: Cluster, settings: Settings, *, index: int, cancelled: Event
    ) -> None:
        self._cluster = cluster
        self._index = index
        self._cancelled = cancelled
        self._admin: Any = admin(cluster, settings)
        self._settings = settings

    def committed_offset(self) -> int:
        """The group's stable next offset of `appends`; 0 where it never committed one.

        An offset that is part of an open transaction is not stable: the broker does not
        say, and is asked again until that transaction is committed or aborted.

        Raises:
            LogUnavailableError: no answer for longer than any transaction lasts.
            RestoreCancelledError: the partition is not ours any more.
        """
        until_s = time.monotonic() + STABLE_TIMEOUT_MS / 1000
        while True:
            self.check()
            try:
                return max(self._committed(), 0)
            except KafkaException as failure:
                error = cast("KafkaError", failure.args[0])
                if error.code() not in _UNSTABLE or time.monotonic() > until_s:
                    raise self._unavailable(error) from failure
            self._cancelled.wait(ASK_AGAIN_MS / 1000)

    def _committed(self) -> int:
        group = self._cluster.names.group
        partition = TopicPartition(self._cluster.names.appends, self._index)
        futures = self._admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group, [partition])],
            require_stable=True,
            request_timeout=ANSWER_TIMEOUT_MS / 1000,
        )
        future = cast("dict[str, Future[Any]]", futures)[group]
        found = cast("TopicPartition", future.result().topic_partitions[0])
        if found.error is not None:
            raise KafkaException(found.error)
        return found.offset

    def topics(self) -> frozenset[str]:
        """The names of the topics that the brokers have.

        Raises:
            LogUnavailableError: no answer.
        """
        try:
            listed = self._admin.list_topics(timeout=ANSWER_TIMEOUT_MS / 1000)
        except KafkaException as failure:
            raise self._unavailable(cast("KafkaError", failure.args[0])) from failure
        return frozenset(listed.topics)

    def first_offset(self, topic: str) -> int:
        """The oldest offset that a partition of a topic still has.

        Raises:
            LogUnavailableError: no answer.
        """
        return self._offset(topic, OffsetSpec.earliest())

    def end_offset(self, topic: str) -> int:
        """Its next offset, records of open transactions included.

        Raises:
            LogUnavailableError: no answer.
        """
        return self._offset(topic, OffsetSpec.latest())

    def _offset(self, topic: str, spec: Any) -> int:
        partition = TopicPartition(topic, self._index)
        futures = self._admin.list_offsets(
            {partition: spec},
            isolation_level=IsolationLevel.READ_UNCOMMITTED,
            request_timeout=ANSWER_TIMEOUT_MS / 1000,
        )
        future = cast("dict[TopicPartition, Future[Any]]", futures)[partition]
        try:
            return cast("int", future.result().offset)
        except KafkaException as failure:
            raise self._unavailable(cast("KafkaError", failure.args[0])) from failure

    def records(self, topic: str, start: int, *, upto: int) -> Iterator["Message"]:
        """Committed records from an offset on, until the partition ends at `upto`.

        The end of a partition below `upto` is only an open transaction: what follows is
        waited for. Markers of transactions are offsets without records.

        Raises:
            LogUnavailableError: nothing came for SILENCE_MAX_MS, or the read failed.
            RestoreCancelledError: the partition is not ours any more.
        """
        if start >= upto:
            return
        # A client of its own: one that is given a second topic fetches it a second later.
        consumer: Any = reader_consumer(self._cluster, self._settings, fetch_wait_ms=10)
        consumer.assign([TopicPartition(topic, self._index, start)])
        heard_s = time.monotonic()
        try:
            while True:
                self.check()
                for message in _read(consumer):
                    heard_s = time.monotonic()
                    error = message.error()
                    if error is None:
                        yield message
                    elif error.code() != _EOF:
                        raise self._unavailable(error)
                    elif cast("int", message.offset()) >= upto:
                        return
                if time.monotonic() - heard_s > SILENCE_MAX_MS / 1000:
                    raise LogUnavailableError(
                        self._cluster.url, f"{topic} [{self._index}] gives no records"
                    )
        finally:
            consumer.close()

    def check(self) -> None:
        """Stop here if the restore was cancelled.

        Raises:
            RestoreCancelledError: it was.
        """
        if self._cancelled.is_set():
            raise RestoreCancelledError

    def _unavailable(self, error: KafkaError) -> LogUnavailableError:
        return LogUnavailableError(self._cluster.url, f"{error.name()}: {error.str()}")


def _read(consumer: Any) -> list["Message"]:
    """What is here, after waiting for the first: `consume` alone waits for all."""
    first = consumer.poll(READ_WAIT_MS / 1000)
    if first is None:
        return []
    return [first, *consumer.consume(READ_MAX - 1, 0)]
