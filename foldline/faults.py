"""Named crash points: where tests kill a process to see what the next one finds.

`FOLDLINE_CRASH_AT=CP_NAME:n` makes the process kill itself with SIGKILL when it
passes the crash point CP_NAME for the n-th time. Without that variable a crash point
is one comparison. `FOLDLINE_STOP_AT=CP_NAME:n` freezes it with SIGSTOP instead.
`FOLDLINE_FAIL_AT=CP_NAME:n` raises InjectedFaultError every n-th time: what a worker
meets when a broker refuses a step or its reply is lost. `FOLDLINE_HANG_AT=CP_NAME:n`
stays there for ever, as a call of a library that never comes back.

Those of a client's appends to Kafka stand behind the sending of a call's records
(`CP_KAFKA_AFTER_SEND`), behind an acknowledgement (`CP_KAFKA_AFTER_ACK`) and before
verdicts that came are looked at (`CP_KAFKA_BEFORE_VERDICT`).

Those of a log of JSON lines stand within the write of a batch (`CP_JSONL_HALF_WRITTEN`),
before its sync (`CP_JSONL_BEFORE_SYNC`), and before it may be read
(`CP_JSONL_BEFORE_MARKER`).

Those of a mirror stand behind a piece that it took (`CP_MIRROR_AFTER_PIECE`), behind what
it recorded of one file (`CP_MIRROR_AFTER_READ`), and around the write of its positions
(`CP_MIRROR_BEFORE_POSITIONS`, `CP_MIRROR_AFTER_POSITIONS`); those of hooks before a spooled
record has its name (`CP_SPOOL_BEFORE_RENAME`), and between its place in the log and its end
in the spool (`CP_SPOOL_AFTER_RECORDED`).

That of an export stands between its last byte and its name (`CP_EXPORT_BEFORE_NAME`).

Those of a consumer that counts metrics stand behind a batch of records
(`CP_METRICS_AFTER_POLL`) and around and within the transaction that stores counts and
positions (`CP_METRICS_BEFORE_COMMIT`, `CP_METRICS_IN_COMMIT`, `CP_METRICS_AFTER_COMMIT`).

That of a runner of policies stands between what a rule wanted being recorded and the
position being moved (`CP_POLICIES_AFTER_APPEND`).

The crash points of a worker stand at the numbered steps of its batch:

| crash point | stands |
| --- | --- |
| `CP_WORKER_AFTER_POLL` | between the first record of a batch and the rest |
| `CP_WORKER_AFTER_ADMIT` | everything is folded into the overlay |
| `CP_WORKER_AFTER_BEGIN` | the transaction is open and empty |
| `CP_WORKER_AFTER_PRODUCE` | events and rejected records are queued |
| `CP_WORKER_AFTER_SNAPSHOT` | due snapshots and low-water records are queued |
| `CP_WORKER_BEFORE_OFFSETS` | every record is with the broker |
| `CP_WORKER_IN_CALL` | in each call that begins, fills or commits a transaction |
| `CP_WORKER_AFTER_OFFSETS` | the input offsets are part of the transaction |
| `CP_WORKER_AFTER_COMMIT` | the commit was answered (raised: its reply is lost) |
| `CP_WORKER_BEFORE_VERDICTS` | the overlay is merged, no verdict is sent |
| `CP_WORKER_AFTER_VERDICTS` | verdicts are queued, perhaps not sent |
| `CP_WORKER_BEFORE_TABLE`, `CP_WORKER_AFTER_TABLE` | around one table's write |
| `CP_RESTORE_AFTER_OFFSET` | the committed offset is known, the end of events not |
| `CP_RESTORE_AFTER_REFOLD` | the events are folded, the partition not taken in |
| `CP_CUT_BEFORE_SETTLE` | what was left behind deleted events is folded, not who is lost |
"""

import os
import signal
import threading
from collections import Counter
from collections.abc import Mapping

from foldline.errors import SettingsError

CRASH_POINTS: frozenset[str] = frozenset(
    {
        "CP_APPEND_BEFORE_SEND",
        "CP_KAFKA_AFTER_SEND",
        "CP_KAFKA_AFTER_ACK",
        "CP_KAFKA_BEFORE_VERDICT",
        "CP_APPEND_BEFORE_COMMIT",
        "CP_APPEND_AFTER_COMMIT",
        "CP_APPEND_AFTER_VERDICT",
        "CP_JSONL_HALF_WRITTEN",
        "CP_JSONL_BEFORE_SYNC",
        "CP_JSONL_BEFORE_MARKER",
        "CP_BLOB_BEFORE_RENAME",
        "CP_BLOB_AFTER_RENAME",
        "CP_PERMISSION_AFTER_REQUEST",
        "CP_PERMISSION_AFTER_ANSWER",
        "CP_TOOL_BEFORE_START",
        "CP_TOOL_AFTER_START",
        "CP_TOOL_AFTER_EFFECT",
        "CP_TOOL_AFTER_OUTCOME",
        "CP_RECOVER_BEFORE_RECONCILE",
        "CP_RECOVER_AFTER_RECONCILE",
        "CP_RECOVER_AFTER_RESOLVED",
        "CP_RECOVERY_BEFORE_TAKE",
        "CP_RECOVERY_AFTER_TAKE",
        "CP_RECOVERY_BEFORE_PARK",
        "CP_IMPORT_AFTER_BATCH",
        "CP_EXPORT_BEFORE_NAME",
        "CP_FLEET_AFTER_APPEND",
        "CP_MIRROR_AFTER_PIECE",
        "CP_MIRROR_AFTER_READ",
        "CP_MIRROR_BEFORE_POSITIONS",
        "CP_MIRROR_AFTER_POSITIONS",
        "CP_SPOOL_BEFORE_RENAME",
        "CP_SPOOL_AFTER_RECORDED",
        "CP_STEERING_BEFORE_APPLIED",
        "CP_STEERING_AFTER_APPLIED",
        "CP_CONTEXT_AFTER_PRUNED",
        "CP_COMPACTION_AFTER_STARTED",
        "CP_COMPACTION_BEFORE_COMPLETED",
        "CP_SUBAGENT_AFTER_STARTED",
        "CP_SUBAGENT_AFTER_CREATED",
        "CP_SUBAGENT_BEFORE_ENDED",
        "CP_WORKER_AFTER_POLL",
        "CP_WORKER_AFTER_ADMIT",
        "CP_WORKER_AFTER_BEGIN",
        "CP_WORKER_AFTER_PRODUCE",
        "CP_WORKER_AFTER_SNAPSHOT",
        "CP_WORKER_BEFORE_OFFSETS",
        "CP_WORKER_IN_CALL",
        "CP_WORKER_AFTER_OFFSETS",
        "CP_WORKER_AFTER_COMMIT",
        "CP_WORKER_BEFORE_VERDICTS",
        "CP_WORKER_AFTER_VERDICTS",
        "CP_WORKER_BEFORE_TABLE",
        "CP_WORKER_AFTER_TABLE",
        "CP_RESTORE_AFTER_OFFSET",
        "CP_RESTORE_AFTER_REFOLD",
        "CP_CUT_BEFORE_SETTLE",
        "CP_POLICIES_AFTER_APPEND",
        "CP_METRICS_AFTER_POLL",
        "CP_METRICS_BEFORE_COMMIT",
        "CP_METRICS_IN_COMMIT",
        "CP_METRICS_AFTER_COMMIT",
    }
)

Target = tuple[str, int]
"""The name of a crash point, and at which passing of it."""


def _target(environment: Mapping[str, str], variable: str) -> Target | None:
    """Parse `NAME:n` of an environment variable; None when it is not set."""
    value = environment.get(variable)
    if not value:
        return None
    name, _, count = value.partition(":")
    count = count or "1"
    if name not in CRASH_POINTS or not count.isdecimal():
        raise SettingsError(variable, value, f"NAME:n of {sorted(CRASH_POINTS)}")
    return name, max(int(count), 1)


class _Faults:
    """What this process was told to come to, and how often it passed each point."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.set(environment)

    def set(self, environment: Mapping[str, str]) -> None:
        self.crash = _target(environment, "FOLDLINE_CRASH_AT")
        self.stop = _target(environment, "FOLDLINE_STOP_AT")
        self.fail = _target(environment, "FOLDLINE_FAIL_AT")
        self.hang = _target(environment, "FOLDLINE_HANG_AT")
        targets = (self.crash, self.stop, self.fail, self.hang)
        self.armed = any(target is not None for target in targets)
        self.passed: Counter[str] = Counter()


_FAULTS = _Faults(os.environ)


def arm(environment: Mapping[str, str]) -> None:
    """Read the variables anew, from `environment`: in a process that was forked.

    Raises:
        SettingsError: a value that names no crash point.
    """
    _FAULTS.set(environment)


class InjectedFaultError(Exception):
    """Raised at a crash point that `FOLDLINE_FAIL_AT` names; never without it."""

    def __init__(self, point: str) -> None:
        self.point = point
        super().__init__(f"injected at {point}")


def crash_point(name: str) -> None:
    """Die, freeze, hang or fail here if the environment asks for it; else do nothing."""
    if not _FAULTS.armed:
        return
    _FAULTS.passed[name] += 1
    now = (name, _FAULTS.passed[name])
    if now == _FAULTS.crash:
        os.kill(os.getpid(), signal.SIGKILL)
    if now == _FAULTS.stop:
        os.kill(os.getpid(), signal.SIGSTOP)
    if now == _FAULTS.hang:
        threading.Event().wait()
    fail = _FAULTS.fail
    if fail is not None and name == fail[0] and now[1] % fail[1] == 0:
        raise InjectedFaultError(name)
