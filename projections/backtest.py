"""What a rule would have done over a history, and what came after it. Pure.

Nothing is recorded: the events are walked as they were, so what came after is what came
without the rule. It says what a stop would have spared at the most.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from foldline.projections.oversight import (
    CANCEL,
    Finding,
    Policy,
    Watching,
)
from foldline.projections.spending import Spent, added
from foldline.schemas.events import TurnEnded
from foldline.schemas.recorded import Recorded

SEQS_SHOWN = 20
"""How many findings of one session are told with their seqs."""


@dataclass(slots=True)
class Hit:
    """A session in which a rule would have said something.

    `first` is what it said first. `rest` is what was spent after that, up to where the
    log stands; `rest_of_turn` up to the end of the turn that it was said in. `whole` is
    what the session spent, `next_types` what came next.
    """

    session_id: str
    first: Finding
    agent: str = ""
    mode: str = ""
    status: str = ""
    findings: int = 0
    seqs: list[int] = field(default_factory=list[int])
    whole: Spent = field(default_factory=Spent)
    rest: Spent = field(default_factory=Spent)
    rest_of_turn: Spent = field(default_factory=Spent)
    next_types: list[str] = field(default_factory=list[str])

    @property
    def spared(self) -> Spent:
        """What the first finding would have spared: nothing where it stops nothing."""
        if self.first.action != CANCEL:
            return Spent()
        return self.rest if self.first.target == "SESSION" else self.rest_of_turn


@dataclass(slots=True)
class Backtest:
    """A rule over many sessions. `spent` is what all of them used, hit or not."""

    sessions: int = 0
    hit: int = 0
    findings: int = 0
    spent: Spent = field(default_factory=Spent)
    rest: Spent = field(default_factory=Spent)
    spared: Spent = field(default_factory=Spent)

    def count(self, tried: "Tried") -> None:
        """Add one session."""
        self.sessions += 1
        self.spent = added(self.spent, tried.whole)
        if tried.hit is not None:
            self.hit += 1
            self.findings += tried.hit.findings
            self.rest = added(self.rest, tried.hit.rest)
            self.spared = added(self.spared, tried.hit.spared)


@dataclass(frozen=True, slots=True)
class Tried:
    """One session under a rule."""

    whole: Spent
    hit: Hit | None = None


NEXT_SHOWN = 5
"""How many of the events that came next are named."""


def try_rule(
    session_id: str, events: Iterable[Recorded], rule: Policy, *, since_us: int = 0
) -> Tried:
    """A rule over the events of one session.

    Args:
        session_id: the session.
        events: all of its own, from its first, as the rule needs them.
        rule: the rule.
        since_us: what it says of events before that moment is left out.

    Raises:
        PolicyRuleError: the rule failed.
    """
    walk = _Walk(Watching(session_id, [rule]), since_us)
    for recorded in events:
        walk.take(recorded)
    return walk.tried()


class _Walk:
    """A session's events, taken once."""

    def __init__(self, watching: Watching, since_us: int) -> None:
        self._watching = watching
        self._since_us = since_us
        self._hit: Hit | None = None
        self._at = Spent()
        self._turn_over = False

    def take(self, recorded: Recorded) -> None:
        findings = self._watching.take(recorded)
        if self._watching.failures:
            raise next(iter(self._watching.failures.values()))
        if self._hit is not None:
            self._after(self._hit, recorded)
        for finding in findings:
            if finding.at_us >= self._since_us:
                self._found(finding)

    def _found(self, finding: Finding) -> None:
        if self._hit is None:
            self._hit = Hit(finding.session_id, finding)
            self._at = self._watching.meter.spent.copy()
            self._turn_over = self._watching.state.turn is None
        self._hit.findings += 1
        if len(self._hit.seqs) < SEQS_SHOWN:
            self._hit.seqs.append(finding.seq)

    def _after(self, hit: Hit, recorded: Recorded) -> None:
        if len(hit.next_types) < NEXT_SHOWN:
            hit.next_types.append(recorded.type)
        if not self._turn_over:
            hit.rest_of_turn = self._watching.meter.spent.since(self._at)
            self._turn_over = isinstance(recorded.event, TurnEnded)

    def tried(self) -> Tried:
        """What there is to say, now that all events were taken."""
        state, whole = self._watching.state, self._watching.meter.spent
        if self._hit is None:
            return Tried(whole)
        hit = self._hit
        hit.agent, hit.mode, hit.status = state.agent, state.mode, state.status
        hit.whole, hit.rest = whole, whole.since(self._at)
        return Tried(whole, hit)
