"""`foldline schemas`: what an event type looks like, and whether it may change so."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from foldline.cli.context import Context
from foldline.cli.failures import NO, OK, UnknownTypeError

if TYPE_CHECKING:
    from foldline.schemas.compat import Problem

schemas = App(
    name="schemas",
    help="Show, freeze and check the schemas of events.",
    help_format="plaintext",
    help_epilogue="",
    version_flags=(),
)


@schemas.command
def show(
    type: str | None = None,  # noqa: A002 - the argument's name
    /,
    *,
    context: Annotated[Context, Parameter(parse=False)],
) -> int:
    """List the records that are published, or print the Avro schema of one.

    Args:
        type: An event type, for example ToolExecutionStarted; or Snapshot, Verdict.
        context: Where to read and write.
    """
    from foldline.schemas.frozen import modelled, text_of  # late: --help does without

    published = modelled()
    if type is None:
        for name, schema in published.items():
            _show_type(context, name, str(schema.get("doc", "")))
        return OK
    if type not in published:
        from foldline.cli.events import near

        raise UnknownTypeError(type, near(type, published))
    if context.out.json:
        context.out.record(published[type])
    else:
        context.out.text(text_of(published[type]))
    return OK


def _show_type(context: Context, name: str, doc: str) -> None:
    from foldline.schemas.authority import AUTHORITY  # late: see above

    about = doc.strip().partition("\n")[0]
    authority = AUTHORITY.get(name)
    if context.out.json:
        context.out.record({"type": name, "authority": authority, "about": about})
    else:
        context.out.line(
            (f"{name:<24}", "bold"), (f"{authority or '-':<10}", "cyan"), (about, "")
        )


@schemas.command
def freeze(
    *,
    folder: Path | None = None,
    context: Annotated[Context, Parameter(parse=False)],
) -> int:
    """Write the schemas that are new or changed, as new versions, to be reviewed.

    Args:
        folder: Where they are kept; the source tree's own without it.
        context: Where to read and write.
    """
    from foldline.schemas.freeze import freeze as freeze_schemas  # late: see above

    written = [str(path) for path in freeze_schemas(folder)]
    if context.out.json:
        context.out.record({"written": written})
        return OK
    for path in written:
        context.out.line((path, ""))
    context.out.remark(f"{len(written)} schemas written")
    return OK


@schemas.command
def register(
    *,
    registry: str | None = None,
    context: Annotated[Context, Parameter(parse=False)],
) -> int:
    """Register every frozen schema, FULL_TRANSITIVE; what is registered stays as it is.

    A step of a deployment, before `foldline topics create` and before workers of a new
    version start: producers and workers never register.

    Args:
        registry: The registry's Confluent API (env FOLDLINE_REGISTRY_URL).
        context: Where to read and write.
    """
    from foldline.schemas.registration import register as register_all  # late: see above

    with context.registry(registry) as client:
        rows = register_all(client)
    new = [row for row in rows if row.new]
    if context.out.json:
        from foldline.projections.views import plain  # late: see above

        known = len(rows) - len(new)
        context.out.record({"registered": plain(new), "already_registered": known})
        return OK
    for row in new:
        context.out.line((f"{row.subject} ", "bold"), (f"v{row.version}", "cyan"))
    context.out.line((f"{len(new)} new", "green"), (f", {len(rows)} registered", ""))
    return OK


@schemas.command
def check(
    *,
    folder: Path | None = None,
    registry: str | None = None,
    context: Annotated[Context, Parameter(parse=False)],
) -> int:
    """Compare models with frozen schemas, and versions with each other.

    Exit code 1 if a model no longer matches its newest frozen version, a frozen file
    was changed, or two versions are not FULL_TRANSITIVE. With --registry also if one is
    not registered, or its subject is not FULL_TRANSITIVE, or the registry would refuse
    it.

    Args:
        folder: Where they are kept; the source tree's own without it.
        registry: The registry's Confluent API; without it nothing is asked.
        context: Where to read and write.
    """
    from foldline.schemas.compat import check as check_schemas  # late: see above

    problems = check_schemas(folder)
    if registry is not None:
        from foldline.schemas.frozen import FOLDER  # late: see above
        from foldline.schemas.registration import check_registered

        with context.registry(registry) as client:
            problems += check_registered(client, folder=folder or FOLDER)
    _show_problems(context, problems)
    return NO if problems else OK


def _show_problems(context: Context, problems: "list[Problem]") -> None:
    if context.out.json:
        from foldline.projections.views import plain  # late: see above

        context.out.record({"ok": not problems, "problems": plain(problems)})
        return
    for problem in problems:
        context.out.line(
            (f"{problem.name} ", "bold"),
            (f"{problem.field}: " if problem.field else "", "cyan"),
            (problem.reason, ""),
        )
    answer = ("not ok", "red") if problems else ("ok", "green")
    context.out.line(answer, (f", {len(problems)} problems" if problems else "", ""))
