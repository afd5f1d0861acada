"""Tools: how they are made, who lets their calls run, and what became of the calls.

    async def run(arguments, ctx): return await charge(arguments, key=ctx.operation_id)

    tools = Toolbox(Tool(run, name="charge", effect="IDEMPOTENT", approval="always"))
    for result in await turn.run_tools(calls, tools):
        match result:
            case Done(output=output): ...
            case Waiting(request_id=request_id): ...

A tool that failed and knows whether its effect happened raises `ToolError`. An
`ApprovalPolicy` decides before a call runs: it gives `Allow`, `Deny`, `Ask`, or None.
"""

from foldline.producers.policies import (
    Allow,
    ApprovalLimits,
    ApprovalPolicy,
    Ask,
    Deny,
    Ruling,
)
from foldline.producers.reading_tool import (
    read_event_tool,
)
from foldline.producers.secrets import (
    Fetch,
    Secrets,
)
from foldline.producers.tools import (
    Approval,
    Background,
    Backgrounded,
    Cancelled,
    Denied,
    Done,
    Effect,
    Executed,
    Failed,
    PendingCall,
    Reconciled,
    Reconciler,
    Run,
    TimedOut,
    Tool,
    Toolbox,
    ToolContext,
    ToolError,
    ToolOutput,
    ToolResult,
    Unknown,
    Waiting,
    parse_arguments,
)

__all__ = [
    "Allow",
    "Approval",
    "ApprovalLimits",
    "ApprovalPolicy",
    "Ask",
    "Background",
    "Backgrounded",
    "Cancelled",
    "Denied",
    "Deny",
    "Done",
    "Effect",
    "Executed",
    "Failed",
    "Fetch",
    "PendingCall",
    "Reconciled",
    "Reconciler",
    "Ruling",
    "Run",
    "Secrets",
    "TimedOut",
    "Tool",
    "ToolContext",
    "ToolError",
    "ToolOutput",
    "ToolResult",
    "Toolbox",
    "Unknown",
    "Waiting",
    "parse_arguments",
    "read_event_tool",
]
