"""The tale of every call, told event by event. Pure.

    told_by(events)     every call, and how their ends name them
    tales_of(events)    the calls alone
    Names               which call an event is about

An end that the model was shown stays what is shown: it is final once the model was asked,
or answered, after it. What a later attempt ends with is late.
"""

from collections.abc import Iterable
from typing import NamedTuple

from foldline.projections.calls import (
    ENDS,
    GRANTED,
    WAITING,
    End,
    Result,
    Tale,
    end_of,
    named_by,
    shown,
    standing_of,
)
from foldline.projections.recorded_steps import COMPACTION
from foldline.schemas.events import (
    AnyEvent,
    AssistantMessage,
    BackgroundEnded,
    ModelCallStarted,
    PermissionDenied,
    PermissionExpired,
    PermissionGranted,
    PermissionRequested,
    SessionCreated,
    ToolBackgrounded,
    ToolCallRequested,
    ToolExecutionStarted,
    ToolOutcomeUnknown,
    ToolResultProjected,
)
from foldline.schemas.recorded import Recorded

_NO_ERRORS = frozenset({"BACKGROUND", "OUTCOME"})

_TELLING: frozenset[type] = ENDS | {
    PermissionExpired,
    PermissionGranted,
    PermissionRequested,
    SessionCreated,
    ToolBackgrounded,
    ToolCallRequested,
    ToolExecutionStarted,
    ToolOutcomeUnknown,
    ToolResultProjected,
}
"""Events that tell something of a call."""

NAMING: frozenset[type] = frozenset({PermissionRequested, ToolBackgrounded})
"""Events that give a call one more name."""

_ANSWERING: frozenset[type] = frozenset({AssistantMessage, ModelCallStarted})
"""Events after which the model was shown what stood before them."""


def tells_of(event: AnyEvent) -> str:
    """How an event names the call that it tells of; empty where it tells of none."""
    if type(event) not in _TELLING:
        return ""
    return named_by(event) or event.__dict__.get("request_id") or ""


class Names:
    """Which call an event is about: it names it, its handle or its request."""

    def __init__(self) -> None:
        self._handles: dict[str, tuple[str, int]] = {}
        self._requests: dict[str, str] = {}

    def learn(self, event: AnyEvent) -> str:
        """Take in what gives a call one more name; that name, or nothing."""
        if isinstance(event, ToolBackgrounded):
            self._handles[event.handle] = event.call_id, event.attempt
            return event.handle
        if isinstance(event, PermissionRequested):
            self._requests[event.request_id] = event.call_id or ""
            return event.request_id
        return ""

    def knows(self, request_id: str) -> bool:
        """Whether a request for permission was among what was taken in."""
        return request_id in self._requests

    def about(self, event: AnyEvent) -> tuple[str, int]:
        """The call and its attempt; an empty call where none is known."""
        if isinstance(event, BackgroundEnded):
            return self._handles.get(event.handle, ("", 0))
        # An attribute that a model lacks is looked for at length; this is done often.
        fields = event.__dict__
        call_id: object = fields.get("call_id")
        attempt: object = fields.get("attempt", 1)
        if isinstance(call_id, str) and isinstance(attempt, int):
            return call_id, attempt
        request_id: object = fields.get("request_id")
        if isinstance(request_id, str):
            return self._requests.get(request_id, ""), 1
        return "", 0


class Told(NamedTuple):
    """Calls by their id, in the order of their requests, and what each end event ended.

    `ended` has also calls whose request is not among the events.
    """

    calls: dict[str, Tale]
    ended: dict[str, str]


def tales_of(events: Iterable[Recorded]) -> dict[str, Tale]:
    """Every call that the events request, by call_id, in the order of the requests."""
    return told_by(events).calls


def told_by(events: Iterable[Recorded]) -> Told:
    """The same, and what the events that end calls end."""
    teller = _Teller()
    for recorded in events:
        kind = type(recorded.event)
        if kind in _TELLING:
            teller.take(recorded)
        elif kind in _ANSWERING:
            teller.answer(recorded.event)
    return teller.told


class _Teller:
    """Tells the tales; `fresh` are calls with an end that the model was not shown yet."""

    def __init__(self) -> None:
        self.told = Told({}, {})
        self._names = Names()
        self._fresh: list[Tale] = []

    def answer(self, event: AnyEvent) -> None:
        """The model was asked, or answers: what it was shown is final."""
        match event:
            case AssistantMessage(message_id=message_id):
                self._show(message_id)
            case ModelCallStarted(purpose=purpose) if purpose != COMPACTION:
                self._show("")
            case _:
                pass

    def _show(self, message_id: str) -> None:
        """A message shows that the model saw all ends but those of its own calls."""
        if not self._fresh:
            return
        own = [tale for tale in self._fresh if tale.request.message_id == message_id]
        for tale in self._fresh:
            tale.final = tale.request.message_id != message_id
        self._fresh = own

    def take(self, recorded: Recorded) -> None:
        """Take in one more event that tells of a call."""
        event = recorded.event
        match event:
            case ToolCallRequested():
                self._show(event.message_id)
                tale = Tale(event, recorded.envelope.event_id, recorded.seq)
                self.told.calls.setdefault(event.call_id, tale)
            case SessionCreated():
                for tale in self.told.calls.values():
                    tale.leave(event.parent_session_id or "")
            case _:
                self._tell(recorded)

    def _tell(self, recorded: Recorded) -> None:
        event = recorded.event
        name = self._names.learn(event)
        call_id, attempt = self._names.about(event)
        if type(event) in ENDS and call_id:
            self.told.ended[recorded.envelope.event_id] = call_id
        tale = self.told.calls.get(call_id)
        if tale is None:
            return
        if name:
            tale.names.append(name)
        if isinstance(event, ToolResultProjected):
            _project(tale, recorded, event)
        elif (result := end_of(event)) is not None:
            self._end(tale, recorded, attempt, result)
        elif (standing := standing_of(event)) is not None:
            _stand(tale, standing)

    def _end(self, tale: Tale, recorded: Recorded, attempt: int, result: Result) -> None:
        of = named_by(recorded.event) or tale.request.call_id
        end = End(recorded.seq, attempt, recorded.envelope.event_id, result, of)
        if tale.tell_end(end):
            self._fresh.append(tale)


def _stand(tale: Tale, standing: Result) -> None:
    """What stands in from here on; a grant says nothing of a call that waits for none."""
    if standing.form != GRANTED or tale.standing.form == WAITING:
        tale.standing = standing


def _project(tale: Tale, recorded: Recorded, event: ToolResultProjected) -> None:
    """What was shown first stays shown."""
    if tale.projected is None:
        error = event.form not in _NO_ERRORS
        tale.projected = Result("PROJECTED", shown(event.blocks), error)
        tale.projected_seq = recorded.seq
        tale.projected_id = recorded.envelope.event_id


def is_nameless(event: AnyEvent) -> bool:
    """Whether an event ends a call that only the request for permission names."""
    if not isinstance(event, PermissionDenied) or event.call_id is not None:
        return False
    return event.request_id is not None and end_of(event) is not None
