"""Becoming the owner of a session: the claim of its next epoch, on a state that was read.

1. The state is read. A mirrored session has no owner; a living one's is not replaced,
   unless it is to be fenced.
2. One append on exactly that state: it makes its writer the owner of the next epoch.
3. A CONFLICT means that somebody appended in between: back to 1. If what came was another
   owner's claim, that owner is alive.
"""

import asyncio

from foldline.errors import (
    LiveOwnerError,
    MirroredSessionError,
    SessionNotFoundError,
)
from foldline.producers.appender import Sent, raise_refused
from foldline.producers.link import Link, Stamp
from foldline.schemas.envelope import Actor
from foldline.schemas.events import SessionReopened, SessionResumed
from foldline.schemas.state import MIRRORED, SessionState
from foldline.schemas.verdicts import CONFLICT, FENCED

CLAIM_TRIES_MAX = 16
"""How often a claim is planned anew because somebody appended in between."""


async def claim(
    link: Link,
    session_id: str,
    event: SessionResumed | SessionReopened,
    *,
    steal: bool,
    after_epoch: int | None = None,
) -> tuple[SessionState, Sent]:
    """Claim a session; gives the state that was read and the append that did it.

    With `after_epoch` only if nobody has claimed it since that epoch: what was planned
    for its last owner's end is not done about another's.

    Raises:
        SessionNotFoundError: no such session.
        MirroredSessionError: it has no owner.
        LiveOwnerError: its owner is alive, and `steal` was not asked for.
        AppendRefusedError: it cannot be claimed like that.
    """
    first_epoch = -1 if after_epoch is None else after_epoch
    tries_left = CLAIM_TRIES_MAX
    while True:
        state = await state_of(link, session_id)
        if state.mode == MIRRORED:
            raise MirroredSessionError(session_id)
        if not steal:
            await _check_no_live_owner(link, state, first_epoch)
        first_epoch = state.epoch if first_epoch < 0 else first_epoch
        stamp = Stamp(Actor(kind="AGENT", id=state.agent or "agent"), state.epoch + 1)
        way = link.of(state.tenant)
        draft = way.draft(session_id, event, stamp, expected_seq=state.seq)
        answers = await asyncio.shield(link.appender(session_id, state.seq).submit([draft]))
        tries_left -= 1
        if answers[0].verdict.kind not in (CONFLICT, FENCED) or not tries_left:
            raise_refused(answers)
            return state, answers[0]


async def _check_no_live_owner(link: Link, state: SessionState, first_epoch: int) -> None:
    if 0 <= first_epoch < state.epoch:
        ttl_ms = link.settings.lease_ttl_ms
        raise LiveOwnerError(state.session_id, state.owner, ttl_ms)
    lease = await link.read(link.log.leases.get, state.session_id)
    if lease is not None and lease.alive and lease.epoch >= state.epoch > 0:
        raise LiveOwnerError(state.session_id, lease.writer, lease.expires_in_ms)


async def state_of(link: Link, session_id: str) -> SessionState:
    """The state of a session now.

    Raises:
        SessionNotFoundError: no such session.
    """
    state = await link.read(link.log.state, session_id)
    if state is None:
        raise SessionNotFoundError(session_id, link.log.url)
    return state
