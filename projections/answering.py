"""What a person's answer to a request is, and who may not give it. Pure.

An answer is bound to the request, to its call and to the hash of its arguments.
"""

import json
from collections.abc import Collection
from typing import cast

from foldline.processors.rules import RESOLVED_OUTCOMES
from foldline.projections.approvals import INPUT
from foldline.projections.recovery import question_id
from foldline.schemas.blocks import Blocks, json_block, text_of
from foldline.schemas.events import (
    AnyEvent,
    InputProvided,
    PermissionDenied,
    PermissionGranted,
    PermissionRequested,
    ToolOutcomeResolved,
)
from foldline.schemas.recorded import Recorded
from foldline.schemas.state import PendingRequest

PERSON = "PERSON"
CALL_SCOPE = "CALL"

PLACEHOLDER_BEGIN = "‹secret:"
"""How what redaction puts for a secret begins."""


def granted(
    request: PendingRequest, *, grant_id: str, scope: str, edited: str | None = None
) -> PermissionGranted:
    """A person's yes to what the request asks for.

    Args:
        request: that is pending.
        grant_id: a new id.
        scope: CALL, TURN or SESSION.
        edited: the text of a JSON object to run the call with instead.
    """
    return PermissionGranted(
        request_id=request.request_id,
        call_id=request.call_id or None,
        args_hash=request.args_hash or None,
        scope=scope,
        decided_by=PERSON,
        grant_id=grant_id,
        edited_arguments=() if edited is None else (json_block(edited),),
    )


def denied(
    request: PendingRequest, *, feedback: Blocks = (), may_request_again: bool = False
) -> PermissionDenied:
    """A person's no; the feedback is for the model."""
    return PermissionDenied(
        request_id=request.request_id,
        call_id=request.call_id or None,
        decided_by=PERSON,
        may_request_again=may_request_again,
        feedback=feedback,
    )


def answered(
    request: PendingRequest, said: Blocks, *, person: str
) -> InputProvided | ToolOutcomeResolved:
    """A person's answer to a question.

    To recovery's question how a call ended, the answer is that end: the call is closed by
    it, and the session goes on.

    Args:
        request: that is pending.
        said: the answer; one without `answer_problem`.
        person: the id of who says it.
    """
    attempt = attempt_asked_about(request)
    if attempt is None:
        return InputProvided(request_id=request.request_id, blocks=said)
    return ToolOutcomeResolved(
        call_id=request.call_id,
        attempt=attempt,
        outcome=_outcome_in(said),
        resolver=f"{PERSON}:{person}",
    )


def answer_problem(request: PendingRequest, said: Blocks) -> str:
    """Why something is no answer to a question; empty if it is."""
    if attempt_asked_about(request) is None or _outcome_in(said) in RESOLVED_OUTCOMES:
        return ""
    return f"it asks how a call ended, and wants one of {', '.join(RESOLVED_OUTCOMES)}"


def attempt_asked_about(request: PendingRequest) -> int | None:
    """The attempt whose end recovery asks a person for; None for any other request."""
    number = request.request_id.rpartition(":")[2]
    if request.kind != INPUT or not request.call_id or not number.isdecimal():
        return None
    attempt = int(number[:9])
    asked = question_id(request.call_id, attempt)
    return attempt if asked == request.request_id else None


def _outcome_in(said: Blocks) -> str:
    return text_of(said).strip().strip('"').upper().replace(" ", "_")


def edit_problem(edited: str, *, scope: str, request: PendingRequest) -> str:
    """Why a call cannot be granted with these arguments instead; empty if it can."""
    if scope != CALL_SCOPE:
        return f"edited arguments are for one call; the scope is {scope}"
    if not request.call_id:
        return "the request is about no call"
    try:
        value = cast("object", json.loads(edited, parse_constant=_no_number))
    except (ValueError, RecursionError) as error:
        return f"the edited arguments are no JSON: {error}"
    if not isinstance(value, dict):
        return "the edited arguments are no JSON object"
    if PLACEHOLDER_BEGIN in edited:
        return "the edited arguments hold what stands for a secret: it would run as it is"
    return ""


def _no_number(name: str) -> object:
    """NaN and the infinities are Python's, not JSON's."""
    msg = f"{name} is no JSON number"
    raise ValueError(msg)


def verb_problem(request: PendingRequest, *, permission: bool) -> str:
    """Why a request is not answered like that: by permission, or by an answer."""
    if (request.kind == INPUT) != permission:
        return ""
    if permission:
        return "the request asks a question: it wants an answer, not grant or deny"
    return "the request asks for permission: it wants grant or deny, not an answer"


def answered_request(event: AnyEvent) -> str | None:
    """The id of the request that an event answers for a person; None for other events."""
    match event:
        case PermissionGranted(decided_by="PERSON") | PermissionDenied(decided_by="PERSON"):
            return event.request_id or ""
        case InputProvided():
            return event.request_id
        case _:
            return None


def missing_role(requested: Recorded | None, roles: Collection[str]) -> str:
    """The roles of which an answer to the request needs one, if none is there."""
    event = requested.event if requested else None
    if not isinstance(event, PermissionRequested) or not event.approvers:
        return ""
    return "" if set(event.approvers) & set(roles) else ", ".join(event.approvers)
