"""One session, walked for statistics. Pure. What is kept of its events is bounded."""

from collections import Counter
from dataclasses import dataclass, field

from foldline.processors.fold import fold_in, initial
from foldline.processors.kept import short
from foldline.projections.spending import Meter, Spent
from foldline.projections.stats_after import Compactions, CompactionWalk, Denials
from foldline.projections.stats_endings import ending_of, verdict_of
from foldline.projections.stats_failures import Failure, Failures
from foldline.schemas.events import (
    AssistantMessage,
    CompactionCompleted,
    SessionCancelled,
    SessionFailed,
    ToolCallRequested,
    ToolExecutionCompleted,
    ToolExecutionFailed,
    ToolExecutionTimedOut,
    TurnEnded,
    UserMessage,
)
from foldline.schemas.recorded import Recorded
from foldline.schemas.state import SessionState

CALLS_MAX = 4_000
"""How many calls of a session, the latest, are remembered with their tool."""

KINDS_MAX = 500
"""How many kinds of failures or tools of one session are told apart."""

OTHER = "other"


@dataclass(slots=True)
class ToolTold:
    """What became of the calls of one tool; times are milliseconds."""

    calls: int = 0
    failed: int = 0
    times_ms: list[int] = field(default_factory=list[int])


@dataclass(slots=True)
class Told:
    """A session, told. Times are microseconds; `reason` is why it failed or was stopped."""

    session_id: str
    agent: str
    mode: str
    relation: str
    began_us: int
    ended_us: int
    ending: str
    verdict: str
    reason: str
    spent: Spent
    failures: Counter[Failure]
    denials: Counter[str]
    compactions: Compactions
    tools: dict[str, ToolTold]

    def failures_at(self, layer: str) -> int:
        """How much failed at a layer."""
        return sum(n for failure, n in self.failures.items() if failure.layer == layer)


class SessionWalk:
    """Takes the events of a session, in order, from its first."""

    def __init__(self, session_id: str) -> None:
        self.state: SessionState = initial(session_id)
        self._meter = Meter()
        self._denials = Denials()
        self._compactions = Compactions()
        self._around = CompactionWalk(self._compactions)
        self._told_failures = Failures()
        self._failures: Counter[Failure] = Counter()
        self._tools: dict[str, ToolTold] = {}
        self._tool_of: dict[str, str] = {}
        self._last_outcome = ""
        self._answered = False
        self._reason = ""

    def take(self, recorded: Recorded) -> None:
        """Take one more event."""
        failure = self._told_failures.take(recorded, self.state)
        fold_in(self.state, recorded)
        self._meter.take(recorded)
        self._denials.take(recorded)
        if failure is not None:
            known = failure in self._failures or len(self._failures) < KINDS_MAX
            self._failures[failure if known else Failure(failure.layer, OTHER)] += 1
        self._take_call(recorded, failed=failure is not None)
        self._take_end(recorded)

    def _take_call(self, recorded: Recorded, *, failed: bool) -> None:
        match recorded.event:
            case ToolCallRequested() as event:
                self._around.asked(event)
                self._tool(event.tool).calls += 1
                self._tool_of[event.call_id] = event.tool
                if len(self._tool_of) > CALLS_MAX:
                    del self._tool_of[next(iter(self._tool_of))]
            case ToolExecutionCompleted() | ToolExecutionFailed() as event:
                self._ended(event.call_id, failed=failed, took_ms=event.duration_ms)
            case ToolExecutionTimedOut() as event:
                self._ended(event.call_id, failed=failed, took_ms=event.after_ms)
            case CompactionCompleted() as event:
                calls = self._meter.spent.model_calls
                self._around.compacted(event, model_calls=calls)
            case _:
                pass

    def _tool(self, name: str) -> ToolTold:
        name = short(name)
        if name not in self._tools and len(self._tools) >= KINDS_MAX:
            name = OTHER
        return self._tools.setdefault(name, ToolTold())

    def _ended(self, call_id: str, *, failed: bool, took_ms: int | None) -> None:
        self._around.ended(failed=failed)
        tool = self._tool(self._tool_of.get(call_id, OTHER))
        tool.failed += failed
        if took_ms is not None and len(tool.times_ms) < CALLS_MAX:
            tool.times_ms.append(took_ms)

    def _take_end(self, recorded: Recorded) -> None:
        match recorded.event:
            case TurnEnded(outcome=outcome):
                self._last_outcome = outcome
            case AssistantMessage():
                self._answered = True
            case UserMessage() | ToolCallRequested():
                self._answered = False
            case SessionFailed(error_type=reason) | SessionCancelled(reason=reason):
                self._reason = short(reason)
            case _:
                pass

    def told(self) -> Told:
        """The session, now that all of its events were taken."""
        self._denials.finish()
        state, meter = self.state, self._meter
        ending = ending_of(state, last_outcome=self._last_outcome, answered=self._answered)
        return Told(
            session_id=state.session_id,
            agent=state.agent,
            mode=state.mode,
            relation=state.relation,
            began_us=meter.began_us,
            ended_us=meter.now_us,
            ending=ending,
            verdict=verdict_of(ending),
            reason=self._reason,
            spent=meter.spent,
            failures=self._failures,
            denials=self._denials.after,
            compactions=self._compactions,
            tools=self._tools,
        )
