"""A registry that can be told to be in trouble: a real one behind a proxy of the test."""

import threading
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ANSWER_TIMEOUT_S = 30


@dataclass
class Trouble:
    """What is wrong with the registry now; everything may change at any time.

    `status` above 0 is all that it answers. `slow_s` is how long an answer takes.
    `hidden` are schema ids that it has never heard of. `asked` is what it was asked.
    """

    status: int = 0
    slow_s: float = 0.0
    hidden: set[int] = field(default_factory=set[int])
    asked: list[str] = field(default_factory=list[str])

    def heal(self) -> None:
        """Nothing is wrong any more."""
        self.status, self.slow_s = 0, 0.0
        self.hidden.clear()

    def count(self, part: str) -> int:
        """How often it was asked for a path that has this in it."""
        return sum(part in path for path in list(self.asked))

    def hides(self, path: str) -> bool:
        """Whether a path asks for a schema that it has never heard of."""
        bare = path.partition("?")[0]
        return any(bare.endswith(f"/schemas/ids/{one}") for one in self.hidden)


@contextmanager
def troubled(registry_url: str, trouble: Trouble) -> Generator[str]:
    """Stand between a registry and its clients; gives the URL for them."""
    over = threading.Event()
    root, slashes, path = registry_url.partition("://")
    host, _, base = path.partition("/")
    real = f"{root}{slashes}{host}"

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            trouble.asked.append(self.path)
            over.wait(trouble.slow_s)
            if trouble.status:
                self._answer(trouble.status, b'{"error_code": 50001, "message": "store"}')
            elif trouble.hides(self.path):
                self._answer(404, b'{"error_code": 40403, "message": "no such schema"}')
            else:
                self._forward()

        def do_POST(self) -> None:
            self._body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.do_GET()

        def _forward(self) -> None:
            data = getattr(self, "_body", None)
            sent = {"Content-Type": self.headers.get("Content-Type", "application/json")}
            request = urllib.request.Request(  # noqa: S310 - the test's own registry
                f"{real}{self.path}", data, sent, method=self.command
            )
            try:
                with urllib.request.urlopen(  # noqa: S310
                    request, timeout=ANSWER_TIMEOUT_S
                ) as answer:
                    self._answer(answer.status, answer.read())
            except urllib.error.HTTPError as error:
                self._answer(error.code, error.read())

        def _answer(self, status: int, body: bytes) -> None:
            try:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            except OSError:
                return  # a client that did not wait

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/{base}"
    finally:
        over.set()
        server.shutdown()
        thread.join()
        server.server_close()
