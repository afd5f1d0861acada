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

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from foldline.processors.kept import short
from foldline.projections.calls import INTERRUPT_POLICY
from foldline.projections.reopening import READ_EVENT
from foldline.schemas.blocks import Blob, Blocks, Body, Sealed
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

RUNS_MAX = 64
"""How many circles of one kind are watched at once in a session: the latest ones."""

KNOWN_MAX = 256
"""How many outcomes of a session are remembered, to tell what is new: the latest ones."""

SEQS_MAX = 8
"""How many seqs of a circle are kept and said: the latest ones."""

FINGERPRINT_CHARS = 32


@dataclass(frozen=True, slots=True)
class LoopLimits:
    """How often something comes again before it is called a loop."""

    calls: int = 3
    failures: int = 3
    compactions: int = 3
    denials: int = 3
    within_calls: int = 30
    """A call or failure that comes again after more calls than that begins anew."""


class Run(msgspec.Struct, array_like=True):
    """One thing that comes again. `at` is the number of the call when it last came.

    `outcome` is the digest of what came of it last; `said` that it was called a loop.
    """

    count: int = 0
    from_seq: int = 0
    at: int = 0
    tool: str = ""
    outcome: bytes = b""
    said: bool = False
    seqs: tuple[int, ...] = ()


Runs = dict[str, Run]


class Circles(msgspec.Struct, array_like=True):
    """What is watched in a session: bounded, whatever the session does."""

    number: int = 0
    """How many calls were asked for."""
    calls: Runs = msgspec.field(default_factory=dict[str, Run])
    failures: Runs = msgspec.field(default_factory=dict[str, Run])
    denials: Runs = msgspec.field(default_factory=dict[str, Run])
    compactions: Run = msgspec.field(default_factory=Run)
    known: dict[bytes, None] = msgspec.field(default_factory=dict[bytes, None])
    """Outcomes that there were."""


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
            _learn(circles, _digest("background", output))
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
    run = _come(circles.calls, name, circles.number, seq, limits)
    run.tool = event.tool
    if run.count >= limits.calls:
        yield from _say(run, SAME_CALL, name, seq, event.call_id)


def _ended(circles: Circles, call: Call | None, output: Blocks) -> None:
    """An outcome that the call did not have before is no repetition."""
    if call is None:
        return
    _forget_failures(circles, call.tool)
    digest = _digest("completed", output)
    run = circles.calls.get(_of_call(SAME_CALL, call))
    if run is not None:
        if run.outcome and (not digest or digest != run.outcome):
            _restart(run, call.requested_seq)
        run.outcome = digest or b"?"
    if call.tool != READ_EVENT:
        _learn(circles, digest and _hashed(digest, call.tool, call.args_hash))


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
    digest = _digest(how, blocks) or b""
    name = fingerprint(SAME_FAILURE, tool, how, digest.hex())
    run = _come(circles.failures, name, circles.number, seq, limits)
    run.tool = tool
    if run.count >= limits.failures:
        yield from _say(run, SAME_FAILURE, name, seq, call_id)


def _compacted(circles: Circles, seq: int, limits: LoopLimits) -> Iterator[LoopDetected]:
    run = circles.compactions
    _count(run, seq)
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
    run = _come(circles.denials, name, circles.number, seq, limits)
    run.tool = call.tool
    if run.count >= limits.denials:
        yield from _say(run, PERMISSION_PING_PONG, name, seq, call.call_id)


# --- what they are made of -----------------------------------------------------------


def fingerprint(*parts: str) -> str:
    """A name for what goes round, that shows nothing of it."""
    return _hashed(*parts).hex()[:FINGERPRINT_CHARS]


def event_call_id(state: SessionState, event: AnyEvent) -> str:
    """The call that an event is about, by itself or by the request that it answers."""
    call_id = getattr(event, "call_id", None)
    if isinstance(call_id, str) and call_id:
        return call_id
    request_id = getattr(event, "request_id", None)
    request = state.requests.get(short(request_id)) if request_id else None
    return request.call_id if request else ""


def _call(state: SessionState, call_id: str) -> Call | None:
    name = short(call_id)
    return state.calls.get(name) or state.finished.get(name)


def _of_call(kind: str, call: Call) -> str:
    return fingerprint(kind, call.namespace, call.tool, call.args_hash)


def _come(runs: Runs, name: str, number: int, seq: int, limits: LoopLimits) -> Run:
    """It comes, perhaps again; the one that came last stands last."""
    run = runs.pop(name, None)
    if run is None or number - run.at > limits.within_calls:
        run = Run()
    runs[name] = run
    run.at = number
    _count(run, seq)
    return run


def _count(run: Run, seq: int) -> None:
    run.count += 1
    run.from_seq = run.from_seq or seq
    run.seqs = (*run.seqs, seq)[-SEQS_MAX:]


def _restart(run: Run, seq: int) -> None:
    """Something new came of it: this was the first time of what may become a circle."""
    run.count, run.from_seq, run.seqs, run.said = 1, seq, (seq,), False


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


def _digest(how: str, blocks: Blocks) -> bytes | None:
    """What was said, in a few bytes; None if it is sealed: then nobody can compare it."""
    parts: list[str | bytes] = [how]
    for block in blocks:
        body = _comparable(block.body)
        if body is None:
            return None
        parts += [block.kind, body]
    return _hashed(*parts)


def _comparable(body: Body) -> str | bytes | None:
    match body:
        case Sealed():
            return None
        case Blob():
            return None if body.key_id else body.sha256
        case _:
            return body


def _hashed(*parts: str | bytes) -> bytes:
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.digest()[: FINGERPRINT_CHARS // 2]
