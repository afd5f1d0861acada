"""Spans as OTLP: the protobuf messages that collectors and trace stores take.

Times are those of the log, ids those of the spans: encoding the same spans again gives
the same bytes. The library is an extra: `pip install 'foldline[otel]'`.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from foldline.errors import SettingsError
from foldline.projections.otel_genai import Names
from foldline.projections.spans import ERROR, INTERNAL, OK, Span, Value

if TYPE_CHECKING:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
        ExportTraceServiceRequest,
    )
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
    from opentelemetry.proto.trace.v1 import trace_pb2

INSTALL = "pip install 'foldline[otel]'"

BATCH_SPANS_MAX = 512
"""How many spans one request holds."""
BATCH_BYTES_MAX = 2 * 1024 * 1024
"""How large one request is, but for a single span that is larger; in bytes."""

SCOPE = "foldline"


class Encoder:
    """Makes requests of spans, for one service name and one version of the names.

    Raises:
        SettingsError: the library is not installed.
    """

    def __init__(self, names: Names, *, service: str, version: str) -> None:
        try:
            from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
            from opentelemetry.proto.common.v1 import common_pb2
            from opentelemetry.proto.trace.v1 import trace_pb2
        except ImportError as error:
            wanted = f"OTLP needs its library: {INSTALL}"
            raise SettingsError("--otlp", "", wanted) from error
        self._service_pb2 = trace_service_pb2
        self._common_pb2 = common_pb2
        self._trace_pb2 = trace_pb2
        self._names = names
        self._service = service
        self._version = version

    def requests(self, spans: Sequence[Span]) -> Iterator[tuple[int, bytes]]:
        """The spans, in their order, as bodies of requests, each within the limits.

        With how many there are in each.
        """
        batch: list[trace_pb2.Span] = []
        size = 0
        for span in spans:
            encoded = self._span(span)
            more = encoded.ByteSize()
            full = len(batch) >= BATCH_SPANS_MAX or size + more > BATCH_BYTES_MAX
            if batch and full:
                yield len(batch), self._body(batch)
                batch, size = [], 0
            batch.append(encoded)
            size += more
        if batch:
            yield len(batch), self._body(batch)

    def _body(self, batch: list["trace_pb2.Span"]) -> bytes:
        return self._request(batch).SerializeToString(deterministic=True)

    def rejected(self, answer: bytes) -> tuple[int, str]:
        """How many spans a receiver says that it did not take, and why."""
        from google.protobuf.message import DecodeError  # late: it comes with the extra

        try:
            told = self._service_pb2.ExportTraceServiceResponse.FromString(answer)
        except DecodeError:
            return 0, ""  # some say yes in JSON
        return told.partial_success.rejected_spans, told.partial_success.error_message

    def _request(self, spans: "list[trace_pb2.Span]") -> "ExportTraceServiceRequest":
        request = self._service_pb2.ExportTraceServiceRequest()
        of_resource = request.resource_spans.add()
        of_resource.resource.attributes.append(self._pair("service.name", self._service))
        of_scope = of_resource.scope_spans.add(schema_url=self._names.schema_url)
        of_scope.scope.name = SCOPE
        of_scope.scope.version = self._version
        of_scope.spans.extend(spans)
        return request

    def _span(self, span: Span) -> "trace_pb2.Span":
        pb = self._trace_pb2
        kind = pb.Span.SPAN_KIND_INTERNAL
        if span.kind != INTERNAL:
            kind = pb.Span.SPAN_KIND_CLIENT
        encoded = pb.Span(
            trace_id=bytes.fromhex(span.ref.trace_id),
            span_id=bytes.fromhex(span.ref.span_id),
            parent_span_id=bytes.fromhex(span.parent_id),
            name=span.name,
            kind=kind,
            start_time_unix_nano=span.start_us * 1000,
            end_time_unix_nano=span.end_us * 1000,
            attributes=[self._pair(*pair) for pair in span.attributes.items()],
            dropped_events_count=span.events_dropped,
            dropped_links_count=span.links_dropped,
        )
        codes = {OK: pb.Status.STATUS_CODE_OK, ERROR: pb.Status.STATUS_CODE_ERROR}
        encoded.status.code = codes.get(span.status, pb.Status.STATUS_CODE_UNSET)
        encoded.status.message = span.message
        for event in span.events:
            encoded.events.add(
                name=event.name,
                time_unix_nano=event.time_us * 1000,
                attributes=[self._pair(*pair) for pair in event.attributes.items()],
            )
        for link in span.links:
            encoded.links.add(
                trace_id=bytes.fromhex(link.to.trace_id),
                span_id=bytes.fromhex(link.to.span_id),
                attributes=[self._pair("foldline.link.kind", link.kind)],
            )
        return encoded

    def _pair(self, name: str, value: Value) -> "KeyValue":
        return self._common_pb2.KeyValue(key=name, value=self._value(value))

    def _value(self, value: Value) -> "AnyValue":
        any_value = self._common_pb2.AnyValue
        match value:
            case bool():
                return any_value(bool_value=value)
            case int():
                return any_value(int_value=min(max(value, -(2**63)), 2**63 - 1))
            case float():
                return any_value(double_value=value)
            case str():
                return any_value(string_value=value)
            case _:
                parts = [any_value(string_value=part) for part in value]
                whole = self._common_pb2.ArrayValue(values=parts)
                return any_value(array_value=whole)
