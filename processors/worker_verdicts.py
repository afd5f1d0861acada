"""Verdicts on their way out: after the commit, without a transaction, not waited for.

A verdict that is lost is asked again by the client's resend, so nothing here may hold
up the next batch: a full queue drops, and a count says how many.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException

from foldline.kafka import Cluster, OnError, plain_producer
from foldline.processors.kafka_records import Outgoing
from foldline.settings import Settings

if TYPE_CHECKING:
    from confluent_kafka import Message

LAST_FLUSH_MS = 2_000
"""How long a worker that ends waits for its last verdicts to be sent."""


class VerdictSender:
    """The second producer of a worker. For one thread."""

    def __init__(
        self,
        cluster: Cluster,
        settings: Settings,
        *,
        on_error: OnError,
        on_unsent: Callable[[], None],
    ) -> None:
        self._producer: Any = plain_producer(cluster, settings, on_error=on_error)
        self._topic = cluster.names.verdicts
        self._on_unsent = on_unsent

    def send(self, verdicts: Sequence[Outgoing]) -> None:
        """Queue verdicts."""
        for verdict in verdicts:
            try:
                self._producer.produce(
                    self._topic,
                    verdict.value,
                    verdict.key,
                    verdict.partition,
                    self._reported,
                    headers=verdict.headers,
                )
            except (BufferError, KafkaException):
                self._on_unsent()
        self.serve()

    def serve(self) -> None:
        """Take the delivery reports that have come."""
        self._producer.poll(0)

    def close(self) -> None:
        """Send what is queued, for a while."""
        self._producer.flush(LAST_FLUSH_MS / 1000)

    def _reported(self, error: KafkaError | None, _message: "Message") -> None:
        if error is not None:
            self._on_unsent()
