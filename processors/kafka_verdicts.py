"""The verdicts on what one client appended, from its partition of `verdicts`.

1. The end of the partition is asked for before the first append is sent, so that no
   verdict can come before the place where reading begins.
2. A thread reads on from there. Records of other clients have another key.
3. A position that is gone (the topic keeps an hour) or an error that lasts: reading
   goes on from the end. What was missed is answered again, for the client sends what
   has no answer again.

Verdicts are written outside transactions, so reading need not wait for any.
"""

import logging
import threading
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from foldline.errors import DecodeError, LogUnavailableError, RegistryUnavailableError
from foldline.processors.kafka_records import decode_verdict
from foldline.schemas.record_codec import RecordCodec
from foldline.schemas.verdicts import Verdict

POLL_S = 0.1
"""How long the thread waits for a verdict before it looks whether it should end."""

AT_ONCE = 500
"""How many records are taken from the client's queue at once."""

POSITION_TIMEOUT_S = 10.0
"""How long asking for the end of the partition may take."""

PAUSE_S = 0.5
"""The pause after an error, before the position is taken anew."""

_TRANSIENT = frozenset(
    {
        KafkaError._PARTITION_EOF,  # noqa: SLF001 - librdkafka's own codes are named so
        KafkaError._TRANSPORT,  # noqa: SLF001
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
        KafkaError._TIMED_OUT,  # noqa: SLF001
    }
)

_log = logging.getLogger("foldline.kafka")


class VerdictReader:
    """Reads one partition of `verdicts` for one client.

    Args:
        consumer: not assigned yet; the reader closes it.
        place: topic and partition.
        reply_to: the key of this client's verdicts.
        codec: decodes them.
        on_verdicts: is told what came, in the reader's thread.
    """

    def __init__(
        self,
        consumer: Consumer,
        *,
        place: TopicPartition,
        reply_to: str,
        codec: RecordCodec,
        on_verdicts: Callable[[list[Verdict]], None],
    ) -> None:
        self._consumer = consumer
        self._place = place
        self._key = reply_to.encode()
        self._codec = codec
        self._on_verdicts = on_verdicts
        self._stopped = threading.Event()
        self.thread = threading.Thread(
            target=self._run, name="foldline-verdicts", daemon=True
        )

    def start(self, url: str) -> None:
        """Step 1, then the thread of step 2.

        Raises:
            LogUnavailableError: no broker says where the partition ends.
        """
        try:
            self._position()
        except KafkaException as error:
            raise LogUnavailableError(url, f"verdicts: {error.args[0].str()}") from error
        self.thread.start()

    def _position(self) -> None:
        _, end = self._consumer.get_watermark_offsets(
            self._place, timeout=POSITION_TIMEOUT_S
        )
        place = TopicPartition(self._place.topic, self._place.partition, end)
        self._consumer.assign([place])

    def _run(self) -> None:
        while not self._stopped.is_set():
            first = self._consumer.poll(POLL_S)
            if first is None:
                continue
            records = [first, *self._consumer.consume(AT_ONCE, timeout=0)]
            verdicts = [v for record in records if (v := self._read(record)) is not None]
            if verdicts:
                self._on_verdicts(verdicts)
        self._consumer.close()

    def _read(self, record: Message) -> Verdict | None:
        """A verdict for this client; errors of the client come as records, too."""
        error = record.error()
        if error is not None:
            self._go_on_after(error)
            return None
        if record.key() != self._key:
            return None
        try:
            return decode_verdict(record.value(), self._codec)
        except (DecodeError, RegistryUnavailableError) as problem:
            where = f"{record.topic()} [{record.partition()}] {record.offset()}"
            _log.warning("kafka: %s is no verdict: %s", where, problem)
            return None

    def _go_on_after(self, error: KafkaError) -> None:
        if error.code() in _TRANSIENT:
            return
        _log.warning("kafka: verdicts: %s; reading goes on from the end", error.str())
        while not self._stopped.wait(PAUSE_S):
            try:
                self._position()
            except KafkaException as problem:
                _log.warning("kafka: verdicts: %s", problem.args[0].str())
            else:
                return

    def close(self) -> None:
        """End the thread; it closes the consumer."""
        self._stopped.set()
        if self.thread.is_alive():
            self.thread.join()
        elif self.thread.ident is None:
            self._consumer.close()
