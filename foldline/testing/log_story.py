"""Given, when, then, for logs: tell a session, append, look at the verdict.

story = LogStory(log)
story.given(SessionCreated(agent="coder"), TurnStarted(trigger="USER"))
story.when(TurnStarted(trigger="USER")).then("ILLEGAL", rule="status")
"""

from collections.abc import Sequence
from typing import Any, Self

import uuid_utils

from foldline.processors.log import Log
from foldline.schemas.codec import encode_content
from foldline.schemas.envelope import Actor, Envelope
from foldline.schemas.events import KnownEvent, TurnEnded, TurnStarted
from foldline.schemas.recorded import Append
from foldline.schemas.state import SessionState
from foldline.schemas.verdicts import ACCEPTED, Verdict

OWNER = "owner"
TURN = "turn"


def new_id() -> str:
    """A new UUIDv7."""
    return str(uuid_utils.uuid7())


def make_append(
    session_id: str,
    event: KnownEvent,
    *,
    known_seq: int,
    writer: str = OWNER,
    epoch: int = 1,
    expected_seq: int | None = None,
    requires: tuple[str, ...] = (),
    turn_id: str | None = None,
) -> Append:
    """One append, ready to send.

    Args:
        session_id: the session.
        event: what happened.
        known_seq: the seq that the writer knows.
        writer: who appends.
        epoch: the writer's epoch; 0 for one that does not own the session.
        expected_seq: the seq that the session must have.
        requires: ids of events that must have been recorded.
        turn_id: the turn that the event belongs to.
    """
    envelope = Envelope(
        event_id=new_id(),
        session_id=session_id,
        writer=writer,
        epoch=epoch,
        actor=Actor(kind="HARNESS" if epoch else "PERSON", id=writer),
        turn_id=turn_id,
    )
    return Append(
        envelope,
        event,
        encode_content(event),
        known_seq=known_seq,
        expected_seq=expected_seq,
        requires=requires,
    )


class LogStory:
    """A session and its owner, told to a log event by event."""

    def __init__(
        self,
        log: Log,
        *,
        session_id: str | None = None,
        writer: str = OWNER,
        tenant: str = "default",
    ) -> None:
        self.log = log
        self.session_id = session_id or f"session-{new_id()}"
        self.writer = writer
        self.tenant = tenant
        self.epoch = 1
        self.verdicts: list[Verdict] = []

    @property
    def seq(self) -> int:
        """The session's last seq; 0 before its creation."""
        state = self.log.state(self.session_id)
        return 0 if state is None else state.seq

    @property
    def state(self) -> SessionState:
        """The session's state."""
        state = self.log.state(self.session_id)
        assert state is not None, f"no session {self.session_id}"
        return state

    def append(self, event: KnownEvent, **how: Any) -> Append:
        """An append by the owner, who knows the head; keywords as in `make_append`."""
        chosen: dict[str, Any] = {"writer": self.writer, "epoch": self.epoch} | how
        if "known_seq" not in chosen:
            chosen["known_seq"] = self.seq
        if isinstance(event, TurnStarted | TurnEnded):
            chosen.setdefault("turn_id", TURN)
        append = make_append(self.session_id, event, **chosen)
        envelope = append.envelope.model_copy(update={"tenant": self.tenant})
        return append._replace(envelope=envelope)

    def given(self, *events: KnownEvent) -> Self:
        """These happened: all are appended, in one batch, and must be accepted."""
        known_seq = self.seq
        self.send([self.append(event, known_seq=known_seq) for event in events])
        refused = [v for v in self.verdicts if v.kind != ACCEPTED]
        assert not refused, refused
        return self

    def when(self, event: KnownEvent, **how: Any) -> Self:
        """Somebody appends; keywords as in `make_append`."""
        return self.send([self.append(event, **how)])

    def send(self, appends: Sequence[Append]) -> Self:
        """Append these, in one batch."""
        self.verdicts = self.log.append(appends)
        return self

    def then(self, kind: str, *, rule: str = "", seq: int = 0) -> Verdict:
        """The last verdict is of this kind, rule and seq (0: any); gives it."""
        verdict = self.verdicts[-1]
        assert (verdict.kind, verdict.rule) == (kind, rule), verdict
        assert seq in (0, verdict.seq), verdict
        return verdict
