"""What workers rejected: read newest first, looked at, and sent once more.

A dead letter carries its bytes; a refused append only says where in `appends` it is,
which forgets it after a week.
"""

import heapq
import queue
import time
import uuid
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from foldline.errors import (
    DecodeError,
    LogUnavailableError,
    NoRecordError,
    UncertainAppendError,
)
from foldline.kafka import FETCH_WAIT_MS, Cluster, client_producer, reader_consumer
from foldline.processors.kafka_records import REPLY_TO, Headers, headers_of
from foldline.processors.kafka_verdicts import VerdictReader
from foldline.schemas.record_codec import RecordCodec
from foldline.schemas.registry_client import RegistryClient
from foldline.schemas.topic_records import DeadLetter, RefusedAppend
from foldline.schemas.verdicts import Verdict
from foldline.settings import Settings
from foldline.topics import partition_for

READ_TIMEOUT_MS = 30_000
"""How long reading one partition may take."""

WINDOW = 64
"""How many offsets are read back at first for each record that is wanted: transactions
and their markers take offsets too."""


class RawAppend(NamedTuple):
    """A record of `appends` as it was sent."""

    key: bytes | None
    value: bytes | None
    headers: Headers


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A record that no worker of this foldline's kind wrote: `detail` says what is wrong.

    `recorded_at` is when it was written, in microseconds since 1970 UTC.
    """

    raw: RawAppend
    detail: str
    recorded_at: int


@dataclass(frozen=True, slots=True)
class Rejection:
    """A record of `rejected`, by its own partition and offset."""

    partition: int
    offset: int
    record: DeadLetter | RefusedAppend | Unreadable


class Replayed(NamedTuple):
    """Where a record was sent anew, and what it was answered."""

    partition: int
    offset: int
    verdict: Verdict


class Rejected:
    """The topic `rejected` of one log.

    Args:
        cluster: the log.
        settings: how it is reached, and how long a verdict is waited for.
        registry: the log's registry.
        partitions: how many the log has.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: Settings,
        *,
        registry: RegistryClient,
        partitions: int,
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._codec = RecordCodec(registry)
        self._partitions = partitions

    def newest(self, limit: int) -> list[Rejection]:
        """The newest ones, the newest first.

        Raises:
            LogUnavailableError: no broker answers.
        """
        with self._reading() as consumer:
            found = [
                rejection
                for partition in range(self._partitions)
                for rejection in self._last(consumer, partition, limit)
            ]
        return heapq.nlargest(limit, found, key=lambda r: (r.record.recorded_at, r.offset))

    def at(self, partition: int, offset: int) -> Rejection:
        """One of them.

        Raises:
            NoRecordError: there is none.
            LogUnavailableError: no broker answers.
        """
        message = self._one(self._cluster.names.rejected, partition, offset)
        return self._rejection(message)

    def append_of(self, rejection: Rejection) -> RawAppend:
        """The record that was rejected, as it was sent.

        Raises:
            NoRecordError: `appends` has forgotten it, or nobody can read which it was.
            LogUnavailableError: no broker answers.
        """
        record = rejection.record
        if isinstance(record, Unreadable):
            topic = self._cluster.names.rejected
            reason = f"it is unreadable: {record.detail}"
            raise NoRecordError(topic, rejection.partition, rejection.offset, reason)
        if isinstance(record, DeadLetter):
            headers = [(header.name, header.value) for header in record.headers]
            return RawAppend(record.key, record.value, headers)
        message = self._one(self._cluster.names.appends, record.partition, record.offset)
        return RawAppend(message.key(), message.value(), _headers_of(message))

    def replay(self, raw: RawAppend) -> Replayed:
        """Send a record once more, as it was, to its session's partition.

        1. The verdict is to come here, so the header `reply_to` is replaced.
        2. The end of `verdicts` is known before it is sent.
        3. It is answered under the offset that it was acknowledged with.

        Raises:
            DecodeError: its key is no session's.
            LogUnavailableError: no broker answers; nothing was sent.
            UncertainAppendError: it was sent, and not answered in time.
        """
        session_id = _session_of(raw.key)
        reply_to = str(uuid.uuid4())
        partition = partition_for(session_id, self._partitions)
        headers = [(name, value) for name, value in raw.headers if name != REPLY_TO]
        again = RawAppend(raw.key, raw.value, [*headers, (REPLY_TO, reply_to.encode())])
        answers: queue.Queue[list[Verdict]] = queue.Queue()
        with closing(self._verdicts(reply_to, answers)) as reader:
            reader.start(self._cluster.url)
            offset = self._send(again, partition)
            return Replayed(partition, offset, self._answer(answers, partition, offset))

    # --- sending ---------------------------------------------------------------------

    def _verdicts(
        self, reply_to: str, answers: "queue.Queue[list[Verdict]]"
    ) -> VerdictReader:
        place = partition_for(reply_to, self._partitions)
        consumer = reader_consumer(
            self._cluster,
            self._settings,
            isolation="read_uncommitted",
            fetch_wait_ms=FETCH_WAIT_MS,
        )
        return VerdictReader(
            consumer,
            place=TopicPartition(self._cluster.names.verdicts, place),
            reply_to=reply_to,
            codec=self._codec,
            on_verdicts=answers.put,
        )

    def _send(self, raw: RawAppend, partition: int) -> int:
        producer = client_producer(self._cluster, self._settings)
        reports: list[tuple[KafkaError | None, Message]] = []
        try:
            producer.produce(
                self._cluster.names.appends,
                raw.value,
                raw.key,
                partition,
                headers=list(raw.headers),
                on_delivery=lambda error, message: reports.append((error, message)),
            )
        except BufferError as error:
            raise LogUnavailableError(self._cluster.url, str(error)) from error
        except KafkaException as error:
            raise LogUnavailableError(self._cluster.url, error.args[0].str()) from error
        producer.flush(self._settings.verdict_timeout_ms / 1_000)
        if not reports:
            raise UncertainAppendError(self._cluster.url, "no broker acknowledged it")
        error, message = reports[0]
        if error is not None:
            raise UncertainAppendError(self._cluster.url, error.str())
        return message.offset() or 0

    def _answer(
        self, answers: "queue.Queue[list[Verdict]]", partition: int, offset: int
    ) -> Verdict:
        end = time.monotonic() + self._settings.verdict_timeout_ms / 1_000
        while (left_s := end - time.monotonic()) > 0:
            try:
                verdicts = answers.get(timeout=left_s)
            except queue.Empty:
                break
            for verdict in verdicts:
                if verdict.append_offset == offset or verdict.recorded:
                    return verdict
        where = f"{self._cluster.names.appends} {partition}:{offset}"
        reason = f"{where} got no verdict in {self._settings.verdict_timeout_ms} ms"
        raise UncertainAppendError(self._cluster.url, reason)

    # --- reading ---------------------------------------------------------------------

    def _last(self, consumer: Consumer, partition: int, limit: int) -> list[Rejection]:
        """The last ones of a partition, read back ever further until they are enough."""
        topic = self._cluster.names.rejected
        low, high = self._ends(consumer, topic, partition)
        window = WINDOW * limit
        while True:
            start = max(low, high - window)
            found = deque(self._range(consumer, topic, partition, start), maxlen=limit)
            if len(found) == limit or start == low:
                return [self._rejection(message) for message in found]
            window *= 4

    def _range(
        self, consumer: Consumer, topic: str, partition: int, start: int
    ) -> Iterator[Message]:
        """Committed records from an offset to the end."""
        consumer.assign([TopicPartition(topic, partition, start)])
        end = time.monotonic() + READ_TIMEOUT_MS / 1_000
        while time.monotonic() < end:
            message = consumer.poll(0.5)
            if message is None:  # one without a value is no true one
                continue
            error = message.error()
            if error and error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                return
            if error and not error.retriable():
                raise LogUnavailableError(self._cluster.url, f"{topic}: {error.str()}")
            if not error:
                yield message
        raise LogUnavailableError(self._cluster.url, f"{topic}: no end in sight")

    def _one(self, topic: str, partition: int, offset: int) -> Message:
        if not 0 <= partition < self._partitions:
            reason = f"the log has {self._partitions} partitions"
            raise NoRecordError(topic, partition, offset, reason)
        with self._reading() as consumer:
            low, high = self._ends(consumer, topic, partition)
            if offset < low:
                raise NoRecordError(topic, partition, offset, "it was kept, and is gone")
            if offset < high:
                for message in self._range(consumer, topic, partition, offset):
                    if message.offset() == offset:
                        return message
                    break
        raise NoRecordError(topic, partition, offset, "no record was ever there")

    def _ends(self, consumer: Consumer, topic: str, partition: int) -> tuple[int, int]:
        place = TopicPartition(topic, partition)
        try:
            return consumer.get_watermark_offsets(place, timeout=READ_TIMEOUT_MS / 1_000)
        except KafkaException as error:
            reason = f"{topic}: {error.args[0].str()}"
            raise LogUnavailableError(self._cluster.url, reason) from error

    @contextmanager
    def _reading(self) -> Generator[Consumer]:
        consumer = reader_consumer(
            self._cluster, self._settings, fetch_wait_ms=FETCH_WAIT_MS
        )
        try:
            yield consumer
        finally:
            consumer.close()

    def _rejection(self, message: Message) -> Rejection:
        return Rejection(
            message.partition() or 0, message.offset() or 0, self._record(message)
        )

    def _record(self, message: Message) -> DeadLetter | RefusedAppend | Unreadable:
        """What it says; others may write there, too, and hide no rejection by it."""
        value = message.value()
        try:
            return self._codec.unframe_record(RefusedAppend, value)
        except DecodeError:
            pass
        try:
            return self._codec.unframe_record(DeadLetter, value)
        except DecodeError as error:
            raw = RawAppend(message.key(), value, _headers_of(message))
            return Unreadable(raw, error.reason, message.timestamp()[1] * 1_000)


def _headers_of(message: Message) -> Headers:
    """Those that can be sent again: none, where one of them cannot be read."""
    try:
        found = headers_of(message) or []
    except DecodeError:
        return []
    return [(name, value) for name, value in found if value is not None]  # pyright: ignore[reportUnnecessaryComparison]


def _session_of(key: bytes | None) -> str:
    """The session that a key names.

    Raises:
        DecodeError: it names none: a control record is never sent again.
    """
    try:
        session_id = (key or b"").decode()
    except UnicodeDecodeError as error:
        raise DecodeError("a key that is no UTF-8 names no session") from error
    if not session_id or session_id.startswith("\x00"):
        raise DecodeError(f"the key {session_id!r} names no session")
    return session_id
