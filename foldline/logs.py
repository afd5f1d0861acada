"""Logs: where sessions are kept, what they give without a client, and their checks.

    with closing(open_log("sqlite:///sessions.db")) as log:
        state = log.state(session_id)
        for recorded in log.events(session_id): ...

The fold gives every state anew from its events: `initial`, then `evolve` per event.
"""

from foldline.processors.blobs import (
    BlobStore,
)
from foldline.processors.clock import (
    Clock,
)
from foldline.processors.fold import (
    copy_of,
    evolve,
    fold_in,
    initial,
)
from foldline.processors.log import (
    Lease,
    Leases,
    ListPlace,
    Log,
    SessionSummary,
)
from foldline.processors.open_log import (
    open_log,
)
from foldline.processors.stored import (
    AuditableLog,
    Problem,
)
from foldline.processors.verify import (
    Progress,
    Report,
    verify,
)
from foldline.producers.mirrored import (
    MirroredSession,
)
from foldline.producers.prepare import (
    Redacts,
)
from foldline.schemas.snapshots import (
    decode_snapshot,
    state_hash,
)
from foldline.schemas.state import (
    EXECUTING,
    Call,
    Grant,
    PendingRequest,
    SessionState,
)

__all__ = [
    "EXECUTING",
    "AuditableLog",
    "BlobStore",
    "Call",
    "Clock",
    "Grant",
    "Lease",
    "Leases",
    "ListPlace",
    "Log",
    "MirroredSession",
    "PendingRequest",
    "Problem",
    "Progress",
    "Redacts",
    "Report",
    "SessionState",
    "SessionSummary",
    "copy_of",
    "decode_snapshot",
    "evolve",
    "fold_in",
    "initial",
    "open_log",
    "state_hash",
    "verify",
]
