"""`foldline fork`: a session that goes on from any event of another one's history."""

import os
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from foldline.cli.append import append_draft
from foldline.cli.context import Context, find_session
from foldline.cli.failures import NO, OK, UsageError

if TYPE_CHECKING:
    from foldline.producers.prepare import Draft
    from foldline.projections.forking import ForkPoint
    from foldline.schemas.events import Label
    from foldline.schemas.verdicts import Verdict


def fork(
    session: str,
    /,
    *,
    at_seq: int,
    session_id: str | None = None,
    agent: str | None = None,
    label: tuple[str, ...] = (),
    context: Annotated[Context, Parameter(parse=False)],
) -> int:
    """Fork a session: a new one goes on from any event of its history.

    No event is copied and the session is not touched. What was in force there goes on
    (goal, plan, constraints, budget, instructions, tools), grants and open work do not.
    Nobody owns the fork until a harness takes it. Prints the fork's id.

    Args:
        session: Its id, or the beginning of one.
        at_seq: The seq of the last event that both have.
        session_id: The fork's id; a new one where not given.
        agent: The fork's agent; its parent's where not given.
        label: A label as key=value; may be given several times.
        context: Where to read and write.
    """
    from foldline.processors.naming import check_session_id  # late: --help does without
    from foldline.projections.forking import fork_point
    from foldline.projections.views import verdict_view

    if session_id is not None:
        check_session_id(session_id)
    labels = _labels(label)
    with context.reading() as log:
        parent_id = find_session(log, session)
        point = fork_point(log, parent_id, at_seq, tenant=None, agent=agent, labels=labels)
        draft = _draft(point, session_id)
        verdict = append_draft(log, context.settings(), draft, known_seq=0)
    if context.out.json:
        where = {
            "parent_session_id": point.parent.session_id,
            "fork_seq": point.fork_seq,
        }
        context.out.record(verdict_view(verdict) | where)
    else:
        _show(context, point, verdict)
    return OK if verdict.recorded else NO


def _labels(given: tuple[str, ...]) -> "list[Label]":
    from foldline.schemas.events import Label  # late: see above

    pairs = [text.partition("=") for text in given]
    if any(not equals or not key for key, equals, _ in pairs):
        raise UsageError("--label", "key=value")
    return [Label(key=key, value=value) for key, _, value in sorted(pairs)]


def _draft(point: "ForkPoint", session_id: str | None) -> "Draft":
    from foldline.cli.fields import user_name
    from foldline.producers.identity import fresh_id, wall_clock
    from foldline.producers.prepare import Draft
    from foldline.schemas.envelope import Actor, Envelope

    envelope = Envelope(
        event_id=fresh_id(),
        session_id=session_id or fresh_id(),
        tenant=point.parent.tenant,
        occurred_at=wall_clock(),
        writer=f"foldline-cli-{os.getpid()}",
        actor=Actor(kind="PERSON", id=user_name()),
        prev_hash=point.prev_hash,
    )
    return Draft(envelope, point.created)


def _show(context: Context, point: "ForkPoint", verdict: "Verdict") -> None:
    from foldline.cli.clean import clean_line

    if verdict.recorded:
        where = f"  a fork of {point.parent.session_id} at seq {point.fork_seq}"
        context.out.line((clean_line(verdict.session_id), "bold"), (clean_line(where), ""))
        return
    rule = f"({verdict.rule})" if verdict.rule else ""
    said = f" {verdict.session_id}: {verdict.detail or 'there is such a session'}"
    context.out.line((f"{verdict.kind}{rule}", "red"), (clean_line(said), ""))
