"""What recovery does, word by word, and how it is told: in reports, sweeps and the feed."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from foldline.errors import FoldlineError
from foldline.processors.log import Log, WritesRecovery
from foldline.schemas.state import SessionState
from foldline.schemas.topic_records import RecoveryAction

RETRIED = "RETRIED"
RESOLVED = "RESOLVED"
NOT_EXECUTED = "NOT_EXECUTED"
MARKED_UNKNOWN = "MARKED_UNKNOWN"
ASKED = "ASKED"
REQUEST_EXPIRED = "REQUEST_EXPIRED"
MODEL_CALL_CANCELLED = "MODEL_CALL_CANCELLED"
COMPACTION_FAILED = "COMPACTION_FAILED"
CANCELLED = "CANCELLED"

SETTLING: dict[str, str] = {
    RETRIED: "an execution that may be repeated was run again",
    RESOLVED: "a reconciler said that it had happened",
    NOT_EXECUTED: "a reconciler said, twice, that it had not",
    MARKED_UNKNOWN: "nobody knows how an execution ended",
    ASKED: "a person is asked how it ended",
    REQUEST_EXPIRED: "nobody answered a request in time",
    MODEL_CALL_CANCELLED: "the answer of a model call is recorded by nobody",
    COMPACTION_FAILED: "a compaction had no end",
    CANCELLED: "a stop that somebody had asked for",
}
"""What the recovery of one session settles, word by word."""


TAKEN = "TAKEN"
RESUMED = "RESUMED"
RESUME_FAILED = "RESUME_FAILED"
RESUME_WANTED = "RESUME_WANTED"
PARKED_ACTION = "PARKED"
REOPENED = "REOPENED"
STUCK = "STUCK"
STOP_PASSED_ON = "STOP_PASSED_ON"

ACTIONS: dict[str, str] = {
    TAKEN: "recovery claimed the session",
    **SETTLING,
    RESUME_WANTED: "nothing is left to settle: a harness should take the session",
    RESUMED: "the harness at hand was given the session, and has given it back",
    RESUME_FAILED: "the harness at hand failed",
    PARKED_ACTION: "a person is asked whether to go on; the session is suspended",
    REOPENED: "a person said that a parked session is to go on",
    STOP_PASSED_ON: "a session above was to stop, or has ended: it is told, and all below",
    STUCK: "its owner lives, and has recorded nothing for long: a person has to look",
}
"""What recovery does about a session, word by word; `recovery` holds these records."""

_logger = logging.getLogger("foldline.recovery")


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that recovery did; `action` is one of ACTIONS."""

    action: str
    call_id: str = ""
    attempt: int = 0
    detail: str = ""


@dataclass(slots=True)
class RecoveryReport:
    """What recovery did, and what it found to be done by others.

    `done` lists its steps in their order. `left` are executions that may be repeated or
    asked about, left to a process that has their tools (`leave_tools`). `to_run` are the
    calls that have certainly not happened: `Turn.open_calls` gives them. `waiting` are
    requests that still wait for an answer. `needs_person` says why going on alone is not
    advised any more.
    """

    retried: int = 0
    resolved: int = 0
    not_executed: int = 0
    unknown: int = 0
    asked: int = 0
    model_calls_cancelled: int = 0
    compactions_failed: int = 0
    requests_expired: int = 0
    done: list[Step] = field(default_factory=list[Step], compare=False)
    left: list[str] = field(default_factory=list[str])
    to_run: list[str] = field(default_factory=list[str])
    waiting: list[str] = field(default_factory=list[str])
    handles: list[str] = field(default_factory=list[str])
    retries: list[str] = field(default_factory=list[str])
    cancelled: str = ""
    needs_person: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class Sweep:
    """One look at all sessions: how many stood still, and what was done, in order."""

    stalled: int = 0
    waiting: int = 0
    actions: list[RecoveryAction] = field(default_factory=list[RecoveryAction])

    def taken_out(self) -> "Sweep":
        """What there is so far; what comes later is not told twice."""
        taken = Sweep(self.stalled, self.waiting, self.actions)
        self.stalled, self.waiting, self.actions = 0, 0, []
        return taken

    async def note(
        self,
        log: Log,
        state: SessionState,
        steps: Sequence[Step],
        *,
        writer: str,
        epoch: int = 0,
        resumes: int = 0,
    ) -> None:
        """Keep what was done about a session, and write it to the log's feed."""
        actions = [
            RecoveryAction(
                session_id=state.session_id,
                tenant=state.tenant,
                action=step.action,
                epoch=epoch,
                seq=state.seq,
                writer=writer,
                resumes=resumes,
                call_id=step.call_id or None,
                attempt=step.attempt or None,
                detail=step.detail,
            )
            for step in steps
        ]
        self.actions.extend(actions)
        if not actions or not isinstance(log, WritesRecovery):
            return
        try:
            await asyncio.to_thread(log.write_recovery, actions)
        except FoldlineError as error:
            # The session's own log has it all; the feed is for whoever watches many.
            _logger.warning("recovery's feed misses %d actions: %s", len(actions), error)
