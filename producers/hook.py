"""`foldline hook`: keeps what a hook of Claude Code is told, and is out of the way at once.

The harness waits for its hooks, so:

1. The time is taken, and stdin is read.
2. A child goes on alone; this process ends with exit code 0 and an empty stdout, whatever
   happens. So nothing changes what the agent does, and nobody waits for the redaction.
3. The child takes the secrets out, in memory: nothing is on a disk before that.
4. It puts the rest into the spool, synced. A mirror brings it into the log.

What goes wrong is written to `hook.log` in the spool, without what the hook was told.
"""

import os
import sys
import time
from collections.abc import Sequence

WAIT = "--wait"
"""An option: the process itself does all of it, and ends when the record is on the disk."""

LOG = "--log"

HOOKS = (
    "SessionStart",
    "UserPromptSubmit",
    "PreToolUse",
    "PostToolUse",
    "Notification",
    "PreCompact",
    "SubagentStop",
    "Stop",
    "SessionEnd",
)
"""The hooks that are installed; any other that is told of is kept, too."""

WITH_MATCHER = frozenset({"PreToolUse", "PostToolUse"})

TIMEOUT_S = 5
"""How long the harness waits for a hook that hangs."""

TOLD_MAX_BYTES = 64 * 1024 * 1024
"""What tells more is not kept, and said so."""


def main(arguments: Sequence[str]) -> int:
    """Keep what stdin tells; always 0."""
    at_us = time.time_ns() // 1000
    try:
        told = sys.stdin.buffer.read(TOLD_MAX_BYTES + 1)
    except (OSError, AttributeError, KeyboardInterrupt) as error:
        _give_up(error)
        return 0
    if WAIT in arguments:
        _keep(told, at_us, _url_in(arguments))
        return 0
    if _goes_on_alone():
        _keep(told, at_us, _url_in(arguments))
    os._exit(0)  # nothing was printed, and tidying up takes time


def is_quick(arguments: Sequence[str]) -> bool:
    """Whether these are arguments of the command that need nothing else of foldline."""
    rest = [one for one in arguments[1:] if one != WAIT]
    with_log = len(rest) == 2 and rest[0] == LOG  # noqa: PLR2004 - the option and its value
    return arguments[:1] == ["hook"] and (not rest or with_log)


def _url_in(arguments: Sequence[str]) -> str | None:
    return arguments[arguments.index(LOG) + 1] if LOG in arguments else None


def _goes_on_alone() -> bool:
    """Whether this is the child, which nobody waits for; without one, this goes on."""
    try:
        if os.fork():
            return False
    except (AttributeError, OSError):
        return True
    os.setsid()  # whoever ends the harness and its children does not end this
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    return True


def _keep(told: bytes, at_us: int, url: str | None) -> None:
    """Take secrets out and put the rest into the spool; say what went wrong."""
    try:
        from foldline.producers.hook_spooling import keep  # late: nobody waits for it

        keep(told, at_us=at_us, url=url, told_max_bytes=TOLD_MAX_BYTES)
    except BaseException as error:  # noqa: BLE001 - no hook ever stands in anybody's way
        _give_up(error)


def _give_up(error: BaseException) -> None:
    """Tell stderr, if somebody reads: not even the spool's own file can be written."""
    try:  # noqa: SIM105 - contextlib is slow to load
        sys.stderr.write(f"foldline hook: {type(error).__name__}\n")
    except OSError:
        pass


def settings_of(command: str) -> dict[str, object]:
    """The part of Claude Code's settings.json that installs the hooks."""
    run = {"type": "command", "command": command, "timeout": TIMEOUT_S}
    return {
        "hooks": {
            name: [({"matcher": "*"} if name in WITH_MATCHER else {}) | {"hooks": [run]}]
            for name in HOOKS
        }
    }
