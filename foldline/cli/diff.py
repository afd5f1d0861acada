"""`foldline diff`: where two sessions part, and what each did from there on."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from foldline.cli.context import Context, find_session
from foldline.cli.failures import NO, OK, UsageError
from foldline.errors import SessionNotFoundError

if TYPE_CHECKING:
    from foldline.cli.output import Output
    from foldline.processors.lineage import Lineage
    from foldline.processors.log import Log
    from foldline.projections.differences import Pair
    from foldline.schemas.recorded import Recorded
    from foldline.schemas.state import SessionState

GAP = " | "
LIMIT = 20


def diff(
    a: str,
    b: str,
    /,
    *,
    limit: int = LIMIT,
    context: Annotated[Context, Parameter(parse=False)],
) -> int:
    """Compare two sessions: the first difference, then both side by side.

    What forks share with each other or with their parent is not read again. Events are
    compared by type and by what they say; ids by the order in which they come up, times
    not at all. Exit code 1 if they differ, 4 where what is compared has a hole.

    Args:
        a: A session's id, or the beginning of one.
        b: The other one's.
        limit: How many events of each are shown side by side, from the first difference.
        context: Where to read and write.
    """
    from foldline.processors.lineage import lineage_of, unbroken_events
    from foldline.projections.differences import pairs_of  # late: --help does without

    if limit < 1:
        raise UsageError("--limit", "a number from 1")
    with context.reading() as log:
        sides = [lineage_of(log, find_session(log, name)) for name in (a, b)]
        ends = [_end(log, side) for side in sides]
        shared = shared_seq(*sides, ends=[end.seq for end in ends])
        left, right = (
            _said(unbroken_events(log, side, after_seq=shared, end=end))
            for side, end in zip(sides, ends, strict=True)
        )
        pairs = pairs_of(left, right)
        first = next((pair for pair in pairs if not pair.same), None)
        found = [] if first is None else [first, *islice(pairs, limit - 1)]
    if context.out.json:
        context.out.record(view_of(sides, shared, found))
    else:
        _show(context.out, sides, shared, found)
    return NO if found else OK


def _said(found: "Iterable[Recorded]") -> "Iterator[Recorded]":
    """Without the creations of forks: they only say again what goes on."""
    from foldline.schemas.events import SessionCreated  # late: --help does without

    for recorded in found:
        if recorded.seq == 1 or not isinstance(recorded.event, SessionCreated):
            yield recorded


def _end(log: "Log", side: "Lineage") -> "SessionState":
    """The state of a side now: what comes meanwhile is left for the next time."""
    state = log.state(side.session_id)
    if state is None:
        raise SessionNotFoundError(side.session_id, log.url)
    return state


def shared_seq(a: "Lineage", b: "Lineage", *, ends: list[int]) -> int:
    """The last seq up to which two histories are the same events; 0 for none."""
    shared = 0
    for one, other in zip(a.stretches, b.stretches, strict=False):
        if one.session_id != other.session_id:
            return shared
        last = [s.last_seq or end for s, end in zip((one, other), ends, strict=True)]
        shared = min(last)
        if last[0] != last[1]:
            return shared
    return shared


def view_of(sides: "list[Lineage]", shared: int, found: "list[Pair]") -> dict[str, Any]:
    """The comparison for machines."""
    from foldline.projections.views import event_view  # late: --help does without

    def view(recorded: "Recorded | None") -> dict[str, Any] | None:
        return None if recorded is None else event_view(recorded)

    pairs = [
        {"a": view(pair.a), "b": view(pair.b), "differs": list(pair.fields)}
        for pair in found
    ]
    return {
        "a": sides[0].session_id,
        "b": sides[1].session_id,
        "same": not found,
        "shared_upto_seq": shared,
        "first_difference": pairs[0] if pairs else None,
        "side_by_side": pairs,
    }


def _show(out: "Output", sides: "list[Lineage]", shared: int, found: "list[Pair]") -> None:
    from foldline.cli.clean import clean_line

    if shared:
        holder = clean_line(sides[0].holder(shared))
        out.line((f"shared: seq 1 to {shared}, up to an event of {holder}", "dim"))
    if not found:
        out.line(("no difference", "green"))
        return
    first = found[0]
    where = [f"seq {r.seq}" if r else "its end" for r in (first.a, first.b)]
    what = "one has ended" if None in (first.a, first.b) else ", ".join(first.fields)
    out.line(
        (f"first difference: {where[0]} and {where[1]}: ", "bold"),
        (clean_line(what), "red"),
    )
    _columns(out, [clean_line(side.session_id) for side in sides], "bold")
    for pair in found:
        _columns(out, _lines((pair.a, pair.b)), "" if pair.same else "red")


def _lines(pair: "Iterable[Recorded | None]") -> list[str]:
    from foldline.cli.clean import clean_line
    from foldline.cli.content import line_of

    return [f"{r.seq} {clean_line(r.type)} {line_of(r.event)}" if r else "" for r in pair]


def _columns(out: "Output", texts: list[str], style: str) -> None:
    from foldline.cli.clean import crop, padded

    cells = (out.cells - len(GAP)) // 2
    left, right = (crop(text, cells=cells) for text in texts)
    out.line((padded(left, cells=cells), style), (GAP, "dim"), (right, style))
