"""`foldline tree`: forks and subagents of a session, and what each of them used."""

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from foldline.cli.context import Context, find_session
from foldline.cli.failures import OK

if TYPE_CHECKING:
    from foldline.cli.output import Output
    from foldline.projections.trees import Node, Tree
    from foldline.schemas.state import UsageTotals


def tree(session: str, /, *, context: Annotated[Context, Parameter(parse=False)]) -> int:
    """Show the sessions below one: forks, subagents, continuations. And their usage.

    A session's usage is that of its own events; what it shares with its ancestors is
    counted there. The last line is the sum: everything is in it once.

    Args:
        session: Its id, or the beginning of one.
        context: Where to read and write.
    """
    from foldline.projections.trees import tree_of  # late: --help does without

    with context.reading() as log:
        found = tree_of(log, find_session(log, session))
    if context.out.json:
        context.out.record(view_of(found))
        return OK
    for node in found.nodes:
        _show(context.out, node)
    _sum(context.out, found)
    return OK


def view_of(found: "Tree") -> dict[str, Any]:
    """The tree for machines: its sessions, each behind its parent, and the sum."""
    from foldline.projections.views import plain  # late: --help does without

    return plain(found)


def _show(out: "Output", node: "Node") -> None:
    from foldline.cli.clean import clean_line
    from foldline.cli.sessions import style_of

    relation = node.relation.lower() if node.depth or node.fork_seq else ""
    at = f" at seq {node.fork_seq}" if node.fork_seq else ""
    of = (
        f" of {node.parent_session_id}" if node.parent_session_id and not node.depth else ""
    )
    out.line(
        ("  " * node.depth + clean_line(node.session_id), "bold"),
        (f"  {clean_line(relation + of + at)}" if relation else "", "dim"),
        (f"  {node.status}", style_of(node.status)),
        (f"  seq {node.seq}", ""),
        (f"  {_tokens(node.usage)}", "dim"),
    )


def _sum(out: "Output", found: "Tree") -> None:
    more = f", {found.left_out:,} more not shown or counted" if found.left_out else ""
    out.line(
        (f"{len(found.nodes):,} sessions{more}  ", ""),
        (_tokens(found.usage), "bold"),
    )


def _tokens(usage: "UsageTotals") -> str:
    from foldline.cli.content import text_of_usage
    from foldline.schemas.events import Usage

    totals = {name: getattr(usage, name) for name in usage.__slots__}
    return text_of_usage(Usage(**totals)) or "no tokens"
