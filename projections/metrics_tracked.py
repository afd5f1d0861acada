"""What metrics keep of a session between two of its events. Pure.

Times are microseconds: log time, and of mirrored facts the time at which they happened,
because their log time is that of the import.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from foldline.processors.kept import attempt_bit, short
from foldline.processors.listing import running_under
from foldline.schemas.envelope import Envelope
from foldline.schemas.recorded import Recorded
from foldline.schemas.state import (
    CALL_BACKGROUND,
    CALL_CANCELLING,
    CALL_TIMED_OUT,
    CALL_UNKNOWN,
    MIRRORED,
    Call,
    SessionState,
    UsageTotals,
)

OPEN_MAX = 1_000
"""How many open things of a session, the newest, are kept with when they began."""


_UNCERTAIN = frozenset({CALL_TIMED_OUT, CALL_CANCELLING, CALL_BACKGROUND})
"""A call that had an outcome, behind which a certain one may still come."""


class Sample(NamedTuple):
    """What an event adds to one metric: 1, a number, or microseconds."""

    name: str
    labels: tuple[str, ...] = ()
    value: int = 1


class Claim(NamedTuple):
    """A new owner that has done nothing yet, and what the session was claimed from."""

    epoch: int
    at: int
    status: str


@dataclass(slots=True)
class Tracked:
    """A session's state, and when what is open in it began.

    `since` has times by key: `call:`, `model:`, `request:` and an id. `models` has the
    models of calls whose usage may still be corrected. `recovering` says that it was
    taken over in the turn that is open.
    """

    state: SessionState
    now: int = 0
    began: int = 0
    turn_at: int = 0
    unknown: int = 0
    recovering: bool = False
    claim: Claim | None = None
    since: dict[str, int] = field(default_factory=dict[str, int])
    models: dict[str, str] = field(default_factory=dict[str, str])

    def begin(self, kind: str, name: str) -> None:
        """Note that something begins now."""
        self.since[f"{kind}:{name}"] = self.now
        if len(self.since) > OPEN_MAX:
            del self.since[next(iter(self.since))]

    def ended(self, kind: str, name: str) -> int | None:
        """How long it was open, in microseconds; None if that is not known."""
        began = self.since.pop(f"{kind}:{name}", None)
        return None if began is None else max(self.now - began, 0)

    @property
    def waiting_since(self) -> int | None:
        """When the oldest request began that people can answer here; None without one."""
        if self.state.mode == MIRRORED:
            return None  # it is asked, and answered, elsewhere
        begun = (at for key, at in self.since.items() if key.startswith("request:"))
        return min(begun, default=None)

    def forget(self) -> None:
        """Forget the models of calls whose usage nobody can correct any more."""
        state = self.state
        if len(self.models) > len(state.model_calls) + len(state.model_usage):
            known = state.model_calls.keys() | state.model_usage.keys()
            self.models = {name: self.models[name] for name in self.models if name in known}


@dataclass(frozen=True, slots=True)
class Before:
    """What was so before an event was folded in.

    `unbegun` says that the event is the first outcome of an execution of which nobody
    recorded that it began.
    """

    status: str
    in_turn: bool
    waiting: int
    unknown: int
    tool: str
    unbegun: bool
    requests: tuple[str, ...]
    usage: UsageTotals
    call_usage: UsageTotals | None
    is_open_model_call: bool
    last_at: int


def before_of(tracked: Tracked, recorded: Recorded) -> Before:
    """What has to be known of a session before its next event is folded in."""
    state, event = tracked.state, recorded.event
    fields = getattr(event, "__dict__", {})
    call, model_call_id = _call_of(state, fields), _id(fields, "model_call_id")
    known = state.model_usage.get(model_call_id) if model_call_id else None
    usage = state.usage
    before = Before(
        status=state.status if state.seq else "",
        in_turn=state.turn is not None,
        waiting=len(state.requests),
        unknown=tracked.unknown,
        tool=call.tool if call else "",
        unbegun=call is not None and _is_unbegun(call, fields.get("attempt")),
        requests=tuple(state.requests),
        usage=UsageTotals(*(getattr(usage, name) for name in usage.__slots__)),
        call_usage=known.usage if known else None,
        is_open_model_call=model_call_id in state.model_calls,
        last_at=tracked.now,
    )
    tracked.now = moment_of(recorded.envelope)
    return before


def _id(fields: Mapping[str, object], name: str) -> str:
    value = fields.get(name)
    return short(value) if isinstance(value, str) else ""


def _call_of(state: SessionState, fields: Mapping[str, object]) -> Call | None:
    """The call that an event is about, by itself or by what runs in the background."""
    call_id = _id(fields, "call_id")
    if not call_id and (handle := running_under(state, _id(fields, "handle"))):
        call_id = handle.call_id
    return listed(state, call_id)


def _is_unbegun(call: Call, attempt: object) -> bool:
    """Whether no start of this attempt was recorded, and nothing of how it went."""
    return (
        isinstance(attempt, int)
        and attempt > call.attempt
        and not call.confirmed & attempt_bit(attempt)
        and call.status not in _UNCERTAIN
    )


def tool_of(state: SessionState, call_id: str) -> str:
    """The tool of a call that the state still lists; else nothing."""
    call = listed(state, call_id)
    return call.tool if call else ""


def listed(state: SessionState, call_id: str) -> Call | None:
    """A call that the state still lists, open or ended."""
    return state.calls.get(call_id) or state.finished.get(call_id)


def moment_of(envelope: Envelope) -> int:
    """When it happened, as far as it can be compared with others of its session."""
    if envelope.source is not None and envelope.occurred_at is not None:
        return envelope.occurred_at
    return envelope.recorded_at


def unknown_calls(state: SessionState) -> int:
    """How many calls of a state have an unknown outcome."""
    return sum(call.status == CALL_UNKNOWN for call in state.calls.values())
