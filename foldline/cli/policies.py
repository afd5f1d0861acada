"""`foldline policies`: rules that watch sessions, at work and over history."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from foldline.cli.clean import clean_line
from foldline.cli.context import Context, find_session
from foldline.cli.failures import NO, OK, UsageError
from foldline.cli.health import told_health
from foldline.cli.loading import load_attribute
from foldline.cli.policy_views import show_hit, show_rule, show_whole, tell
from foldline.cli.signals import stop_on_signals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foldline.errors import FoldlineError
    from foldline.processors.stored import AuditableLog, StoredSession
    from foldline.processors.worker_health import Health
    from foldline.producers.overseeing import Overseer
    from foldline.producers.overseen import Look
    from foldline.producers.oversight_positions import OversightPositions
    from foldline.projections.oversight import Policy

EVERY_MS = 500
"""How often `run` looks at the sessions, unless told otherwise."""

EVERY_MIN_MS = 50

policies = App(
    name="policies",
    help="Hold sessions to rules; see what a rule would have done.",
    help_format="plaintext",
    help_epilogue="",
    version_flags=(),
)


@policies.command(name="list")
def list_(rules: Path, /, *, context: Annotated[Context, Parameter(parse=False)]) -> int:
    """List the rules of a file: whether it means something, and what.

    Args:
        rules: The file (TOML).
        context: Where to write.
    """
    for rule in _rules(rules):
        show_rule(context.out, rule)
    return OK


@policies.command
def run(
    *,
    rules: Path,
    once: bool = False,
    every_ms: int = EVERY_MS,
    tenant: str | None = None,
    mirrored: bool = False,
    health: str | None = None,
    context: Annotated[Context, Parameter(parse=False)],
) -> int:
    """Hold the sessions of a log to rules, until SIGTERM or Ctrl-C.

    What a rule wants is recorded once, over restarts and beside other runners: a
    PolicyViolation, something to tell the agent, a request to stop. Sessions that had
    ended before the rules were first in force are left alone.

    Args:
        rules: The file of rules (TOML).
        once: Look once, and end; exit code 1 if something was recorded.
        every_ms: How often to look.
        tenant: Only sessions of this tenant.
        mirrored: Record violations in mirrored sessions, too.
        health: Say at HOST:PORT under /healthz and /readyz whether it goes on.
        context: Where to read and write.
    """
    import asyncio  # late: --help does without

    if every_ms < EVERY_MIN_MS:
        raise UsageError("--every-ms", f"{EVERY_MIN_MS} or more")
    held = _rules(rules)

    async def go() -> int:
        from foldline.producers.overseeing import Overseer

        with context.reading() as log, told_health("--health", health) as said:
            positions = _positions(context, log, held)
            try:
                async with Overseer(
                    log,
                    held,
                    positions,
                    settings=context.settings(),
                    tenant=tenant,
                    mirrored=mirrored,
                    on_session=said.goes_on,
                ) as overseer:
                    return await _oversee(
                        context, overseer, said, every_ms=0 if once else every_ms
                    )
            finally:
                positions.close()

    return asyncio.run(go())


async def _oversee(
    context: Context, overseer: "Overseer", health: "Health", *, every_ms: int
) -> int:
    """One look where `every_ms` is 0, else looks until told to stop."""
    import asyncio  # late: see above

    if not every_ms:
        look = await overseer.look()
        tell(context.out, look)
        return NO if any(done.result == "RECORDED" for done in look.done) else OK
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    stop_on_signals(lambda: loop.call_soon_threadsafe(stop.set))

    def told(look: "Look", trouble: "FoldlineError | None") -> None:
        health.turned(*([str(trouble)] if trouble is not None else []))
        tell(context.out, look, trouble)

    await overseer.run(stop, every_ms=every_ms, told=told)
    return OK


@policies.command
def backtest(
    rule: str,
    /,
    *,
    rules: Path | None = None,
    set_: Annotated[tuple[str, ...], Parameter(name="--set")] = (),
    since: str | None = None,
    session: str | None = None,
    tenant: str | None = None,
    context: Annotated[Context, Parameter(parse=False)],
) -> int:
    """Show what a rule would have done over the history, and what came after it.

    Records nothing. What came after is what came without the rule: what a stop would have
    spared at the most.

    Args:
        rule: Its name in the file of rules; without a file budget, forbidden-tool,
            repeated-denial or loop, or module:attribute of your own.
        rules: The file of rules (TOML).
        set_: Without a file: a field of the rule, as in tokens=500000. May be repeated.
        since: Only what it says of events from then on: 2026-11-30, or 7d for a week.
        session: Only this session: its id, or the beginning of one.
        tenant: Only sessions of this tenant.
        context: Where to read and write.
    """
    from foldline.cli.moments import moment_us  # late: --help does without
    from foldline.errors import UNREADABLE, PolicyRuleError
    from foldline.projections.backtest import Backtest, try_rule

    chosen = _chosen(rule, rules, set_)
    since_us = moment_us("--since", since) if since else 0
    whole = Backtest()
    code = OK
    show = context.out.progress()
    with context.reading() as log:
        rows = _rows(log, session, tenant, since_us)
        for number, row in enumerate(rows):
            if show is not None and not number % 16:
                show(f"{number:,} of {len(rows):,} sessions, {whole.hit:,} hit")
            read = log.events if chosen.content else log.structure
            try:
                events = read(row.session_id)
                tried = try_rule(row.session_id, events, chosen, since_us=since_us)
            except (*UNREADABLE, PolicyRuleError) as error:
                if isinstance(error, PolicyRuleError):
                    code = NO
                context.out.remark(clean_line(f"{row.session_id} is left out: {error}"))
                continue
            whole.count(tried)
            if tried.hit is not None:
                context.out.end_progress()
                show_hit(context.out, tried.hit)
    context.out.end_progress()
    show_whole(context.out, chosen, whole)
    return code


def _rows(
    log: "AuditableLog", session: str | None, tenant: str | None, since_us: int
) -> "list[StoredSession]":
    wanted = None if session is None else find_session(log, session)
    return [
        row
        for row in log.stored_sessions()
        if wanted in (None, row.session_id)
        and tenant in (None, row.tenant)
        and row.recorded_at >= since_us
    ]


# --- which rules ---------------------------------------------------------------------


def _rules(path: Path) -> "tuple[Policy, ...]":
    from foldline.producers.oversight_file import read_policies  # late: see above

    return read_policies(path, load=_load)


def _load(named: str) -> Any:
    return load_attribute("use", named)


def _chosen(named: str, path: Path | None, fields: "Sequence[str]") -> "Policy":
    """The rule of a file by its name; without one, by its kind or where it is."""
    from foldline.producers.oversight_file import KINDS, rule_of  # late: see above

    if path is not None:
        if fields:
            raise UsageError("--set", "a rule without a file; a file says it itself")
        held = _rules(path)
        found = [rule for rule in held if rule.name == named]
        if not found:
            names = ", ".join(rule.name for rule in held)
            raise UsageError("RULE", f"one of {path}: {names}")
        return found[0]
    entry = dict(map(_field, fields))
    if ":" in named:
        options = {"options": entry} if entry else {}
        entry = {"name": "mine", "use": named, **options}
    elif named in KINDS:
        entry = {
            "name": named,
            "kind": named,
            **({"detect": True} if named == "loop" else {}),
            **entry,
        }
    else:
        wanted = f"{', '.join(KINDS)}, module:attribute; or a name, with --rules FILE"
        raise UsageError("RULE", wanted)
    return rule_of(entry, policy="default", load=_load, where="--set")


def _field(text: str) -> tuple[str, Any]:
    """`key=value`, the value as TOML has it, else a text."""
    import tomllib  # late: see above

    key, equals, value = text.partition("=")
    if not equals:
        raise UsageError("--set", f"KEY=VALUE, not {text}")
    try:
        return key, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key, value


def _positions(
    context: Context, log: "AuditableLog", rules: "Sequence[Policy]"
) -> "OversightPositions":
    from foldline.producers.oversight_positions import (  # late: see above
        OversightPositions,
        positions_path,
    )

    folder = context.settings().state_dir
    return OversightPositions.open(positions_path(folder, log_url=log.url, rules=rules))
