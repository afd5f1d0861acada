"""The spans of what somebody was asked: `permission {tool}` and `input`. Pure.

A span is as long as the wait. What a policy or an earlier grant decided at once has a
span without length, so that each decision about a call is found in one place.
"""

from foldline.projections.spans import INPUT, OK, PERMISSION, Span
from foldline.projections.trace_board import Board
from foldline.projections.trace_calls import CallSeen, CallSpans
from foldline.schemas.envelope import Envelope
from foldline.schemas.events import (
    InputProvided,
    InputRequested,
    PermissionDenied,
    PermissionExpired,
    PermissionGranted,
    PermissionRequested,
)

AskingEvent = (
    PermissionRequested
    | PermissionGranted
    | PermissionDenied
    | PermissionExpired
    | InputRequested
    | InputProvided
)


class AskingSpans:
    """Takes requests for permission and input, and their answers, in order."""

    def __init__(self, board: Board, calls: CallSpans) -> None:
        self._board = board
        self._calls = calls
        self._open: dict[str, Span] = {}

    def take(self, envelope: Envelope, event: AskingEvent) -> None:
        """Take one event."""
        match event:
            case PermissionRequested():
                self._asked(envelope, event, PERMISSION).note("permission.kind", event.kind)
            case InputRequested():
                self._asked(envelope, event, INPUT)
            case PermissionGranted():
                span = self._answered(envelope, event, "GRANTED")
                span.note("permission.scope", event.scope)
            case PermissionDenied():
                self._denied(envelope, event)
            case PermissionExpired():
                self._over(self._open.pop(event.request_id, None), "EXPIRED")
            case InputProvided():
                self._over(self._open.pop(event.request_id, None), "PROVIDED")

    def _asked(
        self, envelope: Envelope, event: PermissionRequested | InputRequested, what: str
    ) -> Span:
        span = self._begun(envelope, self._calls.find(event.call_id), what)
        span.note("request.id", event.request_id)
        self._open[event.request_id] = span
        return span

    def _begun(self, envelope: Envelope, call: CallSeen | None, what: str) -> Span:
        above = call.span if call else self._board.turn_of(envelope).span
        tool = call.tool if call else ""
        return self._board.open(envelope, what=what, name=f"{what} {tool}", above=above)

    def _answered(
        self,
        envelope: Envelope,
        event: PermissionGranted | PermissionDenied,
        decision: str,
    ) -> Span:
        call = self._calls.find(event.call_id)
        span = self._open.pop(event.request_id or "", None)
        if span is None:  # decided without a request, or a mirror lacks it
            span = self._begun(envelope, call, PERMISSION)
        span.note("permission.decided_by", event.decided_by)
        span.note("permission.policy", event.policy)
        self._over(span, decision)
        return span

    def _denied(self, envelope: Envelope, event: PermissionDenied) -> None:
        """A call that was denied for good is over; that is no error of the tool."""
        span = self._answered(envelope, event, "DENIED")
        call = self._calls.find(event.call_id) or self._calls.of_span(span.parent_id)
        if call is None or event.may_request_again or call.span.closed:
            return
        call.span.note("outcome", "DENIED")
        self._board.close(call.span)

    def _over(self, span: Span | None, decision: str) -> None:
        if span is None:
            return
        span.note("permission.decision", decision)
        self._board.close(span, status=OK)
