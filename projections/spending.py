"""What a session has spent by now: tokens, money, calls, turns, time. Pure.

Each model call counts once, with what was said of it last. Input is all of it, what was
read from a cache and written to it included, also where a provider counts these apart.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from foldline.projections.metric_names import MICROS
from foldline.projections.metrics_tracked import moment_of
from foldline.projections.token_count import input_tokens
from foldline.schemas.envelope import Envelope
from foldline.schemas.events import (
    Cost,
    ModelCallCancelled,
    ModelCallCompleted,
    ModelCallFailed,
    ModelCallStarted,
    ToolCallRequested,
    TurnStarted,
    Usage,
    UsageCorrected,
)
from foldline.schemas.recorded import Recorded

CALLS_MAX = 1_000
"""How many model calls, the latest, are kept so that they can be corrected."""

PROVIDERS = {"claude-code": "anthropic", "codex": "openai"}
"""The provider of a mirrored harness, where its records do not say who answered."""


@dataclass(slots=True)
class Spent:
    """Totals. Times are microseconds, `costs` millionths of a currency by its code."""

    events: int = 0
    turns: int = 0
    model_calls: int = 0
    tool_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    costs: dict[str, int] = field(default_factory=dict[str, int])
    duration_us: int = 0

    @property
    def tokens(self) -> int:
        """All tokens, in and out."""
        return self.input_tokens + self.output_tokens

    def view(self) -> dict[str, Any]:
        """The sums for machines: durations in seconds, money in whole units by currency."""
        return {
            "events": self.events,
            "turns": self.turns,
            "model_calls": self.model_calls,
            "tool_calls": self.tool_calls,
            "input_tokens": self.input_tokens,
            "cached_tokens": self.cached_tokens,
            "output_tokens": self.output_tokens,
            "cost": {name: micros / MICROS for name, micros in sorted(self.costs.items())},
            "duration_s": self.duration_us / MICROS,
        }

    def copy(self) -> "Spent":
        """The totals as they are now."""
        return replace(self, costs=dict(self.costs))

    def since(self, before: "Spent") -> "Spent":
        """What was spent after `before`."""
        costs = {
            name: have - before.costs.get(name, 0) for name, have in self.costs.items()
        }
        return Spent(
            events=self.events - before.events,
            turns=self.turns - before.turns,
            model_calls=self.model_calls - before.model_calls,
            tool_calls=self.tool_calls - before.tool_calls,
            input_tokens=self.input_tokens - before.input_tokens,
            output_tokens=self.output_tokens - before.output_tokens,
            cached_tokens=self.cached_tokens - before.cached_tokens,
            costs={name: more for name, more in costs.items() if more},
            duration_us=self.duration_us - before.duration_us,
        )


def added(one: Spent, other: Spent) -> Spent:
    """Two totals together."""
    names = one.costs.keys() | other.costs.keys()
    return Spent(
        events=one.events + other.events,
        turns=one.turns + other.turns,
        model_calls=one.model_calls + other.model_calls,
        tool_calls=one.tool_calls + other.tool_calls,
        input_tokens=one.input_tokens + other.input_tokens,
        output_tokens=one.output_tokens + other.output_tokens,
        cached_tokens=one.cached_tokens + other.cached_tokens,
        costs={n: one.costs.get(n, 0) + other.costs.get(n, 0) for n in sorted(names)},
        duration_us=one.duration_us + other.duration_us,
    )


@dataclass(slots=True)
class _Call:
    """What was said last of one model call."""

    provider: str = ""
    tokens: tuple[int, int, int] = (0, 0, 0)
    cost: tuple[str, int] = ("", 0)


class Meter:
    """Counts what a session spends, event by event."""

    def __init__(self) -> None:
        self.spent = Spent()
        self.began_us = 0
        self.now_us = 0
        self._mirrored = False
        self._calls: dict[str, _Call] = {}

    def take(self, recorded: Recorded) -> None:
        """Count one more event."""
        spent, event = self.spent, recorded.event
        spent.events += 1
        self._at(recorded.envelope)
        match event:
            case TurnStarted():
                spent.turns += 1
            case ToolCallRequested():
                spent.tool_calls += 1
            case ModelCallStarted():
                self._call(recorded.envelope, event.model_call_id).provider = event.provider
            case ModelCallCompleted():
                call = self._call(recorded.envelope, event.model_call_id)
                self._used(call, event.usage)
                self._paid(call, event.cost)
            case ModelCallFailed() | ModelCallCancelled() | UsageCorrected():
                call = self._call(recorded.envelope, event.model_call_id)
                self._used(call, event.usage)
            case _:
                pass

    def _at(self, envelope: Envelope) -> None:
        """A mirrored history may go back in time; what it lasted does not.

        Its log time is that of its import, and tells nothing of it.
        """
        told = envelope.source is not None and envelope.occurred_at is not None
        self._mirrored = self._mirrored or told
        if self._mirrored and not told:
            return
        moment_us = moment_of(envelope)
        self.began_us = self.began_us or moment_us
        self.now_us = max(self.now_us, moment_us)
        self.spent.duration_us = self.now_us - self.began_us

    def _call(self, envelope: Envelope, model_call_id: str) -> _Call:
        call = self._calls.get(model_call_id)
        if call is not None:
            return call
        self.spent.model_calls += 1
        system = envelope.source.system if envelope.source else ""
        call = self._calls[model_call_id] = _Call(PROVIDERS.get(system, ""))
        if len(self._calls) > CALLS_MAX:
            del self._calls[next(iter(self._calls))]
        return call

    def _used(self, call: _Call, usage: Usage | None) -> None:
        if usage is None:
            return
        now = (
            input_tokens(usage, provider=call.provider),
            usage.output_tokens or 0,
            usage.cache_read_input_tokens or 0,
        )
        was, call.tokens = call.tokens, now
        self.spent.input_tokens += now[0] - was[0]
        self.spent.output_tokens += now[1] - was[1]
        self.spent.cached_tokens += now[2] - was[2]

    def _paid(self, call: _Call, cost: Cost | None) -> None:
        if cost is None:
            return
        costs, (currency, amount) = self.spent.costs, call.cost
        if currency:
            costs[currency] -= amount
        costs[cost.currency] = costs.get(cost.currency, 0) + cost.amount_micros
        call.cost = (cost.currency, cost.amount_micros)
