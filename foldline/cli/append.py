"""`foldline append`: a person adds an event, and is told what admission says."""

import os
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from foldline.cli.context import Context, find_session, redactor_of
from foldline.cli.failures import NO, OK, UsageError
from foldline.errors import SessionNotFoundError

if TYPE_CHECKING:
    from foldline.processors.log import Log
    from foldline.producers.prepare import Draft
    from foldline.schemas.state import SessionState
    from foldline.schemas.verdicts import Verdict
    from foldline.settings import Settings


def append(
    session: str,
    /,
    *,
    type: Annotated[str, Parameter(name="--type")],  # noqa: A002 - the option's name
    field: Annotated[tuple[str, ...], Parameter(allow_leading_hyphen=True)] = (),
    json_file: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    expected_seq: int | None = None,
    event_id: str | None = None,
    context: Annotated[Context, Parameter(parse=False)],
) -> int:
    """Append an event as a person: steering, a message, feedback, an answer, labels.

    The actor is the operating system's user. Prints the verdict; exit code 1 if the
    event was refused. No session is ever created.

    Args:
        session: Its id, or the beginning of one.
        type: The event type, for example SteeringReceived; `schemas show` lists them.
        field: A field as name=value; may be given several times. Blocks take text.
        json_file: The fields as one JSON object, from a file, or from stdin for -.
        expected_seq: Refuse (CONFLICT) unless this is the session's last seq.
        event_id: A UUID of your own, so that the same append again is a DUPLICATE.
        context: Where to read and write.
    """
    from foldline.cli.fields import event_class, json_fields, make_event, typed_fields
    from foldline.projections.views import verdict_view

    if field and json_file is not None:
        raise UsageError("append", "either --field or --json-file")
    model = event_class(type)
    fields = json_fields(json_file) if json_file else typed_fields(field, model)
    with context.reading() as log:
        session_id = find_session(log, session)
        state = log.state(session_id)
        if state is None:
            raise SessionNotFoundError(session_id, log.url)
        event = make_event(model, fields, state)
        draft = persons_draft(state, event, expected_seq=expected_seq, event_id=event_id)
        settings = context.settings()
        check_roles(log, settings, draft)
        verdict = append_draft(log, settings, draft, known_seq=state.seq)
    if context.out.json:
        context.out.record(verdict_view(verdict))
    else:
        show_verdict(context, type, verdict)
    return OK if verdict.recorded else NO


def persons_draft(
    state: "SessionState",
    event: object,
    *,
    expected_seq: int | None = None,
    event_id: str | None = None,
) -> "Draft":
    """An event of the operating system's user in a session."""
    from foldline.cli.fields import user_name
    from foldline.producers.identity import fresh_id, wall_clock
    from foldline.producers.prepare import Draft
    from foldline.schemas.envelope import Actor, Envelope

    envelope = Envelope(
        event_id=event_id.lower() if event_id else fresh_id(),
        session_id=state.session_id,
        tenant=state.tenant,
        occurred_at=wall_clock(),
        writer=f"foldline-cli-{os.getpid()}",
        actor=Actor(kind="PERSON", id=user_name()),
    )
    return Draft(envelope, event, expected_seq)  # type: ignore[arg-type]


def check_roles(log: "Log", settings: "Settings", draft: "Draft") -> None:
    """Refuse an answer to a request that is for other roles; a service checks its own.

    Raises:
        AnswerRefusedError: it says which roles may.
    """
    from foldline.projections.operators import check_operator  # late: see above

    roles = settings.roles_of_operator
    check_operator(log, draft.envelope.session_id, draft.event, roles=roles)


def append_draft(
    log: "Log", settings: "Settings", draft: "Draft", *, known_seq: int
) -> "Verdict":
    """Redact, store and append; the verdict of the event itself."""
    from foldline.producers.prepare import Preparer, check_edit
    from foldline.schemas.recorded import Append

    redactor = redactor_of(log, settings)
    check_edit(draft.event, redactor)
    preparer = Preparer(redactor, log.blobs, settings.inline_max_bytes)
    appends = [
        Append(
            prepared.envelope,
            prepared.event,
            prepared.content,
            known_seq=known_seq,
            expected_seq=prepared.expected_seq,
            requires=prepared.requires,
        )
        for prepared in preparer.prepare(draft)
    ]
    return log.append(appends)[0]


def show_verdict(context: Context, event_type: str, verdict: "Verdict") -> None:
    """Print the verdict for people."""
    from foldline.cli.clean import clean_line

    rule = f"({verdict.rule})" if verdict.rule else ""
    detail = f": {verdict.detail}" if verdict.detail else ""
    where = f"seq {verdict.seq}" if verdict.recorded else f"at seq {verdict.current_seq}"
    style = "green" if verdict.recorded else "red"
    context.out.line(
        (f"{verdict.kind}{rule} ", style),
        (clean_line(f"{event_type} in {verdict.session_id}, {where}{detail}"), ""),
    )
