"""Policies over events: rules that watch sessions, and say what they want recorded.

    def no_force_push(seen: Seen, recorded: Recorded) -> list[Wish]:
        if recorded.type != "ToolCallRequested" or recorded.event.tool != "git_push":
            return []
        return [violation("a push"), steering("Ask before you push.")]

`foldline policies run` runs such a function, or what `rule` tables of a file name.
"""

from foldline.projections.oversight import (
    Action,
    Judge,
    Policy,
    Rule,
    Seen,
    Wish,
    steering,
    stopping,
    violation,
)
from foldline.projections.oversight_rules import (
    Budget,
    ForbiddenTool,
    Limits,
    Loop,
    Reaction,
    RepeatedDenial,
)
from foldline.projections.spending import (
    Meter,
    Spent,
)

__all__ = [
    "Action",
    "Budget",
    "ForbiddenTool",
    "Judge",
    "Limits",
    "Loop",
    "Meter",
    "Policy",
    "Reaction",
    "RepeatedDenial",
    "Rule",
    "Seen",
    "Spent",
    "Wish",
    "steering",
    "stopping",
    "violation",
]
