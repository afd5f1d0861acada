"""What the events of tool calls add to the metrics. Pure.

An execution is counted where it is recorded to begin. Of a harness that foldline does not
run only outcomes may be recorded: the first one of such an execution counts it.
"""

from collections.abc import Iterator

from foldline.processors.kept import short
from foldline.projections.metric_names import TIMEOUT
from foldline.projections.metrics_tracked import Before, Sample, Tracked, unknown_calls
from foldline.schemas.events import (
    AnyEvent,
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
)

_ToolEnd = (
    ToolExecutionCompleted
    | ToolExecutionFailed
    | ToolExecutionCancelled
    | ToolExecutionTimedOut
    | ToolBackgrounded
)
_TOOL_ENDED = {
    ToolExecutionCompleted: "COMPLETED",
    ToolExecutionFailed: "FAILED",
    ToolExecutionCancelled: "CANCELLED",
    ToolExecutionTimedOut: "TIMED_OUT",
    ToolBackgrounded: "BACKGROUNDED",
}


def of_tool(tracked: Tracked, before: Before, event: AnyEvent) -> Iterator[Sample]:
    """What one event of a tool call adds."""
    tool = before.tool
    match event:
        case ToolCallRequested():
            yield Sample("tool_calls", (event.tool,))
        case ToolCallValidated(valid=False):
            yield Sample("tool_calls_invalid", (tool,))
        case ToolExecutionStarted():
            tracked.begin("call", short(event.call_id))
            yield Sample("tool_executions", (tool,))
            if event.attempt > 1:
                yield Sample("retries", ("TOOL",))
        case (
            ToolExecutionCompleted()
            | ToolExecutionFailed()
            | ToolExecutionCancelled()
            | ToolExecutionTimedOut()
            | ToolBackgrounded()
        ):
            if before.unbegun:
                yield Sample("tool_executions", (tool,))
            yield from _tool_ended(tracked, tool, event)
        case BackgroundEnded(outcome="FAILED"):
            yield Sample("tool_errors", (tool, "TOOL"))
        case ToolOutcomeUnknown():
            yield Sample("unknown_outcomes", (tool,))
            yield Sample("tool_outcomes", (tool, "UNKNOWN"))
        case ToolOutcomeResolved(outcome=outcome):
            yield Sample("unknown_outcomes_resolved", (outcome,))
        case _:
            pass
    tracked.unknown = unknown_calls(tracked.state)


def _tool_ended(tracked: Tracked, tool: str, event: _ToolEnd) -> Iterator[Sample]:
    """A recorded outcome. A late one, behind a time-out, is one more."""
    yield Sample("tool_outcomes", (tool, _TOOL_ENDED[type(event)]))
    took = tracked.ended("call", short(event.call_id))
    match event:
        case ToolExecutionCompleted() | ToolExecutionFailed():
            micros = took if event.duration_ms is None else event.duration_ms * 1_000
            if micros is not None:
                yield Sample("tool_duration_seconds", (tool,), micros)
        case _:
            pass
    match event:
        case ToolExecutionFailed(layer=layer):
            yield Sample("tool_errors", (tool, layer))
        case ToolExecutionTimedOut():
            yield Sample("tool_errors", (tool, TIMEOUT))
        case ToolExecutionCompleted(exit_code=exit_code) if exit_code:
            yield Sample("tool_nonzero_exits", (tool,))
        case _:
            pass
