"""Verdicts: admission's answer to one append. A value, not an exception."""

from typing import Annotated

from foldline.schemas.record import TIMESTAMP_MICROS, Record

ACCEPTED = "ACCEPTED"
DUPLICATE = "DUPLICATE"
EXISTS = "EXISTS"
NO_SESSION = "NO_SESSION"
UNDECODABLE = "UNDECODABLE"
MISROUTED = "MISROUTED"
TOO_LARGE = "TOO_LARGE"
TOO_OLD = "TOO_OLD"
LIMIT = "LIMIT"
CLOSED = "CLOSED"
FENCED = "FENCED"
CONFLICT = "CONFLICT"
ILLEGAL = "ILLEGAL"

VERDICT_KINDS = (
    UNDECODABLE,
    MISROUTED,
    TOO_LARGE,
    NO_SESSION,
    DUPLICATE,
    EXISTS,
    TOO_OLD,
    ILLEGAL,
    LIMIT,
    CLOSED,
    FENCED,
    CONFLICT,
    ACCEPTED,
)
"""Every kind, in the order in which admission looks for them (ILLEGAL last but one,
except for a `known_seq` above the head)."""


class Verdict(Record):
    """The answer to one append.

    `seq` is the event's own (ACCEPTED, DUPLICATE), else 0. `current_seq` and `epoch`
    are the session's. `recorded_at` is log time in microseconds: a taker's "now".
    `rule` names the rule of an ILLEGAL or the limit of a LIMIT; `related` the open call
    that a `redelivered` request repeats. `anomalies` name what is odd in a mirrored
    session, or late.
    """

    kind: str
    session_id: str
    event_id: str
    seq: int = 0
    current_seq: int = 0
    epoch: int = 0
    recorded_at: Annotated[int, TIMESTAMP_MICROS] = 0
    rule: str = ""
    related: str | None = None
    detail: str = ""
    append_offset: int = -1
    rules_version: int = 0
    anomalies: tuple[str, ...] = ()

    @property
    def recorded(self) -> bool:
        """Whether the event is in the log: ACCEPTED now, or DUPLICATE of before."""
        return self.kind in (ACCEPTED, DUPLICATE)
