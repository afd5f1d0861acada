"""`foldline recovery`: sessions whose owner is gone, and what becomes of them."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from foldline.cli.clean import clean_line
from foldline.cli.context import Context, find_session, must_exist
from foldline.cli.failures import NO, OK, UsageError
from foldline.cli.health import told_health
from foldline.cli.loading import load_attribute
from foldline.cli.output import Output
from foldline.cli.signals import stop_on_signals

if TYPE_CHECKING:
    from foldline.producers.recovering import RecoveryWorker, Resume
    from foldline.producers.recovery_actions import Sweep
    from foldline.producers.tools import Toolbox
    from foldline.projections.recovery import PlannedAction
    from foldline.schemas.topic_records import RecoveryAction

EVERY_MS = 1_000
"""How often `run` looks at the sessions, unless told otherwise."""

EVERY_MIN_MS = 50

recovery = App(
    name="recovery",
    help="Find sessions whose owner is gone; settle them; bring them on.",
    help_format="plaintext",
    help_epilogue="",
    version_flags=(),
)


@recovery.command(name="list")
def list_(*, context: Annotated[Context, Parameter(parse=False)]) -> int:
    """List the sessions that stand still in the middle of a turn. Touches nothing.

    Args:
        context: Where to read and write.
    """
    from foldline.projections.stalled import standing_still  # late: --help does without

    with context.reading() as log:
        for one in standing_still(log):
            if context.out.json:
                context.out.record(asdict(one))
                continue
            context.out.line(
                (clean_line(one.session_id), "bold"),
                (f"  {one.status}  {one.why}", ""),
                (f"  {one.open_calls} open calls", "dim"),
                (f"  {len(one.requests)} requests", "dim"),
            )
    return OK


@recovery.command
def plan(session: str, /, *, context: Annotated[Context, Parameter(parse=False)]) -> int:
    """Print what recovery would do about a session. Touches nothing.

    Args:
        session: The session.
        context: Where to read and write.
    """
    from foldline.projections.planned import planned  # late: see above
    from foldline.projections.recovery import RecoveryPolicy

    with context.reading() as log:
        actions = planned(log, find_session(log, session), RecoveryPolicy())
    for action in actions:
        _print_planned(context.out, action)
    return OK


def _print_planned(out: Output, action: "PlannedAction") -> None:
    view = asdict(action)
    name = type(action).__name__
    if out.json:
        out.record({"action": name} | view)
        return
    told = "  ".join(f"{key}={clean_line(str(value))}" for key, value in view.items())
    out.line((f"{name:<18}", "bold"), (told, ""))


@recovery.command
def run(  # noqa: PLR0913 - the options of a command
    *,
    reconcilers: str | None = None,
    resume: str | None = None,
    once: bool = False,
    every_ms: int = EVERY_MS,
    resumes_max: int | None = None,
    pause_ms: int | None = None,
    stuck_ms: int | None = None,
    tenant: str | None = None,
    health: str | None = None,
    context: Annotated[Context, Parameter(parse=False)],
) -> int:
    """Recover sessions whose owner died in the middle of a turn, until SIGTERM or Ctrl-C.

    Any number of these may run beside each other and beside harnesses: a claim in the
    log tells them apart. An IDLE session is not dead, and a mirrored one nobody's.

    Args:
        reconcilers: module:attribute of a Toolbox, whose reconcilers say whether an
            operation happened. Its tools that may be repeated are run again.
        resume: module:attribute of a coroutine function (client, session) that goes on
            with a session. Without it a session that is settled waits for its harness.
        once: Look once, and end; exit code 1 if a session stood still. How long to pause
            is then its caller's business.
        every_ms: How often to look.
        resumes_max: After so many takings up of one turn a person is asked.
        pause_ms: The first pause before a turn is taken up again; then twice as long.
        stuck_ms: After so long without an event, an owner that lives is told of as STUCK.
        tenant: Only sessions of this tenant.
        health: Say at HOST:PORT under /healthz and /readyz whether sweeps go on.
        context: Where to read and write.
    """
    if every_ms < EVERY_MIN_MS:
        raise UsageError("--every-ms", f"{EVERY_MIN_MS} or more")
    for option, given in (
        ("--resumes-max", resumes_max),
        ("--pause-ms", pause_ms),
        ("--stuck-ms", stuck_ms),
    ):
        if given is not None and given < 0:
            raise UsageError(option, "0 or more")
    if once and pause_ms is None:
        pause_ms = 0
    import asyncio  # late: see above

    toolbox = _toolbox(reconcilers)
    harness = _harness(resume)
    settings = context.settings()
    must_exist(settings.url)

    def tell(sweep: "Sweep") -> None:
        _tell(context.out, sweep)

    async def go() -> int:
        from foldline.producers.client import connect  # late: see above
        from foldline.schemas.envelope import Actor

        actor = Actor(kind="HARNESS", id="foldline-recovery")
        async with connect(settings=settings, actor=actor) as client:
            worker = _worker(
                client,
                toolbox,
                harness,
                resumes_max=resumes_max,
                pause_ms=pause_ms,
                stuck_ms=stuck_ms,
                tenant=tenant,
            )
            if once:
                sweep = await worker.sweep()
                tell(sweep)
                return NO if sweep.stalled else OK
            stop, loop = asyncio.Event(), asyncio.get_running_loop()
            stop_on_signals(lambda: loop.call_soon_threadsafe(stop.set))
            with told_health("--health", health) as said:

                def tell_both(sweep: "Sweep") -> None:
                    said.turned()
                    tell(sweep)

                await worker.run(stop, every_ms=every_ms, told=tell_both)
            return OK

    return asyncio.run(go())


def _worker(
    client: Any,
    toolbox: "Toolbox",
    harness: "Resume | None",
    *,
    resumes_max: int | None,
    pause_ms: int | None,
    stuck_ms: int | None,
    tenant: str | None,
) -> "RecoveryWorker":
    from foldline.producers.recovering import STUCK_MS, RecoveryWorker  # late: see above
    from foldline.projections.recovery import RecoveryPolicy
    from foldline.projections.resuming import ResumePolicy

    policy, pauses = RecoveryPolicy(), ResumePolicy()
    if resumes_max is not None:
        policy = RecoveryPolicy(resumes_max=resumes_max)
    if pause_ms is not None:
        pauses = ResumePolicy(pause_ms=pause_ms)
    return RecoveryWorker(
        client,
        toolbox=toolbox,
        resume=harness,
        policy=policy,
        pauses=pauses,
        tenant=tenant,
        stuck_ms=STUCK_MS if stuck_ms is None else stuck_ms,
    )


def _toolbox(named: str | None) -> "Toolbox":
    from foldline.producers.tools import Toolbox  # late: see above

    if named is None:
        return Toolbox()
    found = load_attribute("--reconcilers", named)
    if isinstance(found, Toolbox):
        return found
    try:
        made = found() if callable(found) else None
    except Exception as error:  # whatever the user's function raises
        reason = f"{named} raised {type(error).__name__}: {error}"
        raise UsageError("--reconcilers", reason) from error
    if not isinstance(made, Toolbox):
        raise UsageError("--reconcilers", f"{named} is no Toolbox, nor makes one")
    return made


def _harness(named: str | None) -> "Resume | None":
    if named is None:
        return None
    from inspect import iscoroutinefunction  # late: see above

    found = load_attribute("--resume", named)
    if not iscoroutinefunction(found):
        raise UsageError("--resume", f"{named} is no `async def resume(client, session)`")
    return found


def _tell(out: Output, sweep: "Sweep") -> None:
    for action in sweep.actions:
        _print_done(out, action)
    out.flush()


def _print_done(out: Output, action: "RecoveryAction") -> None:
    if out.json:
        out.record(action.model_dump())
        return
    about = f"  {action.call_id} attempt {action.attempt}" if action.call_id else ""
    out.line(
        (clean_line(action.session_id), "bold"),
        (f"  {action.action}", ""),
        (clean_line(about), ""),
        (f"  {clean_line(action.detail)}" if action.detail else "", "dim"),
    )
