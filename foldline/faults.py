"""Named crash points: where tests kill a process to see what the next one finds.

`FOLDLINE_CRASH_AT=CP_NAME:n` makes the process kill itself with SIGKILL when it
passes the crash point CP_NAME for the n-th time. Without that variable a crash point
is one comparison. `FOLDLINE_STOP_AT=CP_NAME:n` freezes it with SIGSTOP instead.
"""

import os
import signal
from collections import Counter

from foldline.errors import SettingsError

CRASH_POINTS: frozenset[str] = frozenset(
    {
        "CP_APPEND_BEFORE_SEND",
        "CP_APPEND_BEFORE_COMMIT",
        "CP_APPEND_AFTER_COMMIT",
        "CP_APPEND_AFTER_VERDICT",
        "CP_BLOB_BEFORE_RENAME",
        "CP_BLOB_AFTER_RENAME",
        "CP_TOOL_BEFORE_START",
        "CP_TOOL_AFTER_START",
        "CP_TOOL_AFTER_EFFECT",
        "CP_TOOL_AFTER_OUTCOME",
        "CP_RECOVER_BEFORE_RECONCILE",
        "CP_RECOVER_AFTER_RECONCILE",
        "CP_RECOVER_AFTER_RESOLVED",
        "CP_IMPORT_AFTER_BATCH",
    }
)

_PASSED: Counter[str] = Counter()


def _target(variable: str) -> tuple[str, int] | None:
    """Parse `NAME:n` from an environment variable; None when it is not set."""
    value = os.environ.get(variable)
    if not value:
        return None
    name, _, count = value.partition(":")
    count = count or "1"
    if name not in CRASH_POINTS or not count.isdecimal():
        raise SettingsError(variable, value, f"NAME:n of {sorted(CRASH_POINTS)}")
    return name, int(count)


_CRASH = _target("FOLDLINE_CRASH_AT")
_STOP = _target("FOLDLINE_STOP_AT")
_ARMED = _CRASH is not None or _STOP is not None


def crash_point(name: str) -> None:
    """Die or freeze here if the environment asks for it; else do nothing."""
    if not _ARMED:
        return
    _PASSED[name] += 1
    if (name, _PASSED[name]) == _CRASH:
        os.kill(os.getpid(), signal.SIGKILL)
    if (name, _PASSED[name]) == _STOP:
        os.kill(os.getpid(), signal.SIGSTOP)
