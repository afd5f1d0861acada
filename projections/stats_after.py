"""What came after a denial, and after a compaction. Pure."""

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TypeVar

from foldline.projections.calls import INTERRUPT_POLICY
from foldline.projections.spread import Spread
from foldline.projections.stats_failures import is_service
from foldline.schemas.events import (
    CompactionCompleted,
    InputProvided,
    PermissionDenied,
    PermissionRequested,
    SessionCancelled,
    SessionCompleted,
    SessionFailed,
    SteeringReceived,
    ToolCallRequested,
    TurnEnded,
    UserMessage,
)
from foldline.schemas.recorded import Recorded

ASKED_AGAIN = "ASKED_AGAIN"
OTHER_CALL = "OTHER_CALL"
PERSON_SPOKE = "PERSON_SPOKE"
SERVICE_SPOKE = "SERVICE_SPOKE"
TURN_ENDED = "TURN_ENDED"
SESSION_ENDED = "SESSION_ENDED"
NOTHING = "NOTHING"

AFTER_DENIAL: dict[str, str] = {
    ASKED_AGAIN: "the same call was asked for again",
    OTHER_CALL: "another call was made",
    PERSON_SPOKE: "a person said something",
    SERVICE_SPOKE: "a policy or another service said something",
    TURN_ENDED: "the turn ended",
    SESSION_ENDED: "the session ended",
    NOTHING: "nothing; the log ends",
}
"""What may come after a denial, by what came first."""

KEPT_MAX = 2_000
"""How many calls of a session are remembered, the latest, to know a repeated one."""

CALLS_LOOKED_AT = 20
"""How many calls before a compaction are compared with as many after it."""

Fingerprint = tuple[str, str, str]


def fingerprint_of(event: ToolCallRequested) -> Fingerprint:
    """What two calls share when they differ only in their ids."""
    return event.namespace or "", event.tool, event.args_hash


class Denials:
    """Denials of one session, each with what came first after it."""

    def __init__(self) -> None:
        self.after: Counter[str] = Counter()
        self._calls: dict[str, Fingerprint] = {}
        self._requests: dict[str, str] = {}
        self._waiting: list[Fingerprint | None] = []

    def take(self, recorded: Recorded) -> None:
        """Take one more event."""
        match recorded.event:
            case ToolCallRequested() as event:
                self._asked(event)
            case PermissionRequested(request_id=name, call_id=str(call_id)):
                _keep(self._requests, name, call_id)
            case PermissionDenied(policy=policy) if policy == INTERRUPT_POLICY:
                pass  # nobody said no: it was interrupted
            case PermissionDenied(call_id=call_id, request_id=name):
                call_id = call_id or self._requests.get(name or "", "")
                self._waiting.append(self._calls.get(call_id))
            case UserMessage() | SteeringReceived() | InputProvided():
                service = is_service(recorded.envelope.actor)
                self._came(SERVICE_SPOKE if service else PERSON_SPOKE)
            case TurnEnded():
                self._came(TURN_ENDED)
            case SessionCompleted() | SessionFailed() | SessionCancelled():
                self._came(SESSION_ENDED)
            case _:
                pass

    def finish(self) -> None:
        """Nothing more comes."""
        self._came(NOTHING)

    def _asked(self, event: ToolCallRequested) -> None:
        fingerprint = fingerprint_of(event)
        _keep(self._calls, event.call_id, fingerprint)
        if self._waiting:
            same = fingerprint in self._waiting
            self._came(ASKED_AGAIN if same else OTHER_CALL)

    def _came(self, what: str) -> None:
        self.after[what] += len(self._waiting)
        self._waiting.clear()


Key = TypeVar("Key")
Kept = TypeVar("Kept")


def _keep(kept: dict[Key, Kept], key: Key, value: Kept) -> None:
    kept[key] = value
    if len(kept) > KEPT_MAX:
        del kept[next(iter(kept))]


@dataclass(slots=True)
class Compactions:
    """Compactions of one session, or of all.

    Of CALLS_LOOKED_AT calls before and after each: how many there were, how many failed,
    and how many after it were the same as one before. `until_next` has the model calls up
    to the next compaction.
    """

    count: int = 0
    tokens_before: Spread = field(default_factory=Spread)
    tokens_after: Spread = field(default_factory=Spread)
    until_next: Spread = field(default_factory=Spread)
    calls_before: int = 0
    failed_before: int = 0
    calls_after: int = 0
    failed_after: int = 0
    asked_after: int = 0
    repeated_after: int = 0


class CompactionWalk:
    """Takes the calls of one session around its compactions."""

    def __init__(self, into: Compactions) -> None:
        self._into = into
        self._latest: deque[bool] = deque(maxlen=CALLS_LOOKED_AT)
        self._known: dict[Fingerprint, None] = {}
        self._before: frozenset[Fingerprint] = frozenset()
        self._left = 0
        self._ended_left = 0
        self._model_calls = 0
        self._compacted = False

    def compacted(self, event: CompactionCompleted, *, model_calls: int) -> None:
        """A compaction was completed, after so many model calls of the session."""
        into = self._into
        into.count += 1
        if event.token_before is not None:
            into.tokens_before.add(event.token_before)
        if event.token_after is not None:
            into.tokens_after.add(event.token_after)
        if self._compacted:
            into.until_next.add(model_calls - self._model_calls)
        into.calls_before += len(self._latest)
        into.failed_before += sum(self._latest)
        self._latest.clear()
        self._before = frozenset(self._known)
        self._left = self._ended_left = CALLS_LOOKED_AT
        self._model_calls, self._compacted = model_calls, True

    def asked(self, event: ToolCallRequested) -> None:
        """A call was asked for."""
        fingerprint = fingerprint_of(event)
        if self._left:
            self._left -= 1
            self._into.asked_after += 1
            self._into.repeated_after += fingerprint in self._before
        self._known.pop(fingerprint, None)
        _keep(self._known, fingerprint, None)

    def ended(self, *, failed: bool) -> None:
        """A call ended."""
        self._latest.append(failed)
        if self._ended_left:
            self._ended_left -= 1
            self._into.calls_after += 1
            self._into.failed_after += failed
