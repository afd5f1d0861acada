"""Given, when, then for one session, without a log: admission and fold in memory.

    story = Story().given(SessionCreated(agent="coder"), TurnStarted(trigger="USER"))
    verdict = story.when(TurnStarted(trigger="USER"))
    assert (verdict.kind, verdict.rule) == ("ILLEGAL", "status")
    assert story.state.status == "RUNNING"

Events are appended by whoever may append them: decisions and facts by the owner, the
rest by a person. `by` names another writer. Time passes only when the story says so.
"""

from dataclasses import dataclass, field
from typing import TypeVar

from foldline.processors.admission import admit, log_time
from foldline.processors.fold import evolve, initial
from foldline.schemas.authority import authority_of
from foldline.schemas.codec import Codec, encode_content, encode_envelope
from foldline.schemas.envelope import Actor, Envelope, Source
from foldline.schemas.events import KnownEvent, SessionCreated, TurnStarted, type_of
from foldline.schemas.recorded import Append, Recorded
from foldline.schemas.registry import LocalRegistry, SchemaTable
from foldline.schemas.state import SessionState
from foldline.schemas.verdicts import ACCEPTED, Verdict

Kind = TypeVar("Kind", bound=KnownEvent)

STEP_US = 1_000
"""How much log time passes with each append, in microseconds."""

BEGIN_US = 1_700_000_000_000_000


@dataclass(frozen=True, slots=True)
class Writer:
    """Who appends: a writer with the epoch it believes in, and an actor's kind."""

    name: str
    epoch: int = 0
    kind: str = "HARNESS"


OWNER = Writer("owner", 1)
PERSON = Writer("person", 0, "PERSON")


@dataclass(slots=True)
class Story:
    """One session: its state, its recorded events, and the verdicts on every append."""

    session_id: str = "session"
    tenant: str = "default"
    owner: Writer = OWNER
    clock_us: int = BEGIN_US
    source: Source | None = None
    parent_event_id: str | None = None
    events: list[Recorded] = field(default_factory=list[Recorded])
    appends: list[Append] = field(default_factory=list[Append])
    verdicts: list[Verdict] = field(default_factory=list[Verdict])
    registry: LocalRegistry = field(default_factory=lambda: LocalRegistry(SchemaTable()))
    _state: SessionState | None = None
    _ids: int = 0

    @property
    def state(self) -> SessionState:
        """The state now; only a session that exists has one."""
        assert self._state is not None, "the story has not begun"
        return self._state

    @property
    def state_or_none(self) -> SessionState | None:
        """The state now, None before the first event."""
        return self._state

    @property
    def seq(self) -> int:
        """The session's last seq, 0 before the first event."""
        return self._state.seq if self._state else 0

    @property
    def codec(self) -> Codec:
        """A codec that decodes this story's bodies."""
        return Codec(self.registry)

    def given(self, *events: KnownEvent) -> "Story":
        """Append events that must be accepted."""
        for event in events:
            verdict = self.when(event)
            assert verdict.kind == ACCEPTED, (event, verdict)
        return self

    def when(
        self,
        event: KnownEvent,
        *,
        by: Writer | None = None,
        event_id: str | None = None,
        known_seq: int | None = None,
        expected_seq: int | None = None,
        requires: tuple[str, ...] = (),
        turn_id: str | None = None,
        prev_hash: bytes | None = None,
    ) -> Verdict:
        """Append one event and give its verdict.

        Args:
            event: what happened.
            by: who says so; the owner for decisions and facts, else a person.
            event_id: default: a new one.
            known_seq: default: the session's last seq.
            expected_seq: default: none.
            requires: event ids that must be recorded.
            turn_id: default: the open turn's; a new one for TurnStarted.
            prev_hash: the hash of the parent's event, for a fork.
        """
        by = by or self._writer_of(event)
        if turn_id is None:
            turn_id = self._turn_of(event)
        envelope = Envelope(
            event_id=event_id or self.fresh_id(),
            session_id=self.session_id,
            tenant=self.tenant,
            writer=by.name,
            epoch=by.epoch,
            actor=Actor(kind=by.kind, id=by.name),
            turn_id=turn_id,
            parent_event_id=self.parent_event_id,
            source=self.source,
            prev_hash=prev_hash,
        )
        return self.send(
            Append(
                envelope,
                event,
                encode_content(event),
                known_seq=self.seq if known_seq is None else known_seq,
                expected_seq=expected_seq,
                requires=requires,
            )
        )

    def send(self, append: Append) -> Verdict:
        """Append exactly this, as a writer that resends does."""
        self.clock_us += STEP_US
        now = log_time(self._state, self.clock_us)
        decision = admit(self._state, append, now=now)
        self.appends.append(append)
        self.verdicts.append(decision.verdict)
        if decision.envelope is not None:
            self._record(decision.envelope, append)
        return decision.verdict

    def take(self, name: str, event: KnownEvent) -> Verdict:
        """Another writer claims the session by SessionResumed or SessionReopened."""
        self.owner = Writer(name, self.state.epoch + 1)
        return self.when(event, by=self.owner, expected_seq=self.seq)

    def wait_ms(self, passed_ms: int) -> None:
        """Let log time pass."""
        self.clock_us += passed_ms * 1000

    def told(self, kind: type[Kind]) -> list[Kind]:
        """The recorded events of one type, in order."""
        return [e.event for e in self.events if isinstance(e.event, kind)]

    def fresh_id(self) -> str:
        """An event id that this story has not used."""
        self._ids += 1
        return f"00000000-0000-7000-8000-{self._ids:012x}"

    def _record(self, envelope: Envelope, append: Append) -> None:
        body = encode_envelope(envelope) + append.content
        schema_id = self.registry.id_of(type_of(append.event))
        recorded = Recorded(envelope, append.event, body, schema_id)
        self._state = evolve(self._state or initial(self.session_id), recorded)
        self.events.append(recorded)

    def _writer_of(self, event: KnownEvent) -> Writer:
        if isinstance(event, SessionCreated):
            return self.owner
        return PERSON if authority_of(event) == "external" else self.owner

    def _turn_of(self, event: KnownEvent) -> str | None:
        if isinstance(event, TurnStarted):
            return f"turn-{self.seq + 1}"
        turn = self._state.turn if self._state else None
        return turn.turn_id if turn else None


def altered(story: Story, **fields: object) -> Append:
    """The last append that was taken, with other envelope fields, as a new event."""
    taken = story.events[-1].envelope.event_id
    last = next(a for a in story.appends if a.envelope.event_id == taken)
    update = {"event_id": story.fresh_id(), **fields}
    return last._replace(
        envelope=last.envelope.model_copy(update=update),
        known_seq=story.seq,
    )
