"""Recovery: what is done about what the last owner of a session left open.

    owned = await client.take(session_id)
    report = await owned.recover(tools, policy=RecoveryPolicy(attempts_max=1))

`foldline recovery run` does it for all sessions of a log, without anybody watching.
"""

from foldline.producers.recovery_actions import (
    RecoveryReport,
    Step,
)
from foldline.projections.recovery import (
    RecoveryPolicy,
)

__all__ = [
    "RecoveryPolicy",
    "RecoveryReport",
    "Step",
]
