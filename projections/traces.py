"""Traces: a session's events as OpenTelemetry spans. Pure.

    traces = Traces(session_id)
    for recorded in events:
        traces.take(recorded)
    traces.closed()  # the spans that are over
    traces.finished(OWNER_LOST)  # all of them ended, for a log that goes no further

One trace per turn: its root is `invoke_agent {agent}`, below it `chat {model}` and
`execute_tool {name}` as siblings, below a call its attempts and permissions. Turns of a
session have `gen_ai.conversation.id` in common. `docs/traces.md` shows it whole.
"""

from collections.abc import Iterable
from dataclasses import replace

from foldline.projections.otel_genai import ERROR_TYPE, GENAI_0_1, Names
from foldline.projections.spans import (
    CALL,
    ERROR,
    EXECUTION,
    MODEL,
    OK,
    TAKEOVER,
    TURN,
    UNSET,
    Link,
    Span,
)
from foldline.projections.trace_asking import AskingEvent, AskingSpans
from foldline.projections.trace_board import (
    LOG_ENDS,
    OWNER_LOST,
    RESUME,
    SESSION_ENDED,
    TURN_ENDED,
    Board,
    Origin,
)
from foldline.projections.trace_calls import CallSpans, ToolEvent
from foldline.projections.trace_models import ModelSpans
from foldline.schemas.envelope import Envelope
from foldline.schemas.events import (
    AnyEvent,
    AssistantMessage,
    CancellationRequested,
    CompactionCompleted,
    CompactionFailed,
    CompactionStarted,
    ContextPruned,
    HandedOff,
    HookRan,
    LoopDetected,
    ModelCallCancelled,
    ModelCallCompleted,
    ModelCallFailed,
    ModelCallStarted,
    PolicyViolation,
    RetryScheduled,
    SessionCancelled,
    SessionCompleted,
    SessionCreated,
    SessionFailed,
    SessionReopened,
    SessionResumed,
    SessionSuspended,
    SteeringApplied,
    SteeringExpired,
    SteeringReceived,
    SubagentEnded,
    SubagentStarted,
    SystemObservation,
    TurnEnded,
    TurnStarted,
    UsageCorrected,
)
from foldline.schemas.recorded import Recorded

_RAN_BY_OWNER = frozenset({EXECUTION, MODEL})
"""What ends with its owner. A call, a request and a turn live on for the next one."""

_TURN_STATUS = {"DONE": OK, "FAILED": ERROR}


class Traces:
    """Takes the events of one session in order, and has its spans."""

    def __init__(
        self,
        session_id: str,
        *,
        names: Names = GENAI_0_1,
        origin: Origin | None = None,
        content: bool = False,
    ) -> None:
        self._board = Board(session_id, names, origin or Origin(), content)
        self._models = ModelSpans(self._board)
        self._calls = CallSpans(self._board)
        self._asking = AskingSpans(self._board, self._calls)

    @property
    def seq(self) -> int:
        """The seq of the last event taken; 0 before the first."""
        return self._board.seq

    def take(self, recorded: Recorded) -> None:
        """Take the next event."""
        envelope, event = recorded.envelope, recorded.event
        board = self._board
        if isinstance(event, SessionCreated):
            board.created(envelope, agent=event.agent, mode=event.mode)
        board.begin_event(recorded)
        if isinstance(event, ToolEvent):
            self._calls.take(envelope, event)
        elif isinstance(event, AskingEvent):
            self._asking.take(envelope, event)
        else:
            self._take_model(envelope, event)
            self._take_session(envelope, event)
            _tell(board, envelope, event)
        board.end_event(recorded)

    def closed(self, *, after_seq: int = 0) -> list[Span]:
        """The spans that are over, without those that nothing changed since a seq."""
        spans = self._board.spans.values()
        changed = [span for span in spans if span.closed and span.seq > after_seq]
        return [self._finished(span, LOG_ENDS) for span in changed]

    def open(self, reason: str) -> list[Span]:
        """The spans that are not over, ended at the last event as in `finished`."""
        return [self._finished(span, reason) for span in self._board.opened.values()]

    def started_us(self, span: Span) -> int:
        """When a span began; of what a mirror has no time for, the first known one."""
        return span.start_us or self._board.known_us

    def finished(self, reason: str = LOG_ENDS) -> list[Span]:
        """All spans, the open ones ended at the last event: the log goes no further.

        Args:
            reason: OWNER_LOST where whoever ran them is known to be dead.
        """
        return [self._finished(span, reason) for span in self._board.spans.values()]

    def _finished(self, span: Span, reason: str) -> Span:
        board = self._board
        start_us = self.started_us(span)
        if span.closed:
            end_us = max(span.end_us or board.known_us, start_us)
            return replace(span, start_us=start_us, end_us=end_us)
        if span.status == OK:  # an answer that a mirror has, and that may go on
            end_us = max(span.end_us, start_us)
            return replace(span, start_us=start_us, end_us=end_us, closed=True)
        lost = reason == OWNER_LOST and self._dies(span)
        reason = reason if lost or reason != OWNER_LOST else LOG_ENDS
        more = {"foldline.closed.reason": reason}
        if lost:
            more[ERROR_TYPE] = OWNER_LOST
        return replace(
            span,
            start_us=start_us,
            end_us=max(board.now_us or board.known_us, start_us),
            closed=True,
            status=ERROR if lost else span.status,
            attributes=span.attributes | more,
        )

    def _dies(self, span: Span) -> bool:
        """Whether it ends with its owner; a call does where an attempt of it runs."""
        if span.what != CALL:
            return span.what in _RAN_BY_OWNER or span.what == TURN
        opened = self._board.opened.values()
        run = {one.parent_id for one in opened if one.what == EXECUTION}
        return span.ref.span_id in run

    def _take_model(self, envelope: Envelope, event: AnyEvent) -> None:
        match event:
            case ModelCallStarted():
                self._models.started(envelope, event)
            case ModelCallCompleted():
                self._models.completed(envelope, event)
            case ModelCallFailed() | ModelCallCancelled():
                self._models.failed(envelope, event)
            case AssistantMessage():
                self._models.said(envelope, event)
            case UsageCorrected():
                self._models.corrected(event)
            case CompactionCompleted():
                self._models.compacted()
            case _:
                pass

    def _take_session(self, envelope: Envelope, event: AnyEvent) -> None:
        match event:
            case TurnStarted(trigger=trigger):
                turn = self._board.start_turn(envelope)
                turn.span.note("turn.trigger", trigger)
            case TurnEnded():
                self._end_turn(envelope, event)
            case SessionCompleted(outcome=outcome):
                self._end_session("COMPLETED", outcome, UNSET)
            case SessionFailed(error_type=error_type):
                self._end_session("FAILED", error_type, ERROR)
            case SessionCancelled(reason=reason):
                self._end_session("CANCELLED", reason, UNSET)
            case SessionResumed(reason=reason) | SessionReopened(reason=reason):
                self._taken_over(envelope, reason)
            case HandedOff(to_agent=to_agent):
                self._board.agent = to_agent
            case _:
                pass

    def _end_turn(self, envelope: Envelope, event: TurnEnded) -> None:
        board = self._board
        turn = board.turns.get(envelope.turn_id or "") or board.turn
        if turn is None:
            return
        board.close_below(turn, TURN_ENDED)
        turn.span.note("turn.outcome", event.outcome)
        board.close(
            turn.span,
            status=_TURN_STATUS.get(event.outcome, UNSET),
            error_type=event.reason or event.outcome,
            reason=event.reason,
        )
        if board.turn is turn:
            board.turn = None

    def _end_session(self, outcome: str, reason: str, status: str) -> None:
        """A session that ends in a turn ends it too."""
        board, turn = self._board, self._board.turn
        if turn is None:
            return
        if turn.implied and status != ERROR:
            board.leave_turn(SESSION_ENDED)
            return
        board.close_below(turn, SESSION_ENDED)
        turn.span.note("session.outcome", outcome)
        board.close(turn.span, status=status, error_type=reason, reason=SESSION_ENDED)
        board.turn = None

    def _taken_over(self, envelope: Envelope, reason: str) -> None:
        """Another owner goes on, and what the former one had under way is over.

        1. What it ran ends at its last sign of life: how it ended nobody knows yet.
        2. A turn that was open goes on. The time in between is a span in it, with links
           to what was cut off.
        3. Between turns, the next turn has a link to the last one.
        """
        board, turn = self._board, self._board.turn
        former_epoch, board.epoch = board.epoch, envelope.epoch
        lost_us = board.owner_seen_us or board.now_us
        lost = board.cut_off(_RAN_BY_OWNER, at_us=lost_us)
        if turn is None:
            if board.last_turn is not None:
                board.next_links.append(Link(board.last_turn, RESUME))
            return
        span = board.open(
            envelope,
            what=TAKEOVER,
            name=f"{TAKEOVER} {board.agent}",
            above=turn.span,
            start_us=min(lost_us, board.now_us),
        )
        span.note("takeover.reason", reason)
        span.note("takeover.from_epoch", former_epoch or None)
        span.note("takeover.cut_off", len(lost))
        span.link(turn.span.ref, RESUME)
        for one in lost:
            span.link(one.ref, RESUME)
        board.close(span)


def _tell(board: Board, envelope: Envelope, event: AnyEvent) -> None:  # noqa: C901
    """What else happens in a turn is an event of its span: structure, never content."""
    match event:
        case SteeringReceived(mode=mode):
            board.tell_turn(envelope, "steering_received", mode=mode)
        case SteeringApplied():
            board.tell_turn(envelope, "steering_applied")
        case SteeringExpired(reason=reason):
            board.tell_turn(envelope, "steering_expired", reason=reason)
        case CancellationRequested(target=target):
            board.tell_turn(envelope, "cancellation_requested", target=target)
        case CompactionStarted(reason=reason):
            board.tell_turn(envelope, "compaction_started", reason=reason)
        case CompactionCompleted() as done:
            board.tell_turn(
                envelope,
                "compaction_completed",
                strategy=done.strategy,
                token_before=done.token_before,
                token_after=done.token_after,
            )
        case CompactionFailed(reason=reason):
            board.tell_turn(envelope, "compaction_failed", reason=reason)
        case ContextPruned(rule=rule):
            board.tell_turn(envelope, "context_pruned", rule=rule)
        case RetryScheduled() as retry:
            board.tell_turn(
                envelope, "retry_scheduled", target=retry.target, attempt=retry.attempt
            )
        case HookRan(hook=hook, decision=decision):
            board.tell_turn(envelope, "hook_ran", hook=hook, decision=decision)
        case SubagentStarted(child_session_id=child):
            board.tell_turn(envelope, "subagent_started", session_id=child)
        case SubagentEnded(child_session_id=child, outcome=outcome):
            board.tell_turn(envelope, "subagent_ended", session_id=child, outcome=outcome)
        case HandedOff() as handed:
            board.tell_turn(
                envelope,
                "handed_off",
                from_agent=handed.from_agent,
                to_agent=handed.to_agent,
            )
        case SessionSuspended(reason=reason):
            board.tell_turn(envelope, "session_suspended", reason=reason)
        case SystemObservation(origin=origin):
            board.tell_turn(envelope, "observation", origin=origin)
        case _:
            _tell_finding(board, envelope, event)


def _tell_finding(board: Board, envelope: Envelope, event: AnyEvent) -> None:
    match event:
        case LoopDetected(kind=kind, count=count, tool=tool):
            board.tell_turn(envelope, "loop_detected", kind=kind, count=count, tool=tool)
        case PolicyViolation():
            board.tell_turn(
                envelope,
                "policy_violation",
                policy=event.policy,
                rule=event.rule,
                severity=event.severity,
                action=event.action,
            )
        case _:
            pass


def traced(
    session_id: str, events: Iterable[Recorded], *, reason: str = LOG_ENDS
) -> list[Span]:
    """The spans of a session's events, all of them ended, by the usual names."""
    traces = Traces(session_id)
    for recorded in events:
        traces.take(recorded)
    return traces.finished(reason)
