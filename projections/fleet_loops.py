"""Whether a session goes round in a circle: what is kept of it, and when it is said. Pure.

| kind | what went round, `n` times |
| --- | --- |
| SAME_CALL | a call of the same tool and arguments, with nothing new in its outcome |
| SAME_FAILURE | the same failure of one tool, or of the model, whatever was tried |
| NO_PROGRESS | completed compactions, without progress between them |
| PERMISSION_PING_PONG | the same call asked for, and denied or not answered |

What a person says begins every count anew, and so does a call that comes again only after
`within_calls` others. A circle is said once; it is a new one when it was broken between.
The same failing call is a failure, the same denied call a denial: each circle has one kind.
"""

from collections.abc import Iterator

from foldline.processors.kept import short
from foldline.projections.calls import INTERRUPT_POLICY
from foldline.projections.fleet_circles import (
    KNOWN_MAX,
    RUNS_MAX,
    Circles,
    LoopLimits,
    Run,
    come,
    count_again,
    digest_of,
    fingerprint,
    hashed,
    restart,
)
from foldline.projections.metrics_tracked import listed
from foldline.projections.reopening import READ_EVENT
from foldline.schemas.blocks import Blocks
from foldline.schemas.events import (
    AnyEvent,
    BackgroundEnded,
    CompactionCompleted,
    ContextCleared,
    GoalSet,
    HistoryRewound,
    InputProvided,
    LoopDetected,
    ModelCallCompleted,
    ModelCallFailed,
    PermissionDenied,
    PermissionExpired,
    PermissionGranted,
    SteeringReceived,
    SubagentEnded,
    ToolCallRequested,
    ToolExecutionCompleted,
    ToolExecutionFailed,
    ToolExecutionTimedOut,
    ToolOutcomeResolved,
    UserMessage,
)
from foldline.schemas.recorded import Recorded
from foldline.schemas.state import Call, SessionState

SAME_CALL = "SAME_CALL"
SAME_FAILURE = "SAME_FAILURE"
NO_PROGRESS = "NO_PROGRESS"
PERMISSION_PING_PONG = "PERMISSION_PING_PONG"
LOOP_KINDS = (SAME_CALL, SAME_FAILURE, NO_PROGRESS, PERMISSION_PING_PONG)

DETECTOR = "foldline.fleet"
DETECTOR_VERSION = 1
"""Goes up with every change of what is said to be a loop."""

PERSON = "PERSON"


def watch(
    circles: Circles, state: SessionState, recorded: Recorded, *, limits: LoopLimits
) -> list[LoopDetected]:
    """Take one event in; the loops that it closes.

    Args:
        circles: what was watched before; changed.
        state: the session's, before the event is folded in.
        recorded: the whole event, with its content.
        limits: how often is too often.
    """
    if _begins_anew(recorded):
        _begin_anew(circles)
    found = [*_watched(circles, state, recorded, limits)]
    for runs in (circles.calls, circles.failures, circles.denials):
        while len(runs) > RUNS_MAX:
            del runs[next(iter(runs))]
    while len(circles.known) > KNOWN_MAX:
        del circles.known[next(iter(circles.known))]
    return found


def _begins_anew(recorded: Recorded) -> bool:
    match recorded.event:
        case UserMessage() | SteeringReceived() | InputProvided() | GoalSet():
            return recorded.envelope.actor.kind == PERSON
        case HistoryRewound() | ContextCleared():
            return True
        case _:
            return False


def _begin_anew(circles: Circles) -> None:
    circles.calls.clear()
    circles.failures.clear()
    circles.denials.clear()
    circles.compactions = Run()


def _watched(
    circles: Circles, state: SessionState, recorded: Recorded, limits: LoopLimits
) -> Iterator[LoopDetected]:
    event, seq = recorded.event, recorded.seq
    match event:
        case ToolCallRequested():
            yield from _asked(circles, event, seq, limits)
        case ToolExecutionCompleted(call_id=call_id, output=output):
            call = _call(state, call_id)
            if event.exit_code:
                text = (f"exit {event.exit_code}", output)
                yield from _failed(circles, call, call_id, text, seq, limits)
            else:
                _ended(circles, call, output)
        case ToolOutcomeResolved(call_id=call_id, outcome="COMPLETED", output=output):
            _ended(circles, _call(state, call_id), output)
        case BackgroundEnded(output=output):
            _learn(circles, digest_of("background", output))
        case SubagentEnded():
            circles.compactions = Run()
        case ToolExecutionFailed(call_id=call_id):
            text = (f"{event.layer} {event.error_type}", event.blocks)
            yield from _failed(circles, _call(state, call_id), call_id, text, seq, limits)
        case ToolExecutionTimedOut(call_id=call_id):
            text = ("timed out", ())
            yield from _failed(circles, _call(state, call_id), call_id, text, seq, limits)
        case ModelCallFailed():
            text = (event.error_type, event.blocks)
            yield from _failed(circles, None, None, text, seq, limits)
        case ModelCallCompleted():
            _forget_failures(circles, "")
        case CompactionCompleted():
            yield from _compacted(circles, seq, limits)
        case PermissionDenied() | PermissionExpired() | PermissionGranted():
            yield from _answered(circles, state, event, seq, limits)
        case _:
            pass


# --- the kinds -----------------------------------------------------------------------


def _asked(
    circles: Circles, event: ToolCallRequested, seq: int, limits: LoopLimits
) -> Iterator[LoopDetected]:
    circles.number += 1
    if not event.args_hash or event.tool == READ_EVENT:
        return
    name = fingerprint(SAME_CALL, event.namespace or "", event.tool, event.args_hash)
    run = come(circles.calls, name, circles.number, seq, limits)
    run.tool = event.tool
    if run.count >= limits.calls:
        yield from _say(run, SAME_CALL, name, seq, event.call_id)


def _ended(circles: Circles, call: Call | None, output: Blocks) -> None:
    """An outcome that the call did not have before is no repetition."""
    if call is None:
        return
    _forget_failures(circles, call.tool)
    digest = digest_of("completed", output)
    run = circles.calls.get(_of_call(SAME_CALL, call))
    if run is not None:
        if run.outcome and (not digest or digest != run.outcome):
            restart(run, call.requested_seq)
        run.outcome = digest or b"?"
    if call.tool != READ_EVENT:
        _learn(circles, digest and hashed(digest, call.tool, call.args_hash))


def _failed(
    circles: Circles,
    call: Call | None,
    call_id: str | None,
    text: tuple[str, Blocks],
    seq: int,
    limits: LoopLimits,
) -> Iterator[LoopDetected]:
    """A failure; what was said of it may be sealed, then its type has to do."""
    tool = call.tool if call else ""
    if call is not None:
        circles.calls.pop(_of_call(SAME_CALL, call), None)
    elif call_id is not None:
        return  # of a call that nobody remembers
    how, blocks = text
    digest = digest_of(how, blocks) or b""
    name = fingerprint(SAME_FAILURE, tool, how, digest.hex())
    run = come(circles.failures, name, circles.number, seq, limits)
    run.tool = tool
    if run.count >= limits.failures:
        yield from _say(run, SAME_FAILURE, name, seq, call_id)


def _compacted(circles: Circles, seq: int, limits: LoopLimits) -> Iterator[LoopDetected]:
    run = circles.compactions
    count_again(run, seq)
    if run.count >= limits.compactions:
        yield from _say(run, NO_PROGRESS, fingerprint(NO_PROGRESS), seq, None)


def _answered(
    circles: Circles,
    state: SessionState,
    event: PermissionDenied | PermissionExpired | PermissionGranted,
    seq: int,
    limits: LoopLimits,
) -> Iterator[LoopDetected]:
    call = _call(state, event_call_id(state, event))
    if call is None:
        return
    name = _of_call(PERMISSION_PING_PONG, call)
    if isinstance(event, PermissionGranted):
        circles.denials.pop(name, None)
        return
    if isinstance(event, PermissionDenied) and event.policy == INTERRUPT_POLICY:
        return  # nobody said no: it was interrupted
    circles.calls.pop(_of_call(SAME_CALL, call), None)
    run = come(circles.denials, name, circles.number, seq, limits)
    run.tool = call.tool
    if run.count >= limits.denials:
        yield from _say(run, PERMISSION_PING_PONG, name, seq, call.call_id)


# --- what they are made of -----------------------------------------------------------


def event_call_id(state: SessionState, event: AnyEvent) -> str:
    """The call that an event is about, by itself or by the request that it answers."""
    call_id = getattr(event, "call_id", None)
    if isinstance(call_id, str) and call_id:
        return call_id
    request_id = getattr(event, "request_id", None)
    request = state.requests.get(short(request_id)) if request_id else None
    return request.call_id if request else ""


def _call(state: SessionState, call_id: str) -> Call | None:
    return listed(state, short(call_id))


def _of_call(kind: str, call: Call) -> str:
    return fingerprint(kind, call.namespace, call.tool, call.args_hash)


def _forget_failures(circles: Circles, tool: str) -> None:
    """A tool that works has no failure that comes again; the model is the tool ''."""
    gone = [name for name, run in circles.failures.items() if run.tool == tool]
    for name in gone:
        del circles.failures[name]


def _learn(circles: Circles, digest: bytes | None) -> None:
    """Progress is an outcome that there was not yet."""
    if digest is None:
        return
    if digest not in circles.known:
        circles.compactions = Run()
    circles.known.pop(digest, None)
    circles.known[digest] = None


def _say(
    run: Run, kind: str, name: str, seq: int, call_id: str | None
) -> Iterator[LoopDetected]:
    if run.said:
        return
    run.said = True
    yield LoopDetected(
        kind=kind,
        fingerprint=name,
        count=run.count,
        from_seq=run.from_seq,
        to_seq=seq,
        detector=DETECTOR,
        detector_version=DETECTOR_VERSION,
        call_id=call_id,
        tool=run.tool or None,
        seqs=run.seqs,
    )
