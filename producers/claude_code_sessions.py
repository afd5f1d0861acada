"""What the importer remembers of each session of a transcript, and how it writes facts.

Everything here depends only on the records read so far. A fact's id is made of session,
record and slot; slots are fixed per kind of fact, so that the same record gives the same
ids whatever stood before it.
"""

from collections import deque
from dataclasses import InitVar, dataclass, field

from foldline.processors.anomalies import MISSING_PARENT_ID
from foldline.producers.claude_code_records import SYSTEM, Record
from foldline.producers.identity import derived_id
from foldline.producers.overflow import Overflow, Remembered
from foldline.producers.prepare import Draft
from foldline.schemas.envelope import INFERRED, RECORDED, Actor, Envelope, Source
from foldline.schemas.events import KnownEvent, TurnEnded, TurnStarted, Usage

WRITER = "import:claude-code"
"""The writer of every imported fact: the same for every import, as their ids are."""

PERSON = Actor(kind="PERSON", id="user")
AGENT = Actor(kind="AGENT", id=SYSTEM)
HARNESS = Actor(kind="HARNESS", id=SYSTEM)

# Slots of facts within one record. Facts of the block at index i begin at BLOCKS + 4 * i.
MAIN = 0
MESSAGE = 1
EXTRA = 2
TURN_ENDED = 5
TURN_STARTED = 6
CONFIG = 7
BLOCKS = 16
PER_BLOCK = 4

FAILED_CALL = "failed:"
"""Begins the id of a model call of which only its failure is told."""

ATTACHMENT = "attachment/"
"""Begins the origin of what the harness told the model by an attachment."""

PROMPTS_REMEMBERED = 16
PROMPT_CHARS = 4_096

# What became of a record.
MAPPED = "mapped"
FOREIGN = "foreign"
NOTHING = "nothing"
"""It repeats what other records said: counted with the noise."""


@dataclass(slots=True)
class OpenCall:
    """A tool call without result, and the record that requested it.

    `prompt` is what a subagent is told by it, else empty.
    """

    call_id: str
    record_uuid: str
    prompt: str = ""


@dataclass(slots=True)
class Message:
    """An assistant's message so far: its blocks, its records, its usage as last said."""

    blocks: int = 0
    parts: int = 0
    usage: Usage | None = None
    completed: bool = False


@dataclass(slots=True)
class Queued:
    """An entry of the harness's queue; a notification has no steering_event_id."""

    text: str
    steering_event_id: str = ""


@dataclass(slots=True)
class Thread:
    """One session: what its next records need to know of those before."""

    session_id: str
    overflow: InitVar[Overflow]
    child: bool = False
    created: bool = False
    turn_id: str = ""
    cwd: str = ""
    model: str = ""
    permission_mode: str = ""
    compacted_seq: int = 0
    open_calls: dict[str, list[OpenCall]] = field(default_factory=dict[str, list[OpenCall]])
    calls: Remembered[str] = field(init=False)
    """The last call id of each provider's id, open or not."""
    messages: Remembered[Message] = field(init=False)
    queue: deque[Queued] = field(default_factory=deque[Queued])
    delivered: deque[str] = field(default_factory=lambda: deque[str](maxlen=64))
    """Texts that left the queue, for the attachments that say so again."""
    prompts: deque[str] = field(
        default_factory=lambda: deque[str](maxlen=PROMPTS_REMEMBERED)
    )
    """The begins of the newest prompts, for the hooks that tell of them too."""
    handles: set[str] = field(default_factory=set[str])
    ended_handles: set[str] = field(default_factory=set[str])

    def __post_init__(self, overflow: Overflow) -> None:
        self.calls = Remembered(str, overflow)
        self.messages = Remembered(Message, overflow)

    def close_call(self, provider_call_id: str, callers: tuple[str, ...]) -> str | None:
        """Close an open call of a provider's id: its call id, or None if there is none.

        It is the call of the first of these callers (uuids of records) that has one
        open, else the nearest.
        """
        waiting = self.open_calls.get(provider_call_id)
        if not waiting:
            return None
        requesters = [call.record_uuid for call in waiting]
        known = [caller for caller in callers if caller and caller in requesters]
        index = requesters.index(known[0]) if known else len(waiting) - 1
        call = waiting.pop(index)
        if not waiting:
            del self.open_calls[provider_call_id]
        return call.call_id

    def call_of_agent(self, requester: str, prompt: str) -> str | None:
        """The open call of a subagent: of the record that it follows, or by its prompt.

        Where several could be it, none is: nothing is guessed.
        """
        waiting = [call for calls in self.open_calls.values() for call in calls]
        known = [call for call in waiting if requester and call.record_uuid == requester]
        told = [call for call in known or waiting if prompt and call.prompt == prompt]
        found = told or known
        return found[0].call_id if len(found) == 1 else None


@dataclass(slots=True)
class Scribe:
    """Writes the facts of one record."""

    record: Record
    thread: Thread
    key: str
    stream: str
    parent_event_id: str | None
    branch: str | None
    facts: list[Draft] = field(default_factory=list[Draft])

    def event_id(self, slot: int) -> str:
        """The id of the fact in a slot of this record."""
        return derived_id(SYSTEM, self.thread.session_id, self.key, str(slot))

    def write(
        self, slot: int, event: KnownEvent, actor: Actor, *, inferred: bool = False
    ) -> str:
        """Write a fact down; its event id."""
        envelope = Envelope(
            event_id=self.event_id(slot),
            session_id=self.thread.session_id,
            occurred_at=self.record.occurred_at,
            writer=WRITER,
            actor=actor,
            turn_id=self.thread.turn_id or None,
            branch=self.branch,
            parent_event_id=self._parent(),
            certainty=INFERRED if inferred else RECORDED,
            source=self.source(),
        )
        self.facts.append(Draft(envelope, event))
        return envelope.event_id

    def _parent(self) -> str | None:
        """The parent's event; that it is missing is said once per record."""
        missing = self.parent_event_id == MISSING_PARENT_ID
        return None if missing and self.facts else self.parent_event_id

    def source(self) -> Source:
        """Where the record was read."""
        piece = self.record.piece
        return Source(
            system=SYSTEM,
            stream=self.stream,
            position=str(piece.offset),
            sha256=piece.sha256,
        )

    def main_event_id(self) -> str:
        """The fact that stands for the record as a parent: not a turn that it began."""
        inferred = (self.event_id(TURN_ENDED), self.event_id(TURN_STARTED))
        ids = [fact.envelope.event_id for fact in self.facts]
        return next((one for one in ids if one not in inferred), ids[0])

    def start_turn(self, trigger: str) -> None:
        """A prompt begins a turn, and ends the one before."""
        self.end_turn("DONE", "the next prompt")
        self.thread.turn_id = self.record.uuid or self.event_id(TURN_STARTED)
        self.write(TURN_STARTED, TurnStarted(trigger=trigger), HARNESS, inferred=True)

    def end_turn(self, outcome: str, reason: str) -> bool:
        """End the open turn, if there is one."""
        if not self.thread.turn_id:
            return False
        event = TurnEnded(outcome=outcome, reason=reason)
        self.write(TURN_ENDED, event, HARNESS, inferred=True)
        self.thread.turn_id = ""
        return True
