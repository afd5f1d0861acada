"""`foldline steer`, `foldline cancel`: a person tells an agent what to do, or to stop."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from foldline.cli.clean import clean_line
from foldline.cli.context import Context, find_session
from foldline.cli.failures import OK, UsageError

if TYPE_CHECKING:
    from foldline.producers.session import SessionView
    from foldline.schemas.choices import CancelTarget
    from foldline.schemas.state import SessionState
    from foldline.schemas.verdicts import Verdict

    Append = Callable[[SessionView], Awaitable[Verdict]]

MODES = ("INTERRUPT", "NEXT_TURN", "ON_IDLE")


def steer(
    session: str,
    text: Annotated[str, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    mode: str = MODES[0],
    key: str | None = None,
    context: Annotated[Context, Parameter(parse=False)],
) -> int:
    """Tell the agent of a session something, as the user of this system.

    INTERRUPT: now; a tool that can be stopped is stopped, in whatever process it runs.
    NEXT_TURN: in its next turn. ON_IDLE: once it is idle, in a turn of its own. It is
    pending until the agent's next context shows it. Exit code 1 if the session has ended.

    Args:
        session: Its id, or the beginning of one.
        text: What the agent is told.
        mode: INTERRUPT, NEXT_TURN or ON_IDLE.
        key: The same key again is the same steering.
        context: Where to read and write.
    """
    wanted = mode.upper().replace("-", "_")
    if wanted not in MODES:
        raise UsageError("--mode", " or ".join(MODES))
    if not text.strip():
        raise UsageError("TEXT", "what the agent is told; it is empty")

    async def said(view: "SessionView") -> "Verdict":
        from foldline.producers.prepare import blocks_of  # late: --help does without
        from foldline.schemas.derived import steering_id
        from foldline.schemas.events import SteeringReceived

        event_id = None if key is None else steering_id(view.session_id, key)
        event = SteeringReceived(mode=wanted, idempotency_key=key, blocks=blocks_of(text))
        return await view.append(event, event_id=event_id)

    return _done(context, session, f"{wanted} steering", said)


def cancel(
    session: str,
    /,
    *,
    turn: bool = False,
    call: str | None = None,
    reason: str = "",
    context: Annotated[Context, Parameter(parse=False)],
) -> int:
    """Ask the owner of a session to stop it, its open turn, or one call.

    Its subagents that this is about are asked as well, wherever they run. A tool that
    can be stopped is stopped; another one comes to its safe end.

    Args:
        session: Its id, or the beginning of one.
        turn: Only the turn that is open.
        call: Only the call with this id, which is open.
        reason: Why; the log and the agent are told.
        context: Where to read and write.
    """
    if turn and call is not None:
        raise UsageError("cancel", "either --turn or --call ID")
    target: CancelTarget = "TURN" if turn else "SESSION" if call is None else "CALL"

    async def asked(view: "SessionView") -> "Verdict":
        return await view.cancel(reason, target=target, target_id=call)

    what = f"cancellation of the {target.lower()}"
    return _done(context, session, what, asked, call=call)


def _done(
    context: Context, session: str, what: str, append: "Append", *, call: str | None = None
) -> int:
    """Let a person append to a session, and print the verdict."""
    import asyncio  # late: see above

    from foldline.projections.views import verdict_view

    verdict = asyncio.run(_appended(context, session, append, call))
    if context.out.json:
        context.out.record(verdict_view(verdict))
    else:
        context.out.line(
            (f"{verdict.kind} ", "green"),
            (clean_line(f"{what} in {verdict.session_id}, seq {verdict.seq}"), ""),
        )
    return OK


async def _appended(
    context: Context, session: str, append: "Append", call: str | None
) -> "Verdict":
    from foldline.cli.fields import user_name  # late: see above
    from foldline.errors import SessionNotFoundError
    from foldline.producers.client import connect
    from foldline.schemas.envelope import Actor
    from foldline.schemas.state import MIRRORED

    with context.reading() as log:
        state = log.state(find_session(log, session))
        if state is None:
            raise SessionNotFoundError(session, log.url)
        if call is not None and not _is_open(state, call):
            wanted = "an open call; `foldline show` lists them"
            raise UsageError("--call", f"{wanted}: {state.session_id} has no {call!r}")
        actor = Actor(kind="PERSON", id=user_name())
        async with connect(
            log, settings=context.settings(), actor=actor, tenant=state.tenant
        ) as client:
            verdict = await append(await client.open(state.session_id))
    if state.mode == MIRRORED:
        runs = f"{state.agent} runs {state.session_id}, which is only mirrored here"
        context.out.remark(f"{runs}: it is recorded, and nobody heeds it")
    return verdict


def _is_open(state: "SessionState", call_id: str) -> bool:
    """Whether a call may still be stopped: it is open, or goes on in the background."""
    behind = {handle.call_id for handle in state.handles.values()}
    return call_id in state.calls or call_id in behind
