"""The spans of tool calls: `execute_tool {name}`, one per call, below its turn. Pure.

Below a call: `execution {name}` for each attempt whose start is recorded, `permission
{name}` and `input` for what a person or a policy was asked. What the model was shown of
a result is an event of the call.
"""

from dataclasses import dataclass, field

from foldline.projections.otel_genai import (
    ERROR_TYPE,
    EXECUTE_TOOL,
    OPERATION,
    TOOL_ARGUMENTS,
    TOOL_CALL_ID,
    TOOL_NAME,
    TOOL_RESULT,
    TOOL_TYPE,
)
from foldline.projections.spans import (
    CALL,
    CONTENT_CHARS_MAX,
    ERROR,
    EXECUTION,
    OK,
    UNSET,
    Span,
    cut,
)
from foldline.projections.trace_board import RETRY, Board
from foldline.schemas.blocks import Blocks, text_of
from foldline.schemas.envelope import Envelope
from foldline.schemas.events import (
    BackgroundEnded,
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
    ToolResultProjected,
)

ToolEvent = (
    ToolCallRequested
    | ToolCallValidated
    | ToolExecutionStarted
    | ToolExecutionCompleted
    | ToolExecutionFailed
    | ToolExecutionCancelled
    | ToolExecutionTimedOut
    | ToolBackgrounded
    | BackgroundEnded
    | ToolOutcomeUnknown
    | ToolOutcomeResolved
    | ToolResultProjected
)

_UNKNOWN = "outcome_unknown"
_STATUS_OF = {"COMPLETED": OK, "FAILED": ERROR, "UNKNOWN": ERROR}


@dataclass(slots=True)
class CallSeen:
    """One call: its span, and those of its attempts."""

    span: Span
    tool: str
    attempt: int = 0
    attempts: dict[int, Span] = field(default_factory=dict[int, Span])


@dataclass(frozen=True, slots=True)
class _End:
    """How an attempt ended."""

    outcome: str
    status: str
    error_type: str = ""
    reason: str = ""
    exit_code: int | None = None
    duration_ms: int | None = None


class CallSpans:
    """Takes the events of tool calls, in order."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._calls: dict[str, CallSeen] = {}
        self._of_span: dict[str, CallSeen] = {}
        self._handles: dict[str, tuple[CallSeen, int]] = {}

    def find(self, call_id: str | None) -> CallSeen | None:
        """The call of an id, if it was requested."""
        return self._calls.get(call_id or "")

    def of_span(self, span_id: str) -> CallSeen | None:
        """The call that a span is of, if it is a call's."""
        return self._of_span.get(span_id)

    def take(self, envelope: Envelope, event: ToolEvent) -> None:
        """Take one event. One of a call that nobody requested is told of its turn."""
        if isinstance(event, ToolCallRequested):
            self._requested(envelope, event)
            return
        if isinstance(event, BackgroundEnded):
            self._background_ended(envelope, event)
            return
        call = self._calls.get(event.call_id)
        if call is None:
            name = type(event).__name__
            self._board.tell_turn(envelope, "orphan", type=name, call_id=event.call_id)
            return
        self._take_known(envelope, call, event)

    # --- the call --------------------------------------------------------------------

    def _requested(self, envelope: Envelope, event: ToolCallRequested) -> None:
        if event.call_id in self._calls:
            return  # a mirror may say it twice
        board = self._board
        span = board.open(
            envelope,
            what=CALL,
            name=f"{EXECUTE_TOOL} {event.tool}",
            above=board.turn_of(envelope).span,
        )
        span.set(OPERATION, EXECUTE_TOOL)
        span.set(TOOL_NAME, event.tool)
        span.set(TOOL_TYPE, "function" if event.kind == "FUNCTION" else "extension")
        span.set(TOOL_CALL_ID, event.call_id)
        span.note("tool.args_hash", event.args_hash)
        span.note("tool.namespace", event.namespace)
        span.note("tool.provider_call_id", event.provider_call_id)
        span.note("tool.continues_handle", event.continues_handle)
        self._content(span, TOOL_ARGUMENTS, event.arguments)
        call = self._calls[event.call_id] = CallSeen(span, event.tool)
        self._of_span[span.ref.span_id] = call

    def _take_known(self, envelope: Envelope, call: CallSeen, event: ToolEvent) -> None:
        match event:
            case ToolExecutionStarted():
                self._started(envelope, call, event)
            case ToolExecutionCompleted():
                self._content(call.span, TOOL_RESULT, event.output)
                end = _End("COMPLETED", OK, "", "", event.exit_code, event.duration_ms)
                self._ended(call, event.attempt, end)
            case ToolExecutionFailed():
                self._content(call.span, TOOL_RESULT, event.blocks)
                call.span.note("tool.layer", event.layer)
                call.span.note("tool.executed", event.executed)
                end = _End("FAILED", ERROR, event.error_type, "", None, event.duration_ms)
                self._ended(call, event.attempt, end)
            case ToolExecutionCancelled():
                self._stopped(call, event, _End("CANCELLED", UNSET, "", event.reason))
            case ToolExecutionTimedOut():
                call.span.note("tool.timed_out_after_ms", event.after_ms)
                self._stopped(call, event, _End("TIMED_OUT", ERROR, "timeout"))
            case ToolOutcomeUnknown():
                self._unknown(call, event)
            case ToolOutcomeResolved():
                self._resolved(call, event)
            case ToolBackgrounded():
                self._backgrounded(call, event)
            case ToolCallValidated(valid=False):
                end = _End("INVALID", ERROR, "invalid_arguments")
                self._ended(call, call.attempt, end)
            case ToolResultProjected():
                self._board.tell(
                    call.span, "observation", form=event.form, tokens=event.tokens
                )
            case _:
                pass

    def _started(
        self, envelope: Envelope, call: CallSeen, event: ToolExecutionStarted
    ) -> None:
        if call.span.closed:
            self._board.reopen(call.span)
        span = self._board.open(
            envelope, what=EXECUTION, name=f"{EXECUTION} {call.tool}", above=call.span
        )
        former = call.attempts.get(max(call.attempts, default=0))
        span.link(former and former.ref, RETRY)
        span.set(TOOL_CALL_ID, event.call_id)
        span.set(TOOL_NAME, call.tool)
        span.note("execution.attempt", event.attempt)
        span.note("execution.operation_id", event.operation_id)
        for one in (span, call.span):
            one.note("tool.effect", event.effect)
        call.attempt = max(call.attempt, event.attempt)
        call.attempts[event.attempt] = span

    def _ended(self, call: CallSeen, attempt: int, end: _End) -> None:
        """An attempt's end; that of the last attempt is the call's."""
        spans = [call.attempts[attempt]] if attempt in call.attempts else []
        if attempt >= call.attempt:
            spans.append(call.span)
        for span in spans:
            span.note("outcome", end.outcome)
            span.note("execution.exit_code", end.exit_code)
            span.note("execution.duration_ms", end.duration_ms)
            self._board.close(
                span, status=end.status, error_type=end.error_type, reason=end.reason
            )

    def _stopped(
        self,
        call: CallSeen,
        event: ToolExecutionCancelled | ToolExecutionTimedOut,
        end: _End,
    ) -> None:
        """Nobody waits any longer; a late end, if one comes, is the span's."""
        self._content(call.span, TOOL_RESULT, event.blocks)
        call.span.note("tool.stop_confirmed", event.stop_confirmed)
        self._ended(call, event.attempt, end)

    def _unknown(self, call: CallSeen, event: ToolOutcomeUnknown) -> None:
        """The attempt is over as far as anybody knows; the call waits for an answer."""
        self._board.tell(call.span, "outcome_unknown", reason=event.reason)
        call.span.note("outcome", "UNKNOWN")
        call.span.status = ERROR
        call.span.set(ERROR_TYPE, _UNKNOWN)
        span = call.attempts.get(event.attempt)
        if span is not None and not span.closed:
            span.note("outcome", "UNKNOWN")
            self._board.close(span, status=ERROR, error_type=_UNKNOWN, reason=event.reason)

    def _resolved(self, call: CallSeen, event: ToolOutcomeResolved) -> None:
        """Somebody found out how an attempt ended: that ends the call, not the attempt."""
        self._content(call.span, TOOL_RESULT, event.output)
        call.span.note("outcome.resolver", event.resolver)
        call.span.note("outcome", event.outcome)
        span = call.attempts.get(event.attempt)
        if span is not None:
            span.note("outcome", event.outcome)
            self._board.touch(span)
        self._board.close(
            call.span,
            status=_STATUS_OF.get(event.outcome, UNSET),
            error_type="resolved_as_failed",
        )

    # --- the background --------------------------------------------------------------

    def _backgrounded(self, call: CallSeen, event: ToolBackgrounded) -> None:
        self._handles[event.handle] = call, event.attempt
        self._board.tell(call.span, "backgrounded", handle=event.handle)
        for span in (call.span, call.attempts.get(event.attempt)):
            if span is not None:
                span.background = True
                span.note("tool.background", value=True)

    def _background_ended(self, envelope: Envelope, event: BackgroundEnded) -> None:
        found = self._handles.pop(event.handle, None)
        if found is None:
            self._board.tell_turn(envelope, "orphan", type="BackgroundEnded")
            return
        call, attempt = found
        self._content(call.span, TOOL_RESULT, event.output)
        error_type = "failed" if event.outcome == "FAILED" else _UNKNOWN
        status = _STATUS_OF.get(event.outcome, UNSET)
        self._ended(call, attempt, _End(event.outcome, status, error_type))

    def _content(self, span: Span, name: str, blocks: Blocks) -> None:
        """What was said, where content is asked for."""
        if self._board.content and blocks:
            span.attributes[name] = cut(text_of(blocks), CONTENT_CHARS_MAX)
