"""The `foldline` command: look into sessions, add to them, import, verify.

`main` is the entry point; `foldline.cli.failures` has the exit codes.
"""

import sys
from collections.abc import Sequence

from foldline.producers.hook import LOG, is_quick

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `foldline` with these arguments, or the process's; gives the exit code.

    A hook has no time for anything else: it is handed on before the rest is loaded.
    """
    given = sys.argv[1:] if arguments is None else list(arguments)
    if is_quick(given):
        from foldline.producers.hook import main as keep  # late: nobody else needs it

        return keep(given)
    from foldline.cli.app import main as run  # late: see above

    code = run(given)
    return 0 if _is_hook(given) else code  # exit code 2 would stop the agent's tool


def _is_hook(given: Sequence[str]) -> bool:
    """Whether the command is `hook`: the first that is no option and no option's value."""
    behind_log = False
    for one in given:
        if not behind_log and not one.startswith("-"):
            return one == "hook"
        behind_log = not behind_log and one == LOG
    return False
