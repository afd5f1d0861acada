"""What a request is told that cannot be answered: RFC 9457 problems, one shape for all.

    {"type": "about:blank", "status": 404, "title": "Not Found", "kind": "no_session",
     "detail": "...", "retryable": false}

`kind` is a word for machines that never changes its meaning. Of the service's own troubles
a caller is told the kind: addresses of brokers and paths stand in the service's log.
"""

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, cast

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from foldline.errors import (
    AnswerRefusedError,
    AppendRefusedError,
    BlobError,
    DecodeError,
    EncodeError,
    FoldlineError,
    ForkPointError,
    LineageError,
    LogUnavailableError,
    NoRulesError,
    RedactionError,
    RegistryUnavailableError,
    SessionIdError,
    SessionTruncatedError,
    SettingsError,
    UncertainAppendError,
)

MEDIA_TYPE = "application/problem+json"

RETRY_AFTER_S = 1
"""When a client may ask again for what could not be answered now."""

_STATUS: tuple[tuple[type[FoldlineError], int, str], ...] = (
    (UncertainAppendError, 504, "uncertain"),
    (LogUnavailableError, 503, "log_unavailable"),
    (RegistryUnavailableError, 503, "registry_unavailable"),
    (NoRulesError, 503, "no_rules"),
    (DecodeError, 400, "undecodable"),
    (EncodeError, 422, "unwritable"),
    (BlobError, 404, "no_blob"),
    (AppendRefusedError, 409, "refused"),
    (AnswerRefusedError, 422, "bad_edit"),
    (RedactionError, 500, "redaction_failed"),
    (ForkPointError, 422, "fork_point"),
    (SessionIdError, 422, "bad_session_id"),
    (LineageError, 409, "lineage"),
    (SessionTruncatedError, 410, "truncated"),
    (SettingsError, 422, "bad_setting"),
)
"""The status of each error of foldline; any other is the service's own trouble."""

_FAILED = "log_failed"

_OWN_TROUBLE = {
    "uncertain": "no verdict in time: the append may or may not be recorded",
    "log_unavailable": "the log does not answer now",
    "registry_unavailable": "the registry of the log's schemas does not answer now",
    "no_rules": "nothing says which rules of admission are in force in the log",
    "no_blob": "the blob is missing, or damaged",
    "redaction_failed": "a redaction rule failed: nothing was recorded",
    _FAILED: "the log answers with an error of its own",
}
"""What a caller is told of these, whoever it is."""

_logger = logging.getLogger("foldline.service")


class ProblemView(BaseModel):
    """A problem, as RFC 9457 has it, with foldline's word for it."""

    type: str = "about:blank"
    status: int
    title: str
    kind: str
    detail: str
    retryable: bool = False


class Problem(HTTPException):
    """Raised by a route that cannot answer; `extra` goes into the body as it is."""

    headers: dict[str, str]

    def __init__(
        self,
        status: int,
        kind: str,
        detail: str,
        *,
        retry_after_s: int | None = None,
        headers: Mapping[str, str] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        self.kind = kind
        self.extra = dict(extra or {})
        after = {} if retry_after_s is None else {"retry-after": str(retry_after_s)}
        super().__init__(status, detail, dict(headers or {}) | after)

    def answer(self) -> JSONResponse:
        """The problem as a response."""
        view = ProblemView(
            status=self.status_code,
            title=HTTPStatus(self.status_code).phrase,
            kind=self.kind,
            detail=self.detail,
            retryable="retry-after" in self.headers,
        )
        body = view.model_dump() | self.extra
        return JSONResponse(body, self.status_code, self.headers, media_type=MEDIA_TYPE)


def no_session(session_id: str) -> Problem:
    """The problem of a session that is not there, or is another tenant's: the same."""
    return Problem(404, "no_session", f"no session {session_id!r}")


def missing_of(error: SessionTruncatedError) -> dict[str, Any]:
    """Which events are missing: what a client needs to read those before and after."""
    return {
        "session_id": error.session_id,
        "unrecoverable": error.unrecoverable,
        "known_seq": error.known_seq,
        "next_seq": error.next_seq,
        "topic": error.topic,
        "from_offset": error.needed,
        "to_offset": error.low,
    }


def problem_of(error: FoldlineError) -> Problem:
    """The problem that an error of foldline is."""
    found = (entry[1:] for entry in _STATUS if isinstance(error, entry[0]))
    status, word = next(found, (500, _FAILED))
    if isinstance(error, SessionTruncatedError):
        return Problem(status, word, str(error), extra=missing_of(error))
    after = RETRY_AFTER_S if error.retryable else None
    detail = _OWN_TROUBLE.get(word)
    if detail is None:
        return Problem(status, word, str(error), retry_after_s=after)
    _logger.warning("%s: %s", word, error)
    return Problem(status, word, detail, retry_after_s=after)


def handle_problems(app: FastAPI) -> None:
    """Answer every kind of error in the one shape."""

    async def of_problem(_: Request, error: Exception) -> JSONResponse:
        return cast("Problem", error).answer()

    async def of_foldline(_: Request, error: Exception) -> JSONResponse:
        return problem_of(cast("FoldlineError", error)).answer()

    async def of_request(_: Request, error: Exception) -> JSONResponse:
        first = cast("RequestValidationError", error).errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return Problem(422, "bad_request", f"{where}: {first['msg']}").answer()

    async def of_http(_: Request, error: Exception) -> JSONResponse:
        http = cast("HTTPException", error)
        kind = HTTPStatus(http.status_code).phrase.lower().replace(" ", "_")
        detail = http.detail or kind
        headers = http.headers
        return Problem(http.status_code, kind, detail, headers=headers).answer()

    async def of_anything(_: Request, error: Exception) -> JSONResponse:  # noqa: ARG001 - it is logged where it is raised again
        return Problem(500, "internal", "see the service's own log").answer()

    app.add_exception_handler(Exception, of_anything)
    app.add_exception_handler(Problem, of_problem)
    app.add_exception_handler(FoldlineError, of_foldline)
    app.add_exception_handler(RequestValidationError, of_request)
    app.add_exception_handler(HTTPException, of_http)
