"""A replica of partitions of `events` in this process: consumed, stored, waited for.

One thread consumes, with a read_committed client whose partitions are assigned by hand,
each from its store's own next offset; nothing is committed anywhere. What goes wrong
with a partition concerns only that one:

| what | then |
| --- | --- |
| no space, no registry, no broker | it is tried again from the store's offset |
| a damaged store, one of another log or version | set aside, built anew |
| the topic was made anew (offset beyond its end, another id) | set aside, built anew |
| records that it needs were deleted | it goes on from the workers' published states \
(`foldline.processors.replica_cut`); where these do not reach so far it stops: \
LogTruncatedError, and is tried again by and by |
| a hole, or an event that does not fit | it stops: LogFormatError |
| a record that no worker wrote (without `ao`) | skipped, counted |

Markers of transactions take offsets too, so "everything below the end is here" is told
by the consumer's end-of-partition event, never by the offset of a record.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException

from foldline.errors import (
    FoldlineError,
    LogTruncatedError,
    ReadUnavailableError,
    TableCorruptError,
)
from foldline.kafka import Cluster
from foldline.kafka_meta import read_meta
from foldline.processors.event_store import EventStore
from foldline.processors.partition_source import PartitionSource
from foldline.processors.replica_cut import go_on_behind
from foldline.processors.replica_folder import ReplicaFolder
from foldline.processors.replica_part import Part, Progress, SharedAnswer, left_s
from foldline.processors.replica_source import ASK_TIMEOUT_MS, EventsTopic, polled_of
from foldline.schemas.codec import Codec
from foldline.schemas.record_codec import RecordCodec
from foldline.schemas.state import SessionState
from foldline.schemas.topic_records import LogMeta
from foldline.settings import Settings
from foldline.topics import partition_for

RETRY_MS = 1_000
"""How long a partition that could not go on is left before it is tried again."""

TRUNCATED_RETRY_MS = 10_000
"""The same where records were deleted and the workers have published too little."""

CUT_POLL_MS = 100
"""How often one looks whether what they have published is taken in."""

SETTLE_MS = 200
"""How long a read waits for transactions that are open when it is asked."""

_logger = logging.getLogger("foldline.replica")


class Replica:
    """Partitions of `events`, each in an EventStore of its own below one folder.

    Every method may be called from any thread. Without `partitions` each is begun when
    the first read needs it. `within` names those that listings go over, where it is not
    all of them. `on_change` is told, in the consuming thread, which sessions have new
    events in the stores.

    Raises (at the start):
        NoLogMetaError: the brokers have no such log.
        LogUnavailableError: no broker answers; a folder is another process's.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: Settings,
        *,
        folder: Path,
        codec: Codec,
        partitions: Iterable[int] | None = None,
        within: Sequence[int] | None = None,
        meta: LogMeta | None = None,
        on_change: Callable[[set[str]], None] | None = None,
    ) -> None:
        meta = meta or read_meta(cluster, settings)
        self.log_id = meta.log_id
        self.partition_count = meta.partitions
        self._within = range(meta.partitions) if within is None else within
        self.url = cluster.url
        self._folder = ReplicaFolder(
            folder, cluster=cluster, meta=meta, codec=codec, settings=settings
        )
        self._topic = EventsTopic(cluster, settings)
        self._cluster = cluster
        self._settings = settings
        self._records = RecordCodec(codec.schemas)
        self._on_change = on_change
        self._cuts = ThreadPoolExecutor(1, "foldline-replica-cut")
        self._lock = threading.RLock()
        self._parts: dict[int, Part] = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="foldline-replica", daemon=True
        )
        self._thread.start()
        try:
            for partition in partitions or ():
                self._part(partition)
        except BaseException:
            self.close()
            raise

    def partition_of(self, session_id: str) -> int:
        """The partition of a session; ValueError for what is no session's id."""
        return partition_for(session_id, self.partition_count)

    def store(self, partition: int) -> EventStore:
        """The store of a partition, which is begun if it must be."""
        return self._part(partition).store

    def at_hand(self, session_id: str) -> SessionState | None:
        """The state of a session as it is here now; None also where nobody began it."""
        part = self._parts.get(self.partition_of(session_id))
        return None if part is None else part.store.state(session_id)

    def begun(self) -> list[EventStore]:
        """The stores of the partitions that were begun, in their order."""
        return [part.store for part in self._everything()]

    def progress(self) -> list[Progress]:
        """How far each partition is that was begun."""
        return [part.progress() for part in self._everything()]

    def _everything(self) -> list[Part]:
        with self._lock:
            return [self._parts[partition] for partition in sorted(self._parts)]

    # --- waiting ---------------------------------------------------------------------

    def sync(self, partition: int, *, timeout_ms: int) -> EventStore:
        """Wait until all that was committed when this was called is in the store.

        A worker's commit is answered before its markers are in the partition, so what
        somebody was told to be accepted may still look open. So:

        1. the end is asked for, open transactions included;
        2. what is below it is waited for, for SETTLE_MS: mostly a few milliseconds;
        3. then only for what is committed by now: a transaction that its worker left
           open is aborted by the broker much later, and must not stop all reads.

        Raises:
            ReadUnavailableError: not in time; it says how far it is, or what keeps it.
            LogFormatError, LogTruncatedError: the partition has stopped.
        """
        deadline = time.monotonic() + timeout_ms / 1000
        part = self._part(partition)
        try:
            end = part.end.get(deadline)
        except TimeoutError as error:
            reason = "the broker does not say the end in time"
            raise ReadUnavailableError(self.url, reason) from error
        part.seen_end = max(part.seen_end, end)
        settled = min(deadline, time.monotonic() + SETTLE_MS / 1000)
        if not self._waited(part, end, settled):
            _, end = self._topic.stable_bounds(partition, timeout_s=left_s(deadline))
            if not self._waited(part, end, deadline):
                raise self._why_not(part, end)
        part.synced = True
        return part.store

    def synced(self, partition: int) -> bool:
        """Whether a partition was brought to its end once, and is kept near it since."""
        return self._part(partition).synced

    def _waited(self, part: Part, end: int, deadline: float) -> bool:
        with part.changed:
            part.changed.wait_for(
                lambda: self._stuck(part) or part.store.next_offset >= end,
                left_s(deadline),
            )
        return part.store.next_offset >= end and part.stopped is None

    def sync_all(self, *, timeout_ms: int) -> list[EventStore]:
        """The same for every partition, in their order: of the log, or `within` it."""
        deadline = time.monotonic() + timeout_ms / 1000
        partitions = self._within
        for partition in partitions:
            self._part(partition)
        return [
            self.sync(partition, timeout_ms=round(left_s(deadline) * 1000))
            for partition in partitions
        ]

    def wait(self, session_id: str, *, seq: int, timeout_ms: int) -> bool:
        """Wait until a session has come to a seq; whether it has.

        Raises:
            LogFormatError, LogTruncatedError: the partition has stopped before it.
        """
        deadline = time.monotonic() + timeout_ms / 1000
        part = self._part(self.partition_of(session_id))
        with part.watching(session_id) as arrived:
            while not part.reached(session_id, seq):
                if part.stopped is not None:
                    raise part.stopped
                if self._closing.is_set() or not arrived.wait(left_s(deadline)):
                    return part.reached(session_id, seq)
                arrived.clear()
        return True

    def _stuck(self, part: Part) -> bool:
        return bool(part.stopped or part.trouble) or self._closing.is_set()

    def _why_not(self, part: Part, end: int) -> FoldlineError:
        if part.stopped is not None:
            return part.stopped
        if self._closing.is_set():
            return ReadUnavailableError(self.url, "the log is closed")
        done = f"partition {part.partition} is at offset {part.store.next_offset} of {end}"
        reason = f"{done}: {part.trouble}" if part.trouble else done
        return ReadUnavailableError(self.url, reason)

    def set_aside(self, store: EventStore, error: TableCorruptError) -> None:
        """Say that a store is damaged: it is set aside, and built from the topic again."""
        for part in self._everything():
            if part.store is store and not part.broken:
                part.trouble = f"{error}; it is built anew"
                part.broken, part.retry_at = error.reason, time.monotonic()

    def connect(self) -> None:
        """Ask every partition's leader something: the first read then finds it known."""
        for partition in range(self.partition_count):
            self._topic.end(partition, timeout_s=ASK_TIMEOUT_MS / 1000)

    # --- beginning and ending --------------------------------------------------------

    def _part(self, partition: int) -> Part:
        part = self._parts.get(partition)
        if part is not None:
            return part
        if not 0 <= partition < self.partition_count:
            raise ValueError(f"partition {partition} of {self.partition_count}")
        with self._lock:
            if self._closing.is_set():
                raise ReadUnavailableError(self.url, "the log is closed")
            if partition not in self._parts:
                part = self._parts[partition] = self._opened_part(partition)
                self._topic.assign(partition, part.store.next_offset)
            return self._parts[partition]

    def _opened_part(self, partition: int) -> Part:
        def end(timeout_s: float) -> int:
            return self._topic.end(partition, timeout_s=timeout_s)

        topic_id = self._topic.topic_id()
        store = self._folder.open(partition, topic_id=topic_id)
        return Part(partition, store, topic_id, SharedAnswer(end))

    def checkpoint(self, partition: int, folder: Path) -> None:
        """Write a copy of a partition's store, from which another replica can start."""
        self.store(partition).checkpoint(folder)

    def adopt(self, partition: int, checkpoint: Path) -> bool:
        """Start a partition from a checkpoint of another replica.

        Returns:
            False if it has a store already, or the checkpoint is of another log,
            partition or version; nothing was changed then.
        """
        with self._lock:
            if partition in self._parts:
                return False
            topic_id = self._topic.topic_id()
            return self._folder.adopt(partition, checkpoint, topic_id=topic_id)

    def close(self) -> None:
        """End the thread, and let go of connections and folders."""
        self._closing.set()
        for part in self._everything():
            part.tell()
        self._thread.join()
        self._cuts.shutdown(wait=True)
        self._topic.close()
        for part in self._everything():
            part.store.close()

    # --- the consuming thread --------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                self._turn()
        finally:
            self._closing.set()  # whatever ended it: nobody waits for it any more
            for part in self._everything():
                part.tell()

    def _turn(self) -> None:
        try:
            polled = self._topic.poll()
            self._look_at_ends()  # before what may take long
            for partition, messages in polled.items():
                part = self._parts.get(partition)
                if part is not None and not part.stopped and not part.retry_at:
                    self._sheltered(part, messages)
            self._try_again()
        except KafkaException as error:
            _logger.warning("%s: %s", self.url, error)
            self._closing.wait(RETRY_MS / 1000)

    def _look_at_ends(self) -> None:
        """Note how far each partition goes, also where nothing of it can be read.

        A transaction that stays open holds back what is committed behind it: nobody is
        told of that but by the distance.
        """
        for part in self._everything():
            if not part.stopped and not part.retry_at:
                with suppress(KafkaException):  # nothing was fetched of it yet
                    seen = self._topic.seen_end(part.partition)
                    part.seen_end = max(part.seen_end, seen)

    def _sheltered(self, part: Part, messages: Sequence[Any]) -> None:
        """Take messages in; what goes wrong is the trouble of this partition alone."""
        try:
            self._take_in(part, messages)
        except TableCorruptError as error:
            self._rebuild(part, error.reason)
        except FoldlineError as error:
            self._topic.unassign(part.partition)
            if error.retryable:
                self._later(part, error)
            elif self._made_anew(part):
                self._rebuild(part, "of a topic that was made anew")
            else:
                self._stop(part, error)

    def _take_in(self, part: Part, messages: Sequence[Any]) -> None:
        polled = polled_of(self._folder.name(part.partition), messages)
        part.read_bytes += sum(len(m.value() or b"") for m in messages if not m.error())
        for offset in polled.skipped:
            part.skipped += 1
            name = self._folder.name(part.partition)
            _logger.warning("%s: offset %s is no worker's record: skipped", name, offset)
        changed = part.store.apply(polled.records)
        part.store.advance(polled.end)
        if polled.error:
            self._misplaced(part, polled.error, gone=polled.gone)
            return
        part.trouble = ""
        part.tell(changed)
        if changed and self._on_change is not None:
            self._on_change(changed)

    def _misplaced(self, part: Part, error: str, *, gone: bool) -> None:
        """Tell why the broker has nothing at the store's offset, if that is so."""
        if not gone:
            raise ReadUnavailableError(self.url, error)
        timeout_s = ASK_TIMEOUT_MS / 1000
        low, end = self._topic.stable_bounds(part.partition, timeout_s=timeout_s)
        wanted = part.store.next_offset
        if wanted < low:
            self._topic.unassign(part.partition)
            self._go_on_behind(part, low)
            return
        if wanted > end:
            self._rebuild(part, f"beyond the end {end} of the topic")
            return
        raise ReadUnavailableError(self.url, error)

    def _go_on_behind(self, part: Part, low: int) -> None:
        """Take in what the workers know of deleted records, in a thread beside this one."""
        source = PartitionSource(
            self._cluster, self._settings, index=part.partition, cancelled=self._closing
        )
        part.cut = self._cuts.submit(
            go_on_behind,
            part.store,
            source,
            self._cluster.names,
            partition=part.partition,
            records=self._records,
            first_offset=low,
        )
        part.first_offset = low
        part.retry_at = time.monotonic() + CUT_POLL_MS / 1000

    def _look_at_cut(self, part: Part, cut: "Future[bool]") -> None:
        if not cut.done():
            part.retry_at = time.monotonic() + CUT_POLL_MS / 1000
            return
        part.cut = None
        try:
            is_behind = cut.result()
        except TableCorruptError as error:
            self._rebuild(part, error.reason)
            return
        except FoldlineError as error:
            self._later(part, error)
            return
        if not is_behind:
            self._stop_before(part)
            return
        part.stopped, part.trouble = None, ""
        self._topic.assign(part.partition, part.store.next_offset)
        part.tell()

    def _stop_before(self, part: Part) -> None:
        """Say that deleted records are needed; who reads is refused until then."""
        wanted, low = part.store.next_offset, part.first_offset
        error = LogTruncatedError(self._topic.name, part.partition, wanted, low)
        if part.stopped is None:
            self._stop(part, error)
        part.retry_at = time.monotonic() + TRUNCATED_RETRY_MS / 1000

    def _look_again(self, part: Part) -> None:
        """Look whether the records are back, or the workers have published more."""
        timeout_s = ASK_TIMEOUT_MS / 1000
        try:
            low, _ = self._topic.stable_bounds(part.partition, timeout_s=timeout_s)
        except ReadUnavailableError:
            part.retry_at = time.monotonic() + TRUNCATED_RETRY_MS / 1000
            return
        self._go_on_behind(part, low)

    def _later(self, part: Part, error: FoldlineError) -> None:
        if not part.trouble:
            _logger.warning("%s: %s", self._folder.name(part.partition), error)
        part.trouble = str(error)
        part.retry_at = time.monotonic() + RETRY_MS / 1000
        part.tell()

    def _try_again(self) -> None:
        now = time.monotonic()
        for part in self._everything():
            if part.retry_at and now >= part.retry_at:
                part.retry_at = 0.0
                if part.broken:
                    self._rebuild(part, part.broken)
                elif part.cut is not None:
                    self._look_at_cut(part, part.cut)
                elif part.stopped is not None:
                    self._look_again(part)
                else:
                    self._topic.assign(part.partition, part.store.next_offset)

    def _stop(self, part: Part, error: FoldlineError) -> None:
        _logger.error("%s is read no further: %s", self._folder.name(part.partition), error)
        part.stopped = error
        part.tell()

    def _made_anew(self, part: Part) -> bool:
        """Whether the topic is another one than the store is of."""
        try:
            return self._topic.topic_id() != part.topic_id
        except ReadUnavailableError:
            return False

    def _rebuild(self, part: Part, reason: str) -> None:
        """Set the store of a partition aside and build it from the topic again.

        Only in this thread: what it has polled must not go into the new store. What it
        needs and does not get, it tries again.
        """
        with self._lock:
            part.broken = reason
            try:
                self._set_aside(part)
            except FoldlineError as error:
                self._later(part, error)
                return
            part.broken = part.trouble = ""
        part.tell()

    def _set_aside(self, part: Part) -> None:
        self._topic.unassign(part.partition)
        self._folder.set_aside(part.store, part.partition, reason=part.broken)
        part.topic_id = self._topic.topic_id()
        part.store = self._folder.open(part.partition, topic_id=part.topic_id)
        part.seen_end = 0
        self._topic.assign(part.partition, part.store.next_offset)
