"""A network that can be made worse: a TCP proxy between clients and one broker.

What TCP does about a bad network is done here: a lost segment comes late, and holds up
what is behind it; what is cut off comes once it is mended; a peer that forgot a
connection is silent until somebody gives up. Nothing is lost within a connection.
"""

import asyncio
import random
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Self

HOST = "127.0.0.1"
CHUNK = 64 * 1024
RESENT_S = (0.2, 1.2)
"""How late a segment comes that was sent again."""

LOOK_EVERY_S = 0.02


class BadNetwork:
    """The way to `target`; `with BadNetwork(...) as network`. Any thread may change it."""

    def __init__(self, port: int, *, chance: random.Random) -> None:
        self.port = port
        self.target = 0
        self.latency_s = 0.0
        self.loss = 0.0
        """The part of the segments that come late."""
        self.deaf = self.mute = False
        """Whether nothing comes to the broker, or nothing from it."""
        self._chance = random.Random(chance.random())
        self._age = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._serving: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server

    @property
    def address(self) -> str:
        """What clients are told instead of the broker's own address."""
        return f"{HOST}:{self.port}"

    def forget(self) -> None:
        """The broker's end of every connection is gone, and nobody tells the clients."""
        self._age += 1

    def heal(self) -> None:
        """A good network again; what was held back comes."""
        self.latency_s = self.loss = 0.0
        self.deaf = self.mute = False

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = self._done(asyncio.start_server(self._serve, HOST, self.port))
        return self

    def __exit__(self, *_: object) -> None:
        self._done(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _done(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _close(self) -> None:
        self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            await self._carry(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            self._serving.discard(task)

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Carry both ways until one end closes, or the broker's end is forgotten."""
        there, back = await asyncio.open_connection(HOST, self.target)
        age = self._age
        ways = [
            asyncio.create_task(self._pump(reader, back, "deaf")),
            asyncio.create_task(self._pump(there, writer, "mute")),
        ]
        try:
            while age == self._age and not any(way.done() for way in ways):
                await asyncio.wait(ways, timeout=LOOK_EVERY_S)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            back.close()
        while age != self._age and await reader.read(CHUNK):
            pass  # a half-open connection takes everything, and answers nothing

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, cut: str
    ) -> None:
        """Carry one way; many segments may be under way at once."""
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(1_000)
        sending = asyncio.create_task(self._deliver(under_way, writer, cut))
        try:
            while data := await reader.read(CHUNK):
                late_s = self.latency_s
                if self._chance.random() < self.loss:
                    late_s += self._chance.uniform(*RESENT_S)
                await under_way.put((self._loop.time() + late_s, data))
            await under_way.put((0.0, b""))
            await sending
        finally:
            sending.cancel()
            with suppress(asyncio.CancelledError, OSError):
                await sending

    async def _deliver(
        self,
        under_way: "asyncio.Queue[tuple[float, bytes]]",
        writer: asyncio.StreamWriter,
        cut: str,
    ) -> None:
        while True:
            due_s, data = await under_way.get()
            await asyncio.sleep(max(0.0, due_s - self._loop.time()))
            while getattr(self, cut):  # noqa: ASYNC110 - another thread changes it
                await asyncio.sleep(LOOK_EVERY_S)
            if not data:
                return
            writer.write(data)
            await writer.drain()
