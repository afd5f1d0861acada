"""Forking: a new session that goes on from any event of another one's history.

1. What was in force at the fork point is read off the parent (`projections.forking`).
2. One append: the fork's SessionCreated, with the hash of the parent's event there. It
   copies no event; its own seqs begin behind the fork point.
3. Its writer owns it. The parent is not touched: no event, no lease, no owner changes.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from foldline.processors.naming import check_session_id
from foldline.processors.open_log import SERVICE
from foldline.producers.appender import Sent, raise_refused
from foldline.producers.identity import fresh_id
from foldline.producers.link import Link, Stamp
from foldline.projections.forking import ForkPoint, fork_point
from foldline.schemas.envelope import Actor
from foldline.schemas.events import Label
from foldline.schemas.state import SessionState


async def begin_fork(
    link: Link,
    parent_id: str,
    at_seq: int,
    *,
    agent: str | None,
    fork_id: str | None,
    labels: Mapping[str, str] | None,
) -> tuple[SessionState, Sent]:
    """Create the fork; gives its state and the append that made its writer the owner.

    Raises:
        SessionNotFoundError, ForkPointError, LineageError: see `fork_point`.
        SessionExistsError: a session of the fork's id is there.
        SessionIdError: no session can be called that.
    """
    if fork_id is not None:
        check_session_id(fork_id)
    # Behind a service the token says whose a session is, and shows no other tenant's.
    tenant = None if link.log.url.startswith(SERVICE) else link.tenant
    point = await link.read(
        fork_point,
        link.log,
        parent_id,
        at_seq,
        tenant=tenant,
        agent=agent,
        labels=label_pairs(labels),
    )
    return await _created(link, point, fork_id or fresh_id())


async def _created(
    link: Link, point: ForkPoint, session_id: str
) -> tuple[SessionState, Sent]:
    stamp = Stamp(Actor(kind="AGENT", id=point.created.agent or "agent"), epoch=1)
    draft = link.draft(session_id, point.created, stamp)
    chained = draft.envelope.model_copy(update={"prev_hash": point.prev_hash})
    appender = link.appender(session_id, 0)
    answers = await asyncio.shield(appender.submit([replace(draft, envelope=chained)]))
    raise_refused(answers)
    state = SessionState(
        session_id,
        tenant=link.tenant,
        agent=point.created.agent,
        relation=point.created.relation,
        parent_session_id=point.parent.session_id,
        fork_seq=point.fork_seq,
        seq=answers[0].verdict.seq,
    )
    return state, answers[0]


def label_pairs(labels: Mapping[str, str] | None) -> tuple[Label, ...]:
    """Labels as an event holds them, in the order of their keys."""
    pairs = sorted((labels or {}).items())
    return tuple(Label(key=key, value=value) for key, value in pairs)
