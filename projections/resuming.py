"""When a session that stands still is taken up again, and when a person has to. Pure.

Each time that an open turn is taken up without getting anywhere doubles the pause
before the next; after `resumes_max` times a person is asked instead.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from foldline.projections.recovery import (
    KeepHandle,
    NeedsPerson,
    OfferAgain,
    PlannedAction,
    Reconcile,
    Retry,
    RetryLater,
    RunCall,
    question_id,
)
from foldline.projections.stalled import PARK_QUESTION, park_question
from foldline.schemas.blocks import text_block
from foldline.schemas.events import InputProvided, InputRequested, SessionResumed
from foldline.schemas.recorded import Recorded
from foldline.schemas.state import SessionState

RESUME = "RESUME"
CANCEL = "CANCEL"
ANSWERS = (RESUME, CANCEL)
"""What a person may answer about a session that recovery parked."""

ANSWERS_SCHEMA = '{"enum":["RESUME","CANCEL"]}'
"""The same as a JSON schema."""


def park_request(epoch: int, asked: str) -> InputRequested:
    """The question with which a session is parked in an epoch: whether it goes on."""
    return InputRequested(
        request_id=park_question(epoch),
        answer_schema_json=ANSWERS_SCHEMA,
        prompt=(text_block(f"{asked}. Answer {' or '.join(ANSWERS)}."),),
    )


@dataclass(frozen=True, slots=True)
class ResumePolicy:
    """The pauses between the takings up of one open turn, in milliseconds."""

    pause_ms: int = 1_000
    pause_max_ms: int = 300_000

    def pause_after(self, resumes: int) -> int:
        """How long a turn is left alone that was taken up so many times; ms."""
        if resumes <= 0:
            return 0
        doubled = self.pause_ms * 2 ** min(resumes - 1, 30)
        return min(doubled, self.pause_max_ms)


@dataclass(frozen=True, slots=True)
class Tries:
    """How often an open turn was taken up since it began, or since a person's answer.

    `answered`: whether a person has answered recovery's question about it.
    """

    resumes: int = 0
    answered: bool = False


def count_tries(events: Iterable[Recorded]) -> Tries:
    """How many owners claimed a session, of the events since its open turn began.

    A person who answered the question of a parked session has it begin anew.
    """
    tries = Tries()
    for recorded in events:
        match recorded.event:
            case SessionResumed():
                tries = Tries(tries.resumes + 1, tries.answered)
            case InputProvided(request_id=name) if name.startswith(PARK_QUESTION):
                tries = Tries(answered=True)
            case _:
                pass
    return tries


def waits_for_people(state: SessionState, plan: Iterable[PlannedAction]) -> bool:
    """Whether nothing but an answer brings the session on: then it is left alone."""
    if not state.requests:
        return False
    return all(_rests(state, action) for action in plan)


def _rests(state: SessionState, action: PlannedAction) -> bool:
    match action:
        case OfferAgain() | KeepHandle() | RetryLater():
            return True
        case Reconcile(call_id=call_id, attempt=attempt):
            return question_id(call_id, attempt) in state.requests
        case _:
            return False


def needs_harness(plan: Iterable[PlannedAction], tools: frozenset[str]) -> bool:
    """Whether nothing is left to settle: only the agent's own harness brings it on.

    Args:
        plan: for the session, as it is.
        tools: the call ids whose tools are at hand, to be repeated or asked.
    """
    return all(_is_for_harness(action, tools) for action in plan)


def _is_for_harness(action: PlannedAction, tools: frozenset[str]) -> bool:
    match action:
        case RunCall() | OfferAgain() | KeepHandle() | RetryLater() | NeedsPerson():
            return True
        case Retry(call_id=call_id) | Reconcile(call_id=call_id):
            return call_id not in tools
        case _:
            return False
