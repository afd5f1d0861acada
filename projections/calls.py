"""What the events tell of each tool call: enough to show the model one result per call.

Pure. A call's *end* is the first confirmed outcome of its last attempt, as far as the model
was not shown one before. What came after it, or after what the model was already shown
(ToolResultProjected), is late. `foldline.projections.tales` tells them.
"""

from dataclasses import dataclass, field

from foldline.schemas.blocks import Block, Blocks, text_block
from foldline.schemas.events import (
    AnyEvent,
    BackgroundEnded,
    PermissionDenied,
    PermissionExpired,
    PermissionGranted,
    PermissionRequested,
    ToolBackgrounded,
    ToolCallRequested,
    ToolCallValidated,
    ToolExecutionCancelled,
    ToolExecutionCompleted,
    ToolExecutionFailed,
    ToolExecutionStarted,
    ToolExecutionTimedOut,
    ToolOutcomeResolved,
    ToolOutcomeUnknown,
)

DENIED_TEXT = "Tool execution was denied by user policy. Choose a safer alternative."
UNKNOWN_TEXT = (
    "The outcome of this call is unknown: it began, and nobody recorded its end. "
    "Verify first whether its effect happened; do not simply repeat it."
)
NOT_RUN_TEXT = "Not run: it was interrupted before it began."
NOT_EXECUTED_TEXT = "Not run: it was found out afterwards that it did not happen."
WAITING_TEXT = "Not run yet: it waits for a person's permission."
GRANTED_TEXT = "Not run: it was permitted, and did not begin."
EXPIRED_TEXT = (
    "Not run: nobody answered the request for permission in time. "
    "It may be asked for again."
)
LEFT_TEXT = (
    "This call was open when this session was forked from {parent_id}. It stays that "
    "session's call: what came of it is not known here, and it is not run here."
)
NO_OUTPUT_TEXT = "(no output)"

WAITING, GRANTED = "WAITING", "GRANTED"
"""What stands in for a call that a person is asked about, and then permits."""

INTERRUPT_POLICY = "interrupt"
"""The policy by which an owner closes calls that an interruption kept from beginning."""


@dataclass(frozen=True, slots=True)
class Result:
    """What is shown for a call. `form` says what it rests on: OUTCOME, or a stand-in.

    A stand-in may be overtaken by the real outcome, so whoever shows it freezes it with
    a ToolResultProjected.
    """

    form: str
    blocks: Blocks
    error: bool = False

    @property
    def stands_in(self) -> bool:
        """Whether something else may be known of the call later."""
        return self.form not in ("OUTCOME", "PROJECTED", "LEFT")


@dataclass(slots=True)
class End:
    """A confirmed outcome of one attempt; `of` is how its event names the call."""

    seq: int
    attempt: int
    event_id: str
    result: Result
    of: str


@dataclass(slots=True)
class Tale:
    """One call, as its events tell it in their order."""

    request: ToolCallRequested
    event_id: str
    seq: int
    standing: Result = Result("NOT_RUN", (text_block(NOT_RUN_TEXT),), error=True)
    ends: list[End] = field(default_factory=list[End])
    names: list[str] = field(default_factory=list[str])
    """How events name it besides: handles, and requests for permission."""
    projected: Result | None = None
    projected_seq: int = 0
    projected_id: str = ""
    end: End | None = None
    """The first of its last attempt before it was final."""
    final: bool = False
    """Whether the model was shown that end: nothing else is its result any more."""

    def tell_end(self, end: End) -> bool:
        """Take in one more end; whether it is the one to show."""
        self.ends.append(end)
        known = self.end
        if known is None or (not self.final and end.attempt > known.attempt):
            self.end = end
        return self.end is end

    def leave(self, parent_id: str) -> None:
        """The session was forked while the call was open: it stays the parent's."""
        if self.standing.form == "DENIED":
            self.standing = Result("LEFT", self.standing.blocks, error=True)
        elif self.standing.form != "LEFT":
            note = text_block(LEFT_TEXT.format(parent_id=parent_id))
            self.standing = Result("LEFT", (note,), error=True)

    def result(self) -> Result:
        """What the model is shown: what it was shown already, the end, or a stand-in."""
        if self.projected is not None:
            return self.projected
        return self.standing if self.end is None else self.end.result

    @property
    def settled_seq(self) -> int:
        """The seq since which what is shown of it cannot change; 0: it still can."""
        return self.projected_seq or (self.end.seq if self.end else 0)

    @property
    def shown_id(self) -> str:
        """The event that is shown as its result; empty for a stand-in."""
        return self.projected_id or (self.end.event_id if self.end else "")

    def shown_end(self) -> End | None:
        """The end that is shown with the call; None for a stand-in and what was frozen."""
        return None if self.projected is not None else self.end

    def late(self) -> dict[str, Result]:
        """Ends that came after what is shown, by the id of their event."""
        shown_seq = self.settled_seq
        return {e.event_id: e.result for e in self.ends if e.seq > shown_seq}


ENDS: frozenset[type] = frozenset(
    {
        BackgroundEnded,
        PermissionDenied,
        ToolCallValidated,
        ToolExecutionCancelled,
        ToolExecutionCompleted,
        ToolExecutionFailed,
        ToolExecutionTimedOut,
        ToolOutcomeResolved,
    }
)
"""Events that may end a call: most are none of these, and that is seen at once."""


def end_of(event: AnyEvent) -> Result | None:
    """The result that an event ends its call with; None where it ends none."""
    if type(event) not in ENDS:
        return None
    match event:
        case ToolExecutionCompleted():
            failed = bool(event.exit_code)
            return _outcome(event.output, error=failed)
        case ToolExecutionFailed():
            return _outcome(_failure(event), error=True)
        case ToolExecutionCancelled(stop_confirmed=True):
            note = f"Cancelled: {event.reason}."
            return _outcome((text_block(note), *event.blocks), error=True)
        case ToolExecutionTimedOut(stop_confirmed=True):
            return _outcome((text_block(_timeout(event)), *event.blocks), error=True)
        case ToolOutcomeResolved(outcome="COMPLETED"):
            return _outcome(event.output or event.evidence)
        case ToolOutcomeResolved(outcome="FAILED"):
            found = event.output or event.evidence
            return _outcome((text_block("Failed. "), *found), error=True)
        case BackgroundEnded(outcome="COMPLETED" | "FAILED" | "CANCELLED"):
            note = text_block(f"Ended in the background: {event.outcome}. ")
            return _outcome((note, *event.output), error=event.outcome != "COMPLETED")
        case PermissionDenied(may_request_again=False):
            return _outcome(_denial(event), error=True)
        case ToolCallValidated(valid=False):
            note = f"The call cannot be run: {event.problem}"
            return _outcome((text_block(note),), error=True)
        case _:
            return None


def named_by(event: AnyEvent) -> str:
    """How an event names its call: by its id, or by the handle of what ran on."""
    fields = event.__dict__
    return fields.get("call_id") or fields.get("handle", "")


def standing_of(event: AnyEvent) -> Result | None:
    """What stands in for a result after this event; None where it changes nothing."""
    match event:
        case ToolExecutionStarted() | ToolOutcomeUnknown() | BackgroundEnded():
            return _UNKNOWN
        case ToolExecutionTimedOut():
            return _stand_in("TIMED_OUT", _timeout(event), event.blocks)
        case ToolExecutionCancelled():
            told = f"It was told to stop ({event.reason}) and may still be running. "
            return _stand_in("CANCELLED", told + UNKNOWN_TEXT, event.blocks)
        case ToolBackgrounded():
            note = f"It goes on in the background, as {event.handle}. "
            return Result("BACKGROUND", (text_block(note), *shown(event.output)))
        case PermissionRequested():
            return _WAITING
        case PermissionGranted():
            return _GRANTED
        case PermissionExpired():
            return _EXPIRED
        case PermissionDenied(may_request_again=True):
            return Result("DENIED", _denial(event), error=True)
        case ToolOutcomeResolved(outcome="NOT_EXECUTED"):
            return _stand_in("NOT_RUN", NOT_EXECUTED_TEXT)
        case _:
            return None


def _outcome(blocks: Blocks, *, error: bool = False) -> Result:
    return Result("OUTCOME", shown(blocks), error)


def _stand_in(form: str, text: str, blocks: Blocks = ()) -> Result:
    return Result(form, (text_block(text), *blocks), error=True)


_UNKNOWN = _stand_in("UNKNOWN", UNKNOWN_TEXT)
_WAITING = _stand_in(WAITING, WAITING_TEXT)
_GRANTED = _stand_in(GRANTED, GRANTED_TEXT)
_EXPIRED = _stand_in("EXPIRED", EXPIRED_TEXT)


def shown(blocks: Blocks) -> Blocks:
    """The blocks that say something; a result is never empty."""
    return says(blocks) or (text_block(NO_OUTPUT_TEXT),)


def says(blocks: Blocks) -> Blocks:
    """The blocks that are not empty."""
    for block in blocks:
        if is_empty(block):
            return tuple([block for block in blocks if not is_empty(block)])
    return blocks


def is_empty(block: Block) -> bool:
    """Whether a block holds nothing: no text, no bytes, nothing verbatim."""
    body = block.body
    if not isinstance(body, str) or (body and not body.isspace()):
        return False
    return block.opaque is None and block.signature is None


def _failure(event: ToolExecutionFailed) -> Blocks:
    executed = {
        "YES": " Its effect happened.",
        "NO": " Its effect did not happen.",
    }.get(event.executed, "")
    return (text_block(f"{event.error_type}.{executed} "), *event.blocks)


def _timeout(event: ToolExecutionTimedOut) -> str:
    after = "" if event.after_ms is None else f" after {event.after_ms} ms"
    still = "" if event.stop_confirmed else "It may still be running. "
    return f"Timed out{after}. {still}{UNKNOWN_TEXT}"


def _denial(event: PermissionDenied) -> Blocks:
    if event.policy == INTERRUPT_POLICY:
        return shown(event.feedback)
    if not says(event.feedback):
        return (text_block(DENIED_TEXT),)
    return (text_block(DENIED_TEXT + "\n"), *says(event.feedback))
