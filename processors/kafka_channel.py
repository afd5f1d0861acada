"""The producers of a client, each with a thread that hears what became of its records.

A producer that reports a fatal error is of no more use: another takes its place, and
what the first had not delivered is reported as lost, to be sent again.
"""

import logging
import threading
import time
from collections.abc import Callable

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from foldline.errors import LogUnavailableError
from foldline.processors.kafka_records import Outgoing

POLL_S = 0.05
"""How often the thread looks at the clock."""

CHANNELS_MAX = 4
"""How many producers a client has for its appends, each with a connection to a broker."""

FLUSH_S = 2.0
"""How long closing waits for records that are still on their way."""

OnDelivery = Callable[[KafkaError | None, Message], None]
MakeProducer = Callable[[Callable[[KafkaError], None]], Producer]

_log = logging.getLogger("foldline.kafka")


class Channel:
    """A producer that any thread may use. Its callbacks run in the thread `foldline-acks`.

    Args:
        make: builds a producer that tells its errors to the function given.
    """

    def __init__(self, make: MakeProducer) -> None:
        self._make = make
        self._on_tick: Callable[[], None] = _nothing
        self._swapping = threading.Lock()
        self._fatal = threading.Event()
        self._stopped = threading.Event()
        self.trouble = ""
        """What the brokers were last found to suffer from."""
        self._producer = make(self._hear)
        self.thread = threading.Thread(target=self._run, name="foldline-acks", daemon=True)
        self.thread.start()

    def call_on_tick(self, on_tick: Callable[[], None]) -> None:
        """Call this in the thread about every POLL_S, however much it hears meanwhile."""
        self._on_tick = on_tick

    def send(self, topic: str, record: Outgoing, on_delivery: OnDelivery) -> None:
        """Hand a record over to be sent; `on_delivery` is called once, later.

        Raises:
            BufferError: too many records are on their way.
            KafkaException: the record can never be sent, or not by this producer.
        """
        try:
            with self._swapping:  # what goes into the old queue must be seen by its purge
                self._producer.produce(
                    topic,
                    value=record.value,
                    key=record.key,
                    partition=record.partition,
                    headers=list(record.headers or ()),
                    on_delivery=on_delivery,
                )
        except KafkaException as error:
            if error.args[0].fatal():
                self._fatal.set()
            raise

    def post(self, url: str, topic: str, record: Outgoing, receipt: "Receipt") -> None:
        """The same with a receipt, for whom there is no log if it cannot be sent.

        Raises:
            LogUnavailableError: it cannot, or not now.
        """
        try:
            self.send(topic, record, receipt.heard)
        except BufferError as error:
            reason = f"{topic}: too many records are on their way"
            raise LogUnavailableError(url, reason) from error
        except KafkaException as error:
            raise LogUnavailableError(url, f"{topic}: {error.args[0].str()}") from error

    def wait_for(self, receipt: "Receipt", url: str, topic: str, within_s: float) -> None:
        """Wait until what was posted is acknowledged.

        Raises:
            LogUnavailableError: it is not, or not in time.
        """
        if not receipt.done.wait(within_s):
            reason = self.trouble or "no acknowledgement"
            raise LogUnavailableError(url, f"{topic}: {reason}")
        if receipt.error:
            raise LogUnavailableError(url, f"{topic}: {receipt.error}")

    def _hear(self, error: KafkaError) -> None:
        self.trouble = error.str()
        if error.fatal():
            self._fatal.set()
        _log.warning("kafka: %s: %s", error.name(), error.str())

    def _run(self) -> None:
        ticked_s = time.monotonic()
        while not self._stopped.is_set():
            self._producer.poll(POLL_S)
            if self._fatal.is_set():
                self._replace()
            if time.monotonic() - ticked_s >= POLL_S:
                self._on_tick()
                ticked_s = time.monotonic()

    def _replace(self) -> None:
        """Begin again with another producer; what the old one still had is lost."""
        _log.warning(
            "kafka: the producer failed (%s); another takes its place", self.trouble
        )
        new = self._make(self._hear)
        with self._swapping:
            old, self._producer = self._producer, new
            self._fatal.clear()
        old.purge()
        old.flush(FLUSH_S)

    def stop(self) -> None:
        """Ask the thread to end, without waiting for it."""
        self._stopped.set()

    def close(self) -> None:
        """Send what is still on its way, for a moment, and end the thread."""
        self.stop()
        if threading.current_thread() is not self.thread:
            self.thread.join()
        if self._producer.flush(FLUSH_S):
            self._producer.purge()
            self._producer.flush(0)


class Channels:
    """The channels of a client, each for its share of the partitions; any thread may.

    A channel has one request in flight to a broker, of one partition: so the records of
    a session keep their order, and those of other partitions wait. Several channels wait
    less. Each is made when a record of its share is to be sent.
    """

    def __init__(self, make: MakeProducer) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._made: dict[int, Channel] = {}
        self._on_tick: Callable[[], None] = _nothing

    @property
    def threads(self) -> list[threading.Thread]:
        """The threads of the channels that were made so far."""
        with self._lock:
            return [channel.thread for channel in self._made.values()]

    def of(self, partition: int) -> Channel:
        """The channel of a partition, always the same one."""
        with self._lock:
            place = partition % CHANNELS_MAX
            channel = self._made.get(place)
            if channel is None:
                channel = Channel(self._make)
                if not self._made:
                    channel.call_on_tick(self._tick)
                self._made[place] = channel
            return channel

    def call_on_tick(self, on_tick: Callable[[], None]) -> None:
        """Call this in the thread of the channel that was made first."""
        self._on_tick = on_tick

    def _tick(self) -> None:
        self._on_tick()

    def close(self) -> None:
        """Close each of them; nothing is sent any more."""
        with self._lock:
            made = list(self._made.values())
        for channel in made:
            channel.stop()
        for channel in made:
            channel.close()


class Receipt:
    """What became of one record: its time and offset, or an error."""

    def __init__(self, *, lost: Callable[[], None] | None = None) -> None:
        self.done = threading.Event()
        self.error = ""
        self.offset = -1
        self.time_ms = 0
        self._lost = lost

    def heard(self, error: KafkaError | None, record: Message) -> None:
        """The acknowledgement, or why there is none."""
        if error is None:
            self.offset = record.offset() or 0
            self.time_ms = record.timestamp()[1]
        else:
            self.error = error.str()
            if self._lost is not None:
                self._lost()
        self.done.set()


def _nothing() -> None:
    """What a tick does where nobody has asked for one."""
