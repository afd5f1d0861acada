"""How often the same call was denied, or not answered, since a person last spoke. Pure.

The same call is one of the same tool with the same arguments, whatever its id. What a
person says (a message, steering, an answer, a grant) begins the count anew: then they know.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from foldline.projections.calls import INTERRUPT_POLICY
from foldline.schemas.events import (
    InputProvided,
    PermissionDenied,
    PermissionExpired,
    PermissionGranted,
    PermissionRequested,
    SteeringReceived,
    UserMessage,
)
from foldline.schemas.recorded import Recorded
from foldline.schemas.state import Call, SessionState

PERSON = "PERSON"


@dataclass(frozen=True, slots=True)
class Repeats:
    """Denials of the same call, and requests for it that nobody answered in time."""

    denials: int = 0
    expiries: int = 0


def same_calls(state: SessionState, call: Call) -> tuple[Call, ...]:
    """Every call that is remembered of the same tool and arguments, this one included."""
    wanted = _fingerprint(call)
    known = (*state.calls.values(), *state.finished.values())
    return tuple(other for other in known if _fingerprint(other) == wanted)


def _fingerprint(call: Call) -> tuple[str, str, str]:
    return call.namespace, call.tool, call.args_hash


def first_refused_seq(calls: Iterable[Call]) -> int:
    """The seq of the first of these calls that was denied or expired; 0 for none."""
    seqs = [call.requested_seq for call in calls if call.denials or call.expiries]
    return min(seqs, default=0)


def repeats_of(events: Iterable[Recorded], call_ids: frozenset[str]) -> Repeats:
    """The count, from the events since the first of these calls was denied or expired."""
    denials = expiries = 0
    requests: set[str] = set()
    for recorded in events:
        match recorded.event:
            case PermissionRequested(request_id=name, call_id=call_id):
                if call_id in call_ids:
                    requests.add(name)
            case PermissionExpired(request_id=name) if name in requests:
                expiries += 1
            case PermissionDenied(policy=policy) if policy == INTERRUPT_POLICY:
                pass  # nobody said no: it was interrupted
            case PermissionDenied(call_id=call_id, request_id=name) as denied:
                if call_id in call_ids or name in requests:
                    denials += 1
                    expiries = 0 if denied.decided_by == PERSON else expiries
            case PermissionGranted(call_id=call_id, decided_by="PERSON"):
                if call_id in call_ids:
                    denials = expiries = 0
            case UserMessage() | SteeringReceived() | InputProvided():
                if recorded.envelope.actor.kind == PERSON:
                    denials = expiries = 0
            case _:
                pass
    return Repeats(denials, expiries)
