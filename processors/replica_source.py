"""The topic `events` as a replica reads it: partitions by hand, from where it says."""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import (
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    OffsetSpec,  # pyright: ignore[reportPrivateImportUsage] - documented there
)

from foldline.errors import DecodeError, LogFormatError, ReadUnavailableError
from foldline.kafka import Cluster, admin, reader_consumer
from foldline.processors.event_intake import EventRecord
from foldline.processors.gate import Gate
from foldline.processors.kafka_records import append_offset_of, headers_of
from foldline.schemas.codec import unframe
from foldline.settings import Settings

BATCH_RECORDS = 2_000
"""How many records are taken in at once."""

POLL_MS = 100
"""How long a poll waits for a record."""

ASK_TIMEOUT_MS = 5_000
"""How long a broker may take to answer a question."""

MIN_TIMEOUT_S = 0.01
"""The shortest time that a question may take."""

LOOK_TIMEOUT_MS = 1_000
"""How long looking for new leaders may take."""

MOVED_PAUSE_MS = 100
"""How long one waits before asking a partition's new leader."""

_LATEST: Any = OffsetSpec.latest()
_EARLIEST: Any = OffsetSpec.earliest()
_COMMITTED = IsolationLevel.READ_COMMITTED
_UNCOMMITTED = IsolationLevel.READ_UNCOMMITTED

_EOF = KafkaError._PARTITION_EOF  # noqa: SLF001 - named so by the library
_MOVED = (
    KafkaError._NOENT,  # noqa: SLF001 - no leader is known
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
)
_GONE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)  # noqa: SLF001


@dataclass(slots=True)
class Polled:
    """What one poll gives of one partition.

    Everything below `end` is in `records`, or is nothing that counts (-1: not known).
    `skipped` are the offsets of records that no worker wrote.
    """

    records: list[EventRecord] = field(default_factory=list[EventRecord])
    end: int = -1
    skipped: list[int] = field(default_factory=list[int])
    gone: bool = False
    """Whether the broker has nothing at the offset that was asked for."""
    error: str = ""


class EventsTopic:
    """One consumer of one log's events. Every method may be called from any thread.

    Raises (each): ReadUnavailableError where the brokers do not answer.
    """

    def __init__(self, cluster: Cluster, settings: Settings) -> None:
        self.name = cluster.names.events
        self.url = cluster.url
        self._gate = Gate(lambda: ReadUnavailableError(self.url, "the log is closed"))
        self._admin: Any = admin(cluster, settings)
        self._consumer: Any = reader_consumer(cluster, settings)

    def end(self, partition: int, *, timeout_s: float) -> int:
        """Below which offset every event lies, those of open transactions included.

        With no transaction open the last record is a marker: it is not waited for,
        because a consumer tells of a marker at the end only after its next fetch.

        Asked by the admin client. A broker answers one connection in order, so on the
        consumer's the question would wait behind its fetch.
        """
        # In this order: equal means that they were equal when the first was answered.
        stable, end = self._offsets(
            partition, (_LATEST, _COMMITTED), (_LATEST, _UNCOMMITTED), timeout_s=timeout_s
        )
        return end - 1 if 0 < end == stable else end

    def stable_bounds(self, partition: int, *, timeout_s: float) -> tuple[int, int]:
        """The first offset, and the one before which no transaction is open."""
        first, end = self._offsets(
            partition, (_EARLIEST, _COMMITTED), (_LATEST, _COMMITTED), timeout_s=timeout_s
        )
        return first, end

    def _offsets(
        self, partition: int, *wanted: tuple[Any, IsolationLevel], timeout_s: float
    ) -> list[int]:
        timeout_s = min(max(timeout_s, MIN_TIMEOUT_S), ASK_TIMEOUT_MS / 1000)
        until_s = time.monotonic() + timeout_s
        with self._gate.inside():
            while True:
                try:
                    return self._asked(partition, wanted, timeout_s)
                except (KafkaException, TimeoutError) as error:
                    self._look_for_leaders()
                    if not _has_moved(error) or time.monotonic() >= until_s:
                        raise ReadUnavailableError(self.url, str(error)) from error
                time.sleep(MOVED_PAUSE_MS / 1000)

    def _look_for_leaders(self) -> None:
        """Ask who leads the partitions now.

        By itself the admin client goes on asking whom it knew, also long after brokers
        that were gone are back: a question of its own does not make it look again.
        """
        with suppress(KafkaException):
            self._admin.list_topics(self.name, timeout=LOOK_TIMEOUT_MS / 1000)

    def _asked(
        self,
        partition: int,
        wanted: tuple[tuple[Any, IsolationLevel], ...],
        timeout_s: float,
    ) -> list[int]:
        place = TopicPartition(self.name, partition)
        asked = [
            self._admin.list_offsets(
                {place: which}, isolation_level=level, request_timeout=timeout_s
            )[place]
            for which, level in wanted
        ]
        return [answer.result(timeout_s).offset for answer in asked]

    def topic_id(self) -> str:
        """The id of the topic: another one for a topic that was made anew."""
        with self._gate.inside():
            asked = self._admin.describe_topics(
                TopicCollection([self.name]), request_timeout=ASK_TIMEOUT_MS / 1000
            )
            try:
                return str(asked[self.name].result(ASK_TIMEOUT_MS / 1000).topic_id)
            except (KafkaException, TimeoutError) as error:
                raise ReadUnavailableError(self.url, str(error)) from error

    def assign(self, partition: int, offset: int) -> None:
        """Read a partition from an offset on."""
        with self._gate.inside():
            place = TopicPartition(self.name, partition, offset)
            self._consumer.incremental_assign([place])

    def unassign(self, partition: int) -> None:
        """Read a partition no further."""
        # KafkaException: it was not assigned.
        with self._gate.inside(), suppress(KafkaException):
            self._consumer.incremental_unassign([TopicPartition(self.name, partition)])

    def poll(self) -> dict[int, list[Any]]:
        """The next messages, by partition; none after a while without any.

        Waits for the first only: `consume` alone would wait until it had them all.
        """
        with self._gate.inside():
            first = self._consumer.poll(POLL_MS / 1000)
            if first is None:
                return {}
            rest = self._consumer.consume(BATCH_RECORDS - 1, 0)
        found: dict[int, list[Any]] = {}
        for message in (first, *rest):
            found.setdefault(message.partition(), []).append(message)
        return found

    def seen_end(self, partition: int) -> int:
        """The end that the last fetch told of; -1 before the first. Asks nobody."""
        with self._gate.inside():
            place = TopicPartition(self.name, partition)
            bounds = self._consumer.get_watermark_offsets(place, cached=True)
        return max(bounds[1], -1) if bounds else -1

    def close(self) -> None:
        """Let go of the connections."""
        if self._gate.close():
            self._consumer.close()


def polled_of(topic: str, messages: Sequence[Any]) -> Polled:
    """Messages of one partition, as a store takes them.

    Raises:
        LogFormatError: a worker's record that is no framed event.
    """
    polled = Polled()
    for message in messages:
        error = message.error()
        if error is None:
            _add(topic, polled, message)
        elif error.code() == _EOF:
            polled.end = message.offset()
        else:
            polled.gone = error.code() in _GONE
            polled.error = str(error)
            break
    return polled


def _add(topic: str, polled: Polled, message: Any) -> None:
    offset = message.offset()
    polled.end = offset + 1
    try:
        append_offset_of(headers_of(message))
    except DecodeError:
        polled.skipped.append(offset)
        return
    try:
        schema_id, body = unframe(message.value() or b"")
    except DecodeError as error:
        where = f"{topic} [{message.partition()}]"
        raise LogFormatError(where, f"offset {offset}: {error}") from error
    polled.records.append(EventRecord(offset, message.key() or b"", schema_id, body))


def _has_moved(error: Exception) -> bool:
    """Whether a partition has another leader than the one that was asked."""
    return isinstance(error, KafkaException) and error.args[0].code() in _MOVED
