"""Calls of the read service: one connection pool, bounded waits, retries that are safe.

Every call may be made again: a read changes nothing, an append has its event_id and
known_seq, a lease or a blob that is stored twice is stored once.
"""

import random
import time
from collections.abc import Mapping
from typing import Any, cast

import httpx2

from foldline.errors import (
    AccessRefusedError,
    AnotherNodeError,
    FoldlineError,
    LogFormatError,
    LogUnavailableError,
    RefusedRequestError,
    SessionTruncatedError,
)
from foldline.processors.http_wire import API
from foldline.settings import Settings

CONNECT_TIMEOUT_MS = 5_000
"""How long a connection may take to be made."""

CONNECTIONS_MAX = 64
"""How many connections one client has at once."""

KEPT_S = 30.0
"""How long an idle connection is kept: shorter than the service keeps it."""

BACKOFF_MS = 50
"""How long the first repetition waits; each further one twice as long."""

RETRY_AFTER_MAX_S = 10.0
"""The longest pause that a service may ask for."""

_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses after which the same call may be answered."""

_NOTHING = frozenset({404})
_ANOTHER_NODE = 421
_TRUNCATED = 410

READY = "/readyz"
"""Where a service says how far its partitions are, with status 200 or 503."""

Params = Mapping[str, str | int]


class Calls:
    """The connection to one service. Any thread may call."""

    def __init__(self, url: str, *, settings: Settings) -> None:
        self.url = url.rstrip("/")
        self._settings = settings
        self._closed = False
        token = settings.token.get_secret_value()
        self._client = httpx2.Client(
            base_url=f"{self.url}{API}",
            headers={"authorization": f"Bearer {token}"} if token else {},
            limits=httpx2.Limits(
                max_connections=CONNECTIONS_MAX,
                max_keepalive_connections=CONNECTIONS_MAX,
                keepalive_expiry=KEPT_S,
            ),
            follow_redirects=False,  # a token goes nowhere else
        )

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    def get(
        self, path: str, params: Params | None = None, *, accept: str, wait_ms: int = 0
    ) -> httpx2.Response | None:
        """An answer; None where what was asked for is not there.

        Args:
            path: below the API's root.
            params: of the query.
            accept: the media type that is understood.
            wait_ms: how long the service may wait before it answers.

        Raises:
            LogUnavailableError: no answer after `resend_max` repetitions.
            AccessRefusedError: the token is not taken.
            RefusedRequestError: it will not be answered; AnotherNodeError: not here.
        """
        headers = {"accept": accept}
        answer = self._call("GET", path, wait_ms, params=params, headers=headers)
        return None if answer.status_code in _NOTHING else answer

    def send(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: bytes | None = None,
        content_type: str = "",
        json: Any = None,
        wait_ms: int = 0,
        recorded: int = 0,
    ) -> httpx2.Response:
        """An answer to what changes something, made again until there is one.

        `recorded` appends of the same call were answered before: its errors say so.

        Raises:
            LogUnavailableError: as for `get`: it may have happened, or not.
            AccessRefusedError: the token is not taken, or not for this.
            RefusedRequestError: it was not done; AnotherNodeError: not here.
        """
        headers = {"content-type": content_type} if content_type else {}
        given: dict[str, Any] = {"params": params, "headers": headers}
        if json is not None:
            given["json"] = json
        elif body is not None:
            given["content"] = body
        return self._call(method, path, wait_ms, recorded, **given)

    def _call(
        self, method: str, path: str, wait_ms: int, recorded: int = 0, **given: Any
    ) -> httpx2.Response:
        """Ask until there is an answer, or it has been asked often enough."""
        timeout = self._timeout(wait_ms)
        reason, after_s = "", 0.0
        for attempt in range(self._settings.resend_max + 1):
            if attempt:
                time.sleep(max(after_s, self._pause_s(attempt)))
            try:
                answer = self._client.request(method, path, timeout=timeout, **given)
            except httpx2.TransportError as error:
                reason, after_s = f"{type(error).__name__}: {error}", 0.0
                continue
            except RuntimeError as error:  # a client that was closed meanwhile
                raise LogUnavailableError(self.url, str(error)) from error
            if answer.status_code not in _AGAIN:
                return self._checked(answer, recorded)
            reason, after_s = detail_of(answer), _after_s(answer)
        raise LogUnavailableError(self.url, reason)

    def _timeout(self, wait_ms: int) -> httpx2.Timeout:
        """Long enough for what the service itself waits for."""
        answer_s = (self._settings.verdict_timeout_ms + wait_ms) / 1000
        return httpx2.Timeout(answer_s, connect=CONNECT_TIMEOUT_MS / 1000)

    def _pause_s(self, attempt: int) -> float:
        """Ever longer, and never in step with others."""
        most_ms = min(BACKOFF_MS * 2**attempt, self._settings.resend_after_ms)
        return random.uniform(most_ms / 2, most_ms) / 1000  # noqa: S311 - no secret

    def _checked(self, answer: httpx2.Response, recorded: int) -> httpx2.Response:
        """The answer, unless it says that asking so will never do."""
        status = answer.status_code
        if status in (401, 403):
            raise AccessRefusedError(self.url, detail_of(answer), recorded=recorded)
        if answer.is_success or status in _NOTHING:
            return answer
        if answer.is_error:
            raise refusal_of(self.url, answer, recorded=recorded)
        raise LogFormatError(self.url, f"it answered {status}: {detail_of(answer)}")

    def standings(self) -> list[dict[str, Any]]:
        """How far each partition is that the service serves; none: it has all there is.

        Raises:
            LogUnavailableError: it does not say so.
        """
        try:
            answer = self._client.get(f"{self.url}{READY}", timeout=self._timeout(0))
            return cast("list[dict[str, Any]]", answer.json()["partitions"])
        except httpx2.TransportError as error:
            reason = f"{type(error).__name__}: {error}"
            raise LogUnavailableError(self.url, reason) from error
        except (ValueError, LookupError, TypeError, RuntimeError) as error:
            reason = f"{READY} does not say what it serves"
            raise LogUnavailableError(self.url, reason) from error

    def close(self) -> None:
        """Let go of the connections."""
        self._closed = True
        self._client.close()


def detail_of(answer: httpx2.Response) -> str:
    """What a problem says, in words."""
    try:
        found = answer.json()
        return str(found["detail"])
    except (ValueError, LookupError, TypeError):
        return f"status {answer.status_code}"


def refusal_of(url: str, answer: httpx2.Response, *, recorded: int = 0) -> FoldlineError:
    """The error of an answer that says no."""
    said = _problem_of(answer)
    try:
        if answer.status_code == _ANOTHER_NODE:
            return AnotherNodeError(
                url,
                str(said["detail"]),
                partition=int(said["partition"]),
                partitions=int(said["partitions"]),
                served=[int(partition) for partition in said["served"]],
                recorded=recorded,
            )
        if answer.status_code == _TRUNCATED:
            return SessionTruncatedError(
                str(said["session_id"]),
                topic=str(said["topic"]),
                tenant="",
                known_seq=int(said["known_seq"]),
                next_seq=int(said["next_seq"]),
                needed=int(said["from_offset"]),
                low=int(said["to_offset"]),
                unrecoverable=bool(said["unrecoverable"]),
            )
    except (LookupError, TypeError, ValueError):
        pass  # a 421 or 410 of something else on the way
    return RefusedRequestError(
        url,
        status=answer.status_code,
        title=str(said.get("title") or answer.reason_phrase),
        problem=str(said.get("kind") or ""),
        detail=detail_of(answer),
        recorded=recorded,
    )


def _problem_of(answer: httpx2.Response) -> dict[str, Any]:
    """What it says of itself; nothing where it is none of the service's problems."""
    try:
        found = answer.json()
    except ValueError:
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _after_s(answer: httpx2.Response) -> float:
    said = answer.headers.get("retry-after", "")
    return min(float(said), RETRY_AFTER_MAX_S) if said.isdigit() else 0.0
