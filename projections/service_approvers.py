"""Who may answer for a person: by kind, by role, and never whoever asked.

1. *Kind*: only a token of kind PERSON, or whoever uses a service without tokens.
2. *Role*: a request that names approvers is answered by a token with one of these roles.
3. *Not oneself*: not by the subject under which the request was made, the session is
   owned, or its agent goes.

A service without tokens knows nobody: there, as in a file, 3 cannot be checked, and 2 by
what FOLDLINE_OPERATOR_ROLES says of whoever uses it; where it says nothing, not at all.
"""

from foldline.errors import SessionTruncatedError
from foldline.processors.log import Log
from foldline.projections.answering import answered_request, missing_role
from foldline.projections.reading import event_at
from foldline.projections.service_problems import Problem
from foldline.projections.tokens import OPERATOR, SPEAKS_FOR, Caller
from foldline.schemas.events import AnyEvent
from foldline.schemas.recorded import Recorded
from foldline.schemas.state import PendingRequest, SessionState


def check_person(caller: Caller) -> None:
    """1. Refuse a token that speaks for no person.

    Raises:
        Problem: 403.
    """
    if "PERSON" not in SPEAKS_FOR[caller.kind]:
        raise Problem(403, "no_person", "only a person's token answers for a person")


def check_may_answer(
    log: Log, caller: Caller, state: SessionState, request: PendingRequest
) -> None:
    """2, 3. Refuse a person who may not answer this request.

    Raises:
        Problem: 403; it says which roles may, or as whom the request was made.
    """
    operator = caller.kind == OPERATOR
    if operator and not caller.roles:
        return
    requested = event_at(log, state.session_id, request.seq)
    roles = missing_role(requested, caller.roles)
    if roles:
        who = "the operator" if operator else f"the token {caller.token_id!r}"
        raise Problem(403, "no_role", f"{who} has none of the roles: {roles}")
    if operator:
        return
    claimed = event_at(log, state.session_id, state.claimed_seq or state.fork_seq + 1)
    if _is_self(caller, state, requested, claimed):
        detail = (
            f"{caller.actor_id!r} asked this, or runs the session: nobody approves "
            "themselves; another person's token answers"
        )
        raise Problem(403, "own_request", detail)


def _is_self(caller: Caller, state: SessionState, *about: Recorded | None) -> bool:
    """Whether the caller is who asked, or who owns the session."""
    subjects = {state.agent}
    writers = {state.owner}
    for recorded in about:
        if recorded is not None:
            subjects.add(recorded.envelope.actor.id)
            writers.add(recorded.envelope.writer)
    return caller.actor_id in subjects or f"http-{caller.token_id}" in writers


def check_answer(log: Log, caller: Caller, session_id: str, event: AnyEvent) -> None:
    """Hold an appended answer to the same; what waits no more, the log refuses.

    Raises:
        Problem: 403.
    """
    request_id = answered_request(event)
    if request_id is None:
        return
    try:
        state = log.state(session_id)
    except SessionTruncatedError:
        return  # nobody knows its requests: the log refuses
    request = state.requests.get(request_id) if state else None
    if state is None or request is None or state.tenant != caller.tenant:
        return
    check_person(caller)
    check_may_answer(log, caller, state, request)
