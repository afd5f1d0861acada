"""A cancellation follows the tree: from a session to its subagents, and to theirs.

A child is asked as anybody asks a session to stop: in its own log, where whoever owns it
sees it, in whatever process. Who sends it does so again without harm: the id of the
request follows from the one that it stems from.

1. Who asks for a stop walks down from there at once (`SessionView.cancel`; over HTTP
   `foldline.projections.service_cancelling`).
2. The owner of each session does the same when it notices one: whoever asked may be dead.
3. A child that is made after that is asked as soon as it is there.
4. Who asked a session to stop, or ended it, may have died before its children were told:
   whoever recovers one of them finds that, and recovery tells those whose own owner lives
   (`foldline.producers.recovering`). Whoever asks again walks down from there, too.
"""

import asyncio

from foldline.producers.link import Link, Stamp
from foldline.projections.subagents import (
    DEPTH_MAX,
    PARENT_ENDED,
    cause_of,
    cause_of_end,
    children_unseen,
    open_children,
    order_from_above,
    stops_of,
)
from foldline.schemas.derived import cancellation_id
from foldline.schemas.envelope import Actor
from foldline.schemas.events import CancellationRequested
from foldline.schemas.state import SessionState


async def stop_as_asked(link: Link, actor: Actor, state: SessionState) -> None:
    """Ask the children to stop that a cancellation of this session is about."""
    for stop in stops_of(state):
        cause = (cause_of(state, stop), stop.reason)
        await _stop_tree(link, actor, stop.child_session_id, cause)


async def stop_children(link: Link, actor: Actor, state: SessionState) -> None:
    """Ask every open child of a session that has ended to stop; again without harm."""
    for child in open_children(state):
        cause = (cause_of_end(state.session_id), PARENT_ENDED)
        await _stop_tree(link, actor, child.child_session_id, cause)


async def pass_on_stop(link: Link, actor: Actor, session_id: str) -> None:
    """Ask a subagent to stop, with all below, where a session above has it so."""
    order = await link.read(order_from_above, link.log.state, session_id)
    if order is not None:
        cause = (order.stems_from, order.reason)
        await _stop_tree(link, actor, order.session_id, cause)


async def _stop_tree(
    link: Link, actor: Actor, session_id: str, cause: tuple[str, str]
) -> None:
    """Ask a session, and all below it; one that is not there, or has ended, is left."""
    level, seen = [session_id], {session_id}
    for _ in range(DEPTH_MAX):
        below: list[str] = []
        for name in level:
            await _ask(link, actor, name, cause)
            state = await link.read(link.log.state, name)
            below += children_unseen(state, seen)
        level = below


async def _ask(link: Link, actor: Actor, session_id: str, cause: tuple[str, str]) -> None:
    stems_from, reason = cause
    event = CancellationRequested(target="SESSION", reason=reason)
    event_id = cancellation_id(session_id, stems_from)
    draft = link.draft(session_id, event, Stamp(actor), event_id=event_id)
    await asyncio.shield(link.appender(session_id, 0).submit([draft]))
