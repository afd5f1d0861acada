"""What recovery would do about a session, read off its log. Touches nothing."""

from foldline.errors import SessionNotFoundError
from foldline.processors.log import Log
from foldline.projections.recovery import PlannedAction, RecoveryPolicy, plan_recovery
from foldline.projections.resuming import count_resumes
from foldline.schemas.state import SUSPENDED, SessionState


def planned(log: Log, session_id: str, policy: RecoveryPolicy) -> list[PlannedAction]:
    """What recovery would do about a session as it is, at its last log time.

    Raises:
        SessionNotFoundError: no such session.
    """
    state = log.state(session_id)
    if state is None:
        raise SessionNotFoundError(session_id, log.url)
    return planned_of(log, state, policy)


def planned_of(
    log: Log, state: SessionState, policy: RecoveryPolicy
) -> list[PlannedAction]:
    """The same for a state at the head. Nothing is planned for one at rest."""
    if state.phase == SUSPENDED or state.ended:
        return []
    resumes = 0
    if state.turn is not None:
        resumes = count_resumes(log.structure(state.session_id, after_seq=state.turn.seq))
    return list(plan_recovery(state, state.recorded_at, policy, resumes=resumes))
