"""What was done to a context so far, and for whom, by the events it is built from. Pure.

Whoever takes a session over shapes its contexts as the owner before did: nothing of this
is kept in a process.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

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
    in the conversation itself: whoever makes its summaries may be another.
    """

    last_seq: int = 0
    failed_tokens: int = 0
    policy: str = ""
    provider: str = ""
    model: str = ""


def shaped_by(events: Iterable[Recorded]) -> Shaped:
    """What these events say of it."""
    found = _Found()
    for recorded in events:
        if type(recorded.event) in _TOLD:
            found.take(recorded.seq, recorded.event)
    return found.shaped()


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
