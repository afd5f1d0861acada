"""The names of all metrics of sessions: one table, nothing else names any. Pure.

Counts are whole numbers, so that a sum does not depend on its order: times are counted
in microseconds here, and shown in seconds. A label is one of a few known words, or a name
from a session (`OPEN_LABELS`), of which LABEL_VALUES_MAX are told apart.
"""

import re
from dataclasses import dataclass

from foldline.schemas.events import EVENT_TYPES
from foldline.schemas.state import STATUSES

METRICS_VERSION = 3
"""Counts of another version are not gone on with: the log is counted anew."""

LABEL_VALUES_MAX = 100
"""How many values of one open label are told apart; those that come later are OTHER."""

LABEL_MAX_CHARS = 64
"""A longer name from a session is OTHER."""

OTHER = "other"
NONE = "none"
"""The value of a label where nothing is said."""

_NAME = re.compile(rf"[A-Za-z0-9_.:/@+-]{{1,{LABEL_MAX_CHARS}}}")
"""What a name may look like: anything else may be content."""

COUNTER = "counter"
GAUGE = "gauge"
HISTOGRAM = "histogram"

MICROS = 1_000_000

_SHORT_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0)
_LONG_S = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 86_400.0, 604_800.0)

OPEN_LABELS = ("agent", "model", "tool")
"""Labels whose values come from sessions."""

TOKEN_KINDS = {
    "input_tokens": "input",
    "output_tokens": "output",
    "cache_read_input_tokens": "cache_read",
    "cache_write_input_tokens": "cache_write",
    "reasoning_output_tokens": "reasoning",
}
"""The value of the label `kind` for each field of a usage."""

TIMEOUT = "TIMEOUT"
"""The layer of an execution that nobody waited for any longer."""

ABANDONED = "ABANDONED"
"""What became of a request that nobody answered when its turn or call ended."""

RECOVERED = "RECOVERED"
PARKED = "PARKED"
RETAKEN = "RETAKEN"

_TURN_OUTCOMES = ("DONE", "ABORTED", "FAILED", "LIMIT")

_WORDS: dict[tuple[str, str], tuple[str, ...]] = {
    ("sessions", "status"): STATUSES,
    ("session_claims", "status"): STATUSES,
    ("wake_seconds", "status"): STATUSES,
    ("sessions_started", "mode"): ("OWNED", "MIRRORED"),
    ("sessions_started", "relation"): ("ROOT", "FORK", "SUBAGENT", "CONTINUATION"),
    ("turns_started", "trigger"): (
        "USER",
        "STEERING",
        "SCHEDULE",
        "PARENT",
        "HARNESS",
        "FORK",
    ),
    ("turns", "outcome"): _TURN_OUTCOMES,
    ("turn_duration_seconds", "outcome"): _TURN_OUTCOMES,
    ("retries", "kind"): ("TOOL", "MODEL"),
    ("events", "type"): tuple(EVENT_TYPES),
}
_WORDS_OF_LABEL: dict[str, tuple[str, ...]] = {
    "outcome": (
        "COMPLETED",
        "FAILED",
        "CANCELLED",
        "TIMED_OUT",
        "BACKGROUNDED",
        "UNKNOWN",
        "NOT_EXECUTED",
        "RECEIVED",
        "APPLIED",
        "EXPIRED",
    ),
    "layer": ("TOOL", "HARNESS", "ENVIRONMENT", "MODEL", TIMEOUT),
    "kind": (*TOKEN_KINDS.values(), "TOOL", "INPUT"),
    "answer": ("GRANTED", "DENIED", "EXPIRED", "ANSWERED", ABANDONED),
    "decided_by": ("PERSON", "POLICY", "EARLIER_GRANT"),
    "result": (RECOVERED, "FAILED", PARKED, RETAKEN),
}


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: what it counts, by which labels; `buckets` of a histogram in seconds."""

    name: str
    kind: str
    text: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def shown(self) -> str:
        """Its name in Prometheus, without a counter's `_total`."""
        return f"foldline_{self.name}"


_FAMILIES = (
    Family("sessions", GAUGE, "Sessions by the status they are in.", ("status",)),
    Family("sessions_started", COUNTER, "Sessions that began.", ("mode", "relation")),
    Family("agent_sessions", COUNTER, "Sessions that began, by agent.", ("agent",)),
    Family("sessions_ended", COUNTER, "Ends of sessions.", ("outcome",)),
    Family(
        "session_duration_seconds",
        HISTOGRAM,
        "From a session's first event to its end.",
        ("outcome",),
        _LONG_S,
    ),
    Family("events", COUNTER, "Recorded events by type.", ("type",)),
    Family("turns_started", COUNTER, "Turns that began.", ("trigger",)),
    Family("turns", COUNTER, "Turns that ended.", ("outcome",)),
    Family("turns_open", GAUGE, "Turns that are open."),
    Family(
        "turn_duration_seconds",
        HISTOGRAM,
        "From a turn's start to its end.",
        ("outcome",),
        _LONG_S,
    ),
    Family("model_calls", COUNTER, "Model calls that ended.", ("model", "outcome")),
    Family(
        "model_call_duration_seconds",
        HISTOGRAM,
        "Time of a model call to its whole answer.",
        ("model",),
        _SHORT_S,
    ),
    Family(
        "model_time_to_first_chunk_seconds",
        HISTOGRAM,
        "Time to the first piece of an answer.",
        ("model",),
        _SHORT_S,
    ),
    Family(
        "model_cache_hits",
        COUNTER,
        "Model calls of which the provider had a part of the input in its cache.",
        ("model",),
    ),
    Family("tokens", COUNTER, "Tokens, as first said.", ("model", "kind")),
    Family(
        "tokens_taken_back",
        COUNTER,
        "Tokens that a later usage of the same call took back.",
        ("model", "kind"),
    ),
    Family("tool_calls", COUNTER, "Tool calls that a model asked for.", ("tool",)),
    Family("tool_calls_invalid", COUNTER, "Calls refused unexecuted.", ("tool",)),
    Family("tool_executions", COUNTER, "Executions of tools.", ("tool",)),
    Family("tool_outcomes", COUNTER, "Recorded outcomes of tools.", ("tool", "outcome")),
    Family(
        "tool_errors",
        COUNTER,
        "Executions that failed or timed out, by the layer that failed.",
        ("tool", "layer"),
    ),
    Family(
        "tool_nonzero_exits",
        COUNTER,
        "Executions that completed with another exit code than 0.",
        ("tool",),
    ),
    Family(
        "tool_duration_seconds",
        HISTOGRAM,
        "Time of an execution to its outcome.",
        ("tool",),
        _SHORT_S,
    ),
    Family("retries", COUNTER, "Attempts after the first.", ("kind",)),
    Family("retries_scheduled", COUNTER, "Retries that were put off."),
    Family("approvals_requested", COUNTER, "Requests to people, by kind.", ("kind",)),
    Family("approvals", COUNTER, "What became of requests to people.", ("answer",)),
    Family("approvals_waiting", GAUGE, "Requests that wait for an answer."),
    Family(
        "approval_wait_seconds",
        HISTOGRAM,
        "From a request to what became of it.",
        ("answer",),
        _LONG_S,
    ),
    Family("permissions", COUNTER, "Grants and denials.", ("answer", "decided_by")),
    Family("compactions", COUNTER, "Compactions that ended.", ("outcome",)),
    Family(
        "compaction_tokens_saved",
        COUNTER,
        "Tokens by which compactions made contexts smaller.",
    ),
    Family("prunings", COUNTER, "Prunings of contexts."),
    Family("pruning_tokens_saved", COUNTER, "Tokens that prunings took out."),
    Family("loops", COUNTER, "Loops that were detected."),
    Family("policy_violations", COUNTER, "Violations of policies."),
    Family("unknown_outcomes", COUNTER, "Outcomes that became unknown.", ("tool",)),
    Family("unknown_outcomes_open", GAUGE, "Calls whose outcome is unknown now."),
    Family(
        "unknown_outcomes_resolved",
        COUNTER,
        "Outcomes that somebody found out.",
        ("outcome",),
    ),
    Family("session_claims", COUNTER, "Changes of owner, by status.", ("status",)),
    Family(
        "wake_seconds",
        HISTOGRAM,
        "From a claim to the new owner's first event.",
        ("status",),
        _SHORT_S,
    ),
    Family("recoveries", COUNTER, "Sessions taken over in the middle of a turn."),
    Family("recoveries_open", GAUGE, "Such sessions whose turn is still open."),
    Family("recovery_results", COUNTER, "What became of recoveries.", ("result",)),
    Family(
        "standstill_seconds",
        HISTOGRAM,
        "How long a session stood still before it was taken over in a turn.",
        (),
        _LONG_S,
    ),
    Family("steerings", COUNTER, "Steering by what became of it.", ("outcome",)),
    Family("cancellations", COUNTER, "Requests to stop something."),
    Family("subagents", COUNTER, "Subagents that were started."),
    Family("checkpoints", COUNTER, "Checkpoints."),
)

FAMILIES: dict[str, Family] = {family.name: family for family in _FAMILIES}
"""Every metric of sessions, by its name here."""

CONSUMER: dict[str, Family] = {
    family.name: family
    for family in (
        Family(
            "metrics_lag_events",
            GAUGE,
            "What the log has and is not counted: events, on Kafka records.",
            ("partition",),
        ),
        Family("metrics_repeats", COUNTER, "Events that came again: not counted."),
        Family("metrics_skipped_records", COUNTER, "Records that no worker wrote."),
        Family("metrics_gaps", COUNTER, "Sessions with events gone before they were read."),
        Family(
            "metrics_live_timestamp_seconds",
            GAUGE,
            "When the whole log was counted for the first time; 0 before.",
        ),
        Family(
            "approvals_oldest_timestamp_seconds",
            GAUGE,
            "Since when the request waits that waits longest; 0 where none does.",
        ),
    )
}
"""What a consumer says beside them: no counts, but of itself and of what is open."""


FLEET: dict[str, Family] = {
    family.name: family
    for family in (
        Family("fleet_calls", GAUGE, "Calls in the latest whole window.", ("by", "name")),
        Family("fleet_errors", GAUGE, "Calls in it that failed.", ("by", "name")),
        Family(
            "fleet_error_ratio", GAUGE, "Which part of its calls failed.", ("by", "name")
        ),
        Family(
            "fleet_duration_p95_seconds",
            GAUGE,
            "Under which 95 of 100 durations in it are.",
            ("by", "name"),
        ),
        Family("fleet_retries", GAUGE, "Attempts after the first in it.", ("by", "name")),
        Family(
            "fleet_approvals", GAUGE, "Requests in it that wait no more.", ("by", "name")
        ),
        Family(
            "fleet_approval_wait_seconds", GAUGE, "How long they waited.", ("by", "name")
        ),
        Family("fleet_loops", GAUGE, "Loops that were detected in it.", ("by", "name")),
        Family("fleet_loops_detected", COUNTER, "Loops that were detected.", ("kind",)),
        Family("fleet_loop_verdicts", COUNTER, "Answers to their appends.", ("verdict",)),
        Family(
            "fleet_loops_untold",
            COUNTER,
            "Loops that were not to be recorded in their session.",
            ("reason",),
        ),
        Family("fleet_events", COUNTER, "Events that were folded."),
        Family("fleet_repeats", COUNTER, "Events that came again: not counted."),
        Family("fleet_late_events", COUNTER, "Events too old for any window."),
        Family("fleet_gaps", COUNTER, "Events before which others are missing."),
        Family("fleet_skipped_records", COUNTER, "Records that are no events."),
        Family(
            "fleet_states_compared",
            COUNTER,
            "Snapshots of workers, beside our state at the same seq.",
            ("result",),
        ),
        Family("fleet_panes", GAUGE, "Panes in memory."),
        Family("fleet_panes_dropped", COUNTER, "Panes that went early: too many."),
        Family("fleet_lag_records", GAUGE, "Records not read yet.", ("partition",)),
    )
}
"""What a fleet worker shows: its windows, and what it says of itself."""


def is_open(label: str) -> bool:
    """Whether the values of a label come from sessions."""
    return label in OPEN_LABELS


def known_word(family: Family, label: str, value: str) -> str:
    """The value of a closed label: one of its words, NONE or OTHER."""
    if not value:
        return NONE
    words = _WORDS.get((family.name, label)) or _WORDS_OF_LABEL[label]
    return value if value in words else OTHER


def name_or_other(value: str) -> str:
    """A name from a session as a label shows it; what is no plain name is OTHER."""
    if not value:
        return NONE
    return value if _NAME.fullmatch(value) else OTHER
