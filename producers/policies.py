"""Who decides whether a call may run: a policy of the harness, an earlier grant, a person.

A policy is a function of the call, its tool and the session's state:

    def nothing_outside(call, tool, state):
        if call.arguments.get("path", "").startswith("/"):
            return Deny("inside-only", "Use a path below the project.")
        return Allow("inside-only") if tool.effect == "READ_ONLY" else Ask()

Its word is recorded with its name. What it leaves open (None) `Tool.approval` decides.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from foldline.producers.tools import PendingCall, Tool
from foldline.schemas.state import SessionState


@dataclass(frozen=True, slots=True)
class Allow:
    """The call may run; `policy` names who says so."""

    policy: str


@dataclass(frozen=True, slots=True)
class Deny:
    """The call may not run; the model is told, with the feedback."""

    policy: str
    feedback: str = ""


@dataclass(frozen=True, slots=True)
class Ask:
    """A person decides: one with one of these roles, within `expires_ms` of log time.

    Who names roles wants them asked each time: no earlier grant decides for them.
    """

    approvers: tuple[str, ...] = ()
    expires_ms: int | None = None


Ruling = Allow | Deny | Ask

ApprovalPolicy = Callable[
    [PendingCall, Tool, SessionState], Ruling | Awaitable[Ruling | None] | None
]


@dataclass(frozen=True, slots=True)
class ApprovalLimits:
    """How often the same call may be refused until the session rests, for a person.

    `denials_max` counts denials of it, `expiries_max` requests for it that nobody
    answered, each since a person last said something.
    """

    denials_max: int = 3
    expiries_max: int = 3
