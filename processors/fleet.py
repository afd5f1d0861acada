"""The fleet: a Faust application that reads every session's events as they are recorded.

What an event does to the rows, and which events it wants appended, is not said here but by
a `Folding` (`foldline.projections.fleet_folding`); here it is read and kept, and
`fleet_taking` takes it in.

One event, in numbered steps:

1. It is read once it is committed. What no worker wrote is skipped.
2. The folding takes it in, with the row of its session; one that is known adds nothing.
3. What it wants appended goes through the log, under ids that follow from the event: one
   that was appended before a kill is answered DUPLICATE, and is not there twice.
4. Before a commit, every row that has changed is set, those of the windows first; their
   changelog is one ordered stream. No row is set while step 3 lasts.
5. When every one is acknowledged, the offset is committed.

Killed anywhere, it reads again what came after the last commit, and every row knows
whether it has an event already. Faust's settings are in `fleet_settings`, with reasons.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import faust
from faust.types import TP

from foldline.errors import WorkerFailedError
from foldline.kafka import Cluster
from foldline.processors.fleet_port import Folding
from foldline.processors.fleet_settings import FETCH_AHEAD, faust_settings
from foldline.processors.fleet_table import FleetTable
from foldline.processors.fleet_taking import Taking
from foldline.processors.fleet_transport import FleetTransport
from foldline.processors.kafka_log import KafkaLog
from foldline.processors.worker_health import Health
from foldline.processors.worker_slot import Slot
from foldline.schemas.state import FOLD_VERSION
from foldline.settings import Settings
from foldline.topics import FLEET_TABLE

TURN_S = 1.0
"""How often health is told what the application waits for."""

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
        self._rebalances = 0
        self._taken: dict[TP, int] = {}
        self.lag = FleetLag()
        name = cluster.names.fleet(folding.version)
        self.app: Any = faust.App(
            name,
            **faust_settings(cluster, settings, partitions=log.partitions, slot=slot),
        )
        transport = FleetTransport(
            self.app.conf.broker,
            self.app,
            before_flush=self._write_out,
            next_offset=self._next_offset,
        )
        self.app.transport = self.app.producer_transport = transport
        self.table = FleetTable(
            self.app,
            name=FLEET_TABLE,
            partitions=log.partitions,
            folder=slot.folder / name,
            on_restored=self._take_over,
        )
        self.app.tables.add(self.table)
        self._taking = Taking(log, log.codec, folding, self.table)
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
        if self._taking.gave_up:
            return
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
            self._taking.stop()
            await self.app.stop()
            self._taking.close()
        reason = self.app.crash_reason
        if reason is not None:
            raise WorkerFailedError(repr(reason)) from reason

    def _tell(self) -> None:
        """Say what keeps the fleet from being ready, and look how far it is."""
        waits = list(self._taking.waits.values())
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
                self.lag.positions.setdefault(tp.partition, consumer.read_from(tp))

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
        recorded = await self._taking.decoded(message)  # 1
        if message.partition in self._ours:
            if recorded is not None:
                await self._taking.take(message.partition, message.offset, recorded)
            self.lag.positions[message.partition] = message.offset + 1

    async def _snapshot(self, message: Any) -> None:
        self._taking.compare(message)

    async def _write_out(self) -> None:
        await self._taking.write_out()  # 4

    def _next_offset(self, tp: TP) -> int | None:
        """What may be committed; nothing any more, once an event is left half taken in."""
        return None if self._taking.gave_up else self._taken.get(tp)
