"""What a worker publishes with: one transaction at a time, and three kinds of outcome.

| outcome | means | what the worker does |
| --- | --- | --- |
| returned | committed | goes on |
| `TornBatchError` | nothing of it counts, the producer is good | abort, run it again |
| `LostProducerError` | nobody knows, or somebody else has the slot | forget everything |

Python's clients lack the client's half of KIP-890: after an error of the third kind a
late end of the transaction may still reach the broker. So the producer is dropped, not
closed (closing would send one more), and the next one of the same transactional.id
finishes or fences whatever is left.
"""

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from foldline.faults import crash_point
from foldline.kafka import Cluster, OnError, transactional_producer
from foldline.processors.kafka_records import Outgoing
from foldline.processors.worker_watch import Watch
from foldline.settings import Settings

if TYPE_CHECKING:
    from confluent_kafka import Message

INIT_TIMEOUT_MS = 5_000
"""How long one try to begin under a transactional.id takes; then it is made again."""

OVERTIME_MS = 5_000
"""How much longer than its time-out a call may take before the process is ended."""

FULL_QUEUE_POLL_MS = 50
"""How long one look at a full queue of the producer takes."""

_logger = logging.getLogger("foldline.worker")


def _codes(*names: str) -> frozenset[int]:
    return frozenset(cast("int", getattr(KafkaError, name)) for name in names)


FENCED = _codes("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")
"""What the broker says when another producer has the transactional.id, or when the
transaction ran out of time."""


class TornBatchError(Exception):
    """Raised when a transaction must be aborted, and the same batch run again."""


class LostProducerError(Exception):
    """Raised when nobody knows how a transaction ended, or the producer is no more."""

    def __init__(self, reason: str, *, fenced: bool = False) -> None:
        self.reason = reason
        self.fenced = fenced
        super().__init__(reason)


class Publisher:
    """One transactional producer, made again whenever it is lost.

    Not for more than one thread.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: Settings,
        *,
        transactional_id: str,
        on_error: OnError,
        watch: Watch,
    ) -> None:
        """Make none yet.

        Args:
            cluster: where.
            settings: for its clients; `transaction_timeout_ms` bounds each call.
            transactional_id: whose transactions.
            on_error: is told what a client says of itself.
            watch: ends the process when a call outlasts its time-out by OVERTIME_MS.
        """
        self._cluster = cluster
        self._settings = settings
        self._id = transactional_id
        self._on_error = on_error
        self._timeout_s = settings.transaction_timeout_ms / 1000
        self._watch = watch
        self._bound_ms = settings.transaction_timeout_ms + OVERTIME_MS
        self._producer: Any = None
        self._failed: KafkaError | None = None

    @property
    def is_open(self) -> bool:
        """Whether there is a producer that can begin a transaction."""
        return self._producer is not None

    def open(self) -> bool:
        """Make a producer and fence whoever had the id; False: not now, ask again.

        Raises:
            LostProducerError: the broker refuses it.
        """
        producer: Any = transactional_producer(
            self._cluster,
            self._settings,
            transactional_id=self._id,
            on_error=self._on_error,
        )
        try:
            with self._watch.step("init_transactions", within_ms=self._bound_ms):
                producer.init_transactions(INIT_TIMEOUT_MS / 1000)
        except KafkaException as failure:
            error = _error_of(failure)
            _let_go(producer)
            if error.fatal():
                raise LostProducerError(_words(error), fenced=_fenced(error)) from failure
            _logger.warning("no transactions yet: %s", _words(error))
            return False
        self._producer = producer
        return True

    def begin(self) -> None:
        """Begin a transaction.

        Raises:
            LostProducerError: the producer is no more.
        """
        self._failed = None
        self._do(self._producer.begin_transaction)

    def send(
        self, topic: str, records: Sequence[Outgoing], *, offsets: list[int] | None = None
    ) -> None:
        """Queue records of one partition; their offsets are added in their order.

        Raises:
            TornBatchError, LostProducerError: see the module.
        """

        def reported(error: KafkaError | None, message: "Message") -> None:
            if error is not None:
                # Kept as it is: if the producer has a fatal error too, an exception is
                # pending here already, and any call into the library would fail.
                self._failed = self._failed or error
            elif offsets is not None:
                offsets.append(cast("int", message.offset()))

        for record in records:
            self._produce(topic, record, reported)

    def _produce(
        self, topic: str, record: Outgoing, reported: Callable[[Any, Any], None]
    ) -> None:
        waited_ms = 0
        while True:
            try:
                self._producer.produce(
                    topic,
                    record.value,
                    record.key,
                    record.partition,
                    reported,
                    headers=record.headers,
                )
            except BufferError as error:
                if waited_ms >= self._settings.transaction_timeout_ms:
                    raise TornBatchError("the producer's queue stays full") from error
                self._serve(self._producer.poll, FULL_QUEUE_POLL_MS / 1000)
                waited_ms += FULL_QUEUE_POLL_MS
            except KafkaException as failure:
                raise self._sorted(failure) from failure
            else:
                return

    def deliver(self) -> None:
        """Wait until everything is with the broker.

        Raises:
            TornBatchError: a record failed, or some are still under way.
        """
        left = self._serve(self._producer.flush, self._timeout_s)
        if self._failed is not None:
            raise self._sorted_error(self._failed, delivery=True)
        if left:
            raise TornBatchError(f"{left} records were not delivered in time")

    def send_offsets(self, offsets: list[TopicPartition], group: Any) -> None:
        """Put the input's offsets into the transaction, as the member of the group.

        Raises:
            TornBatchError, LostProducerError: see the module.
        """
        self._do(self._producer.send_offsets_to_transaction, offsets, group)

    def commit(self) -> None:
        """Commit.

        Raises:
            TornBatchError, LostProducerError: see the module.
        """
        self._do(self._producer.commit_transaction)

    def abort(self) -> None:
        """Abort; nothing of the transaction counts.

        Raises:
            LostProducerError: nobody knows.
        """
        try:
            with self._watch.step("abort_transaction", within_ms=self._bound_ms):
                self._producer.abort_transaction(self._timeout_s)
        except KafkaException as failure:
            error = _error_of(failure)
            reason = f"abort: {_words(error)}"
            raise LostProducerError(reason, fenced=_fenced(error)) from failure

    def drop(self) -> None:
        """Let the producer go as it is: no end of a transaction is sent."""
        producer, self._producer = self._producer, None
        if producer is not None:
            _let_go(producer)

    def _serve(self, call: Callable[[float], int], timeout_s: float) -> int:
        """Poll or flush, in which a fatal error of the producer is raised.

        It is raised between callbacks: one that runs after it makes a SystemError of it,
        or loses it. The producer, asked again, says what it was.
        """
        try:
            with self._watch.step(call.__name__, within_ms=self._bound_ms):
                return call(timeout_s)
        except KafkaException as failure:
            raise self._sorted(failure) from failure
        except SystemError as failure:
            try:
                self._producer.begin_transaction()  # refused: one is open, or it is fatal
            except KafkaException as reason:
                raise self._sorted_error(_error_of(reason)) from failure
            raise

    def _do(self, call: Callable[..., Any], *arguments: Any) -> None:
        timeout = (self._timeout_s,) if call.__name__ != "begin_transaction" else ()
        try:
            with self._watch.step(call.__name__, within_ms=self._bound_ms):
                crash_point("CP_WORKER_IN_CALL")
                call(*arguments, *timeout)
        except KafkaException as failure:
            raise self._sorted(failure) from failure

    def _sorted(self, failure: KafkaException) -> Exception:
        """The error as one of two kinds: what is not surely abortable is lost."""
        return self._sorted_error(_error_of(failure))

    @staticmethod
    def _sorted_error(error: KafkaError, *, delivery: bool = False) -> Exception:
        if error.txn_requires_abort() or (delivery and not error.fatal()):
            return TornBatchError(_words(error))
        return LostProducerError(_words(error), fenced=_fenced(error))


def _let_go(producer: Any) -> None:
    """Forget what is queued and under way, so that its end does not wait for it."""
    producer.purge(in_queue=True, in_flight=True, blocking=False)


def _error_of(failure: KafkaException) -> KafkaError:
    return cast("KafkaError", failure.args[0])


def _fenced(error: KafkaError) -> bool:
    return error.code() in FENCED


def _words(error: KafkaError) -> str:
    return f"{error.name()}: {error.str()}"
