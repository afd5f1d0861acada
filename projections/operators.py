"""Who answers for a person without a token, and for which roles.

A file and brokers know nobody, and nor does a service without tokens. What can be known
there is what the machine says of its operator: FOLDLINE_OPERATOR_ROLES. Where it says
nothing, whoever can write to the log has every role, and is told so.
"""

from collections.abc import Collection

from foldline.errors import AnswerRefusedError
from foldline.processors.log import Log
from foldline.processors.open_log import SERVICE
from foldline.projections.answering import answered_request, missing_role
from foldline.projections.reading import event_at
from foldline.schemas.events import AnyEvent

SETTING = "FOLDLINE_OPERATOR_ROLES"


def check_operator(
    log: Log, session_id: str, event: AnyEvent, *, roles: Collection[str]
) -> None:
    """Refuse an answer to a request that names approvers, and none of these roles.

    What waits no more, the log refuses. A service checks its tokens' own roles.

    Raises:
        AnswerRefusedError: it says which roles may.
    """
    request_id = answered_request(event)
    if request_id is None or not roles or log.url.startswith(SERVICE):
        return
    state = log.state(session_id)
    request = state.requests.get(request_id) if state else None
    if request is None:
        return
    wanted = missing_role(event_at(log, session_id, request.seq), roles)
    if wanted:
        reason = f"it is for one of the roles {wanted}"
        advice = f"here {SETTING} says {', '.join(sorted(roles))}"
        raise AnswerRefusedError(request_id, reason, advice)
