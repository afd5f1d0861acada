"""The fleet: a Faust application that reads every session's events as they are recorded.

What an event does to the rows, and which events it wants appended, is not said here but by
a `Folding` (`foldline.projections.fleet_folding`); here it is read, kept and appended.

One event, in numbered steps:

1. It is read once it is committed. What no worker wrote is skipped.
2. The folding takes it in, with the row of its session; one that is known adds nothing.
3. What it wants appended goes through the log, under ids that follow from the event: one
   that was appended before a kill is answered DUPLICATE, and is not there twice.
4. Before a commit, every row that has changed is set, those of the windows first; their
   changelog is one ordered stream. No row is set while step 3 lasts.
5. When every one is acknowledged, the offset is committed.

Killed anywhere, it reads again what came after the last commit, and every row knows
whether it has an event already. Faust's settings are those of `_settings`, with reasons.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import faust
from faust.types import TP

from foldline.errors import (
    DecodeError,
    LogUnavailableError,
    RegistryUnavailableError,
    WorkerFailedError,
)
from foldline.faults import crash_point
from foldline.kafka import Cluster
from foldline.processors.fleet_port import Folding
from foldline.processors.fleet_table import FleetTable
from foldline.processors.fleet_transport import FleetTransport, credentials_of
from foldline.processors.kafka_log import KafkaLog
from foldline.processors.kafka_records import Headers, append_offset_of
from foldline.processors.worker_health import Health
from foldline.processors.worker_slot import Slot
from foldline.schemas.codec import unframe
from foldline.schemas.recorded import Append, Recorded
from foldline.schemas.state import FOLD_VERSION
from foldline.schemas.topic_records import LOST_KEY, LOW_WATER_KEY
from foldline.settings import Settings

TABLE = "rows"

RETRY_S = 1.0
"""How long one waits before asking a log or a registry again that did not answer."""

TURN_S = 1.0
"""How often health is told what the application waits for."""

CHANGES_MAX = 2_000
"""After how many changed rows they are set before a commit is due."""

SESSION_TIMEOUT_S = 10.0
"""After what silence of a member others get its partitions."""

FETCH_AHEAD = 1_000
"""How many records wait in memory between Faust's consumer and the fold."""

_logger = logging.getLogger("foldline.fleet")

Take = Callable[[Any], Awaitable[None]]
"""Takes a record of one topic in."""


@dataclass(slots=True)
class FleetLag:
    """How far the events are read, by partition: the next offset, and the end."""

    positions: dict[int, int] = field(default_factory=dict[int, int])
    ends: dict[int, int] = field(default_factory=dict[int, int])

    def behind(self) -> dict[int, int]:
        """How many records of each partition are not read.

        The last one is the marker of a transaction, which nobody reads.
        """
        return {
            partition: max(self.ends.get(partition, 0) - position - 1, 0)
            for partition, position in self.positions.copy().items()
        }


class Fleet:
    """One member of the fleet's group. Made and run in one event loop."""

    def __init__(
        self,
        cluster: Cluster,
        settings: Settings,
        *,
        log: KafkaLog,
        folding: Folding,
        slot: Slot,
        health: Health,
        on_ready: Callable[[list[int]], None],
    ) -> None:
        """Define the application.

        Args:
            cluster: the brokers and the names of the topics.
            settings: of the log.
            log: takes appends, and decodes what is read.
            folding: what rows mean.
            slot: a name and a folder of this process alone.
            health: is told what is waited for.
            on_ready: is told the partitions, once they are restored.
        """
        self._log = log
        self._events = cluster.names.events
        self._folding = folding
        self._health = health
        self._on_ready = on_ready
        self._ours: set[int] = set()
        self._restored = False
        self._failed = False
        self._rebalances = 0
        self._taken: dict[TP, int] = {}
        self._appended = asyncio.Event()
        self._appended.set()
        self._waits: dict[str, str] = {}
        self.lag = FleetLag()
        name = f"{cluster.names.prefix}fleet.{folding.version}"
        self.app: Any = faust.App(name, **_settings(cluster, settings, log, slot))
        transport = FleetTransport(
            self.app.conf.broker,
            self.app,
            before_flush=self._write_out,
            next_offset=self._taken.get,
        )
        self.app.transport = self.app.producer_transport = transport
        self.table = FleetTable(
            self.app,
            name=TABLE,
            partitions=log.partitions,
            folder=slot.folder / name,
            on_restored=self._take_over,
        )
        self.app.tables.add(self.table)
        self.app.on_partitions_revoked.connect(self._let_go)
        self._read(cluster.names.events, self._event)
        self._read(cluster.names.snapshots(FOLD_VERSION), self._snapshot)

    def _read(self, name: str, take: Take) -> None:
        """Read a topic, one record after the other: Faust commits past others' ends."""
        topic = self.app.topic(
            name, key_type=bytes, value_type=bytes, key_serializer="raw",
            value_serializer="raw", partitions=self._log.partitions, allow_empty=True,
        )  # fmt: skip

        async def agent(stream: Any) -> None:
            async for event in stream.noack().events():
                if event.message.partition in self._ours:
                    await self._take(take, event.message)
                    event.ack()

        self.app.agent(topic, name=name, concurrency=1)(agent)

    async def _take(self, take: Take, message: Any) -> None:
        """Take a record in; what fails ends the process, unacknowledged.

        Faust would acknowledge it, begin the agent again and go on behind it.
        """
        rebalances = self._rebalances
        try:
            await take(message)
        except Exception as error:
            _logger.exception("%s", message)
            await self.app.crash(error)
            await asyncio.Event().wait()  # until the agent is cancelled
        if rebalances == self._rebalances:  # or its rows are forgotten, and it comes again
            self._taken[message.tp] = message.offset + 1

    # --- running ---------------------------------------------------------------------

    async def run(self, stopping: asyncio.Event) -> None:
        """Work until told to stop.

        Raises:
            WorkerFailedError: Faust has given up; a new process begins where it was.
        """
        try:
            await self.app.start()
            while not (stopping.is_set() or self.app.should_stop):
                self._tell()
                try:
                    await asyncio.wait_for(stopping.wait(), TURN_S)
                except TimeoutError:
                    continue
        finally:
            await self.app.stop()
        reason = self.app.crash_reason
        if reason is not None:
            raise WorkerFailedError(repr(reason)) from reason

    def _tell(self) -> None:
        """Say what keeps the fleet from being ready, and look how far it is."""
        waits = list(self._waits.values())
        if not self._restored:
            waits.append("its tables are being restored")
        else:
            self._look()
            behind = sum(self.lag.behind().values())
            if behind > FETCH_AHEAD:
                waits.append(f"{behind} records are not read")
        self._health.turned(*waits)

    def _look(self) -> None:
        consumer = self.app.consumer
        for tp in consumer.assignment():
            if tp.partition in self._ours and tp.topic == self._events:
                end = consumer.highwater(tp)
                self.lag.ends[tp.partition] = end or 0

    def _take_over(self, partitions: set[int]) -> None:
        """Rows are restored: what the windows need of them is loaded."""
        for partition in partitions - self._ours:
            start, end = self._folding.stored
            self._folding.load(partition, self.table.rows.stored(partition, start, end))
        self._ours = set(partitions)
        self._restored = True
        self._on_ready(sorted(partitions))

    async def _let_go(self, app: Any, revoked: set[TP], **_: Any) -> None:
        del app
        self._rebalances += 1
        self._taken.clear()
        for partition in {tp.partition for tp in revoked} & self._ours:
            self._ours.discard(partition)
            self._folding.forget(partition)
            self.lag.positions.pop(partition, None)

    # --- one record ------------------------------------------------------------------

    async def _event(self, message: Any) -> None:
        recorded = await self._decoded(message)  # 1
        if recorded is not None and message.partition in self._ours:
            await self._fold(message, recorded)
        self.lag.positions[message.partition] = message.offset + 1

    async def _fold(self, message: Any, recorded: Recorded) -> None:
        """Steps 2 and 3."""
        partition = message.partition
        key = self._folding.session_key(recorded.envelope.session_id)
        appends = self._folding.take(
            partition, message.offset, recorded, row=partial(self.table.row, partition, key)
        )
        if appends:
            self._appended.clear()
            for append in appends:
                await self._append(append)
            self._appended.set()
        if self._folding.changes >= CHANGES_MAX:
            await self._write_out()

    async def _write_out(self) -> None:
        """Step 4.

        Raises:
            WorkerFailedError: an event was not taken in whole.
        """
        await self._appended.wait()
        if self._failed:
            raise WorkerFailedError("an event was not taken in whole")
        for row in self._folding.changed():
            self.table.set_row(*row)

    async def _decoded(self, message: Any) -> Recorded | None:
        """The event of a record; None for what is none."""
        try:
            append_offset_of(_headers(message))
            schema_id, body = unframe(message.value or b"")
        except DecodeError as error:
            self._skip(message, str(error))
            return None
        while True:
            try:
                recorded = self._log.codec.decode(schema_id, body)
            except DecodeError as error:
                self._skip(message, str(error))
                return None
            except RegistryUnavailableError as error:
                await self._wait("registry", str(error))
                continue
            self._waits.pop("registry", None)
            return recorded

    def _skip(self, message: Any, why: str) -> None:
        where = f"{message.topic} [{message.partition}] offset {message.offset}"
        _logger.warning("%s is skipped: %s", where, why)
        self._folding.skipped(why)

    async def _append(self, append: Append) -> None:
        """Append, for as long as it takes: what stands still here is no lost loop."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                [verdict] = await loop.run_in_executor(None, self._log.append, [append])
            except LogUnavailableError as error:
                await self._wait("append", str(error))
                continue
            self._waits.pop("append", None)
            self._folding.answered(append, verdict)
            crash_point("CP_FLEET_AFTER_APPEND")
            return

    async def _wait(self, what: str, why: str) -> None:
        if what not in self._waits:
            _logger.warning("%s", why)
        self._waits[what] = why
        await asyncio.sleep(RETRY_S)

    async def _snapshot(self, message: Any) -> None:
        """A state that a worker published; its other records are nothing to compare."""
        key: bytes = message.key or b""
        if key == LOW_WATER_KEY or key.startswith(LOST_KEY) or not message.value:
            return
        session_id = key.decode(errors="replace")
        session = self._folding.session_key(session_id)
        row = partial(self.table.row, message.partition, session)
        try:
            _, body = unframe(message.value)
            self._folding.compare(session_id, body, row=row)
        except DecodeError as error:
            self._skip(message, str(error))


def _headers(message: Any) -> Headers:
    headers: dict[str, bytes] = dict(message.headers or {})
    return list(headers.items())


def _settings(
    cluster: Cluster, settings: Settings, log: KafkaLog, slot: Slot
) -> dict[str, Any]:
    """Faust's settings. What it does by default and must not is said beside each."""
    return {
        "broker": ";".join(f"aiokafka://{one}" for one in cluster.bootstrap.split(",")),
        "broker_credentials": credentials_of(settings.kafka.extra),
        "broker_commit_interval": settings.fleet_commit_ms / 1000,
        "broker_heartbeat_interval": SESSION_TIMEOUT_S / 3,
        "broker_max_poll_records": FETCH_AHEAD,
        "broker_session_timeout": SESSION_TIMEOUT_S,
        "consumer_auto_offset_reset": "earliest",
        "consumer_group_instance_id": slot.name,  # who comes back goes on at once
        "datadir": str(slot.folder),
        "processing_guarantee": "at_least_once",  # its exactly_once is not usable
        "producer_acks": -1,
        "store": "memory://",  # of tables that are not ours; there are none
        "stream_buffer_maxsize": FETCH_AHEAD,
        "table_standby_replicas": 0,
        "topic_disable_leader": True,  # it would make a topic of its own
        "topic_partitions": log.partitions,
        "topic_replication_factor": settings.topic_replication,
        "web_enabled": False,  # it would serve every table to anybody at port 6066
    }
