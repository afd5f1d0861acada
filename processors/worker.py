"""The worker: consume, admit, fold, publish, commit.

`Worker._batch` is the protocol, step by step. What it rests on:

- `events` is the truth and the changelog; a table, a snapshot and the memory only make
  a restore shorter (`foldline.processors.partition_restore`).
- Admission is deterministic, so a batch that is run again gives the same bytes.
- The group's member epoch goes along with the input offsets: a worker that lost a
  partition cannot commit, whatever it still believes.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from confluent_kafka import KafkaError, TopicPartition

from foldline.errors import (
    LogFormatError,
    LogUnavailableError,
    TableCorruptError,
    WorkerFailedError,
    WorkerFencedError,
)
from foldline.faults import InjectedFaultError, crash_point
from foldline.kafka import admin
from foldline.processors.kafka_records import Incoming, Outgoing
from foldline.processors.partition import Outcome, Partition
from foldline.processors.shadow import fence_shadow
from foldline.processors.worker_assignment import RUNNING, Assignment, Owned
from foldline.processors.worker_health import STUCK_MS, Health
from foldline.processors.worker_intake import Intake
from foldline.processors.worker_membership import Membership
from foldline.processors.worker_metrics import WorkerMetrics
from foldline.processors.worker_publisher import (
    LostProducerError,
    TornBatchError,
)
from foldline.processors.worker_setup import Setup
from foldline.processors.worker_verdicts import VerdictSender
from foldline.processors.worker_watch import Watch
from foldline.schemas.state import FOLD_VERSION

if TYPE_CHECKING:
    from confluent_kafka import Message

POLL_MS = 200
"""How long the loop waits for a record when nothing else is due."""

BUSY_POLL_MS = 20
"""The same while partitions are restored or wait."""

FENCES_MAX = 2
FENCES_WITHIN_MS = 60_000
"""So many fences within this time, and the process ends: a twin has its slot."""

ABORTS_MAX = 20
"""So many aborts of batches in a row, and the process ends."""

ABORT_PAUSE_MS = 50
ABORT_PAUSE_MAX_MS = 2_000
"""The pause after an abort, twice as long after each in a row."""

WATCH_MS = 1_000
"""How often the waits of the partitions are looked at."""

LOSE_REPLY_AT = "CP_WORKER_AFTER_COMMIT"
"""The crash point at which an injected fault is a commit whose reply was lost."""

_logger = logging.getLogger("foldline.worker")


@dataclass(slots=True)
class _Work:
    """What one batch does to one partition."""

    partition: Partition
    outcome: Outcome
    snapshots: list[Outgoing] = field(default_factory=list[Outgoing])
    offsets: list[int] = field(default_factory=list[int])


class Worker:
    """One member of the workers' group. `run` returns after `stop`.

    Everything but `stop` is called from one thread.
    """

    def __init__(self, setup: Setup, health: Health) -> None:
        self._setup = setup
        self._settings = setup.settings
        self._names = setup.cluster.names
        self._stopping = threading.Event()
        self._fatal: KafkaError | None = None
        self._fences_s: deque[float] = deque(maxlen=FENCES_MAX)
        self._aborts_in_a_row = 0
        self._watched_s = 0.0
        self._ready = False
        self.metrics = WorkerMetrics(self._owned)
        self.health = health
        health.metrics = self.metrics.text
        self.consumer: Any = setup.consumer(self._on_error)
        self._watch = Watch()
        self._publisher = setup.publisher(self._on_error, self._watch)
        self._membership = Membership(
            self._names.group,
            member_id=self.consumer.memberid,
            make_admin=lambda: admin(setup.cluster, setup.settings),
        )
        self.assignment = Assignment(
            self.consumer,
            setup.ways,
            incremental=setup.protocol.name == "consumer",
            membership=self._membership,
            before_restores=self._fence_shadow,
            on_drop=self.metrics.drop,
            on_restore=self.metrics.restore,
        )
        self.intake = Intake(
            self.consumer,
            topic=self._names.appends,
            batch_max=setup.settings.worker_batch_max,
            next_offset=self.assignment.next_offset,
            rewind=self.assignment.rewind,
            on_error=self._on_record_error,
        )
        self._verdicts = VerdictSender(
            setup.cluster,
            setup.settings,
            on_error=self._on_error,
            on_unsent=self.metrics.verdicts_unsent.inc,
        )

    def stop(self) -> None:
        """Ask `run` to end after the batch under way; any thread or signal may."""
        self._stopping.set()

    def run(self) -> None:
        """Work until `stop`.

        Raises:
            WorkerFencedError: a twin has the same slot.
            WorkerFailedError: a client is beyond repair.
        """
        self.subscribe()
        try:
            while not self._stopping.is_set():
                with self._watch.step("a turn of the loop", within_ms=STUCK_MS):
                    self.turn()
        finally:
            self.leave()

    def subscribe(self) -> None:
        """Join the group."""
        self._membership.left()
        self.consumer.subscribe(
            [self._names.appends],
            on_assign=self.assignment.given,
            on_revoke=self.assignment.revoked,
            on_lost=self.assignment.lost,
        )

    def turn(self) -> None:
        """One turn of the loop: a producer, what waits, a batch."""
        self._raise_fatal()
        if not self._publisher.is_open:
            self._open_producer()
        self.assignment.tend(open_for_work=self._publisher.is_open)
        self._verdicts.serve()
        self._report()
        try:
            self._batch()
        except TornBatchError as error:
            self._tear(str(error))
        except LostProducerError as error:
            self._lose(error)
        except InjectedFaultError as error:
            if error.point == LOSE_REPLY_AT:
                self._lose(LostProducerError(str(error)))
            else:
                self._tear(str(error))

    # --- the protocol ----------------------------------------------------------------

    def _batch(self) -> None:
        """One batch, in one transaction.

        1. Poll for the first record, then take those that are here: never wait to fill.
           Without any, there is a batch only where a partition owes a record of its own
           (`Partition.owes`).
        2. Ownership and the group's metadata are taken only now: a rebalance may have
           happened in step 1, and the broker would accept offsets of a partition that
           a living worker lost. Records of such partitions are dropped.
        3. Admit and fold into the overlays; nothing of it counts yet.
        4. Begin the transaction; produce events, rejected records, due snapshots and
           low-water records.
        5. Wait until every record is with the broker. A failed one aborts: a commit
           would go through around it. The reports give the events' own offsets.
        6. Send the next input offsets, as the member that we were in step 2.
        7. Commit. No answer means that nobody knows: everything is forgotten.
        8. Merge the overlays: from here on the batch counts.
        9. Verdicts go out, not waited for: a lost one is asked again by a resend.

        The tables are written behind, between batches.
        """
        messages = self.intake.take(wait_ms=self._poll_ms())  # 1
        owing = self.assignment.owing()
        if not messages and not owing:
            return
        began_s = time.monotonic()
        records, dropped = self.intake.owned(messages)  # 2
        self.metrics.dropped.inc(dropped)
        group = self.consumer.consumer_group_metadata()
        works = self._admit({**dict.fromkeys(owing, ()), **records})  # 3
        if not works:
            return
        crash_point("CP_WORKER_AFTER_ADMIT")
        begun_s = time.monotonic()
        self._publish(works)  # 4 and 5
        offsets = [
            TopicPartition(self._names.appends, index, work.outcome.input_offset)
            for index, work in works.items()
        ]
        self._publisher.send_offsets(offsets, group)  # 6
        crash_point("CP_WORKER_AFTER_OFFSETS")
        self._publisher.commit()  # 7
        crash_point("CP_WORKER_AFTER_COMMIT")
        self.metrics.commit_s.observe(time.monotonic() - begun_s)
        self._merge(works)  # 8
        crash_point("CP_WORKER_BEFORE_VERDICTS")
        for work in works.values():
            self._verdicts.send(work.outcome.verdicts)  # 9
        crash_point("CP_WORKER_AFTER_VERDICTS")
        self.metrics.batch.observe(sum(len(batch) for batch in records.values()))
        self.metrics.batch_s.observe(time.monotonic() - began_s)

    def _admit(self, records: Mapping[int, Sequence[Incoming]]) -> dict[int, _Work]:
        """Admit each partition's records; one with a corrupt table leaves the batch."""
        works: dict[int, _Work] = {}
        for index, batch in records.items():
            partition = self.assignment.running(index)
            if partition is None:
                continue
            before = partition.position.input_offset
            try:
                outcome = partition.admit(batch)
                work = _Work(partition, outcome, partition.due_snapshots())
            except (TableCorruptError, LogFormatError) as error:
                self.assignment.forget(index, str(error), corrupt=True)
                continue
            except LogUnavailableError as error:
                self.assignment.lay_off(index, f"its table cannot be read: {error.reason}")
                continue
            if outcome.input_offset > before or work.snapshots:
                works[index] = work
                continue
            partition.drop()
            if outcome.blocked:
                self.assignment.block(index, outcome.blocked)
        return works

    def _publish(self, works: Mapping[int, _Work]) -> None:
        """Steps 4 and 5."""
        publisher = self._publisher
        publisher.begin()
        crash_point("CP_WORKER_AFTER_BEGIN")
        for work in works.values():
            publisher.send(self._names.events, work.outcome.events, offsets=work.offsets)
            publisher.send(self._names.rejected, work.outcome.rejected)
        crash_point("CP_WORKER_AFTER_PRODUCE")
        snapshots = self._names.snapshots(FOLD_VERSION)
        for work in works.values():
            publisher.send(snapshots, work.snapshots)
        crash_point("CP_WORKER_AFTER_SNAPSHOT")
        publisher.deliver()
        for work in works.values():
            work.partition.delivered(sorted(work.offsets))
        crash_point("CP_WORKER_BEFORE_OFFSETS")

    def _merge(self, works: Mapping[int, _Work]) -> None:
        self._aborts_in_a_row = 0
        for index, work in works.items():
            work.partition.commit()
            if work.outcome.controlled:
                rules = work.partition.position.rules
                self._setup.ways.schemas.want(rules.schema_ids)
            if work.outcome.blocked:
                self.assignment.block(index, work.outcome.blocked)
            else:
                self.assignment.went_on(index)

    # --- when it goes wrong ----------------------------------------------------------

    def _tear(self, reason: str) -> None:
        """Abort, drop the overlays, and fetch the same records again."""
        self._aborts_in_a_row += 1
        self.metrics.aborts.inc()
        _logger.warning("a batch is aborted and run again: %s", reason)
        try:
            self._publisher.abort()
        except LostProducerError as error:
            self._lose(error)
            return
        for owned in self._owned():
            if owned.partition is not None:
                owned.partition.drop()
                self.assignment.rewind(owned.index)
        if self._aborts_in_a_row >= ABORTS_MAX:
            raise WorkerFailedError(f"{ABORTS_MAX} aborts in a row; the last: {reason}")
        pause_ms = ABORT_PAUSE_MS * 2 ** min(self._aborts_in_a_row - 1, 10)
        self._stopping.wait(min(pause_ms, ABORT_PAUSE_MAX_MS) / 1000)

    def _lose(self, error: LostProducerError) -> None:
        """Forget everything: nobody knows what was committed, but `events` does."""
        self.metrics.losses.inc()
        self._publisher.drop()
        self.assignment.forget_all(str(error))
        if error.fenced:
            self._fenced()

    def _fenced(self) -> None:
        self.metrics.fences.inc()
        now_s = time.monotonic()
        self._fences_s.append(now_s)
        first_s = self._fences_s[0]
        if len(self._fences_s) == FENCES_MAX and (
            now_s - first_s < FENCES_WITHIN_MS / 1000
        ):
            raise WorkerFencedError(
                self._setup.transactional_id, FENCES_MAX, FENCES_WITHIN_MS
            )

    def _open_producer(self) -> None:
        try:
            self._publisher.open()
        except LostProducerError as error:
            if not error.fenced:
                raise WorkerFailedError(error.reason) from error
            self._fenced()

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal() and error.code() != KafkaError._FENCED:  # noqa: SLF001 - named so
            self._fatal = error
        _logger.warning("%s: %s", error.name(), error.str())

    def _on_record_error(self, message: "Message", error: KafkaError) -> None:
        if error.fatal():
            self._fatal = error
        index = message.partition()
        if error.code() in _OUT_OF_RANGE and index is not None and index >= 0:
            if self.assignment.running(index) is not None:
                self.assignment.forget(index, error.str())
            return
        if message.topic() is None:  # of the group: its partition then says nothing
            self._membership.refused(f"{error.name()}: {error.str()}")
        _logger.warning("consumer: %s: %s", error.name(), error.str())

    def _fence_shadow(self) -> None:
        """A shadow of our fold version ends where we begin."""
        fence_shadow(
            self._setup.cluster,
            self._settings,
            on_error=self._on_error,
            watch=self._watch,
        )

    def _raise_fatal(self) -> None:
        if self._fatal is not None:
            raise WorkerFailedError(f"{self._fatal.name()}: {self._fatal.str()}")

    # --- around it -------------------------------------------------------------------

    def _owned(self) -> list[Owned]:
        return list(self.assignment.owned.values())

    def _poll_ms(self) -> int:
        busy = any(owned.phase != RUNNING for owned in self._owned())
        return BUSY_POLL_MS if busy or not self._publisher.is_open else POLL_MS

    def _report(self) -> None:
        """Tell health what is waited for, and say once that the worker is ready."""
        waits = self._waits_for()
        self.health.turned(*waits)
        now_s = time.monotonic()
        if now_s - self._watched_s >= WATCH_MS / 1000:
            self._watched_s = now_s
            self.metrics.watch(self.intake.ends(self.assignment.owned))
        if not waits and not self._ready:
            self._ready = True
            self._setup.on_ready(sorted(self.assignment.owned))

    def _waits_for(self) -> tuple[str, ...]:
        waits = [self._membership.waits_for()]
        if not self._publisher.is_open:
            waits.append("no transactions yet")
        waits += [
            f"partition {owned.index} is {owned.shown}: {owned.why}"
            for owned in self._owned()
            if owned.shown != RUNNING
        ]
        return tuple(filter(None, waits))

    def leave(self) -> None:
        """Write the tables, leave the group, send the last verdicts."""
        self.health.turned("it ends")
        self.health.metrics = bytes
        with self._watch.step("the leaving", within_ms=STUCK_MS):
            self.consumer.close()  # the last callbacks: partitions are revoked in here
            self.assignment.close()
            self._verdicts.close()
            self._publisher.drop()
        self._watch.close()


_OUT_OF_RANGE = frozenset(
    cast("int", getattr(KafkaError, name))
    for name in ("OFFSET_OUT_OF_RANGE", "_AUTO_OFFSET_RESET")
)
