"""What the importers of OpenAI's items remember of a session, and how they write facts.

Everything here depends only on the items read so far. A fact's id is made of session,
item and slot; slots are fixed per kind of fact, so that the same item gives the same ids
whatever stood before it.
"""

from collections import Counter
from dataclasses import dataclass, field

from foldline.producers.identity import derived_id
from foldline.producers.importing import ImportReport
from foldline.producers.prepare import Draft
from foldline.schemas.envelope import INFERRED, RECORDED, Actor, Envelope, Source
from foldline.schemas.events import KnownEvent, TurnEnded, TurnStarted

PERSON = Actor(kind="PERSON", id="user")

# Slots of facts within one item.
MAIN = 0
MESSAGE = 1
CALL = 2
EXTRA = 3
USAGE = 4
TURN_ENDED = 5
TURN_STARTED = 6
CONFIG = 7
INSTRUCTIONS = 8
RESULT = 16

# What became of a record.
MAPPED = "mapped"
FOREIGN = "foreign"
NOTHING = "nothing"
"""It repeats what other records said: counted with the noise."""


@dataclass(slots=True)
class ModelCall:
    """An answer of the model so far: its blocks and its parts.

    `closed`: what the model says next belongs to another call. `used`: the source has
    said what it used.
    """

    call_id: str
    blocks: int = 0
    parts: int = 0
    closed: bool = False
    used: bool = False


@dataclass(slots=True)
class Thread:
    """One session: what its next items need to know of those before."""

    system: str
    session_id: str
    child: bool = False
    created: bool = False
    model: str = ""
    turn_id: str = ""
    turn_recorded: bool = False
    """Whether the source itself said that the turn began."""
    prompted: bool = False
    """Whether the open turn has its prompt."""
    call: ModelCall | None = None
    open_calls: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    calls: dict[str, str] = field(default_factory=dict[str, str])
    """The last call id of each provider's id, open or not."""
    polls: dict[str, str] = field(default_factory=dict[str, str])
    """The handle that a call asks about."""
    handles: set[str] = field(default_factory=set[str])

    @property
    def agent(self) -> Actor:
        """Who speaks as the model."""
        return Actor(kind="AGENT", id=self.system)

    @property
    def harness(self) -> Actor:
        """Who speaks as the harness."""
        return Actor(kind="HARNESS", id=self.system)

    def close_call(self, provider_call_id: str) -> str | None:
        """Close the nearest open call of a provider's id; None if there is none."""
        waiting = self.open_calls.get(provider_call_id)
        if not waiting:
            return None
        call_id = waiting.pop()
        if not waiting:
            del self.open_calls[provider_call_id]
        return call_id

    def pause(self) -> None:
        """What the model says next is another answer."""
        if self.call is not None:
            self.call.closed = True


@dataclass(slots=True)
class Scribe:
    """Writes the facts of one item."""

    thread: Thread
    key: str
    source: Source
    occurred_at: int | None = None
    facts: list[Draft] = field(default_factory=list[Draft])

    def event_id(self, slot: int) -> str:
        """The id of the fact in a slot of this item."""
        thread = self.thread
        return derived_id(thread.system, thread.session_id, self.key, str(slot))

    def write(
        self, slot: int, event: KnownEvent, actor: Actor, *, inferred: bool = False
    ) -> str:
        """Write a fact down; its event id."""
        envelope = Envelope(
            event_id=self.event_id(slot),
            session_id=self.thread.session_id,
            occurred_at=self.occurred_at,
            writer=f"import:{self.thread.system}",
            actor=actor,
            turn_id=self.thread.turn_id or None,
            certainty=INFERRED if inferred else RECORDED,
            source=self.source,
        )
        self.facts.append(Draft(envelope, event))
        return envelope.event_id

    def start_turn(self, turn_id: str, *, recorded: bool) -> None:
        """A turn begins; one that is open ends with it."""
        thread = self.thread
        self.end_turn("DONE", "the next turn")
        thread.turn_id = turn_id or self.event_id(TURN_STARTED)
        thread.turn_recorded = recorded
        thread.prompted = False
        event = TurnStarted(trigger="PARENT" if thread.child else "USER")
        self.write(TURN_STARTED, event, thread.harness, inferred=not recorded)

    def end_turn(self, outcome: str, reason: str, *, recorded: bool = False) -> bool:
        """End the open turn, if there is one."""
        thread = self.thread
        if not thread.turn_id:
            return False
        event = TurnEnded(outcome=outcome, reason=reason)
        self.write(TURN_ENDED, event, thread.harness, inferred=not recorded)
        thread.turn_id = ""
        thread.turn_recorded = False
        thread.pause()
        return True


@dataclass(slots=True)
class Counts:
    """Calls and results as the items hold them, whatever becomes of these.

    A call whose id is open is that call again. A result that closes none is a second
    one if its id is ever called, also later in the file, else one without its call. The
    log goes by the order: there a result before its call is one without it.
    """

    calls: int = 0
    results: int = 0
    compactions: int = 0
    called: set[str] = field(default_factory=set[str])
    open: set[str] = field(default_factory=set[str])
    unmatched: Counter[str] = field(default_factory=Counter[str])

    def call(self, call_id: str) -> None:
        """Count a call."""
        self.calls += 1
        self.called.add(call_id)
        self.open.add(call_id)

    def result(self, call_id: str) -> None:
        """Count a result."""
        self.results += 1
        if call_id in self.open:
            self.open.discard(call_id)
        else:
            self.unmatched[call_id] += 1

    @property
    def duplicates(self) -> int:
        """Results beyond the first of their call."""
        return sum(count for one, count in self.unmatched.items() if one in self.called)

    @property
    def orphans(self) -> int:
        """Results whose call is nowhere."""
        return self.unmatched.total() - self.duplicates

    def write_into(self, report: ImportReport) -> None:
        """Write what was counted into a report."""
        report.tool_calls = self.calls
        report.tool_results = self.results
        report.open_tool_calls = len(self.open)
        report.orphan_results = self.orphans
        report.duplicate_results = self.duplicates
        report.compactions = self.compactions
