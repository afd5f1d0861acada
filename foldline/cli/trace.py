"""`foldline trace`: a session as OpenTelemetry spans, and sessions to a receiver."""

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from foldline.cli.clean import clean_line
from foldline.cli.context import Context, find_session
from foldline.cli.failures import NO, OK, UsageError
from foldline.cli.health import told_health
from foldline.cli.signals import stop_on_signals
from foldline.errors import SessionNotFoundError

if TYPE_CHECKING:
    from foldline.cli.output import Output
    from foldline.errors import FoldlineError
    from foldline.processors.stored import AuditableLog
    from foldline.processors.worker_health import Health
    from foldline.projections.otel_genai import Names
    from foldline.projections.otlp_sender import OtlpSender, Sent
    from foldline.projections.spans import Span
    from foldline.projections.trace_export import Swept, TraceExporter

EVERY_MS = 2_000
"""How often --follow looks at the sessions, unless told otherwise."""
EVERY_MIN_MS = 50

FOLLOW_RETRY_FOR_MS = 5_000
"""For how long --follow tries to send before it says that it cannot, and begins again."""

SERVICE = "OTEL_SERVICE_NAME"

_STYLES = {"OK": "green", "ERROR": "red", "UNSET": "dim"}


def trace(  # noqa: PLR0913 - the options of a command
    session: str | None = None,
    /,
    *,
    otlp: str | None = None,
    all_: Annotated[bool, Parameter(name="--all")] = False,
    follow: bool = False,
    every_ms: int = EVERY_MS,
    content: bool = False,
    conventions: str = "genai/0.1.0",
    health: str | None = None,
    context: Annotated[Context, Parameter(parse=False)],
) -> int:
    """Show a session as OpenTelemetry spans, one trace per turn; or send them.

    Ids follow from the log, so that spans which are sent twice are the same spans.
    Headers for the receiver are those of OTEL_EXPORTER_OTLP_HEADERS.

    Args:
        session: Its id, or the beginning of one; none with --all.
        otlp: Send the spans to this OTLP/HTTP receiver, as http://localhost:4318.
        all_: Send the spans of every session, from where the last time came to.
        follow: With --all: go on sending until SIGTERM or Ctrl-C, over any outage.
        every_ms: How often --follow looks at the sessions.
        content: With what was said: arguments, results, answers.
        conventions: The version of the names: genai/0.1.0 or util-1.3.
        health: With --follow: say at HOST:PORT, under /readyz, whether spans are sent.
        context: Where to read and write.
    """
    names = _names(conventions)
    _check(session, otlp, every=all_, follow=follow, every_ms=every_ms)
    if session is None:
        with told_health("--health", health) as said:
            follow_ms = every_ms * follow
            return _export(
                context, otlp or "", names, said, follow_ms=follow_ms, content=content
            )
    spans = _spans_of(context, session, names, content=content)
    if otlp is not None:
        with _sender(otlp, names) as sender:
            sent = sender.send(spans)
        context.out.remark(_told(sent, otlp))
    if context.out.json:
        _print_json(context.out, spans)
    elif otlp is None:
        _print_tree(context.out, spans)
    return OK


def _check(
    session: str | None, otlp: str | None, *, every: bool, follow: bool, every_ms: int
) -> None:
    if every == (session is not None):
        raise UsageError("SESSION", "a session, or --all for every one")
    if every and otlp is None:
        raise UsageError("--all", "--otlp URL, to say where the spans go")
    if follow and not every:
        raise UsageError("--follow", "goes with --all")
    if every_ms < EVERY_MIN_MS:
        raise UsageError("--every-ms", f"{EVERY_MIN_MS} or more")
    if otlp is not None and not otlp.startswith(("http://", "https://")):
        raise UsageError("--otlp", "an URL, as http://localhost:4318")


def _names(version: str) -> "Names":
    from foldline.projections.otel_genai import VERSIONS  # late: --help does without

    names = VERSIONS.get(version)
    if names is None:
        raise UsageError("--conventions", " or ".join(VERSIONS))
    return names


def _spans_of(
    context: Context, session: str, names: "Names", *, content: bool
) -> "list[Span]":
    """The spans of one session, the open ones ended where its log ends."""
    from foldline.projections.trace_reading import (  # late: --help does without
        end_reason,
        take_all,
        traces_of,
    )

    with context.reading() as log:
        session_id = find_session(log, session)
        state = log.state(session_id)
        if state is None:
            raise SessionNotFoundError(session_id, log.url)
        traces = traces_of(log, state, names=names, content=content)
        take_all(log, traces, session_id)
        return traces.finished(end_reason(log, state))


@contextmanager
def _sender(
    url: str,
    names: "Names",
    sleep: Callable[[float], object] | None = None,
    *,
    follows: bool = False,
) -> "Generator[OtlpSender]":
    """A connection to a receiver, as OpenTelemetry's own variables say."""
    import time  # late: --help does without
    from importlib.metadata import version

    from foldline.projections.otlp import Encoder
    from foldline.projections.otlp_sender import (
        HEADERS,
        RETRY_FOR_MS,
        OtlpSender,
        headers_of,
    )

    named = os.environ.get(SERVICE) or "foldline"
    service = named.encode("utf-8", "replace").decode()  # it may be no UTF-8
    encoder = Encoder(names, service=service, version=version("foldline"))
    headers = headers_of(os.environ.get(HEADERS, ""))
    sender = OtlpSender(
        url,
        encoder,
        headers=headers,
        retry_for_ms=FOLLOW_RETRY_FOR_MS if follows else RETRY_FOR_MS,
        sleep=sleep or time.sleep,
    )
    try:
        yield sender
    finally:
        sender.close()


def _export(
    context: Context,
    url: str,
    names: "Names",
    health: "Health",
    *,
    follow_ms: int,
    content: bool,
) -> int:
    """Send what is new of every session, once or until told to stop."""
    from threading import Event  # late: --help does without

    from foldline.projections.otlp_sender import shown

    stop = Event()
    sending = _sender(url, names, stop.wait, follows=follow_ms > 0)
    told_url = shown(url)
    with context.reading() as log, sending as sender:
        exporter = _exporter(
            context, log, sender, names, content=content, on_session=health.goes_on
        )
        if not follow_ms:
            swept = exporter.export(as_it_stands=True)
            _tell(context.out, swept, told_url)
            return NO if swept.refused else OK

        def tell(swept: "Swept", trouble: "FoldlineError | None") -> None:
            health.turned(*([str(trouble)] if trouble is not None else []))
            if swept.sent.spans or swept.lost or swept.refused:
                _tell(context.out, swept, told_url)
            if trouble is not None and trouble.retryable:
                context.out.remark(clean_line(f"{trouble}; trying again"))
            context.out.flush()

        stop_on_signals(stop.set)
        exporter.run(stop, every_ms=follow_ms, told=tell)
    return OK


def _exporter(
    context: Context,
    log: "AuditableLog",
    sender: "OtlpSender",
    names: "Names",
    *,
    content: bool,
    on_session: Callable[[], object],
) -> "TraceExporter":
    from foldline.projections.trace_export import (  # late: --help does without
        TraceExporter,
        positions_path,
    )
    from foldline.projections.trace_positions import TracePositions

    path = positions_path(
        context.settings().state_dir,
        log_url=log.url,
        to_url=sender.url,
        names=names,
        content=content,
    )
    positions = TracePositions.open(path)
    return TraceExporter(
        log, sender, positions, names=names, content=content, on_session=on_session
    )


def _tell(out: "Output", swept: "Swept", url: str) -> None:
    for session_id, why in (swept.lost | swept.refused).items():
        out.remark(clean_line(f"{session_id} is left out: {why}"))
    if out.json:
        out.record(
            {
                "url": url,
                "sessions": swept.sessions,
                "spans": swept.sent.spans,
                "rejected": swept.sent.rejected,
                "lost": list(swept.lost),
                "refused": list(swept.refused),
            }
        )
        return
    out.line((f"{swept.sessions:,} sessions: {_told(swept.sent, url)}", ""))


def _told(sent: "Sent", url: str) -> str:
    """What became of some spans, in words."""
    from foldline.projections.otlp_sender import shown  # late: --help does without

    refused = f", {sent.rejected:,} not taken: {sent.reason}" if sent.rejected else ""
    return clean_line(f"{sent.spans:,} spans sent to {shown(url)}{refused}")


def _print_json(out: "Output", spans: "list[Span]") -> None:
    from foldline.projections.trace_views import span_view  # late: --help does without

    for span in spans:
        out.record(span_view(span))


def _print_tree(out: "Output", spans: "list[Span]") -> None:
    from foldline.projections.trace_views import tree_rows  # late: --help does without
    from foldline.projections.views import moment_of

    for depth, span in tree_rows(spans):
        moment = moment_of(span.start_us)
        clock = moment.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] if moment else ""
        out.line(
            (f"{clock or '-':<23}  ", "dim"),
            ("  " * depth + clean_line(span.name), "" if depth else "bold"),
            (f"  {_length(span)}", ""),
            (f"  {span.status}", _STYLES[span.status]),
            (f"  {_details(span)}", "dim"),
        )


def _length(span: "Span") -> str:
    """How long a span is, in seconds or milliseconds."""
    length_ms = (span.end_us - span.start_us) / 1000
    return f"{length_ms / 1000:,.2f} s" if length_ms >= 1000 else f"{length_ms:.1f} ms"  # noqa: PLR2004


def _details(span: "Span") -> str:
    """What else a person wants to know of a span, on one line."""
    from foldline.projections.otel_genai import ERROR_TYPE, INPUT_TOKENS, OUTPUT_TOKENS

    found = span.attributes
    parts = [
        f"{label}={found[name]}"
        for label, name in (
            ("error", ERROR_TYPE),
            ("ended", "foldline.closed.reason"),
            ("outcome", "foldline.outcome"),
            ("decision", "foldline.permission.decision"),
            ("exit", "foldline.execution.exit_code"),
            ("in", INPUT_TOKENS),
            ("out", OUTPUT_TOKENS),
        )
        if name in found
    ]
    links = [f"{link.kind.lower()} of {link.to.span_id}" for link in span.links]
    return "  ".join(clean_line(part) for part in parts + links)
