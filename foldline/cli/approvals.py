"""`foldline approvals`: what waits for a person, and the answer."""

from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from foldline.cli.answers import (
    Answering,
    args_hash_problem,
    edited_text,
    open_request,
)
from foldline.cli.clean import clean_line
from foldline.cli.context import Context, find_session
from foldline.cli.failures import OK, UsageError
from foldline.cli.output import Output, Span
from foldline.errors import AnswerRefusedError

if TYPE_CHECKING:
    from foldline.projections.approvals import Pending
    from foldline.schemas.events import KnownEvent
    from foldline.schemas.state import PendingRequest

SCOPES = ("CALL", "TURN", "SESSION")
SHOWN_CHARS = 400

approvals = App(
    name="approvals",
    help="See what waits for a person, and answer it.",
    help_format="plaintext",
    help_epilogue="",
    version_flags=(),
)

Session = Annotated[str | None, Parameter(name="--session")]
Hash = Annotated[str | None, Parameter(name="--args-hash")]


@approvals.command(name="list")
def list_(
    session: str | None = None,
    /,
    *,
    tenant: str | None = None,
    limit: int = 100,
    context: Annotated[Context, Parameter(parse=False)],
) -> int:
    """List what waits for a person, the longest waiting tree of sessions first.

    Args:
        session: Only in this session, and in the subagents below it.
        tenant: Only of this tenant.
        limit: At most so many.
        context: Where to read and write.
    """
    from foldline.projections.approvals import Inbox, pending_under  # late: see --help

    if limit < 1:
        raise UsageError("--limit", "a number from 1")
    with context.reading() as log:
        if session is None:
            listed = Inbox(log, tenant=tenant).look(limit=limit)
            found, more = listed.requests, listed.more
        else:
            state = log.state(find_session(log, session))
            found = pending_under(log, state) if state else []
            found, more = found[:limit], len(found) > limit
    for pending in found:
        if context.out.json:
            context.out.record(pending.model_dump(mode="json"))
        else:
            _show(context.out, pending)
    if more:
        context.out.remark("there is more: raise --limit")
    return OK


@approvals.command
def grant(
    request: str,
    /,
    *,
    scope: str = "CALL",
    edit: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    args_hash: Hash = None,
    session: Session = None,
    context: Annotated[Context, Parameter(parse=False)],
) -> int:
    """Grant a request for permission: the call runs, once, with what you saw.

    Args:
        request: Its id, or the beginning of one that only one request has.
        scope: CALL; TURN or SESSION also for later calls of the same tool.
        edit: A JSON object (or @FILE) to run this call with instead.
        args_hash: The hash that `list` showed you, or its beginning: refused if the
            request is for other arguments.
        session: In this session only.
        context: Where to read and write.
    """
    scope = scope.upper()
    if scope not in SCOPES:
        raise UsageError("--scope", f"one of {', '.join(SCOPES)}")
    edited = None if edit is None else edited_text(edit)

    def make(asked: "PendingRequest") -> "KnownEvent":
        from foldline.producers.identity import fresh_id  # late: see above
        from foldline.projections.answering import edit_problem, granted

        args_hash_problem(asked, args_hash)
        if edited is not None and (
            problem := edit_problem(edited, scope=scope, request=asked)
        ):
            raise UsageError("--edit", problem)
        return granted(asked, grant_id=fresh_id(), scope=scope, edited=edited)

    answering = Answering(context, request, session, permission=True)
    return answering.answer(make)


@approvals.command
def deny(
    request: str,
    /,
    *,
    feedback: Annotated[str, Parameter(allow_leading_hyphen=True)] = "",
    may_request_again: bool = False,
    args_hash: Hash = None,
    session: Session = None,
    context: Annotated[Context, Parameter(parse=False)],
) -> int:
    """Deny a request for permission: the call does not run, and the model is told.

    Args:
        request: Its id, or the beginning of one that only one request has.
        feedback: What the model is told, for example what to do instead.
        may_request_again: Leave the call open, so that it may be asked for again.
        args_hash: The hash that `list` showed you, or its beginning.
        session: In this session only.
        context: Where to read and write.
    """

    def make(asked: "PendingRequest") -> "KnownEvent":
        from foldline.projections.answering import denied  # late: see above
        from foldline.schemas.blocks import text_block

        args_hash_problem(asked, args_hash)
        blocks = (text_block(feedback),) if feedback else ()
        return denied(asked, feedback=blocks, may_request_again=may_request_again)

    answering = Answering(context, request, session, permission=True)
    return answering.answer(make)


@approvals.command
def answer(
    request: str,
    text: Annotated[str, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    session: Session = None,
    context: Annotated[Context, Parameter(parse=False)],
) -> int:
    """Answer a question of the agent, or of recovery.

    Args:
        request: Its id, or the beginning of one that only one request has.
        text: The answer. To recovery's question how a call ended: COMPLETED, FAILED or
            NOT_EXECUTED, which closes the call.
        session: In this session only.
        context: Where to read and write.
    """

    def make(asked: "PendingRequest") -> "KnownEvent":
        from foldline.cli.fields import user_name  # late: --help does without
        from foldline.projections.answering import answer_problem, answered
        from foldline.schemas.blocks import text_block

        said = (text_block(text),)
        if problem := answer_problem(asked, said):
            raise AnswerRefusedError(asked.request_id, problem, "answer with one of them")
        return answered(asked, said, person=user_name())

    answering = Answering(context, request, session, permission=False)
    return answering.answer(make)


@approvals.command
def show(
    request: str,
    /,
    *,
    session: Session = None,
    context: Annotated[Context, Parameter(parse=False)],
) -> int:
    """Show one request whole: arguments, question, who may answer.

    Args:
        request: Its id, or the beginning of one that only one request has.
        session: In this session only.
        context: Where to read and write.
    """
    with context.reading() as log:
        pending = open_request(log, request, session)
    if context.out.json:
        context.out.record(pending.model_dump(mode="json"))
    else:
        _show(context.out, pending, whole=True)
    return OK


def _show(out: Output, pending: "Pending", *, whole: bool = False) -> None:
    """One request: a line to find it by, and lines of what it is about."""
    chars = None if whole else SHOWN_CHARS
    head: list[Span] = [
        (clean_line(pending.request_id), "bold"),
        (f"  {pending.kind.lower()}  {clean_line(pending.tool)}", "yellow"),
        (f"  in {clean_line(pending.session_id)} ({clean_line(pending.agent)})", ""),
    ]
    if pending.root_session_id != pending.session_id:
        head.append((f"  below {clean_line(pending.root_session_id)}", "dim"))
    out.line(*head)
    for name, text in _about(pending):
        line = clean_line(text)
        out.line((f"    {name:<10}", "dim"), (line[:chars] if chars else line, ""))


def _about(pending: "Pending") -> list[tuple[str, str]]:
    said = [
        ("asks", _text(pending.display)),
        ("arguments", _text(pending.arguments)),
        ("hash", pending.args_hash),
        ("answer", pending.answer_schema_json or ""),
        ("approvers", ", ".join(pending.approvers)),
        ("since", pending.requested_at or ""),
        ("expires", pending.expires_at or ""),
    ]
    return [(name, text) for name, text in said if text]


def _text(blocks: list[dict[str, object]]) -> str:
    bodies = [block.get("body") for block in blocks]
    return " ".join(body if isinstance(body, str) else str(body) for body in bodies)
