"""`foldline hook`: what a hook of Claude Code is told, kept for the mirror.

The harness runs it as `foldline hook`, which `foldline.cli.main` hands on before anything
else is loaded; this is what --help, --print-settings and the rest need.
"""

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from foldline.cli.context import Context
from foldline.places import own_url

NAME = "foldline"


def hook(
    *,
    print_settings: bool = False,
    wait: bool = False,
    context: Annotated[Context, Parameter(parse=False)],
) -> int:
    """Keep what a hook of Claude Code is told on stdin. Always exit code 0, no output.

    It goes into a spool, without secrets, and from there into the log with `foldline
    mirror`. The harness is not kept waiting: a child goes on alone. What went wrong is in
    `hook.log` in the spool.

    Args:
        print_settings: Print the part of settings.json that installs the hooks.
        wait: End when it is on the disk.
        context: Where to read and write.
    """
    from foldline.producers.hook import LOG, WAIT, main, settings_of  # late: see above

    if not print_settings:
        log = [LOG, context.url] if context.url else []
        return main(["hook", *log, *([WAIT] if wait else [])])
    log = [LOG, own_url(context.url)] if context.url else []  # hooks run in any folder
    settings = settings_of(shlex.join([_command(), "hook", *log]))
    if context.out.json:
        context.out.record(settings)
    else:
        context.out.text(json.dumps(settings, indent=2))
    return 0


def _command() -> str:
    """This command, by its whole path: the harness may have another PATH."""
    running = Path(sys.argv[0])
    return str(running.absolute()) if running.name == NAME else NAME
