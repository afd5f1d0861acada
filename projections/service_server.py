"""Runs the application: bounded connections, and an end that streams take part in."""

import asyncio
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from foldline.processors.worker_health import Health
from foldline.projections.service import create_app
from foldline.projections.service_health import metrics_text, waits_of
from foldline.projections.service_node import Node

KEEP_ALIVE_S = 75
"""How long a connection waits for its next request: longer than clients keep theirs."""

HEAD_TIMEOUT_S = 10
"""How long the head of a request may take to come in."""

GRACE_S = 20
"""How long requests under way may take to end when the service stops."""


class Server(uvicorn.Server):
    """Stops its streams first: they would never end by themselves."""

    def __init__(self, config: uvicorn.Config, node: Node) -> None:
        super().__init__(config)
        self._node = node
        self.on_started: Callable[[], None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and say so."""
        await super().startup(sockets)
        if self.started and self.on_started is not None:
            self.on_started()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """End in order on SIGTERM and Ctrl-C; whoever started this goes on then."""
        with super().capture_signals():
            yield
            self._captured_signals.clear()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let streams end after their last whole event, then all others."""
        self._node.stop()
        await super().shutdown(sockets)


def server_of(node: Node, *, insecure: bool = False, **given: Any) -> Server:
    """A server of a node.

    Args:
        node: what it serves.
        insecure: without tokens, serve under any host name.
        given: host, port and whatever else uvicorn takes.
    """
    config = uvicorn.Config(
        create_app(node, insecure=insecure),
        http=_impatient(node.settings.http_send_timeout_ms / 1000),
        ws="none",
        lifespan="on",
        access_log=False,
        log_level="warning",
        proxy_headers=False,
        server_header=False,
        limit_concurrency=node.settings.http_connections_max,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACE_S,
        backlog=2_048,
        **given,
    )
    return Server(config, node)


def telling(node: Node, health: Health) -> dict[str, Any]:
    """What makes a server say how its node is, each second that its loop turns."""
    health.metrics = partial(metrics_text, node)

    async def tell() -> None:
        health.turned(*waits_of(node, node.standings()))

    return {"callback_notify": tell, "timeout_notify": 1}


class _Impatient(H11Protocol):
    """HTTP/1.1 that closes a connection on which a request comes in too slowly."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is not None and not cycle.response_complete:
            self._rest()  # its head is whole
        elif self._late is None:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._rest()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._late = self.loop.call_later(HEAD_TIMEOUT_S, self._close)

    def _rest(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _close(self) -> None:
        self._late = None
        if not self.transport.is_closing():
            self.transport.close()


def _impatient(unread_s: float) -> type[asyncio.Protocol]:
    """The same, and it lets a client go that leaves a piece unread for so many seconds.

    Nothing waits in the connection when the next piece is written: writing stands from
    the first byte that the system does not take until it has taken all.
    """

    class Impatient(_Impatient):
        _unread: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            transport.set_write_buffer_limits(high=0)

        def pause_writing(self) -> None:
            super().pause_writing()
            # Closing would wait for what is unread.
            self._unread = self.loop.call_later(unread_s, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            self._taken()

        def connection_lost(self, exc: Exception | None) -> None:
            self._taken()
            super().connection_lost(exc)

        def _taken(self) -> None:
            if self._unread is not None:
                self._unread.cancel()
                self._unread = None

    return Impatient
