"""One event of a session: what it adds to the windows, and which loops it closes. Pure.

    watched = Watched.begin(session_id)
    for recorded in events: step = take(watched, recorded, limits=limits)

An event whose seq is known adds nothing: whoever reads it again counts it once. What is
counted is what `foldline.projections.metrics` counts, so that windows and metrics agree.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from foldline.processors.fold import initial
from foldline.processors.kept import short
from foldline.projections.fleet_circles import Circles, LoopLimits
from foldline.projections.fleet_loops import event_call_id, watch
from foldline.projections.fleet_windows import AGENT, MODEL, TOOL, Increment
from foldline.projections.metric_names import name_or_other
from foldline.projections.metrics import count
from foldline.projections.metrics_tracked import Sample, Tracked, tool_of
from foldline.schemas.events import AnyEvent, LoopDetected
from foldline.schemas.recorded import Recorded
from foldline.settings import Settings


@dataclass(slots=True)
class Watched:
    """A session as the fleet knows it.

    `offset` is where its last event stands in its partition. `holed` says that events
    before that were never read: its state is not the session's.
    """

    tracked: Tracked
    circles: Circles = field(default_factory=Circles)
    offset: int = -1
    holed: bool = False

    @classmethod
    def begin(cls, session_id: str) -> "Watched":
        """One of which nothing is known."""
        return cls(Tracked(initial(session_id)))

    @property
    def seq(self) -> int:
        """The seq of the last event taken in; 0 before the first."""
        return self.tracked.state.seq

    def go_on_behind_hole(self) -> None:
        """Events are missing here: whether they broke a circle nobody can say."""
        self.circles = Circles()
        self.holed = True


@dataclass(frozen=True, slots=True)
class Step:
    """What an event did. `at_us` is when it happened."""

    at_us: int = 0
    increments: tuple[Increment, ...] = ()
    loops: tuple[LoopDetected, ...] = ()
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class _Before:
    """What was so before the event was folded in."""

    tool: str
    waiting: dict[str, tuple[int, str]]
    """Each request without an answer, with its time and its tool."""


def limits_of(settings: Settings) -> LoopLimits:
    """What an operator calls a loop."""
    return LoopLimits(
        calls=settings.fleet_loop_calls,
        failures=settings.fleet_loop_failures,
        compactions=settings.fleet_loop_compactions,
        denials=settings.fleet_loop_denials,
        within_calls=settings.fleet_loop_within_calls,
    )


def take(watched: Watched, recorded: Recorded, *, limits: LoopLimits) -> Step:
    """Take the next event of a session in; `watched` changes."""
    tracked = watched.tracked
    if recorded.seq <= watched.seq:
        return Step(repeated=True)
    before = _before_of(tracked, recorded.event)
    loops = tuple(watch(watched.circles, tracked.state, recorded, limits=limits))
    samples = tuple(count(tracked, recorded))
    increments = _increments(tracked, before, recorded.event, samples, loops)
    return Step(tracked.now, tuple(increments), loops)


def _before_of(tracked: Tracked, event: AnyEvent) -> _Before:
    state = tracked.state
    waiting = {
        name: (tracked.since.get(f"request:{name}", 0), tool_of(state, request.call_id))
        for name, request in state.requests.items()
    }
    return _Before(tool_of(state, short(event_call_id(state, event))), waiting)


def _increments(
    tracked: Tracked,
    before: _Before,
    event: AnyEvent,
    samples: tuple[Sample, ...],
    loops: tuple[LoopDetected, ...],
) -> Iterator[Increment]:
    agent = name_or_other(tracked.state.agent)
    tool = name_or_other(before.tool)
    for sample in samples:
        yield from _of_sample(sample, agent, tool, event)
    for name, (since, of_tool) in before.waiting.items():
        if since and f"request:{name}" not in tracked.since:
            waited = max(tracked.now - since, 0)
            yield Increment(AGENT, agent, "approvals", waited)
            if of_tool:
                yield Increment(TOOL, name_or_other(of_tool), "approvals", waited)
    for loop in loops:
        yield Increment(AGENT, agent, "loops")
        if loop.tool:
            yield Increment(TOOL, name_or_other(loop.tool), "loops")


def _of_sample(
    sample: Sample, agent: str, tool: str, event: AnyEvent
) -> Iterator[Increment]:
    """What a sample of the metrics is in the windows."""
    label = name_or_other(sample.labels[0]) if sample.labels else ""
    match sample.name:
        case "tool_executions":
            yield Increment(TOOL, label, "calls")
        case "tool_errors":
            yield Increment(TOOL, label, "errors")
        case "tool_duration_seconds":
            yield Increment(TOOL, label, "durations", sample.value)
        case "model_calls":
            yield Increment(MODEL, label, "calls")
            if sample.labels[1] == "FAILED":
                yield Increment(MODEL, label, "errors")
        case "model_call_duration_seconds":
            yield Increment(MODEL, label, "durations", sample.value)
        case "turns":
            yield Increment(AGENT, agent, "calls")
            if label != "DONE":
                yield Increment(AGENT, agent, "errors")
        case "turn_duration_seconds":
            yield Increment(AGENT, agent, "durations", sample.value)
        case "retries" if label == "MODEL":
            yield Increment(AGENT, agent, "retries")
            yield Increment(MODEL, name_or_other(getattr(event, "model", "")), "retries")
        case "retries":
            yield Increment(AGENT, agent, "retries")
            yield Increment(TOOL, tool, "retries")
        case _:
            return
