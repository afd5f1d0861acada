"""Policies over events: rules that watch sessions, and say what they want recorded. Pure.

A rule is given each event of a session in order, with what is known of the session by
then, and answers with events that it wants recorded: that it was broken (PolicyViolation),
something to tell the agent (SteeringReceived), a stop (CancellationRequested). The same
events give the same wishes under the same ids, whoever asks and however often.

    watching = Watching(session_id, rules)
    for recorded in events: findings = watching.take(recorded)

Who acts on them is `foldline.producers.overseeing`; what they would have done over a
history says `foldline.projections.backtest`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, Literal, Protocol, get_args

from foldline.errors import PolicyRuleError
from foldline.processors.fold import fold_in, initial
from foldline.projections.spending import Meter, Spent
from foldline.schemas.blocks import text_block, text_of
from foldline.schemas.choices import CancelTarget, Severity, SteeringMode
from foldline.schemas.derived import derived_id
from foldline.schemas.events import (
    CancellationRequested,
    PolicyViolation,
    SteeringReceived,
    type_of,
)
from foldline.schemas.recorded import Recorded
from foldline.schemas.state import SessionState

FINDINGS_MAX = 100
"""How often one rule is heard in one session; then it has said enough."""

WISHES_MAX = 8
"""How many events a rule may want about one event."""

Wish = PolicyViolation | SteeringReceived | CancellationRequested
"""What a rule may want recorded."""

Action = Literal["NONE", "STEER", "CANCEL"]
"""What is done when a rule is broken, beside saying so."""

NONE: Final = "NONE"
STEER: Final = "STEER"
CANCEL: Final = "CANCEL"

SEVERITIES: tuple[str, ...] = get_args(Severity)


@dataclass(slots=True)
class Seen:
    """What a rule knows of a session, the event that it is given included.

    `state` is the fold of its events, `spent` what it has used by now. Times are
    microseconds. `memory` is the rule's own for this session, empty at its first event;
    it follows from the events, and is never stored. Nothing else is the rule's to change.
    """

    state: SessionState
    meter: Meter
    memory: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def spent(self) -> Spent:
        """What the session has used by now."""
        return self.meter.spent

    @property
    def now_us(self) -> int:
        """When the event happened."""
        return self.meter.now_us

    @property
    def began_us(self) -> int:
        """When the session began."""
        return self.meter.began_us


Judge = Callable[[Seen, Recorded], Sequence[Wish]]
"""A rule as a function: what it wants recorded about an event, mostly nothing."""


class Policy(Protocol):
    """A rule. Pure: it has no clock, no chance, no network, and no memory but `Seen`'s.

    Another `version` is another rule: what it wants is recorded beside what the former
    one wanted. `content` says whether it looks at blocks; without it they are empty.
    """

    @property
    def name(self) -> str:
        """What it is called, in events and on the command line."""
        ...

    @property
    def version(self) -> int:
        """Counts its changes of meaning."""
        ...

    @property
    def content(self) -> bool:
        """Whether it needs what was said, beside the structure of events."""
        ...

    def judge(self, seen: Seen, recorded: Recorded) -> Sequence[Wish]:
        """What is to be recorded about an event."""
        ...


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule made of a function. `policy` names the set that it belongs to.

    `made_of` says what the function was made of (where it is, and its options): functions
    that were made of other things are other rules.
    """

    name: str
    function: Judge
    version: int = 1
    content: bool = False
    policy: str = "default"
    made_of: str = ""

    def judge(self, seen: Seen, recorded: Recorded) -> Sequence[Wish]:
        """What is to be recorded about an event."""
        return self.function(seen, recorded)


def violation(
    said: str, *, severity: Severity = "WARNING", call_id: str | None = None
) -> PolicyViolation:
    """That the rule was broken. By which event, and what else is wanted, is filled in."""
    return PolicyViolation(
        policy="",
        rule="",
        severity=severity,
        call_id=call_id,
        blocks=(text_block(said),),
    )


def steering(said: str, *, mode: SteeringMode = "INTERRUPT") -> SteeringReceived:
    """Something that the agent is told."""
    return SteeringReceived(mode=mode, blocks=(text_block(said),))


def stopping(
    reason: str, *, target: CancelTarget = "SESSION", target_id: str | None = None
) -> CancellationRequested:
    """That the SESSION, its open TURN or one CALL is to stop."""
    return CancellationRequested(target=target, target_id=target_id, reason=reason)


@dataclass(frozen=True, slots=True)
class Wanted:
    """An event that a rule wants, and the id that it is recorded under."""

    event_id: str
    event: Wish


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule said about one event. `at_us`: when that happened, 0 if nobody says."""

    rule: str
    version: int
    session_id: str
    seq: int
    event_id: str
    turn_id: str | None
    at_us: int
    wanted: tuple[Wanted, ...]

    @property
    def said(self) -> str:
        """What it says, for people."""
        return next((said for one in self.wanted if (said := _said(one))), "")

    @property
    def action(self) -> str:
        """The strongest thing that it asks for: CANCEL, STEER or NONE."""
        return _action_of([one.event for one in self.wanted])

    @property
    def target(self) -> str:
        """What is to stop: SESSION, TURN or CALL; empty where nothing is."""
        stops = (one.event for one in self.wanted)
        return next((s.target for s in stops if isinstance(s, CancellationRequested)), "")


def _action_of(wishes: Sequence[Wish]) -> str:
    kinds = {type(wish) for wish in wishes}
    if CancellationRequested in kinds:
        return CANCEL
    return STEER if SteeringReceived in kinds else NONE


def _said(wanted: Wanted) -> str:
    event = wanted.event
    return (
        event.reason if isinstance(event, CancellationRequested) else text_of(event.blocks)
    )


class Watching:
    """One session, watched by rules. Takes its events in order, from the first."""

    def __init__(self, session_id: str, rules: Sequence[Policy]) -> None:
        self.state = initial(session_id)
        self.meter = Meter()
        self._rules = rules
        self._seen = [Seen(self.state, self.meter) for _ in rules]
        self._heard = [0] * len(rules)
        self._ours: set[str] = set()
        self.failures: dict[int, PolicyRuleError] = {}
        """Which rules failed here, by their number: these are not asked any more."""

    @property
    def seq(self) -> int:
        """The seq of the last event that was taken."""
        return self.state.seq

    def take(self, recorded: Recorded) -> list[Finding]:
        """What the rules want about one more event; nothing about what they wanted.

        One that fails, or wants what no rule may want, is out from then on: see `failures`.
        """
        fold_in(self.state, recorded)
        self.meter.take(recorded)
        if self._is_ours(recorded):
            return []
        return [
            finding
            for number in range(len(self._rules))
            if (finding := self._heard_of(number, recorded)) is not None
        ]

    def _is_ours(self, recorded: Recorded) -> bool:
        event_id = recorded.envelope.event_id
        return isinstance(recorded.event, PolicyViolation) or event_id in self._ours

    def _heard_of(self, number: int, recorded: Recorded) -> Finding | None:
        """What one rule says, unless it failed: it takes no other rule with it."""
        if number in self.failures:
            return None
        try:
            return self._judged(number, recorded)
        except PolicyRuleError as error:
            self.failures[number] = error
            return None

    def _judged(self, number: int, recorded: Recorded) -> Finding | None:
        rule = self._rules[number]
        try:
            judged = rule.judge(self._seen[number], recorded)
            wishes = tuple(islice(judged, WISHES_MAX + 1))  # it may be endless
        except (Exception, SystemExit) as error:  # whatever a user's rule raises
            reason = f"{type(error).__name__}: {error}"
            raise _failed(rule, recorded, reason) from error
        if not wishes or self._heard[number] >= FINDINGS_MAX:
            return None
        self._heard[number] += 1
        wanted = tuple(_wanted(rule, recorded, wishes))
        self._ours.update(one.event_id for one in wanted)
        envelope = recorded.envelope
        return Finding(
            rule=rule.name,
            version=rule.version,
            session_id=self.state.session_id,
            seq=recorded.seq,
            event_id=envelope.event_id,
            turn_id=envelope.turn_id,
            at_us=self.meter.now_us,
            wanted=wanted,
        )


def _wanted(rule: Policy, recorded: Recorded, wishes: Sequence[Wish]) -> Iterator[Wanted]:
    """The wishes with their ids, which follow from the rule and from what it is about."""
    if len(wishes) > WISHES_MAX:
        raise _failed(rule, recorded, f"it wants more than {WISHES_MAX} events at once")
    envelope = recorded.envelope
    about = (envelope.session_id, rule.name, str(rule.version), envelope.event_id)
    for index, wish in enumerate(wishes):
        if not isinstance(wish, Wish):  # pyright: ignore[reportUnnecessaryIsInstance]
            said = f"it may not want {type(wish).__name__}"
            raise _failed(rule, recorded, said)
        event_id = derived_id("policy", *about, type_of(wish), str(index))
        yield Wanted(event_id, _completed(rule, recorded, wish, _action_of(wishes)))


def _completed(rule: Policy, recorded: Recorded, wish: Wish, action: str) -> Wish:
    """A violation says which rule was broken, by what, and what is asked for beside it."""
    if not isinstance(wish, PolicyViolation):
        return wish
    known = {
        "action": action,
        "policy": wish.policy or getattr(rule, "policy", "default"),
        "rule": rule.name,
        "rule_version": rule.version,
        "subject_event_id": recorded.envelope.event_id,
        "subject_seq": recorded.seq,
    }
    return wish.model_copy(update=known)


def _failed(rule: Policy, recorded: Recorded, reason: str) -> PolicyRuleError:
    return PolicyRuleError(rule.name, recorded.envelope.session_id, recorded.seq, reason)
