"""SessionState: what the fold of a session's events knows. Small for any session. Pure.

What is open is listed; what finished long ago is counted. Content (the goal's text, a
result) is not copied: a `Ref` says which event holds it.

States are mutable inside the fold, for speed, and handed out by value: see
`foldline.processors.fold`. Times are log times in microseconds; 0 means none.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any, TypeVar, cast

FOLD_VERSION = 1
"""The version of the fold: a snapshot of another version is not used."""

WINDOW = 128
"""W: how many event ids a state remembers, to answer a resend with DUPLICATE."""

ID_BYTES = 16
"""How many bytes an event id has in a state's window."""

FINISHED_KEPT = 16
"""How many finished calls, and model calls for usage corrections, a state lists."""

OWNED = "OWNED"
MIRRORED = "MIRRORED"

CREATED = "CREATED"
IDLE = "IDLE"
RUNNING = "RUNNING"
WAITING_APPROVAL = "WAITING_APPROVAL"
SUSPENDED = "SUSPENDED"
COMPLETED = "COMPLETED"
FAILED = "FAILED"
CANCELLED = "CANCELLED"

STATUSES = (
    CREATED,
    IDLE,
    RUNNING,
    WAITING_APPROVAL,
    SUSPENDED,
    COMPLETED,
    FAILED,
    CANCELLED,
)
ENDED: frozenset[str] = frozenset({COMPLETED, FAILED, CANCELLED})

# Statuses of a call.
CALL_REQUESTED = "REQUESTED"
CALL_WAITING = "WAITING"
CALL_GRANTED = "GRANTED"
CALL_EXPIRED = "EXPIRED"
CALL_DENIED = "DENIED"
CALL_RUNNING = "RUNNING"
CALL_BACKGROUND = "BACKGROUND"
CALL_UNKNOWN = "UNKNOWN"
CALL_CANCELLING = "CANCELLING"
CALL_TIMED_OUT = "TIMED_OUT"
CALL_NOT_EXECUTED = "NOT_EXECUTED"
CALL_COMPLETED = "COMPLETED"
CALL_FAILED = "FAILED"
CALL_CANCELLED = "CANCELLED"
CALL_INVALID = "INVALID"
CALL_ABANDONED = "ABANDONED"

NOT_BEGUN: frozenset[str] = frozenset(
    {
        CALL_REQUESTED,
        CALL_WAITING,
        CALL_GRANTED,
        CALL_EXPIRED,
        CALL_DENIED,
        CALL_NOT_EXECUTED,
    }
)
"""Statuses of an open call whose effect has not begun; the turn's end abandons it."""

EXECUTING: frozenset[str] = frozenset({CALL_RUNNING, CALL_CANCELLING, CALL_TIMED_OUT})
"""Statuses in which a tool may be running in the foreground."""


@lru_cache(maxsize=1024)
def id_bytes(event_id: str) -> bytes:
    """An event id as the window has it; what is no UUID (in no log) is hashed."""
    try:
        found = bytes.fromhex(event_id.replace("-", ""))
    except ValueError:
        found = b""
    if len(found) == ID_BYTES:
        return found
    return hashlib.sha256(event_id.encode(errors="replace")).digest()[:ID_BYTES]


Part = TypeVar("Part")


def copier(
    cls: type[Part],
    *,
    listed: Iterable[str] = (),
    anew: Mapping[str, Callable[[Any], Any]] | None = None,
) -> Callable[[Part], Part]:
    """What makes another of the same values; `copy.copy` takes ten times as long.

    It is generated, one line for each field, which is twice as quick as a loop.

    Args:
        cls: a dataclass with slots.
        listed: its dictionaries that the other has for itself.
        anew: by field, what makes another of a value that is not None.
    """
    makers = anew or {}
    own = frozenset(listed)
    lines = ["def copied(part):", "    other = new(cls)"]
    for name in (item.name for item in fields(cast("Any", cls))):
        value = f"part.{name}"
        if name in makers:
            value = f"make_{name}({value}) if {value} is not None else None"
        if name in own:
            value = f"{value}.copy() if {value} else {{}}"
        lines.append(f"    other.{name} = {value}")
    lines.append("    return other")
    scope: dict[str, Any] = {f"make_{name}": make for name, make in makers.items()}
    scope |= {"new": object.__new__, "cls": cls}
    exec("\n".join(lines), scope)  # noqa: S102 - our own text, of our own fields' names
    return cast("Callable[[Part], Part]", scope["copied"])


@dataclass(slots=True)
class Ref:
    """Which event holds something; `key` is its role or id where there are several."""

    event_id: str
    seq: int
    key: str = ""


@dataclass(slots=True)
class Turn:
    """The open turn."""

    turn_id: str
    trigger: str
    seq: int


@dataclass(slots=True)
class Attempt:
    """An attempt without confirmed end, before the current one, and who began it."""

    attempt: int
    epoch: int
    writer: str


@dataclass(slots=True)
class Call:
    """A tool call: listed while it is open, then for a while among the finished.

    `status` is one of the CALL_ statuses. `epoch` and `writer` are those of the last
    start; `start_by_at` and `deadline_at` are log times, 0 where none was given.
    `granted_seq` and `granted_args_hash` tell which grant lets it run, and with which
    arguments. `confirmed` is a bit set of the attempts whose end is confirmed.
    `resolved` says that somebody found the end out: the first real outcome of that
    attempt is then still taken, as late. `executed` is what is known of the effect of
    the last attempt: YES, NO or UNKNOWN; `happened` says that an earlier one turned out
    to have had, perhaps, its effect. `earlier` lists former attempts whose real outcome
    may still come; the fold replaces it, never changes it. `handle` is that of the last
    attempt in the background, `cancel_seq` the seq of a request to cancel this call.
    """

    call_id: str
    tool: str
    args_hash: str
    provider_call_id: str
    turn_id: str
    requested_seq: int
    request_event_id: str = ""
    status: str = CALL_REQUESTED
    attempt: int = 0
    effect: str = ""
    operation_id: str = ""
    cancellable: bool = False
    started_seq: int = 0
    start_by_at: int = 0
    deadline_at: int = 0
    epoch: int = 0
    writer: str = ""
    granted_seq: int = 0
    granted_args_hash: str = ""
    denials: int = 0
    expiries: int = 0
    confirmed: int = 0
    executed: str = ""
    happened: bool = False
    resolved: bool = False
    closed_seq: int = 0
    cancel_seq: int = 0
    namespace: str = ""
    handle: str = ""
    earlier: dict[int, Attempt] = field(default_factory=dict[int, Attempt])


copied_call = copier(Call)


@dataclass(slots=True)
class Handle:
    """A call that goes on in the background."""

    handle: str
    call_id: str
    attempt: int
    seq: int
    epoch: int
    writer: str


@dataclass(slots=True)
class PendingRequest:
    """A request for permission (or, with kind INPUT, for an answer) without answer."""

    request_id: str
    kind: str
    call_id: str
    args_hash: str
    turn_id: str
    seq: int
    expires_at: int = 0


@dataclass(slots=True)
class Grant:
    """A grant that outlives its call: scope TURN or SESSION."""

    grant_id: str
    tool: str
    scope: str
    turn_id: str
    seq: int
    namespace: str = ""


@dataclass(slots=True)
class ModelCall:
    """A model call without end."""

    model_call_id: str
    provider: str
    model: str
    purpose: str
    attempt: int
    seq: int
    epoch: int
    writer: str
    deadline_at: int = 0


@dataclass(slots=True)
class OpenCompaction:
    """A compaction that has begun."""

    compaction_id: str
    base_seq: int
    seq: int
    epoch: int


@dataclass(slots=True)
class Compaction:
    """The compaction now in force."""

    seq: int
    from_seq: int
    to_seq: int
    base_seq: int
    summary_seq: int = 0


@dataclass(slots=True)
class Steering:
    """Steering that is neither applied nor expired."""

    event_id: str
    seq: int
    mode: str


@dataclass(slots=True)
class Subagent:
    """A child session that has not ended."""

    child_session_id: str
    call_id: str
    seq: int


@dataclass(slots=True)
class Retry:
    """A retry that was scheduled; `not_before_at` is a log time."""

    target: str
    attempt: int
    not_before_at: int
    seq: int


@dataclass(slots=True)
class Cancellation:
    """The widest cancellation that was asked for and is not yet done.

    One of a CALL does not hide one of the TURN or SESSION; see also `Call.cancel_seq`.
    """

    target: str
    target_id: str
    reason: str
    seq: int


@dataclass(slots=True)
class UsageTotals:
    """Tokens, of one model call or of all; what nobody told counts as 0."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_input_tokens: int = 0
    cache_write_input_tokens: int = 0
    reasoning_output_tokens: int = 0


@dataclass(slots=True)
class CallUsage:
    """The usage last said of a model call, so that a correction can replace it.

    `epoch` and `writer` are those that began the call.
    """

    model_call_id: str
    seq: int
    epoch: int
    writer: str
    usage: UsageTotals = field(default_factory=UsageTotals)


@dataclass(slots=True)
class SessionState:
    """The fold of one session's events.

    `window` is the last WINDOW event ids, ID_BYTES each, the newest last: one run of
    bytes, because every append looks through it and every batch copies it.
    """

    session_id: str
    tenant: str = "default"
    agent: str = ""
    mode: str = OWNED
    relation: str = "ROOT"
    parent_session_id: str = ""
    parent_call_id: str = ""
    fork_seq: int = 0
    created_event_id: str = ""
    phase: str = CREATED
    suspended_from: str = ""
    reason: str = ""
    seq: int = 0
    epoch: int = 0
    owner: str = ""
    claimed_seq: int = 0
    turn: Turn | None = None
    goal: Ref | None = None
    plan: Ref | None = None
    budget: Ref | None = None
    tools: Ref | None = None
    labels: Ref | None = None
    config: Ref | None = None
    steering_latest: Ref | None = None
    cancellation: Cancellation | None = None
    open_compaction: OpenCompaction | None = None
    compaction: Compaction | None = None
    cleared_seq: int = 0
    rewound_seq: int = 0
    rewound_to: int = 0
    checkpoint_seq: int = 0
    usage: UsageTotals = field(default_factory=UsageTotals)
    instructions: dict[str, Ref] = field(default_factory=dict[str, Ref])
    constraints: dict[str, Ref] = field(default_factory=dict[str, Ref])
    harness_state: dict[str, Ref] = field(default_factory=dict[str, Ref])
    steering: dict[str, Steering] = field(default_factory=dict[str, Steering])
    calls: dict[str, Call] = field(default_factory=dict[str, Call])
    finished: dict[str, Call] = field(default_factory=dict[str, Call])
    handles: dict[str, Handle] = field(default_factory=dict[str, Handle])
    requests: dict[str, PendingRequest] = field(default_factory=dict[str, PendingRequest])
    grants: dict[str, Grant] = field(default_factory=dict[str, Grant])
    model_calls: dict[str, ModelCall] = field(default_factory=dict[str, ModelCall])
    model_usage: dict[str, CallUsage] = field(default_factory=dict[str, CallUsage])
    subagents: dict[str, Subagent] = field(default_factory=dict[str, Subagent])
    retries: dict[str, Retry] = field(default_factory=dict[str, Retry])
    counts: dict[str, int] = field(default_factory=dict[str, int])
    anomalies: dict[str, int] = field(default_factory=dict[str, int])
    dropped: dict[str, int] = field(default_factory=dict[str, int])
    window: bytes = b""
    created_at: int = 0
    recorded_at: int = 0
    chain_head: bytes = b""

    @property
    def status(self) -> str:
        """The status of section *State* in docs/design.md; WAITING_APPROVAL is derived."""
        if self.phase == RUNNING and self.requests and not self.executing:
            return WAITING_APPROVAL
        return self.phase

    @property
    def executing(self) -> bool:
        """Whether a model call is open, or a tool of the open turn may be running.

        What an earlier turn left running does not keep this one from waiting.
        """
        turn_id = self.turn.turn_id if self.turn else ""
        return bool(self.model_calls) or any(
            call.status in EXECUTING and call.turn_id == turn_id
            for call in self.calls.values()
        )

    @property
    def ended(self) -> bool:
        """Whether the session is COMPLETED, FAILED or CANCELLED."""
        return self.phase in ENDED

    def seq_of(self, event_id: str) -> int | None:
        """The seq of a recent event, or of the creation; None when not remembered."""
        if event_id == self.created_event_id:
            return self.fork_seq + 1
        window, wanted = self.window, id_bytes(event_id)
        at = window.find(wanted)
        while at % ID_BYTES and at > 0:  # across two ids: by chance, and not it
            at = window.find(wanted, at + 1)
        return None if at < 0 else self.seq + 1 - (len(window) - at) // ID_BYTES

    def remember(self, event_id: str) -> None:
        """Take the id of the newest event into the window."""
        room = ID_BYTES - WINDOW * ID_BYTES
        self.window = self.window[room:] + id_bytes(event_id)

    @property
    def event_ids(self) -> list[str]:
        """The ids in the window, the newest last."""
        digits = self.window.hex()
        return [
            f"{digits[i : i + 8]}-{digits[i + 8 : i + 12]}-{digits[i + 12 : i + 16]}"
            f"-{digits[i + 16 : i + 20]}-{digits[i + 20 : i + 32]}"
            for i in range(0, len(digits), 2 * ID_BYTES)
        ]
