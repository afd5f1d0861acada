"""A real OTLP/HTTP receiver: it parses what it is sent and keeps one span per id."""

import gzip
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span


@dataclass
class Receiver:
    """What came in. `statuses` are answered first, one for each request.

    `answer` is the body in the place of OTLP's own, `answer_headers` go with each.
    """

    url: str = ""
    statuses: list[int] = field(default_factory=list[int])
    rejects: int = 0
    answer: bytes | None = None
    answer_headers: dict[str, str] = field(default_factory=dict[str, str])
    requests: list[ExportTraceServiceRequest] = field(
        default_factory=list[ExportTraceServiceRequest]
    )
    headers: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    spans: dict[str, Span] = field(default_factory=dict[str, Span])

    @property
    def received(self) -> int:
        """How many spans came in, those that came again included."""
        return sum(len(each.spans) for each in self._scopes())

    def _scopes(self) -> Iterator[Any]:
        for request in self.requests:
            for of_resource in request.resource_spans:
                yield from of_resource.scope_spans

    def take(self, body: bytes) -> bytes:
        """Take a request's body, and give the answer's."""
        request = ExportTraceServiceRequest.FromString(body)
        self.requests.append(request)
        for of_resource in request.resource_spans:
            for of_scope in of_resource.scope_spans:
                self.spans.update({s.span_id.hex(): s for s in of_scope.spans})
        answer = ExportTraceServiceResponse()
        answer.partial_success.rejected_spans = self.rejects
        answer.partial_success.error_message = "too old" if self.rejects else ""
        return answer.SerializeToString()


@contextmanager
def receiving(*, port: int = 0) -> Generator[Receiver]:
    """A receiver that listens as long as the block lasts; at any free port, unless told."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = gzip.decompress(self.rfile.read(int(self.headers["content-length"])))
            receiver.headers.append({k.lower(): v for k, v in self.headers.items()})
            status = receiver.statuses.pop(0) if receiver.statuses else 200
            found = self.path == "/v1/traces"
            answer = receiver.take(body) if status == 200 and found else b""
            answer = answer if receiver.answer is None else receiver.answer
            self.send_response(status if found else 404)
            headers = {"content-length": str(len(answer))} | receiver.answer_headers
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            with suppress(OSError):  # a sender need not read it all
                self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            del format, args

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        receiver.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield receiver
        server.shutdown()
        thread.join()
