"""What a worker takes in: batches of records, and of them what is its own to admit."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, cast

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from foldline.errors import WorkerFailedError
from foldline.faults import crash_point
from foldline.processors.kafka_records import Incoming

if TYPE_CHECKING:
    from confluent_kafka import Message

CONSUME_STEP = 100
"""How many records are taken over at once, so that a batch's bytes stay bounded."""

BATCH_MAX_BYTES = 16 * 1024 * 1024
"""At how many bytes of appends a batch ends, beside its number of appends."""


class Intake:
    """Batches of `appends`. Called from the poll loop only.

    Args:
        consumer: the member of the group.
        topic: `appends`.
        batch_max: how many records a batch has at the most.
        runs: whether a partition is ours now, and restored.
        on_error: is told of what came in the place of a record.
    """

    def __init__(
        self,
        consumer: Any,
        *,
        topic: str,
        batch_max: int,
        runs: Callable[[int], bool],
        on_error: Callable[["Message", KafkaError], None],
    ) -> None:
        self._consumer = consumer
        self._topic = topic
        self._batch_max = batch_max
        self._runs = runs
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
        dropped = 0
        for message in messages:
            error = message.error()
            if error is not None:
                self._on_error(message, error)
                continue
            index = cast("int", message.partition())
            batch = records.get(index)
            if batch is None:
                if not self._runs(index):
                    dropped += 1
                    continue
                batch = records[index] = []
            batch.append(
                Incoming(
                    cast("int", message.offset()),
                    message.timestamp()[1] * 1000,
                    message.key(),
                    message.value(),
                    cast("Any", message.headers()),
                )
            )
        return records, dropped

    def ends(self, indices: Iterable[int]) -> dict[int, int]:
        """The ends of partitions, as their last fetches told them."""
        ends: dict[int, int] = {}
        for index in indices:
            partition = TopicPartition(self._topic, index)
            found = self._consumer.get_watermark_offsets(partition, cached=True)
            if found and found[1] >= 0:
                ends[index] = found[1]
        return ends
