"""A worker's health over HTTP: is it alive, is it ready and if not why, its metrics.

| path | 200 | 503 |
| --- | --- | --- |
| `/healthz` | the poll loop turns | it has not for STUCK_MS: restart the process |
| `/readyz` | every partition that it was given runs | it says what it waits for |
| `/metrics` | Prometheus' text format, whether it is ready among it | never |

A process may have pages of its own beside them: JSON, by the query of the request.
"""

import json
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from foldline.settings import Settings

STUCK_MS = 60_000
"""Longer than any step of a batch may take: a loop that has not turned is stuck."""

STARTING = "starting"

READY = b"""\
# HELP foldline_ready 1 where the process does what it is for, 0 where it waits.
# TYPE foldline_ready gauge
foldline_ready %d
"""


class BadQueryError(ValueError):
    """Raised by a page that is asked for what it cannot give; answered 400, with why."""

    def __init__(self, name: str, wanted: str) -> None:
        self.name = name
        self.wanted = wanted
        super().__init__(f"{name}: {wanted}")


Page = Callable[[str], Mapping[str, Any]]
"""Answers a query; any thread calls it."""


class Health:
    """What a worker says of itself, from before it looks for its log; any thread reads.

    `metrics` gives them as text, once there are any; `pages` are others, by path.
    """

    def __init__(self) -> None:
        self.metrics: Callable[[], bytes] = bytes
        self.pages: dict[str, Page] = {}
        self._waits_for: tuple[str, ...] = (STARTING,)
        self._turned_s = time.monotonic()

    def turned(self, *waits_for: str) -> None:
        """Say that work goes on, and what keeps the worker from being ready."""
        self._waits_for = waits_for
        self._turned_s = time.monotonic()

    def goes_on(self) -> None:
        """Say that work goes on in the middle of a long turn: as ready as it was."""
        self._turned_s = time.monotonic()

    @property
    def alive(self) -> bool:
        """Whether the loop turns."""
        return time.monotonic() - self._turned_s < STUCK_MS / 1000

    @property
    def waits_for(self) -> tuple[str, ...]:
        """Why it is not ready; empty when it is."""
        return self._waits_for if self.alive else ("the poll loop is stuck",)

    def text(self) -> bytes:
        """Its metrics, and whether it is ready: that every process has."""
        return self.metrics() + READY % int(not self.waits_for)


class HealthServer:
    """A small HTTP server in a thread of its own."""

    def __init__(self, host: str, port: int, *, health: Health) -> None:
        """Listen.

        Raises:
            OSError: the port is taken.
        """
        self.host = host
        handler = _handler(health)
        self._server = ThreadingHTTPServer((host, port), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="foldline-health", daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._server.server_port

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def listening(settings: Settings) -> Generator[tuple[Health, int | None]]:
    """Health, and the port at which it can be asked; None where the settings want none.

    Raises:
        OSError: the port is taken.
    """
    health = Health()
    if settings.health_port < 0:
        yield health, None
        return
    server = HealthServer(settings.http_host, settings.health_port, health=health)
    try:
        yield health, server.port
    finally:
        server.close()


def _handler(health: Health) -> type[BaseHTTPRequestHandler]:
    def answer(target: str) -> tuple[int, str, bytes]:
        path, _, query = target.partition("?")
        match path:
            case "/healthz":
                return _json(health.alive, {"alive": health.alive})
            case "/readyz":
                waits = health.waits_for
                return _json(not waits, {"ready": not waits, "waits_for": list(waits)})
            case "/metrics":
                return 200, "text/plain; version=0.0.4; charset=utf-8", health.text()
            case _ if path in health.pages:
                return _page(health.pages[path], query)
            case _:
                paths = ", ".join(("/healthz", "/readyz", "/metrics", *health.pages))
                return 404, "text/plain", f"{paths}\n".encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, kind, body = answer(self.path)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - who asks is not worth a line
            pass

    return Handler


def _page(page: Page, query: str) -> tuple[int, str, bytes]:
    try:
        return _json(True, dict(page(query)))  # noqa: FBT003 - a status
    except BadQueryError as error:
        return 400, "text/plain", f"{error}\n".encode()


def _json(good: bool, view: dict[str, Any]) -> tuple[int, str, bytes]:  # noqa: FBT001 - a status
    return (200 if good else 503), "application/json", json.dumps(view).encode() + b"\n"
