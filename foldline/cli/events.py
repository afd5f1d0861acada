"""`foldline events` and `foldline tail`: what happened, and what happens."""

import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from foldline.cli.context import Context, find_session
from foldline.cli.failures import NO, OK, UnknownTypeError, UsageError

if TYPE_CHECKING:
    from foldline.processors.lineage import Lineage, Reader
    from foldline.processors.log import Log
    from foldline.schemas.recorded import Recorded
    from foldline.schemas.state import SessionState

TAIL_EVENTS = 10
"""How many of the last events `tail` shows before it waits."""

POLL_MS = 500
"""How long one wait for the next event lasts; Ctrl-C is heard in between."""

_Show = Callable[["Recorded"], None]


def events(
    session: str,
    /,
    *,
    after_seq: int = 0,
    upto_seq: int | None = None,
    type: Annotated[tuple[str, ...], Parameter(name="--type")] = (),  # noqa: A002 - the option's name
    limit: int | None = None,
    structure: bool = False,
    joined: bool = False,
    context: Annotated[Context, Parameter(parse=False)],
) -> int:
    """List a session's events, in order. With --json a line per event.

    Args:
        session: Its id, or the beginning of one.
        after_seq: Only events after this seq.
        upto_seq: Only events up to this seq, itself included.
        type: Only events of this type; may be given several times.
        limit: At most so many.
        structure: Without content (what people, models and tools said).
        joined: Of a fork, also its ancestors' events, up to each fork point.
        context: Where to read and write.
    """
    if limit is not None and limit < 0:
        raise UsageError("--limit", "a number from 0")
    from foldline.processors.lineage import lineage_of  # late: --help does without

    with context.reading() as log:
        session_id = find_session(log, session)
        read = log.structure if structure else log.events
        if joined:
            found = _joined(read, lineage_of(log, session_id), after_seq, upto_seq)
        else:
            found = read(session_id, after_seq=after_seq, upto_seq=upto_seq)
            _say_where_from(context, log.state(session_id), after_seq)
        wanted = (event for event in found if not type or event.type in type)
        if limit is not None:
            wanted = islice(wanted, min(limit, sys.maxsize))
        shown = _show_all(wanted, _shower(context, log, session_id))
    if not shown:
        _say_why_nothing(context, type)
    return OK


def tail(
    session: str,
    /,
    *,
    after_seq: int | None = None,
    timeout: float | None = None,
    context: Annotated[Context, Parameter(parse=False)],
) -> int:
    """Follow a session until it ends, or until Ctrl-C. With --json a line per event.

    Args:
        session: Its id, or the beginning of one.
        after_seq: Begin after this seq; without it, with the last ten events.
        timeout: Stop after so many seconds, with exit code 1 if it has not ended.
        context: Where to read and write.
    """
    if timeout is not None and not (math.isfinite(timeout) and timeout >= 0):
        raise UsageError("--timeout", "seconds, a number from 0")
    with context.reading() as log:
        session_id = find_session(log, session)
        show = _shower(context, log, session_id)
        head = _head(log, session_id)
        begin = max(head - TAIL_EVENTS, 0) if after_seq is None else after_seq
        deadline = None if timeout is None else time.monotonic() + timeout
        _show_all(log.events(session_id, after_seq=begin, upto_seq=head), show)
        context.out.flush()
        seq = max(begin, head)
        for found in _followed(log, session_id, after_seq=seq, deadline=deadline):
            _show_all(found, show)
            context.out.flush()
        return OK if _ended(log, session_id) else NO


def _joined(
    read: "Reader[Recorded]", lineage: "Lineage", after_seq: int, upto_seq: int | None
) -> "Iterator[Recorded]":
    from foldline.processors.lineage import joined  # late: --help does without

    return joined(read, lineage, after_seq=after_seq, upto_seq=upto_seq)


def _say_where_from(context: Context, state: "SessionState | None", after_seq: int) -> None:
    """Say, of a fork, whose history goes before what is listed."""
    if state is None or not state.fork_seq or after_seq >= state.fork_seq:
        return
    context.out.remark(
        f"a fork: seq 1 to {state.fork_seq} are those of {state.parent_session_id}; "
        "--joined lists them too"
    )


def _say_why_nothing(context: Context, names: tuple[str, ...]) -> None:
    """Tell a type that nothing has from one that nobody knows (a newer one, a slip)."""
    from foldline.schemas.events import EVENT_TYPES  # late: --help does without

    unknown = [name for name in names if name not in EVENT_TYPES]
    if unknown:
        error = UnknownTypeError(unknown[0], near(unknown[0], EVENT_TYPES))
        context.out.remark(f"nothing: {error}")


def near(name: str, known: Iterable[str]) -> list[str]:
    """What a name may have been meant to be, best first."""
    import difflib  # late: only a slip needs it

    by_lower = {word.lower(): word for word in known}
    found = difflib.get_close_matches(name.lower(), by_lower, n=2, cutoff=0.6)
    return [by_lower[word] for word in found]


def _shower(context: Context, log: "Log", session_id: str) -> _Show:
    from foldline.cli.timeline import Timeline
    from foldline.projections.views import event_view  # late: --help does without

    if context.out.json:
        return lambda event: context.out.record(event_view(event))
    return Timeline(context.out, log.state(session_id)).show


def _show_all(found: Iterable["Recorded"], show: _Show) -> int:
    """Show events; say how many there were."""
    shown = 0
    for shown, event in enumerate(found, start=1):  # noqa: B007 - counted
        show(event)
    return shown


def _head(log: "Log", session_id: str) -> int:
    state = log.state(session_id)
    return state.seq if state else 0


def _followed(
    log: "Log", session_id: str, *, after_seq: int, deadline: float | None
) -> Iterator[list["Recorded"]]:
    """Batches of events until the session has ended, or the deadline has passed.

    The end is looked for only when nothing more came, so that what was recorded before
    or with it is shown first.
    """
    seq = after_seq
    while True:
        left_ms = POLL_MS if deadline is None else _left_ms(deadline)
        ended = _ended(log, session_id)
        wait_ms = 0 if ended else min(left_ms, POLL_MS)
        found = log.follow(session_id, after_seq=seq, timeout_ms=wait_ms)
        if found:
            seq = found[-1].seq
            yield found
        if left_ms == 0 or (ended and not found):
            return


def _left_ms(deadline: float) -> int:
    return max(int((deadline - time.monotonic()) * 1_000), 0)


def _ended(log: "Log", session_id: str) -> bool:
    state = log.state(session_id)
    return state is None or state.ended
