"""Faust's own Kafka transport, with what it lacks for tables that a kill cannot tear.

- A flush waits until every record is acknowledged. Faust's own gives up after a tenth of
  a second without one, and the offset of the source would be committed without the rows.
- Where nothing is committed yet, a rebalance goes back to the beginning.
- Offsets are committed of what was taken in. Faust's own stop at markers of transactions,
  and go past records that were skipped in a rebalance.
- Records come in their order after a rebalance, too.
- What it reads are committed records. Faust's own reads those of aborted transactions,
  too, and a worker's batch that was aborted is run again.
"""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# Faust's types are partly unknown to others.

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

from faust.exceptions import ProducerSendError
from faust.transport.drivers import aiokafka
from faust.types import TP

_driver: Any = aiokafka

FLUSH_TIMEOUT_S = 60.0
"""How long a commit waits for its rows; then it fails, and is tried again later."""


class _Thread(_driver.AIOKafkaConsumerThread):
    """The thread of the consumer."""

    def _create_worker_consumer(self, transport: Any) -> Any:
        consumer: Any = super()._create_worker_consumer(transport)
        consumer._isolation_level = "read_committed"  # noqa: SLF001 - no setting leads there
        return consumer


class _Consumer(_driver.Consumer):
    """A member of the group that reads what is committed."""

    def _new_consumer_thread(self) -> Any:
        return _Thread(self, loop=self.loop, beacon=self.beacon)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._seeks = 0

    async def perform_seek(self) -> None:
        """Go back to what is committed; where nothing is yet, to the beginning.

        Faust stays there where it is: behind records that were handed to nobody.
        """
        self._seeks += 1
        await super().perform_seek()
        changelogs = self.app.tables.changelog_topics
        anew = {
            tp
            for tp in self.assignment()
            if tp.topic not in changelogs and self._read_offset.get(tp) is None
        }
        if anew:
            for tp, offset in (await self.earliest_offsets(*anew)).items():
                await self.seek(tp, offset)

    def read_from(self, tp: TP) -> int:
        """The offset from which it reads, or has read."""
        return self._read_offset.get(tp) or 0

    async def _wait_next_records(self, timeout: float) -> tuple[Any, Any]:  # noqa: ASYNC109 - Faust's own
        """The next records; never those that were on their way when it went back.

        Faust would hand them out first, as of the new generation, and those before them
        later.
        """
        seeks = self._seeks
        records, active = await super()._wait_next_records(timeout)
        if records and seeks != self._seeks:
            await self.perform_seek()
            return None, None
        return records, active

    def _new_offset(self, tp: TP) -> int | None:
        """What may be committed: what the fleet says that it has taken in.

        Faust looks for the first offset that is missing: it stops at the markers of
        transactions, and takes records for done that a rebalance made it skip.
        """
        self._acked[tp].clear()
        self._acked_index[tp].clear()
        return self.transport.next_offset(tp)

    async def _add_gap(self, tp: TP, offset_from: int, offset_to: int) -> None:
        """Nothing: see above."""


class _Producer(_driver.Producer):
    """A producer that knows what is on its way."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._unacknowledged: set[asyncio.Future[Any]] = set()

    def send_soon(self, fut: asyncio.Future[Any]) -> None:
        """Send a record, and know of it until it is acknowledged."""
        self._unacknowledged.add(fut)
        fut.add_done_callback(self._sent)
        super().send_soon(fut)

    def _sent(self, fut: asyncio.Future[Any]) -> None:
        """A record that the broker did not take ends the process: its row would be lost.

        Faust itself only says so, and goes on.
        """
        self._unacknowledged.discard(fut)
        error = None if fut.cancelled() else fut.exception()
        if error is not None:
            self._crashing = asyncio.ensure_future(self.app.crash(error))

    async def flush(self) -> None:
        """Hand in what is to be kept, and wait until all of it is acknowledged.

        Raises:
            ProducerSendError: not in FLUSH_TIMEOUT_S.
        """
        await self.transport.before_flush()
        sent = set(self._unacknowledged)
        if sent:
            _, late = await asyncio.wait(sent, timeout=FLUSH_TIMEOUT_S)
            if late:
                raise ProducerSendError(f"{len(late)} records are not acknowledged")
        await super().flush()


class FleetTransport(_driver.Transport):
    """The transport of the fleet's application.

    `before_flush` sends what has changed, `next_offset` says how far a partition is
    taken in.
    """

    Consumer: ClassVar[Any] = _Consumer
    Producer: ClassVar[Any] = _Producer

    def __init__(
        self,
        url: Any,
        app: Any,
        *,
        before_flush: Callable[[], Awaitable[None]],
        next_offset: Callable[[TP], int | None],
    ) -> None:
        super().__init__(url, app)
        self.before_flush = before_flush
        self.next_offset = next_offset
