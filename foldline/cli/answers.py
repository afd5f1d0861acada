"""A person's answer to a request: found by its id, bound to what was shown, recorded.

A request that is over is looked for too, so that it can be said what became of it.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from foldline.cli.append import append_draft, check_roles, persons_draft, show_verdict
from foldline.cli.context import Context, find_session
from foldline.cli.failures import NoRequestError, UsageError
from foldline.errors import AnswerRefusedError

if TYPE_CHECKING:
    from foldline.processors.log import Log
    from foldline.projections.approvals import Pending, Settled
    from foldline.schemas.events import KnownEvent
    from foldline.schemas.state import PendingRequest
    from foldline.schemas.verdicts import Verdict
    from foldline.settings import Settings

LOOK_AGAIN = "`foldline approvals list` shows what waits"

ASKED_ANEW = (
    "the agent asks again under a new id when its harness runs; "
    "`foldline approvals list` shows it"
)

_SAID: dict[str, str] = {
    "GRANTED": "it was granted already",
    "DENIED": "it was denied already",
    "ANSWERED": "it was answered already",
    "EXPIRED": "it expired before anybody answered",
    "TURN_ENDED": "its turn has ended",
    "SESSION_ENDED": "its session has ended",
    "CLOSED": "its call has an end already",
}

Make = Callable[["PendingRequest"], "KnownEvent"]


@dataclass(frozen=True, slots=True)
class Answering:
    """One answer of the operating system's user to one request."""

    context: Context
    wanted: str
    session: str | None
    permission: bool
    """Whether it grants or denies; else it answers a question."""

    def answer(self, make: Make) -> int:
        """Record what is made of the request; gives the exit code.

        Raises:
            AnswerRefusedError: it is over, or wants another answer.
            NoRequestError: nobody knows such a request.
        """
        from foldline.projections.answering import verb_problem  # late: --help does without
        from foldline.projections.views import verdict_view
        from foldline.schemas.events import type_of

        context = self.context
        with context.reading() as log:
            pending = open_request(log, self.wanted, self.session)
            state = log.state(pending.session_id)
            request = state.requests.get(pending.request_id) if state else None
            if state is None or request is None:
                raise _over(log, pending)
            problem = verb_problem(request, permission=self.permission)
            if problem:
                raise AnswerRefusedError(request.request_id, problem, _verb(request))
            event = make(request)
            draft = persons_draft(state, event)
            settings = context.settings()
            check_roles(log, settings, draft)
            verdict = append_draft(log, settings, draft, known_seq=state.seq)
            if not verdict.recorded:
                raise _refusal(log, pending, verdict)
            if pending.approvers and not context.out.json:
                context.out.remark(_checked(log.url, pending, settings))
        if context.out.json:
            context.out.record(verdict_view(verdict))
        else:
            show_verdict(context, type_of(event), verdict)
        return 0


def open_request(log: "Log", wanted: str, session: str | None) -> "Pending":
    """The request that waits under this id, or the only one whose id begins so.

    Raises:
        AnswerRefusedError: there was one, and it waits no more.
        UsageError: several fit.
        NoRequestError: none.
    """
    from foldline.projections.approvals import (  # late: --help does without
        Inbox,
        find_settled,
        pending_of,
    )

    if not wanted:
        raise UsageError("REQUEST", "an id or the beginning of one; it is empty")
    session_id = None if session is None else find_session(log, session)
    if session_id is None:
        listed = Inbox(log).look().requests
    else:
        state = log.state(session_id)
        listed = list(pending_of(log, state)) if state else []
    fitting = [each for each in listed if each.request_id.startswith(wanted)]
    exact = [each for each in fitting if each.request_id == wanted]
    fitting = exact or fitting
    if len(fitting) > 1:
        names = ", ".join(f"{e.request_id} in {e.session_id}" for e in fitting[:5])
        raise UsageError("REQUEST", f"several fit, say more of it or --session: {names}")
    if fitting:
        return fitting[0]
    over = find_settled(log, wanted, session_id=session_id)
    if over is None:
        raise NoRequestError(wanted)
    raise _told(over)


def edited_text(edit: str) -> str:
    """The text of `--edit`: JSON as it stands, or that of @FILE (@- is stdin).

    Raises:
        FileNotFoundError: no such file.
    """
    if not edit.startswith("@"):
        return edit
    return sys.stdin.read() if edit == "@-" else Path(edit[1:]).read_text(encoding="utf-8")


def args_hash_problem(request: "PendingRequest", shown: str | None) -> None:
    """Refuse an answer to other arguments than the person saw.

    Raises:
        AnswerRefusedError: the request is for others.
    """
    if shown is not None and (not shown or not request.args_hash.startswith(shown)):
        reason = f"it is for other arguments ({request.args_hash}) than you saw ({shown})"
        raise AnswerRefusedError(request.request_id, reason, LOOK_AGAIN)


def _refusal(log: "Log", pending: "Pending", verdict: "Verdict") -> AnswerRefusedError:
    """What the log's refusal means to a person."""
    match verdict.rule:
        case "request_expired":
            reason = f"it expired at {pending.expires_at}, by the log's clock"
            return AnswerRefusedError(pending.request_id, reason, ASKED_ANEW)
        case "no_pending_request" | "no_request" | "call_begun":
            return _over(log, pending)
        case rule:
            said = f"{verdict.kind}{f'({rule})' if rule else ''}: {verdict.detail}"
            return AnswerRefusedError(pending.request_id, said, LOOK_AGAIN)


def _over(log: "Log", pending: "Pending") -> AnswerRefusedError:
    from foldline.projections.approvals import settled  # late: see above

    return _told(settled(log, pending.session_id, pending.request_id, seq=pending.seq))


def _told(over: "Settled") -> AnswerRefusedError:
    reason = _SAID[over.outcome]
    if over.by:
        reason += f" by {over.by}"
    if over.at:
        reason += f" at {over.at}"
    advice = ASKED_ANEW if over.outcome == "EXPIRED" else LOOK_AGAIN
    return AnswerRefusedError(over.request_id, f"{reason} (in {over.session_id})", advice)


def _verb(request: "PendingRequest") -> str:
    if request.kind == "INPUT":
        return f"`foldline approvals answer {request.request_id} TEXT`"
    return f"`foldline approvals grant {request.request_id}`, or `deny`"


def _checked(url: str, pending: "Pending", settings: "Settings") -> str:
    """What was checked of who may answer: a file knows nobody, and does not pretend to."""
    roles = ", ".join(pending.approvers)
    if url.startswith(("http:", "https:")):
        return f"the service checks the roles of its tokens; the request is for: {roles}"
    if settings.operator_roles:
        return f"FOLDLINE_OPERATOR_ROLES has one of the roles that it is for: {roles}"
    return (
        f"this log cannot check roles; the request is for: {roles}; "
        "FOLDLINE_OPERATOR_ROLES says which are yours"
    )
