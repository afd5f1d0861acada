"""Replay: a harness run again on what was recorded, with no effect possible.

    async def replayed(session: OwnedSession, inputs: Inputs) -> None: ...

    report = await replay(log, session_id, replayed)

`continue_live` forks where the replay ends, and lets the harness go on with its own model
and tools.
"""

from foldline.producers.replay_inputs import (
    AskModel,
    Inputs,
    Opening,
)
from foldline.producers.replay_script import (
    NotGiven,
)
from foldline.producers.replaying import (
    Harness,
    ReplayReport,
    Value,
    continue_live,
    replay,
)
from foldline.projections.replay import (
    Divergence,
)

__all__ = [
    "AskModel",
    "Divergence",
    "Harness",
    "Inputs",
    "NotGiven",
    "Opening",
    "ReplayReport",
    "Value",
    "continue_live",
    "replay",
]
