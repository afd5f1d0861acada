"""Sessions that stand still in the middle of a turn: whose owner is gone, or seems stuck.

An IDLE session is not dead: nobody need be alive between turns. One that recovery
suspended is looked at again once its question is answered. One whose owner lives and
records nothing for long may be stuck, or run a long tool: only people can tell.
"""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace

from foldline.processors.log import Lease, Log, SessionSummary
from foldline.projections.recovery import is_about_dead_call
from foldline.schemas.state import (
    MIRRORED,
    RUNNING,
    SUSPENDED,
    WAITING_APPROVAL,
    PendingRequest,
    SessionState,
)

LOOKED_AT_MAX = 1_000_000
"""How many sessions of each status one look takes in; beyond, those silent for longest
are missed, and that is said."""

REMEMBERED_MAX = 100_000
"""How many living sessions are remembered with the time since which they are silent."""

LOOKED_AT = (RUNNING, WAITING_APPROVAL, SUSPENDED)
"""The statuses in which a session may need somebody."""

PARKED = "recovery: "
"""What the reason of a suspension by recovery begins with."""

PARK_QUESTION = "recovery:park:"
"""What the request_id of the question begins with that such a session waits for."""

OWNER_GONE = "owner_gone"
PARKED_ONE = "parked"
ANSWERED = "answered"
"""Why a parked session is shown once a person has answered: it can go on."""


_logger = logging.getLogger("foldline.recovery")


@dataclass(frozen=True, slots=True)
class Stalled:
    """A session that somebody should look after, and why: OWNER_GONE or PARKED_ONE."""

    session_id: str
    tenant: str
    agent: str
    status: str
    seq: int
    epoch: int
    owner: str
    why: str


@dataclass(slots=True)
class Look:
    """One look at a log: sessions without a living owner, and running ones with one.

    `below` are those with a living owner that name a parent, in the middle of a turn.
    """

    stalled: list[Stalled] = field(default_factory=list[Stalled])
    living: list[SessionSummary] = field(default_factory=list[SessionSummary])
    below: list[SessionSummary] = field(default_factory=list[SessionSummary])
    whole: bool = True
    """Whether no session was left out."""


def look_at(log: Log, *, tenant: str | None = None, most: int = LOOKED_AT_MAX) -> Look:
    """Every session that somebody may have to look after, the longest silent first.

    What recovery parked is among the stalled: its state says whether it was answered.

    Args:
        log: the log.
        tenant: whose sessions, or all of them.
        most: how many of each status.
    """
    look = Look()
    for status in LOOKED_AT:
        listed = log.sessions(tenant=tenant, status=status, limit=most)
        if len(listed) == most:
            look.whole = False
            _logger.warning("more than %d sessions are %s", most, status)
        owned = [summary for summary in reversed(listed) if summary.mode != MIRRORED]
        leases = log.leases.get_many([summary.session_id for summary in owned])
        for summary in owned:
            if not _lives(summary, leases.get(summary.session_id)):
                why = PARKED_ONE if status == SUSPENDED else OWNER_GONE
                look.stalled.append(_stalled(summary, why))
                continue
            if status == RUNNING:
                look.living.append(summary)
            if summary.parent_session_id:
                look.below.append(summary)
    return look


def stalled_sessions(log: Log, *, tenant: str | None = None) -> Iterator[Stalled]:
    """Sessions without a living owner, the longest silent first."""
    yield from look_at(log, tenant=tenant).stalled


@dataclass(frozen=True, slots=True)
class Standstill(Stalled):
    """A stalled session as people look at it; `why` may be ANSWERED, too."""

    open_calls: int
    requests: list[str]


def standing_still(log: Log, *, tenant: str | None = None) -> Iterator[Standstill]:
    """Stalled sessions with what is open in them, the longest silent first.

    One that somebody suspended, who knows why, is none.
    """
    yield from shown_of(log, look_at(log, tenant=tenant))


def shown_of(log: Log, look: Look) -> Iterator[Standstill]:
    """The same, of one look."""
    for stalled in look.stalled:
        state = log.state(stalled.session_id)
        if state is None:
            continue
        answered = is_answered(state)
        if stalled.why == PARKED_ONE and not answered and not state.requests:
            continue
        shown = replace(stalled, why=ANSWERED) if answered else stalled
        yield Standstill(
            **asdict(shown),
            open_calls=len(state.calls),
            requests=sorted(state.requests),
        )


class Silence:
    """Running sessions with a living owner of which nothing was heard for long.

    By the clock of whoever looks again and again: a quiet log has no time.
    """

    def __init__(self, *, after_ms: int) -> None:
        """Begin to listen.

        Args:
            after_ms: how long nothing must have been recorded.
        """
        self._after_s = after_ms / 1000
        self._heard: dict[str, tuple[int, float]] = {}
        self._told: dict[str, int] = {}

    def broken_by(
        self, living: Iterable[SessionSummary], *, now_s: float
    ) -> list[SessionSummary]:
        """Those that are silent for so long by now, each once until it says something."""
        before, self._heard = self._heard, {}
        told, self._told = self._told, {}
        silent: list[SessionSummary] = []
        for summary in living:
            name, seq = summary.session_id, summary.seq
            seen = before.get(name)
            since_s = seen[1] if seen is not None and seen[0] == seq else now_s
            if len(self._heard) < REMEMBERED_MAX:
                self._heard[name] = (seq, since_s)
            if now_s - since_s < self._after_s:
                continue
            if told.get(name) != seq:
                silent.append(summary)
            self._told[name] = seq
        return silent


def _lives(summary: SessionSummary, lease: Lease | None) -> bool:
    return lease is not None and lease.alive and lease.epoch >= summary.epoch


def _stalled(summary: SessionSummary, why: str) -> Stalled:
    return Stalled(
        session_id=summary.session_id,
        tenant=summary.tenant,
        agent=summary.agent,
        status=summary.status,
        seq=summary.seq,
        epoch=summary.epoch,
        owner=summary.owner,
        why=why,
    )


def park_question(epoch: int) -> str:
    """The request_id of the question with which recovery parks a session in an epoch."""
    return f"{PARK_QUESTION}{epoch}"


def is_answered(state: SessionState) -> bool:
    """Whether recovery parked the session, and a person has answered since."""
    parked = state.phase == SUSPENDED and state.reason.startswith(PARKED)
    return parked and not any(_waits(state, each) for each in state.requests.values())


def _waits(state: SessionState, request: PendingRequest) -> bool:
    """Whether a request keeps a session parked; who cancels its call has answered it."""
    parks = request.request_id.startswith(PARK_QUESTION)
    return parks and not is_about_dead_call(state, request)
