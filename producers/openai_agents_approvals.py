"""What a run state says that people decided about its calls."""

from dataclasses import dataclass

from foldline.producers.json_fields import Json, as_list, as_object, as_text
from foldline.producers.openai_agents_state import field_of
from foldline.producers.openai_facts import MAIN, PERSON, Scribe
from foldline.schemas.blocks import text_block
from foldline.schemas.events import PermissionDenied, PermissionGranted


@dataclass(frozen=True, slots=True)
class Decision:
    """What a person decided about one call, and said to the model of it."""

    approved: bool
    message: str


def decisions_of(document: Json | list[object]) -> dict[str, Decision]:
    """Decisions about single calls, by the provider's id of the call.

    A decision about all calls of a tool stays in the rest of the state.
    """
    if isinstance(document, list):
        return {}
    decided: dict[str, Decision] = {}
    approvals = as_object(as_object(document.get("context")).get("approvals"))
    for tool in approvals.values():
        messages = as_object(field_of(as_object(tool), "rejection_messages"))
        for name, approved in (("approved", True), ("rejected", False)):
            for call in as_list(as_object(tool).get(name)):
                message = as_text(messages.get(as_text(call)))
                decided[as_text(call)] = Decision(approved=approved, message=message)
    return decided


def decide(scribe: Scribe, call_id: str, decided: Decision) -> None:
    """Write a decision down."""
    request_id = f"approval:{call_id}"
    if decided.approved:
        event = PermissionGranted(
            request_id=request_id,
            call_id=call_id,
            decided_by="PERSON",
            grant_id=request_id,
        )
    else:
        event = PermissionDenied(
            request_id=request_id,
            call_id=call_id,
            decided_by="PERSON",
            feedback=(text_block(decided.message),) if decided.message else (),
        )
    scribe.write(MAIN, event, PERSON)
