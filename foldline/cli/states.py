"""`foldline state`: the fold of a session, now or at any seq."""

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from foldline.cli.context import Context, find_session
from foldline.cli.failures import OK, UsageError

if TYPE_CHECKING:
    from foldline.cli.output import Output

LEFT_OUT = frozenset({"window"})
"""What only a machine wants to see."""


def state(
    session: str,
    /,
    *,
    at_seq: int | None = None,
    context: Annotated[Context, Parameter(parse=False)],
) -> int:
    """Show a session's state, now or as it was. With --json one object.

    Args:
        session: Its id, or the beginning of one.
        at_seq: As it was just after this seq.
        context: Where to read and write.
    """
    from foldline.projections.views import state_view  # late: --help does without

    with context.reading() as log:
        session_id = find_session(log, session)
        found = log.state(session_id, at_seq=at_seq)
        if found is None:
            raise UsageError("--at-seq", f"{session_id} has no event at {at_seq}")
        view = state_view(found)
    if context.out.json:
        context.out.record(view)
    else:
        show_state(context.out, view)
    return OK


def show_state(out: "Output", view: dict[str, Any]) -> None:
    """Print a state for people."""
    _show(out, view, indent=0)


def _show(out: "Output", view: dict[str, Any], *, indent: int) -> None:
    """Print names and values; what is empty is left out."""
    from foldline.cli.clean import clean_line

    for name, value in view.items():
        head = ("  " * indent + clean_line(name), "bold" if indent == 0 else "")
        if name in LEFT_OUT or name.endswith("_us") or _empty(value):
            continue
        if isinstance(value, dict):
            out.line(head)
            _show(out, value, indent=indent + 1)  # type: ignore[arg-type]
        else:
            out.line(head, (f": {clean_line(str(value))}", ""))


def _empty(value: object) -> bool:
    return value is None or value in ("", 0, [], {}, False)
