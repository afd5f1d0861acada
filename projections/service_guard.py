"""The outermost layer: bounded bodies, bounded times, counted answers.

A body that is too large, or comes in too slowly, is refused before a route sees it. An
answer goes out in pieces, each once the one before is out: `service_server` lets a client
go that leaves one unread. Pure ASGI, because a framework's middleware would hold streams
back.
"""

import asyncio
import time
from typing import Any, cast

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from foldline.projections.service_metrics import Metrics
from foldline.projections.service_problems import Problem
from foldline.settings import Settings

BLOBS = "/foldline/v1/blobs/"

PIECE_BYTES = 64 * 1024
"""How much of an answer waits in a connection at once, beyond what the system holds."""

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
"""Those that are counted by name: who calls may send any word as a method."""

OTHER = "OTHER"

_HEADERS = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)


class Guard:
    """Wraps the application."""

    def __init__(self, app: ASGIApp, *, settings: Settings, metrics: Metrics) -> None:
        self._app = app
        self._settings = settings
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Answer(send)
        begun = time.perf_counter()
        try:
            body = _Body(
                receive, self._limit_of(scope), self._settings.http_body_timeout_ms
            )
            body.check_said(scope)
            await self._app(scope, body.receive, answer.send)
        except Problem as problem:
            if not answer.begun:
                await problem.answer()(scope, receive, answer.send)
        finally:
            self._count(scope, answer, time.perf_counter() - begun)

    def _limit_of(self, scope: Scope) -> int:
        if scope["method"] == "PUT" and scope["path"].startswith(BLOBS):
            return self._settings.blob_max_bytes
        return self._settings.http_body_max_bytes

    def _count(self, scope: Scope, answer: "_Answer", took_s: float) -> None:
        # The route's pattern, never the path: ids are no labels, nor is what anybody sends.
        route = cast("str", getattr(scope.get("route"), "path", "none"))
        status = str(answer.status or 499)
        method = scope["method"] if scope["method"] in METHODS else OTHER
        self._metrics.requests.labels(method, route, status).inc()
        if not answer.stream:
            self._metrics.seconds.labels(route).observe(took_s)


class _Body:
    """A request's body, up to its limits."""

    def __init__(self, receive: Receive, max_bytes: int, timeout_ms: int) -> None:
        self._receive = receive
        self._max_bytes = max_bytes
        self._timeout_ms = timeout_ms
        self._taken = 0
        self._whole = False
        self._until = 0.0

    def check_said(self, scope: Scope) -> None:
        """Refuse a body that says itself that it is too large."""
        for name, value in cast("list[tuple[bytes, bytes]]", scope["headers"]):
            if (
                name == b"content-length"
                and value.isdigit()
                and int(value) > self._max_bytes
            ):
                raise self._too_large()

    async def receive(self) -> Message:
        """The next piece; once the body is whole, what comes is only the end."""
        if self._whole:
            return await self._receive()
        if not self._until:
            self._until = asyncio.get_running_loop().time() + self._timeout_ms / 1000
        try:
            async with asyncio.timeout_at(self._until):
                message = await self._receive()
        except TimeoutError as error:
            detail = f"the body was not there in {self._timeout_ms} ms"
            raise Problem(408, "too_slow", detail) from error
        self._taken += len(cast("bytes", message.get("body", b"")))
        if self._taken > self._max_bytes:
            raise self._too_large()
        self._whole = not message.get("more_body", False)
        return message

    def _too_large(self) -> Problem:
        return Problem(413, "too_large", f"at most {self._max_bytes} bytes")


class _Answer:
    """An answer on its way out."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0
        self.stream = False

    @property
    def begun(self) -> bool:
        """Whether its head is out."""
        return self.status != 0

    async def send(self, message: Message) -> None:
        """Send what may be large piece by piece."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = cast("list[Any]", message.setdefault("headers", []))
            headers.extend(_HEADERS)
            self.stream = any(
                name == b"content-type" and value.startswith(b"text/event-stream")
                for name, value in headers
            )
        body = cast("bytes", message.get("body", b""))
        if len(body) <= PIECE_BYTES:
            await self._send(message)
            return
        last = (len(body) - 1) // PIECE_BYTES * PIECE_BYTES
        for begin in range(0, last, PIECE_BYTES):
            piece = body[begin : begin + PIECE_BYTES]
            await self._send({**message, "body": piece, "more_body": True})
        await self._send({**message, "body": body[last:]})
