"""Many sessions, summed up: why they ended, what failed where, what success took. Pure.

    stats = Stats()
    for session in sessions:
        walk = SessionWalk(session_id)
        for recorded in events: walk.take(recorded)
        stats.add(walk.told())

What it keeps does not grow with the number of sessions.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from foldline.projections.spending import Spent, added
from foldline.projections.spread import Spread
from foldline.projections.stats_after import Compactions
from foldline.projections.stats_endings import BAD, GOOD, OPEN
from foldline.projections.stats_failures import Failure
from foldline.projections.stats_walk import OTHER, Told, ToolTold

NAMES_MAX = 1_000
"""How many agents, tools and kinds of failures are told apart; beyond, they are others."""

DAYS_MAX = 4_000
"""How many days are told apart."""

DAY_US = 86_400_000_000

VERDICTS = (GOOD, BAD, OPEN)


@dataclass(slots=True)
class Took:
    """What sessions of one verdict took. Durations are seconds."""

    model_calls: Spread = field(default_factory=Spread)
    tool_calls: Spread = field(default_factory=Spread)
    turns: Spread = field(default_factory=Spread)
    tokens: Spread = field(default_factory=Spread)
    output_tokens: Spread = field(default_factory=Spread)
    duration_s: Spread = field(default_factory=Spread)
    failures: Spread = field(default_factory=Spread)

    def add(self, told: Told) -> None:
        """Take one more session."""
        spent = told.spent
        self.model_calls.add(spent.model_calls)
        self.tool_calls.add(spent.tool_calls)
        self.turns.add(spent.turns)
        self.tokens.add(spent.tokens)
        self.output_tokens.add(spent.output_tokens)
        self.duration_s.add(spent.duration_us / 1_000_000)
        self.failures.add(sum(told.failures.values()))


@dataclass(slots=True)
class Failed:
    """One kind of failure: how often, in how many sessions, and how those ended."""

    count: int = 0
    sessions: Counter[str] = field(default_factory=Counter[str])


@dataclass(slots=True)
class OfTool:
    """One tool over all sessions; times are milliseconds."""

    calls: int = 0
    failed: int = 0
    sessions: int = 0
    times_ms: Spread = field(default_factory=Spread)


@dataclass(slots=True)
class OfAgent:
    """One agent over all sessions, by verdict."""

    sessions: Counter[str] = field(default_factory=Counter[str])
    spent: Spent = field(default_factory=Spent)


class Stats:
    """Everything that is told of many sessions."""

    def __init__(self) -> None:
        self.sessions = 0
        self.endings: Counter[str] = Counter()
        self.verdicts: Counter[str] = Counter()
        self.modes: Counter[str] = Counter()
        self.spent = Spent()
        self.took = {verdict: Took() for verdict in VERDICTS}
        self.failures: dict[Failure, Failed] = {}
        self.layers: dict[str, Failed] = {}
        self.denials: Counter[str] = Counter()
        self.denied: Counter[str] = Counter()
        self.compactions = Compactions()
        self.compacted: Counter[str] = Counter()
        self.tools: dict[str, OfTool] = {}
        self.agents: dict[str, OfAgent] = {}
        self.days: dict[int, Counter[str]] = {}

    def add(self, told: Told) -> None:
        """Take one more session."""
        self.sessions += 1
        self.endings[told.ending] += 1
        self.verdicts[told.verdict] += 1
        self.modes[told.mode] += 1
        self.spent = added(self.spent, told.spent)
        self.took[told.verdict].add(told)
        self._failed(told)
        self._after(told)
        for name, tool in told.tools.items():
            self._tool(name, tool)
        agent = _of(self.agents, told.agent or "-", OTHER, OfAgent)
        agent.sessions[told.verdict] += 1
        agent.spent = added(agent.spent, told.spent)
        day = told.began_us // DAY_US
        if day in self.days or len(self.days) < DAYS_MAX:
            self.days.setdefault(day, Counter())[told.verdict] += 1

    def _failed(self, told: Told) -> None:
        seen: set[str] = set()
        for failure, count in told.failures.items():
            other = Failure(failure.layer, OTHER)
            kind = _of(self.failures, failure, other, Failed)
            kind.count += count
            kind.sessions[told.verdict] += 1
            layer = self.layers.setdefault(failure.layer, Failed())
            layer.count += count
            if failure.layer not in seen:
                layer.sessions[told.verdict] += 1
                seen.add(failure.layer)

    def _after(self, told: Told) -> None:
        self.denials.update(told.denials)
        if any(told.denials.values()):
            self.denied[told.verdict] += 1
        if told.compactions.count:
            self.compacted[told.verdict] += 1
            _join(self.compactions, told.compactions)

    def _tool(self, name: str, told: ToolTold) -> None:
        tool = _of(self.tools, name, OTHER, OfTool)
        tool.calls += told.calls
        tool.failed += told.failed
        tool.sessions += 1
        for took_ms in told.times_ms:
            tool.times_ms.add(took_ms)

    def days_in_order(self) -> Iterator[tuple[int, Counter[str]]]:
        """Each day (since 1970) on which a session began, with their verdicts."""
        yield from sorted(self.days.items())


Key = TypeVar("Key")
Part = TypeVar("Part")


def _of(known: dict[Key, Part], key: Key, other: Key, make: Callable[[], Part]) -> Part:
    """What is known under a key; once there are many, of all others together."""
    if key not in known and len(known) >= NAMES_MAX:
        key = other
    if key not in known:
        known[key] = make()
    return known[key]


def _join(whole: Compactions, part: Compactions) -> None:
    """Add the compactions of one session."""
    whole.count += part.count
    whole.tokens_before.join(part.tokens_before)
    whole.tokens_after.join(part.tokens_after)
    whole.until_next.join(part.until_next)
    whole.calls_before += part.calls_before
    whole.failed_before += part.failed_before
    whole.calls_after += part.calls_after
    whole.failed_after += part.failed_after
    whole.asked_after += part.asked_after
    whole.repeated_after += part.repeated_after
