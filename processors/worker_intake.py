"""What a worker takes in: batches of records, and of them what is its own to admit.

An append that was skipped would never get an answer, and nobody would know. So a batch
begins where its partition stands and has no hole in it. Where the client gives a later
record than the next one, that is fetched once more; only if the log really has a hole
there (retention, another system's transaction markers) does the partition go on behind.
"""

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, cast

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from foldline.errors import WorkerFailedError
from foldline.faults import crash_point
from foldline.processors.kafka_records import Incoming, incoming_of

if TYPE_CHECKING:
    from confluent_kafka import Message

_logger = logging.getLogger("foldline.worker")

CONSUME_STEP = 100
"""How many records are taken over at once, so that a batch's bytes stay bounded."""

BATCH_MAX_BYTES = 16 * 1024 * 1024
"""How many bytes of appends a batch has at most, beside its number of appends."""


class Intake:
    """Batches of `appends`. Called from the poll loop only.

    Args:
        consumer: the member of the group.
        topic: `appends`.
        batch_max: how many records a batch has at the most.
        next_offset: where a partition stands; None if it is not ours now, or does not
            run.
        rewind: fetches a partition again from where it stands.
        on_error: is told of what came in the place of a record.
    """

    def __init__(
        self,
        consumer: Any,
        *,
        topic: str,
        batch_max: int,
        next_offset: Callable[[int], int | None],
        rewind: Callable[[int], None],
        on_error: Callable[["Message", KafkaError], None],
    ) -> None:
        self._consumer = consumer
        self._topic = topic
        self._batch_max = batch_max
        self._next_offset = next_offset
        self._rewind = rewind
        self._holes: dict[int, tuple[int, int]] = {}
        self._on_error = on_error

    def take(self, *, wait_ms: int) -> list["Message"]:
        """The first record, and those behind it that are here already.

        The group's callbacks may run in here.

        Raises:
            WorkerFailedError: the client is no more.
        """
        try:
            return self._take(wait_ms)
        except KafkaException as error:
            raise WorkerFailedError(str(error)) from error

    def _take(self, wait_ms: int) -> list["Message"]:
        first = self._consumer.poll(wait_ms / 1000)
        if first is None:
            return []
        crash_point("CP_WORKER_AFTER_POLL")
        messages: list[Message] = [first]
        room = BATCH_MAX_BYTES - len(first.value() or b"")
        while len(messages) < self._batch_max and room > 0:
            wanted = min(CONSUME_STEP, self._batch_max - len(messages))
            more = cast("list[Message]", self._consumer.consume(wanted, 0))
            messages += more
            room -= sum(len(message.value() or b"") for message in more)
            if len(more) < wanted:
                break
        return messages

    def owned(self, messages: Iterable["Message"]) -> tuple[dict[int, list[Incoming]], int]:
        """Records of partitions that are ours and run, in order; and how many are not."""
        records: dict[int, list[Incoming]] = {}
        following: dict[int, int | None] = {}
        dropped = 0
        for message in messages:
            error = message.error()
            if error is not None:
                self._on_error(message, error)
                continue
            index = cast("int", message.partition())
            offset = cast("int", message.offset())
            if index not in following:
                following[index] = self._next_offset(index)
            expected = following[index]
            if expected is not None and offset > expected:
                expected = following[index] = self._behind_hole(index, expected, offset)
            if expected is None or offset < expected:
                dropped += 1
                continue
            following[index] = offset + 1
            records.setdefault(index, []).append(incoming_of(message))
        return records, dropped

    def _behind_hole(self, index: int, expected: int, offset: int) -> int | None:
        """Where to go on: at the record that came if it came again, else nowhere yet."""
        if self._holes.get(index) == (expected, offset):
            _logger.warning(
                "%s [%d] has no records %d to %d", self._topic, index, expected, offset - 1
            )
            del self._holes[index]
            return offset
        _logger.warning(
            "%s [%d]: offset %d was to come, %d came; it is fetched again",
            self._topic,
            index,
            expected,
            offset,
        )
        self._holes[index] = (expected, offset)
        self._rewind(index)
        return None

    def ends(self, indices: Iterable[int]) -> dict[int, int]:
        """The ends of partitions, as their last fetches told them."""
        ends: dict[int, int] = {}
        for index in indices:
            partition = TopicPartition(self._topic, index)
            found = self._consumer.get_watermark_offsets(partition, cached=True)
            if found and found[1] >= 0:
                ends[index] = found[1]
        return ends
