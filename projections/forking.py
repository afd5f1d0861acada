"""What a fork begins with, read off its parent. Nothing is copied, nothing is written.

1. *Where*: the fork point is a seq of the session's history. One before its own fork
   point is an ancestor's event, and that ancestor is the fork's parent.
2. *What was in force* there: the parent's state at that seq names the events that hold
   it; each is read. How long the parent is does not matter.
3. *The chain* goes on from the hash of the parent's event at the fork point.

A session that mirrors another harness is forked like any other: the fork is an OWNED
session that goes on from what was mirrored.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from foldline.errors import ForkPointError, SessionNotFoundError
from foldline.processors.admission import FORK, MAX_FORK_SEQ
from foldline.processors.lineage import lineage_from
from foldline.processors.log import Log
from foldline.projections.inheritance import inheritance_of, seqs_in_force
from foldline.projections.reading import event_at
from foldline.schemas.events import Label, SessionCreated
from foldline.schemas.state import SessionState


@dataclass(frozen=True, slots=True)
class ForkPoint:
    """Where a fork goes on: its parent at the fork point, and what it begins with."""

    created: SessionCreated
    prev_hash: bytes
    parent: SessionState
    """The parent's state at the fork point."""

    @property
    def fork_seq(self) -> int:
        """The seq of the parent's last event that is the fork's history too."""
        return self.parent.seq


def fork_point(
    log: Log,
    session_id: str,
    at_seq: int,
    *,
    tenant: str | None,
    agent: str | None = None,
    labels: Sequence[Label] = (),
) -> ForkPoint:
    """The creation of a fork of a session's history at a seq.

    Args:
        log: the log of both.
        session_id: whose history is forked.
        at_seq: the last seq of it that the fork goes on from.
        tenant: whose the fork will be; None where the log itself says so.
        agent: the fork's agent; its parent's where not given.
        labels: the fork's labels.

    Raises:
        SessionNotFoundError: no such session.
        ForkPointError: its history has no event at that seq, or it is another tenant's.
        LineageError: it is a fork itself, and an ancestor is not there as it was.
    """
    head = log.state(session_id)
    if head is None:
        raise SessionNotFoundError(session_id, log.url)
    _check(head, at_seq, tenant)
    parent_id = session_id
    if at_seq <= head.fork_seq:
        parent_id = lineage_from(head, log.state).holder(at_seq)
    parent = log.state(parent_id, at_seq=at_seq)
    if parent is None:
        raise ForkPointError(session_id, at_seq, "there is no event at that seq")
    found = ((seq, event_at(log, parent_id, seq)) for seq in seqs_in_force(parent))
    held = {seq: recorded for seq, recorded in found if recorded is not None}
    inherits, inherited = inheritance_of(parent, held)
    created = SessionCreated(
        agent=parent.agent if agent is None else agent,
        relation=FORK,
        parent_session_id=parent_id,
        fork_seq=at_seq,
        labels=tuple(labels),
        inherits=inherits,
        inherited=inherited,
    )
    return ForkPoint(created, parent.chain_head, parent)


def _check(head: SessionState, at_seq: int, tenant: str | None) -> None:
    if tenant is not None and head.tenant != tenant:
        raise ForkPointError(head.session_id, at_seq, "it belongs to another tenant")
    if not 1 <= at_seq <= min(head.seq, MAX_FORK_SEQ):
        reason = f"its history has seqs 1 to {head.seq}"
        raise ForkPointError(head.session_id, at_seq, reason)
