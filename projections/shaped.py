"""What was done to a context so far, and for whom, by the events it is built from. Pure.

Whoever takes a session over shapes its contexts as the owner before did: nothing of this
is kept in a process.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from foldline.projections.live import TAKES_BACK, taken_back_by
from foldline.projections.recorded_steps import COMPACTION
from foldline.schemas.events import (
    AnyEvent,
    CompactionCompleted,
    CompactionFailed,
    CompactionStarted,
    ContextCleared,
    ContextPruned,
    ModelCallStarted,
    RequestRef,
)
from foldline.schemas.recorded import Recorded

CRASHED, LEFT_OPEN = "crash", "left open"
CANCELLED, CHANGED = "cancelled", "the history has changed since it began"

NOT_TRIED = frozenset({CRASHED, LEFT_OPEN, CANCELLED, CHANGED})
"""Why compactions end that did not fail by what they were to compact."""

POLICY_CALLS = 5
"""The policy of most of the last calls is the session's; one may have had another."""

_TOLD = frozenset(
    {
        CompactionCompleted,
        CompactionFailed,
        CompactionStarted,
        ContextCleared,
        ContextPruned,
        ModelCallStarted,
    }
)


@dataclass(frozen=True, slots=True)
class Shaped:
    """How a context was made smaller before, and what its last models were.

    `last_seq` is the last event that pruned or compacted (0: none did). `failed_tokens`
    is what the context had when its last compaction failed, if none succeeded since.
    `policy` names the policy of its calls, `provider` and `model` who was last asked
    in the conversation itself: whoever makes its summaries may be another. `stale_seq` is
    the last event that took back words which the summary may tell (0: none did).
    """

    last_seq: int = 0
    failed_tokens: int = 0
    policy: str = ""
    provider: str = ""
    model: str = ""
    stale_seq: int = 0


def shaped_by(events: Sequence[Recorded], live: Iterable[Recorded]) -> Shaped:
    """What the events of a history say of it.

    Args:
        events: all of them behind a base, in order.
        live: those that are part of the conversation.
    """
    found = _Found()
    stale_seq = 0
    compacted: CompactionCompleted | None = None
    for recorded in live:
        event = recorded.event
        kind = type(event)
        if kind in _TOLD:
            found.take(recorded.seq, event)
            if kind in (CompactionCompleted, ContextCleared):
                compacted = event if isinstance(event, CompactionCompleted) else None
                stale_seq = 0
        elif compacted is not None and kind in TAKES_BACK:
            gone = _is_of_compacted(events, compacted.to_seq, recorded)
            stale_seq = recorded.seq if gone else stale_seq
    return replace(found.shaped(), stale_seq=stale_seq)


def _is_of_compacted(events: Sequence[Recorded], to_seq: int, by: Recorded) -> bool:
    """Whether an event takes back what lies before the end of a compaction."""
    named = set(taken_back_by(by.event))
    if not named:
        return False
    behind = (r.event for r in events if to_seq < r.seq < by.seq)
    return bool(named - {event.__dict__.get("message_id") for event in behind})


class _Found:
    """What was found so far."""

    def __init__(self) -> None:
        self._last_seq = 0
        self._failed_tokens = 0
        self._tokens: dict[str, int] = {}
        self._calls: list[tuple[ModelCallStarted, RequestRef]] = []

    def take(self, seq: int, event: AnyEvent) -> None:
        """Take one more event in."""
        match event:
            case CompactionCompleted():
                self._last_seq, self._failed_tokens = seq, 0
            case ContextPruned():
                self._last_seq = seq
            case ContextCleared():
                self._failed_tokens = 0
            case CompactionStarted(compaction_id=name, token_before=int() as tokens):
                self._tokens[name] = tokens
            case CompactionFailed(compaction_id=name) if is_failure(event):
                self._failed_tokens = self._tokens.get(name, 0)
            case ModelCallStarted(purpose=purpose) if purpose == COMPACTION:
                pass
            case ModelCallStarted(request=RequestRef() as request):
                self._calls = [*self._calls[1 - POLICY_CALLS :], (event, request)]
            case _:
                pass

    def shaped(self) -> Shaped:
        """All of it."""
        if not self._calls:
            return Shaped(self._last_seq, self._failed_tokens)
        named = [request.policy.partition("@")[0] for _, request in reversed(self._calls)]
        ((policy, _),) = Counter(named).most_common(1)
        last, _ = self._calls[-1]
        return Shaped(
            self._last_seq, self._failed_tokens, policy, last.provider, last.model
        )


def is_failure(event: CompactionFailed) -> bool:
    """Whether a compaction failed by itself: the same again would fail again."""
    return event.reason not in NOT_TRIED
