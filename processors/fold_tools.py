"""The fold of tool calls and permissions: what runs, what is certain, what is unknown.

A call is open until its end is confirmed. A time-out or a cancellation without
`stop_confirmed` confirms nothing: the tool may still be running, and its late outcome
attaches to the call. An outcome of an earlier attempt is a fact about that attempt; it
does not end a later one. Pure.
"""

from typing import assert_never

from foldline.processors.kept import attempt_bit, log_time_after
from foldline.processors.listing import put, remember, running_under
from foldline.schemas.envelope import Envelope
from foldline.schemas.events import (
    BackgroundEnded,
    InputProvided,
    InputRequested,
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
from foldline.schemas.state import (
    CALL_BACKGROUND,
    CALL_CANCELLED,
    CALL_CANCELLING,
    CALL_COMPLETED,
    CALL_DENIED,
    CALL_EXPIRED,
    CALL_FAILED,
    CALL_GRANTED,
    CALL_INVALID,
    CALL_NOT_EXECUTED,
    CALL_RUNNING,
    CALL_TIMED_OUT,
    CALL_UNKNOWN,
    CALL_WAITING,
    MIRRORED,
    NOT_BEGUN,
    Attempt,
    Call,
    Grant,
    Handle,
    PendingRequest,
    SessionState,
    copied_call,
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
)
PermissionEvent = (
    PermissionRequested
    | PermissionGranted
    | PermissionDenied
    | PermissionExpired
    | InputRequested
    | InputProvided
)
_STATUS_OF_OUTCOME = {
    "COMPLETED": CALL_COMPLETED,
    "FAILED": CALL_FAILED,
    "CANCELLED": CALL_CANCELLED,
}


def fold_tool(state: SessionState, envelope: Envelope, event: ToolEvent) -> None:
    """Fold one event of a tool call in."""
    match event:
        case ToolCallRequested():
            _requested(state, envelope, event)
        case ToolExecutionStarted():
            _started(state, envelope, event)
        case ToolExecutionCompleted():
            _ended(state, envelope, event.call_id, event.attempt, CALL_COMPLETED, "YES")
        case ToolExecutionFailed():
            _ended(
                state,
                envelope,
                event.call_id,
                event.attempt,
                CALL_FAILED,
                event.executed,
            )
        case ToolExecutionCancelled():
            _stopped(state, envelope, event, CALL_CANCELLED, CALL_CANCELLING)
        case ToolExecutionTimedOut():
            _stopped(state, envelope, event, CALL_TIMED_OUT, CALL_TIMED_OUT)
        case ToolBackgrounded():
            _backgrounded(state, envelope, event)
        case BackgroundEnded():
            _background_ended(state, envelope, event)
        case ToolOutcomeUnknown():
            if (call := _current(state, event.call_id, event.attempt)) is not None:
                call.status = CALL_UNKNOWN
                call.executed = "UNKNOWN"
        case ToolOutcomeResolved():
            _resolved(state, envelope, event)
        case ToolCallValidated():
            call = state.calls.get(event.call_id)
            if call is not None and not event.valid:
                _close(state, envelope, call, CALL_INVALID, "NO")
        case _:
            assert_never(event)


def _requested(state: SessionState, envelope: Envelope, event: ToolCallRequested) -> None:
    turn_id = state.turn.turn_id if state.turn else envelope.turn_id or ""
    call = Call(
        event.call_id,
        event.tool,
        event.args_hash,
        event.provider_call_id,
        turn_id,
        envelope.seq,
        envelope.event_id,
        namespace=event.namespace or "",
    )
    put(state, "open_calls", state.calls, event.call_id, call)


def _started(state: SessionState, envelope: Envelope, event: ToolExecutionStarted) -> None:
    call = state.calls.get(event.call_id)
    if call is None:
        finished = state.finished.pop(event.call_id, None)
        if finished is None:
            return
        # A retry opens a failed call again.
        call = state.calls[event.call_id] = copied_call(finished)
    ended = call.confirmed & attempt_bit(call.attempt)
    if call.attempt and not ended and state.mode != MIRRORED:
        former = Attempt(call.attempt, call.epoch, call.writer)
        call.earlier = {**call.earlier, former.attempt: former}
    call.status = CALL_RUNNING
    call.attempt = event.attempt
    call.effect = event.effect
    call.operation_id = event.operation_id
    call.cancellable = event.cancellable
    call.started_seq = envelope.seq
    call.start_by_at = log_time_after(envelope, event.start_by_ms)
    call.deadline_at = log_time_after(envelope, event.deadline_ms)
    call.epoch = envelope.epoch
    call.writer = envelope.writer
    call.executed = "UNKNOWN"
    call.resolved = False
    call.closed_seq = 0
    call.handle = ""
    state.retries.pop(event.call_id, None)


def _current(state: SessionState, call_id: str, attempt: int) -> Call | None:
    """The open call, if this is about its current attempt.

    A later attempt than the last one known is current too: a mirror may lack its start.
    """
    call = state.calls.get(call_id)
    return call if call is not None and call.attempt <= attempt else None


def _ended(
    state: SessionState,
    envelope: Envelope,
    call_id: str,
    attempt: int,
    status: str,
    executed: str,
) -> None:
    """A confirmed end of an attempt: of the current one it closes the call."""
    call = _current(state, call_id, attempt)
    if call is not None:
        call.attempt = attempt
        call.confirmed |= attempt_bit(attempt)
        call.resolved = False
        _close(state, envelope, call, status, executed)
        return
    call = state.calls.get(call_id)
    if call is None and (finished := state.finished.get(call_id)) is not None:
        call = state.finished[call_id] = copied_call(finished)
    if call is not None:
        _ended_late(call, attempt, status, executed)


def _ended_late(call: Call, attempt: int, status: str, executed: str) -> None:
    """The end of a former attempt, or the real one of what somebody had found out."""
    if call.confirmed & attempt_bit(attempt):
        return  # a mirror may say it twice
    call.confirmed |= attempt_bit(attempt)
    if call.attempt == attempt:
        if call.resolved:
            call.status, call.executed = status, executed
            call.resolved = False
        return
    call.earlier = {
        number: former for number, former in call.earlier.items() if number != attempt
    }
    if executed != "NO":
        call.happened = True


def _close(
    state: SessionState, envelope: Envelope, call: Call, status: str, executed: str
) -> None:
    call.status = status
    call.executed = executed
    for handle in [h for h in state.handles.values() if h.call_id == call.call_id]:
        del state.handles[handle.handle]
    _answer_all(state, call)
    if state.cancellation is not None and state.cancellation.target_id == call.call_id:
        state.cancellation = None
    remember(state, call, envelope.seq)


def _answer_all(state: SessionState, call: Call) -> None:
    """Nothing is asked any more about a call whose end is known."""
    for request in [r for r in state.requests.values() if r.call_id == call.call_id]:
        del state.requests[request.request_id]


def _stopped(
    state: SessionState,
    envelope: Envelope,
    event: ToolExecutionCancelled | ToolExecutionTimedOut,
    confirmed: str,
    unconfirmed: str,
) -> None:
    if event.stop_confirmed:
        _ended(state, envelope, event.call_id, event.attempt, confirmed, "UNKNOWN")
    elif (call := _current(state, event.call_id, event.attempt)) is not None:
        call.status = unconfirmed
        call.executed = "UNKNOWN"


def _backgrounded(state: SessionState, envelope: Envelope, event: ToolBackgrounded) -> None:
    handle = Handle(
        event.handle,
        event.call_id,
        event.attempt,
        envelope.seq,
        envelope.epoch,
        envelope.writer,
    )
    put(state, "handles", state.handles, event.handle, handle)
    if (call := _current(state, event.call_id, event.attempt)) is not None:
        call.status = CALL_BACKGROUND
        call.handle = event.handle


def _background_ended(
    state: SessionState, envelope: Envelope, event: BackgroundEnded
) -> None:
    handle = running_under(state, event.handle)
    if handle is None:
        return
    state.handles.pop(event.handle, None)
    status = _STATUS_OF_OUTCOME.get(event.outcome)
    if status is not None:
        executed = "YES" if status == CALL_COMPLETED else "UNKNOWN"
        _ended(state, envelope, handle.call_id, handle.attempt, status, executed)
    elif (call := _current(state, handle.call_id, handle.attempt)) is not None:
        call.status = CALL_UNKNOWN


def _resolved(state: SessionState, envelope: Envelope, event: ToolOutcomeResolved) -> None:
    call = _current(state, event.call_id, event.attempt)
    if call is None:
        return
    call.resolved = True
    if event.outcome == "NOT_EXECUTED":
        call.status = CALL_NOT_EXECUTED
        call.executed = "NO"
        _answer_all(state, call)
    elif event.outcome == "COMPLETED":
        _close(state, envelope, call, CALL_COMPLETED, "YES")
    else:
        _close(state, envelope, call, CALL_FAILED, "UNKNOWN")


def fold_permission(
    state: SessionState, envelope: Envelope, event: PermissionEvent
) -> None:
    """Fold one event of a permission or of a question to a person in."""
    match event:
        case PermissionRequested() | InputRequested():
            _asked(state, envelope, event)
        case PermissionGranted():
            _granted(state, envelope, event)
        case PermissionDenied():
            _denied(state, envelope, event)
        case PermissionExpired():
            request = state.requests.pop(event.request_id, None)
            if request is not None and (call := _held(state, request.call_id)):
                call.status = CALL_EXPIRED
                call.expiries += 1
        case InputProvided():
            state.requests.pop(event.request_id, None)
        case _:
            assert_never(event)


def _held(state: SessionState, call_id: str | None) -> Call | None:
    """The call that a permission is about, as long as its effect has not begun."""
    call = state.calls.get(call_id or "")
    return call if call is not None and call.status in NOT_BEGUN else None


def _asked(
    state: SessionState, envelope: Envelope, event: PermissionRequested | InputRequested
) -> None:
    permission = isinstance(event, PermissionRequested)
    request = PendingRequest(
        event.request_id,
        event.kind if permission else "INPUT",
        event.call_id or "",
        (event.args_hash or "") if permission else "",
        state.turn.turn_id if state.turn else "",
        envelope.seq,
        log_time_after(envelope, event.expires_ms),
    )
    put(state, "requests", state.requests, event.request_id, request)
    if permission and (call := _held(state, request.call_id)) is not None:
        call.status = CALL_WAITING


def _granted(state: SessionState, envelope: Envelope, event: PermissionGranted) -> None:
    request = state.requests.pop(event.request_id or "", None)
    call = _held(state, event.call_id or (request.call_id if request else None))
    if call is not None:
        call.status = CALL_GRANTED
        call.granted_seq = envelope.seq
        call.granted_args_hash = event.edited_args_hash or call.args_hash
    if event.scope != "CALL":
        grant = Grant(
            event.grant_id,
            call.tool if call else "",
            event.scope,
            state.turn.turn_id if state.turn else "",
            envelope.seq,
            call.namespace if call else "",
        )
        put(state, "grants", state.grants, event.grant_id, grant)


def _denied(state: SessionState, envelope: Envelope, event: PermissionDenied) -> None:
    request = state.requests.pop(event.request_id or "", None)
    call = _held(state, event.call_id or (request.call_id if request else None))
    if call is None:
        return
    call.denials += 1
    if event.may_request_again:
        call.status = CALL_DENIED
    else:
        _close(state, envelope, call, CALL_DENIED, "NO")
