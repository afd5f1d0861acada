"""What recovery would do about a session, read off its log. Touches nothing."""

from foldline.errors import SessionNotFoundError
from foldline.processors.log import Log
from foldline.projections.recovery import PlannedAction, RecoveryPolicy, plan_recovery
from foldline.projections.resuming import Tries, count_tries
from foldline.schemas.state import SUSPENDED, SessionState


def tries_of(log: Log, state: SessionState) -> Tries:
    """How often the open turn of a session was taken up; none where none is open."""
    if state.turn is None:
        return Tries()
    return count_tries(log.structure(state.session_id, after_seq=state.turn.seq))


def plan_of(log: Log, state: SessionState, policy: RecoveryPolicy) -> list[PlannedAction]:
    """What one who would claim it now would do, by the log time of its last event."""
    resumes = tries_of(log, state).resumes
    return list(plan_recovery(state, state.recorded_at, policy, resumes=resumes))


def planned(log: Log, session_id: str, policy: RecoveryPolicy) -> list[PlannedAction]:
    """What recovery would do about a session as it is; nothing about one at rest.

    Raises:
        SessionNotFoundError: no such session.
    """
    state = log.state(session_id)
    if state is None:
        raise SessionNotFoundError(session_id, log.url)
    if state.phase == SUSPENDED or state.ended:
        return []
    return plan_of(log, state, policy)
