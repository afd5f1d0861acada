"""Leases on Kafka: renewals in a topic, judged by the broker's clock.

Who asks for a lease writes a tick to the session's partition of `leases` first. Its
acknowledgement says what time it is by the clock that stamped the renewals too, and up
to which offset to read: so a partition without traffic has a time, and an answer is
never older than its question.

A lease is alive while its last renewal is younger than its time to live by that clock.
It also dies when whoever asks has seen no other renewal for so long by its own clock:
the broker's may be set back when another broker takes over. Nothing tells a killed
owner from a silent one: its lease dies after its time to live.

Only the last `LEASE_MAX_MS` are read, so a partition with much traffic is no burden:
no lease lives longer, and one that ran out before that is none.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from foldline.errors import DecodeError, LogUnavailableError
from foldline.processors.kafka_channel import Channel, Receipt
from foldline.processors.kafka_records import Outgoing
from foldline.processors.log import Lease
from foldline.schemas.record_codec import RecordCodec, frame_record
from foldline.schemas.topic_records import TICK_KEY, LeaseRenewal
from foldline.topics import partition_for

LEASE_MAX_MS = 120_000
"""The longest time to live; one that is asked for beyond it is cut to it."""

ANSWER_TIMEOUT_S = 10.0
"""How long the broker has for an acknowledgement, or for what is to be read."""

POLL_S = 0.5
AT_ONCE = 1_000
"""How many renewals are taken from the client's queue at once."""

REMEMBERED_MAX = 100_000
"""How many leases of its own a process remembers to have taken."""

_GONE = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})  # noqa: SLF001


@dataclass(slots=True)
class _Held:
    """The last renewal of a session, and when this process came to know it."""

    epoch: int
    writer: str
    ttl_ms: int
    renewed_ms: int
    seen_s: float


class PartitionLeases:
    """What is known of one partition of `leases`: renewals up to `next_offset`."""

    def __init__(self, next_offset: int) -> None:
        self.next_offset = next_offset
        self.held: dict[str, _Held] = {}

    def take(self, renewal: LeaseRenewal, *, renewed_ms: int, seen_s: float) -> None:
        """Fold one renewal in. A lower epoch replaces no higher one.

        Args:
            renewal: what was read.
            renewed_ms: when it was written, by the broker's clock.
            seen_s: when it was read, by this process's.
        """
        held = self.held.get(renewal.session_id)
        named = (renewal.epoch, renewal.writer)
        same = held is not None and (held.epoch, held.writer) == named
        if renewal.released:
            if same:
                del self.held[renewal.session_id]
        elif held is None or same or renewal.epoch > held.epoch:
            self.held[renewal.session_id] = _Held(
                renewal.epoch, renewal.writer, renewal.ttl_ms, renewed_ms, seen_s
            )

    def lease(self, session_id: str, *, now_ms: int, now_s: float) -> Lease | None:
        """What the renewals say now, by both clocks: the one that is later counts."""
        held = self.held.get(session_id)
        if held is None:
            return None
        by_broker_ms = max(now_ms - held.renewed_ms, 0)
        here_ms = round((now_s - held.seen_s) * 1000)
        left_ms = max(held.ttl_ms - max(by_broker_ms, here_ms), 0)
        return Lease(session_id, held.epoch, held.writer, left_ms > 0, left_ms)

    def forget_before(self, time_ms: int) -> None:
        """Drop what ran out long ago."""
        old = [name for name, held in self.held.items() if held.renewed_ms < time_ms]
        for name in old:
            del self.held[name]


class KafkaLeases:
    """The leases of one log, for one client.

    Args:
        url: the log, for messages.
        topic: `leases`.
        partitions: how many it has.
        client_id: whose ticks these are.
        schema_id: gives the id that renewals are written with.
        codec: decodes renewals.
        channel: sends them.
        open_consumer: makes the consumer that reads them.
    """

    def __init__(
        self,
        *,
        url: str,
        topic: str,
        partitions: int,
        client_id: str,
        schema_id: Callable[[], int],
        codec: RecordCodec,
        channel: Callable[[], Channel],
        open_consumer: Callable[[], Consumer],
    ) -> None:
        self._url = url
        self._topic = topic
        self._partitions = partitions
        self._tick_key = TICK_KEY + client_id.encode()
        self._schema_id = schema_id
        self._codec = codec
        self._channel = channel
        self._open_consumer = open_consumer
        self._consumer: Consumer | None = None
        self._closed = False
        self._reading = threading.Lock()
        self._read: dict[int, PartitionLeases] = {}
        self._taken: OrderedDict[tuple[str, int, str], None] = OrderedDict()

    # --- writing ---------------------------------------------------------------------

    def renew(self, session_id: str, *, epoch: int, writer: str, ttl_ms: int) -> None:
        """Say that this writer lives. A lease of a lower epoch replaces no higher one.

        The first renewal of a lease waits until it is acknowledged; the others do not,
        so many sessions are renewed in one go.

        Raises:
            LogUnavailableError: no broker took it; the lease is not renewed.
        """
        renewal = LeaseRenewal(
            session_id=session_id,
            epoch=epoch,
            writer=writer,
            ttl_ms=min(ttl_ms, LEASE_MAX_MS),
        )
        taken = (session_id, epoch, writer)
        if taken in self._taken:
            self._send(renewal, session_id.encode(), Receipt(lost=self._forgetting(taken)))
            return
        self._acknowledged(renewal, session_id.encode())
        self._taken[taken] = None
        while len(self._taken) > REMEMBERED_MAX:
            self._taken.popitem(last=False)

    def _forgetting(self, taken: tuple[str, int, str]) -> Callable[[], None]:
        """After a renewal that was lost, the next one waits again."""
        return lambda: self._taken.pop(taken, None) and None

    def release(self, session_id: str, *, epoch: int, writer: str) -> None:
        """Give the lease up at once; nothing happens if another writer holds it."""
        self._taken.pop((session_id, epoch, writer), None)
        released = LeaseRenewal(
            session_id=session_id, epoch=epoch, writer=writer, ttl_ms=0, released=True
        )
        self._acknowledged(released, session_id.encode())

    def _acknowledged(
        self, renewal: LeaseRenewal, key: bytes, *, partition: int | None = None
    ) -> Receipt:
        waiting = Receipt()
        self._send(renewal, key, waiting, partition=partition)
        self._channel().wait_for(waiting, self._url, self._topic, ANSWER_TIMEOUT_S)
        return waiting

    def _send(
        self,
        renewal: LeaseRenewal,
        key: bytes,
        waiting: Receipt,
        *,
        partition: int | None = None,
    ) -> None:
        if partition is None:
            partition = partition_for(renewal.session_id, self._partitions)
        record = Outgoing(partition, key, frame_record(self._schema_id(), renewal))
        self._channel().post(self._url, self._topic, record, waiting)

    # --- reading ---------------------------------------------------------------------

    def get(self, session_id: str) -> Lease | None:
        """The lease of a session; None where none was taken, or it ran out long ago.

        1. Write a tick: its acknowledgement gives the time, and an offset.
        2. Read the session's partition up to that offset, the first time from
           `LEASE_MAX_MS` before.
        3. Judge the last renewal by both clocks.

        Raises:
            LogUnavailableError: no broker answers.
        """
        return self.get_many([session_id]).get(session_id)

    def get_many(self, session_ids: Sequence[str]) -> dict[str, Lease]:
        """The leases of several sessions, with one tick for each of their partitions.

        Raises:
            LogUnavailableError: no broker answers.
        """
        by_partition: dict[int, list[str]] = {}
        for session_id in session_ids:
            partition = partition_for(session_id, self._partitions)
            by_partition.setdefault(partition, []).append(session_id)
        found: dict[str, Lease] = {}
        for partition, names in by_partition.items():
            found |= self._get_of(partition, names)
        return found

    def _get_of(self, partition: int, session_ids: Sequence[str]) -> dict[str, Lease]:
        tick = LeaseRenewal(session_id="", epoch=0, writer="", ttl_ms=0)
        waiting = self._acknowledged(tick, self._tick_key, partition=partition)
        with self._reading:
            known = self._caught_up(partition, waiting.offset, waiting.time_ms)
            now_ms, now_s = waiting.time_ms, time.monotonic()
            looked = (known.lease(i, now_ms=now_ms, now_s=now_s) for i in session_ids)
            return {lease.session_id: lease for lease in looked if lease is not None}

    def _caught_up(self, partition: int, upto: int, now_ms: int) -> PartitionLeases:
        """Step 2. A position that is gone, or a consumer that failed: once more anew."""
        try:
            return self._read_on(partition, upto, now_ms)
        except KafkaException as error:
            first: KafkaError = error.args[0]
            self._read.pop(partition, None)
            if first.code() not in _GONE:
                raise LogUnavailableError(self._url, first.str()) from error
        try:
            return self._read_on(partition, upto, now_ms)
        except KafkaException as error:
            raise LogUnavailableError(self._url, error.args[0].str()) from error

    def _read_on(self, partition: int, upto: int, now_ms: int) -> PartitionLeases:
        if self._closed:  # a consumer that is opened now is closed by nobody
            raise LogUnavailableError(self._url, "the log is closed")
        if self._consumer is None:
            self._consumer = self._open_consumer()
        consumer = self._consumer
        known = self._read.get(partition)
        if known is None:
            first = self._first_offset(consumer, partition, now_ms - LEASE_MAX_MS)
            known = self._read[partition] = PartitionLeases(min(first, upto))
        consumer.assign([TopicPartition(self._topic, partition, known.next_offset)])
        until_s = time.monotonic() + ANSWER_TIMEOUT_S
        try:
            while known.next_offset <= upto:
                if time.monotonic() > until_s:
                    reason = f"{self._topic} [{partition}] cannot be read in time"
                    raise LogUnavailableError(self._url, reason)
                record = consumer.poll(POLL_S)
                if record is not None:
                    self._take(known, record)
        finally:
            consumer.unassign()
        known.forget_before(now_ms - LEASE_MAX_MS)
        return known

    def _first_offset(self, consumer: Consumer, partition: int, since_ms: int) -> int:
        """The first offset at or after a time; beyond every offset if there is none."""
        asked = TopicPartition(self._topic, partition, max(since_ms, 0))
        (found,) = consumer.offsets_for_times([asked], timeout=ANSWER_TIMEOUT_S)
        return found.offset if found.offset >= 0 else 1 << 62

    def _take(self, known: PartitionLeases, record: Message) -> None:
        error = record.error()
        if error is not None:
            if error.code() in _GONE or error.fatal():
                raise KafkaException(error)
            return  # the end of the partition, or what librdkafka mends
        known.next_offset = (record.offset() or 0) + 1
        key = record.key() or b""
        if key.startswith(TICK_KEY):
            return
        try:
            renewal = self._codec.unframe_record(LeaseRenewal, record.value())
        except DecodeError:
            return  # not of a foldline's making: no lease
        known.take(renewal, renewed_ms=record.timestamp()[1], seen_s=time.monotonic())

    def close(self) -> None:
        """Let go of the consumer; who reads a lease from now on is told so."""
        with self._reading:
            self._closed = True
            if self._consumer is not None:
                self._consumer.close()
                self._consumer = None
