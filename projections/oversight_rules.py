"""The rules that foldline has: budgets, forbidden tools, repeated denials, loops. Pure.

Each says once what it found: a budget once for each of its limits, a loop once for each
fingerprint, a denial when it is the n-th of the same call since a person spoke.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from foldline.processors.kept import short
from foldline.projections.calls import INTERRUPT_POLICY
from foldline.projections.fleet_circles import Circles, LoopLimits
from foldline.projections.fleet_loops import watch
from foldline.projections.metric_names import MICROS
from foldline.projections.oversight import (
    CANCEL,
    NONE,
    STEER,
    Action,
    Seen,
    Wish,
    steering,
    stopping,
    violation,
)
from foldline.schemas.choices import CancelTarget, Severity, SteeringMode
from foldline.schemas.events import (
    InputProvided,
    LoopDetected,
    PermissionDenied,
    PermissionExpired,
    PermissionGranted,
    PermissionRequested,
    SteeringReceived,
    ToolCallRequested,
    UserMessage,
)
from foldline.schemas.recorded import Recorded
from foldline.schemas.state import SessionState

PERSON = "PERSON"

REMEMBERED_MAX = 1_000
"""How many calls, requests or loops of one session a rule remembers: the latest."""


@dataclass(frozen=True, slots=True)
class Reaction:
    """What is done when a rule is broken, beside saying so.

    `action` is NONE, STEER or CANCEL, `target` what CANCEL stops: SESSION, TURN or CALL.
    `message` is what the agent is told in the place of the rule's own words.
    """

    action: Action = NONE
    target: CancelTarget = "SESSION"
    severity: Severity = "WARNING"
    message: str = ""
    mode: SteeringMode = "INTERRUPT"

    def wishes(self, said: str, *, call_id: str | None = None) -> list[Wish]:
        """The events that say it, and do it."""
        wanted: list[Wish] = [violation(said, severity=self.severity, call_id=call_id)]
        told = self.message or said
        if self.action == STEER:
            wanted.append(steering(told, mode=self.mode))
        if self.action == CANCEL:
            of_call = self.target == "CALL" and call_id is not None
            target = "TURN" if self.target == "CALL" and not of_call else self.target
            stop = stopping(told, target=target, target_id=call_id if of_call else None)
            wanted.append(stop)
        return wanted


@dataclass(frozen=True, slots=True)
class Limits:
    """What a session may use; None means as much as it likes.

    `cost` is in whole units of `currency`, `minutes` the session's, `turn_minutes` those
    of the turn that is open.
    """

    tokens: int | None = None
    output_tokens: int | None = None
    cost: float | None = None
    currency: str = "USD"
    turns: int | None = None
    model_calls: int | None = None
    tool_calls: int | None = None
    minutes: float | None = None
    turn_minutes: float | None = None


@dataclass(frozen=True, slots=True)
class Budget:
    """More was used than may be. It looks when something happens: silence has no time."""

    name: str
    limits: Limits
    reaction: Reaction = Reaction()
    version: int = 1
    content: bool = False
    policy: str = "default"

    def judge(self, seen: Seen, recorded: Recorded) -> Sequence[Wish]:
        """Each limit that is exceeded for the first time; a turn's, in each turn."""
        said = [
            f"{have:,.10g} {what} used, of {most:,.10g}"
            for key, what, have, most in self._used(seen)
            if most is not None and have > most and _first(seen, key)
        ]
        call_id = _call_id(recorded)
        return self.reaction.wishes("; ".join(said), call_id=call_id) if said else ()

    def _used(self, seen: Seen) -> list[tuple[str, str, float, float | None]]:
        spent, limits = seen.spent, self.limits
        cost = spent.costs.get(limits.currency, 0) / MICROS
        minutes = (seen.now_us - seen.began_us) / MICROS / 60
        turn, turn_minutes = self._turn(seen)
        return [
            ("tokens", "tokens", spent.tokens, limits.tokens),
            ("output", "output tokens", spent.output_tokens, limits.output_tokens),
            ("cost", limits.currency, cost, limits.cost),
            ("turns", "turns", spent.turns, limits.turns),
            ("model_calls", "model calls", spent.model_calls, limits.model_calls),
            ("tool_calls", "tool calls", spent.tool_calls, limits.tool_calls),
            ("minutes", "minutes", round(minutes, 1), limits.minutes),
            (turn, "minutes of a turn", round(turn_minutes, 1), limits.turn_minutes),
        ]

    def _turn(self, seen: Seen) -> tuple[str, float]:
        """The open turn's key, and its minutes so far; of none, 0."""
        turn = seen.state.turn
        if turn is None:
            seen.memory.pop("turn", None)
            return "turn", 0.0
        named, began_us = seen.memory.get("turn", ("", 0))
        if named != turn.turn_id:
            began_us = seen.now_us
            seen.memory["turn"] = turn.turn_id, began_us
        return f"turn {turn.turn_id}", (seen.now_us - began_us) / MICROS / 60


@dataclass(frozen=True, slots=True)
class ForbiddenTool:
    """A tool was asked for that a glob forbids, and that no exception allows.

    A glob is compared with the tool's name, and with `namespace/name`. To keep a tool from
    running at all is the harness's work; this sees it afterwards, whatever the harness.
    """

    name: str
    tools: tuple[str, ...]
    exceptions: tuple[str, ...] = ()
    reaction: Reaction = Reaction()
    version: int = 1
    content: bool = False
    policy: str = "default"

    def judge(self, seen: Seen, recorded: Recorded) -> Sequence[Wish]:  # noqa: ARG002
        """A call of such a tool."""
        event = recorded.event
        if not isinstance(event, ToolCallRequested):
            return ()
        names = [event.tool, *([f"{event.namespace}/{event.tool}"] * bool(event.namespace))]
        if not _fits(names, self.tools) or _fits(names, self.exceptions):
            return ()
        said = f"tool {short(event.tool)} is forbidden"
        return self.reaction.wishes(said, call_id=event.call_id)


@dataclass(frozen=True, slots=True)
class RepeatedDenial:
    """The same call was denied `times` times since a person last spoke.

    The same call is one of the same tool with the same arguments; with `any_call` every
    denial counts, whatever was asked for.
    """

    name: str
    times: int = 3
    any_call: bool = False
    reaction: Reaction = Reaction()
    version: int = 1
    content: bool = False
    policy: str = "default"

    def judge(self, seen: Seen, recorded: Recorded) -> Sequence[Wish]:
        """The denial that is one too many."""
        denied: dict[str, int] = seen.memory.setdefault("denied", {})
        match recorded.event:
            case ToolCallRequested() as call:
                key = f"{call.namespace or ''}/{call.tool} {call.args_hash}"
                _remember(seen, "calls", call.call_id, (key, call.tool))
            case PermissionRequested(request_id=request_id, call_id=str(call_id)):
                _remember(seen, "requests", request_id, call_id)
            case PermissionDenied(policy=policy) if policy == INTERRUPT_POLICY:
                pass  # nobody said no: it was interrupted
            case PermissionDenied() as no:
                return self._denied(seen, denied, no)
            case PermissionGranted(decided_by="PERSON"):
                denied.clear()
            case UserMessage() | SteeringReceived() | InputProvided():
                if recorded.envelope.actor.kind == PERSON:
                    denied.clear()
            case _:
                pass
        return ()

    def _denied(
        self, seen: Seen, denied: dict[str, int], event: PermissionDenied
    ) -> Sequence[Wish]:
        requests: dict[str, str] = seen.memory.get("requests", {})
        call_id = event.call_id or requests.get(event.request_id or "", "")
        calls: dict[str, tuple[str, str]] = seen.memory.get("calls", {})
        key, tool = calls.get(call_id, (call_id, ""))
        key = "" if self.any_call else key
        times = denied.get(key, 0) + 1
        _remember(seen, "denied", key, times)
        if times != self.times:
            return ()
        what = "calls were" if self.any_call else f"the same call of {short(tool)} was"
        what = what if tool or self.any_call else "a call was"
        often = "once" if times == 1 else f"{times} times"
        said = f"{what} denied {often} since a person spoke"
        return self.reaction.wishes(said, call_id=call_id or None)


@dataclass(frozen=True, slots=True)
class Loop:
    """The session went round in a circle `times` times, of one of these kinds.

    A detector says so (LoopDetected); with `detect` the rule sees it by itself, over
    histories of which no detector has ever known.
    """

    name: str
    times: int = 3
    kinds: tuple[str, ...] = ("*",)
    detect: bool = False
    reaction: Reaction = Reaction()
    version: int = 1
    policy: str = "default"

    @property
    def content(self) -> bool:
        """Outcomes are compared by what they say."""
        return self.detect

    def judge(self, seen: Seen, recorded: Recorded) -> Sequence[Wish]:
        """A loop of a fingerprint that was not told yet."""
        found = self._detected(seen, recorded) if self.detect else _told_of(recorded)
        for loop in found:
            fits = any(fnmatchcase(loop.kind, kind) for kind in self.kinds)
            if fits and loop.count >= self.times and _first(seen, loop.fingerprint):
                return self.reaction.wishes(_words_of(loop), call_id=loop.call_id)
        return ()

    def _detected(self, seen: Seen, recorded: Recorded) -> Sequence[LoopDetected]:
        """What a detector with these limits says of the event."""
        times = self.times
        limits = LoopLimits(times, times, times, times)
        circles: Circles = seen.memory.setdefault("circles", Circles())
        return watch(circles, _before(seen, recorded), recorded, limits=limits)


def _told_of(recorded: Recorded) -> Sequence[LoopDetected]:
    return [recorded.event] if isinstance(recorded.event, LoopDetected) else ()


def _words_of(loop: LoopDetected) -> str:
    of_tool = f" of {short(loop.tool)}" if loop.tool else ""
    return (
        f"you go round in a circle: {loop.kind}{of_tool}, {loop.count} times, "
        f"seq {loop.from_seq} to {loop.to_seq}. Do something else, or ask"
    )


def _before(seen: Seen, recorded: Recorded) -> SessionState:
    """The state with the requests that the event may have answered still in it."""
    match recorded.event:
        case PermissionRequested(request_id=request_id):
            request = seen.state.requests.get(short(request_id))
            if request is not None:
                _remember(seen, "requests", request.request_id, request)
        case PermissionDenied() | PermissionExpired() | PermissionGranted():
            requests = seen.memory.get("requests", {})
            return replace(seen.state, requests=dict(requests))
        case _:
            pass
    return seen.state


def _first(seen: Seen, key: str) -> bool:
    """Whether this is said for the first time in this session."""
    told: dict[str, bool] = seen.memory.get("told", {})
    if key in told:
        return False
    _remember(seen, "told", key, value=True)
    return True


def _remember(seen: Seen, what: str, key: str, value: object) -> None:
    """Keep something under a key, the latest REMEMBERED_MAX of its kind."""
    kept: dict[str, object] = seen.memory.setdefault(what, {})
    kept.pop(key, None)
    kept[key] = value
    if len(kept) > REMEMBERED_MAX:
        del kept[next(iter(kept))]


def _fits(names: Sequence[str], globs: Sequence[str]) -> bool:
    return any(fnmatchcase(name, glob) for name in names for glob in globs)


def _call_id(recorded: Recorded) -> str | None:
    """The call that an event is about, where it is about one."""
    found = getattr(recorded.event, "call_id", None)
    return found if isinstance(found, str) else None
