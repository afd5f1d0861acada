"""foldline: AI-agent sessions as ordered, durable events that outlive their process.

    import foldline
    from foldline import Tool, Toolbox

    async with foldline.connect() as client:
        owned = await client.create(agent="coder", goal="fix the flaky test", tools=tools)
        async with owned.turn("go") as turn:
            context = await turn.context()
            async with turn.model_call(context, model="a-model") as call:
                calls = await call.complete(response)
            results = await turn.run_tools(calls, tools)

Start here: `help(foldline.connect)`, `help(foldline.Tool)`, `help(foldline.OwnedSession)`.

    connect, Client        a log, and the sessions in it
    SessionView            what anybody may do: read, follow, steer, grant, answer, fork
    OwnedSession, Turn     what the one owner does: turns, recovery, the end
    Tool, Toolbox          tools, and what repeating them does
    ToolContext            what a running tool knows: its operation_id, when to stop
    Reconciled             what a tool's `reconcile` found out about an operation
    read_event_tool        a tool to read what left the context
    ModelResponse          a model's answer; ToolRequest: a request for a tool in it
    FoldlineError          every error; AppendRefusedError carries the verdict
    FencedError            another process owns the session now: stop
    LiveOwnerError         the owner of a session to be taken seems alive

By task, for what these take and give: `foldline.tools`, `foldline.models`,
`foldline.context`, `foldline.policies`, `foldline.replay`, `foldline.recovery`,
`foldline.events`, `foldline.logs`, `foldline.testing`; and `foldline.errors`,
`foldline.settings`, `foldline.faults`. docs/api.md lists what is in each.
"""

from importlib import import_module

TYPE_CHECKING = False  # typing itself takes longer to load than a hook has time
if TYPE_CHECKING:
    from typing import Any

    from foldline.errors import (
        AppendRefusedError,
        FencedError,
        FoldlineError,
        LiveOwnerError,
    )
    from foldline.producers.client import Client, connect
    from foldline.producers.model import ModelResponse, ToolRequest
    from foldline.producers.reading_tool import read_event_tool
    from foldline.producers.session import OwnedSession, SessionView
    from foldline.producers.tools import Reconciled, Tool, Toolbox, ToolContext
    from foldline.producers.turn import Turn

__all__ = [
    "AppendRefusedError",
    "Client",
    "FencedError",
    "FoldlineError",
    "LiveOwnerError",
    "ModelResponse",
    "OwnedSession",
    "Reconciled",
    "SessionView",
    "Tool",
    "ToolContext",
    "ToolRequest",
    "Toolbox",
    "Turn",
    "connect",
    "read_event_tool",
]

_HOMES = {
    "AppendRefusedError": "foldline.errors",
    "Client": "foldline.producers.client",
    "FencedError": "foldline.errors",
    "FoldlineError": "foldline.errors",
    "LiveOwnerError": "foldline.errors",
    "ModelResponse": "foldline.producers.model",
    "OwnedSession": "foldline.producers.session",
    "Reconciled": "foldline.producers.tools",
    "SessionView": "foldline.producers.session",
    "Tool": "foldline.producers.tools",
    "ToolContext": "foldline.producers.tools",
    "ToolRequest": "foldline.producers.model",
    "Toolbox": "foldline.producers.tools",
    "Turn": "foldline.producers.turn",
    "connect": "foldline.producers.client",
    "read_event_tool": "foldline.producers.reading_tool",
}


def __getattr__(name: str) -> "Any":
    """Load a name when it is first asked for: `foldline --help` waits for none of them."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    """Every name, loaded or not, so that `help(foldline)` shows them."""
    return sorted({*globals(), *__all__})
