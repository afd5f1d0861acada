"""Sends spans to an OTLP/HTTP receiver: bounded requests, patient over an outage.

Sending again is safe: the ids of spans follow from the log, so that a store that keeps
one span per id has each once.
"""

import gzip
import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

import httpx2

from foldline.errors import SettingsError, SpansRefusedError, TraceExportError
from foldline.projections.otlp import Encoder
from foldline.projections.spans import Span

PATH = "/v1/traces"

REQUEST_TIMEOUT_MS = 10_000
"""How long one request may take."""
RETRY_FOR_MS = 60_000
"""How long a request is repeated before the receiver counts as away."""
BACKOFF_MS = 200
"""How long the first repetition waits; each further one twice as long."""
BACKOFF_MAX_MS = 10_000
"""The longest pause, whatever the receiver asks for."""
SECONDS_MAX_CHARS = 9
"""How long a number of seconds is that a receiver asks for; a longer one is none."""
ANSWER_BYTES_MAX = 1024 * 1024
"""How much of an answer is read; a longer one is a yes in other words."""
REASON_MAX_CHARS = 500
"""How much is told of why a receiver did not take something."""

HEADERS = "OTEL_EXPORTER_OTLP_HEADERS"
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e]*")
_USER = re.compile(r"(?<=://)[^/?#]*@")

_AGAIN = frozenset({429, 502, 503, 504})
"""Statuses after which OTLP has a sender repeat the same request."""

TOO_LARGE = 413

_OF_THESE = frozenset({400, TOO_LARGE, 422})
"""Statuses that say no to these spans and to no others, as the others from 500 on do."""


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of some spans: how many went out, how many of them were not taken."""

    spans: int = 0
    rejected: int = 0
    reason: str = ""

    def __add__(self, other: "Sent") -> "Sent":
        return Sent(
            self.spans + other.spans,
            self.rejected + other.rejected,
            other.reason or self.reason,
        )


class OtlpSender:
    """A connection to one receiver.

    Args:
        url: The receiver, with or without /v1/traces.
        encoder: Makes the requests.
        headers: Of every request, for who asks for credentials.
        retry_for_ms: How long an outage is waited for, each time.
        sleep: Waits for some seconds; returns early where the work is to stop.
    """

    def __init__(
        self,
        url: str,
        encoder: Encoder,
        *,
        headers: Mapping[str, str] | None = None,
        retry_for_ms: int = RETRY_FOR_MS,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        base = url.rstrip("/")
        self.url = base if base.endswith(PATH) else base + PATH
        self._shown = shown(self.url)
        _check(self.url)
        self._encoder = encoder
        self._retry_for_ms = retry_for_ms
        self._sleep = sleep
        self._client = httpx2.Client(
            headers=dict(headers or {})
            | {
                "content-type": "application/x-protobuf",
                "content-encoding": "gzip",
                "accept-encoding": "identity",
            },
            timeout=REQUEST_TIMEOUT_MS / 1000,
            follow_redirects=False,  # credentials go nowhere else
        )

    def send(self, spans: Sequence[Span]) -> Sent:
        """Send spans, in as many requests as they need, and as small as they must be.

        Raises:
            SpansRefusedError: the receiver will not have these. What was sent before may
                be there; all of it can be sent again.
            TraceExportError: it is away, or will have nothing of this sender.
        """
        sent, at = Sent(), 0
        for count, body in self._encoder.requests(spans):
            sent += self._part(spans[at : at + count], body)
            at += count
        return sent

    def _part(self, spans: Sequence[Span], body: bytes) -> Sent:
        """Those of one request; in halves where the receiver finds it too large."""
        try:
            return Sent(len(spans)) + self._post(gzip.compress(body, mtime=0))
        except SpansRefusedError as error:
            if error.status != TOO_LARGE or len(spans) == 1:
                raise
        half = len(spans) // 2
        return self.send(spans[:half]) + self.send(spans[half:])

    def close(self) -> None:
        """Let go of the connection."""
        self._client.close()

    def _post(self, body: bytes) -> Sent:
        """One request, repeated while an outage lasts that may end."""
        give_up_s = time.monotonic() + self._retry_for_ms / 1000
        pause_ms = BACKOFF_MS
        while True:
            try:
                with self._client.stream("POST", self.url, content=body) as answer:
                    if answer.is_success:
                        return self._taken(_read(answer))
            except httpx2.TransportError as error:
                reason, after_ms = f"{type(error).__name__}: {error}", 0
            else:
                reason, after_ms = f"status {answer.status_code}", _after_ms(answer)
                if answer.status_code not in _AGAIN:
                    raise self._refusal(answer.status_code)
            wait_ms = max(after_ms, random.uniform(pause_ms / 2, pause_ms))  # noqa: S311
            if time.monotonic() + wait_ms / 1000 > give_up_s:
                raise TraceExportError(self._shown, reason, retryable=True)
            self._sleep(wait_ms / 1000)
            pause_ms = min(pause_ms * 2, BACKOFF_MAX_MS)

    def _refusal(self, status: int) -> TraceExportError:
        """What a status means that no repetition changes."""
        if status in _OF_THESE or status >= 500:  # noqa: PLR2004 - the server's own failures
            return SpansRefusedError(self._shown, status)
        return TraceExportError(self._shown, f"status {status}", retryable=False)

    def _taken(self, answer: bytes) -> Sent:
        """What a receiver says that it did not take; an answer in other words is a yes."""
        rejected, reason = self._encoder.rejected(answer)
        return Sent(0, max(rejected, 0), reason[:REASON_MAX_CHARS])


def headers_of(text: str) -> dict[str, str]:
    """The headers of OTEL_EXPORTER_OTLP_HEADERS: name=value, with commas between.

    Raises:
        SettingsError: HTTP has no such header. The message has no value: it is a secret.
    """
    pairs = (pair.partition("=") for pair in text.split(",") if "=" in pair)
    found = {name.strip().lower(): unquote(value.strip()) for name, _, value in pairs}
    if not all(_NAME.fullmatch(n) and _VALUE.fullmatch(v) for n, v in found.items()):
        wanted = "name=value, of printable ASCII, with commas between"
        raise SettingsError(HEADERS, "", wanted)
    return found


def shown(url: str) -> str:
    """A receiver's URL as it is told: without a user and a password."""
    return _USER.sub("", url)


def _check(url: str) -> None:
    """Refuse what can never be reached, which is no outage to wait for.

    Raises:
        TraceExportError: it is no URL of a receiver.
    """
    try:
        host = httpx2.URL(url).host
    except httpx2.InvalidURL as error:
        raise TraceExportError(shown(url), str(error), retryable=False) from error
    if not host:
        raise TraceExportError(shown(url), "the URL names no host", retryable=False)


def _read(answer: httpx2.Response) -> bytes:
    """The body of an answer; of one that is endless in length or time, the beginning."""
    give_up_s = time.monotonic() + REQUEST_TIMEOUT_MS / 1000
    found = b""
    for part in answer.iter_raw():
        found += part
        if len(found) > ANSWER_BYTES_MAX or time.monotonic() > give_up_s:
            break
    return found


def _after_ms(answer: httpx2.Response) -> int:
    said = answer.headers.get("retry-after", "")
    if not said.isdecimal() or len(said) > SECONDS_MAX_CHARS:
        return 0
    return min(int(said) * 1000, BACKOFF_MAX_MS)
