"""The command line: which commands there are, and how one ends.

1. The options that every command has are taken from wherever they stand.
2. The command runs and gives an exit code; its answer is on stdout.
3. An error is one line on stderr (with `--json` also an object on stdout).
"""

import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any

from cyclopts import App, CycloptsError, Group, Parameter

from foldline.cli.append import append
from foldline.cli.approvals import approvals
from foldline.cli.checkpoint import checkpoint
from foldline.cli.clean import clean_line
from foldline.cli.completion import completion_of
from foldline.cli.context import Context
from foldline.cli.contexts import context_
from foldline.cli.demo import demo
from foldline.cli.diff import diff
from foldline.cli.doctor import doctor
from foldline.cli.events import events, tail
from foldline.cli.export import export
from foldline.cli.failures import (
    BROKEN_PIPE,
    EXIT_CODES,
    INTERRUPTED,
    OK,
    UsageError,
    exit_code_of,
    message_of,
    view_of,
)
from foldline.cli.fleet import fleet
from foldline.cli.fork import fork
from foldline.cli.hook import hook
from foldline.cli.imports import import_
from foldline.cli.metrics import metrics
from foldline.cli.mirror import mirror
from foldline.cli.output import Output
from foldline.cli.policies import policies
from foldline.cli.recovery import recovery
from foldline.cli.rejected import rejected
from foldline.cli.replay import replay
from foldline.cli.scan import scan
from foldline.cli.schemas import schemas
from foldline.cli.serve import serve
from foldline.cli.sessions import sessions
from foldline.cli.show import show
from foldline.cli.states import state
from foldline.cli.stats import stats
from foldline.cli.steering import cancel, steer
from foldline.cli.tokens import tokens
from foldline.cli.topics import topics
from foldline.cli.trace import trace
from foldline.cli.tree import tree
from foldline.cli.verify import verify
from foldline.cli.worker import worker

DEBUG = "FOLDLINE_DEBUG"

_HELP = """\
AI-agent sessions as durable events: look at them, add to them, verify them.

The log is --log URL, else FOLDLINE_URL, else a SQLite file in your data folder
(sqlite:///~/.local/share/foldline/sessions.db). A command that only reads makes none.
SESSION is a session's id, or the beginning of one if only one begins so.
"""


def _epilogue() -> str:
    lines = [f"  {code:>3}  {meaning}" for code, meaning in EXIT_CODES.items()]
    return "Exit codes:\n" + "\n".join(lines)


def _version() -> str:
    from importlib.metadata import version  # late: only --version needs it

    return version("foldline")


app = App(
    name="foldline",
    help=_HELP,
    help_epilogue=_epilogue(),
    help_format="plaintext",
    version=_version,
    default_parameter=Parameter(negative=(), show_default=False),
)
app.meta.group_parameters = Group("Options of every command", sort_key=1)
for _name, _command in (
    ("demo", demo),
    ("sessions", sessions),
    ("show", show),
    ("events", events),
    ("state", state),
    ("tail", tail),
    ("context", context_),
    ("append", append),
    ("steer", steer),
    ("cancel", cancel),
    ("fork", fork),
    ("diff", diff),
    ("tree", tree),
    ("trace", trace),
    ("verify", verify),
    ("scan", scan),
    ("metrics", metrics),
    ("stats", stats),
    ("replay", replay),
    ("import", import_),
    ("mirror", mirror),
    ("export", export),
    ("hook", hook),
    ("serve", serve),
    ("checkpoint", checkpoint),
    ("worker", worker),
    ("doctor", doctor),
    ("completion", completion_of(app)),
):
    app.command(_command, name=_name, help_epilogue="")
app.command(schemas)
app.command(approvals)
app.command(tokens)
app.command(topics)
app.command(recovery)
app.command(fleet)
app.command(policies)
app.command(rejected)


@app.meta.default
def _launch(
    *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    log: str | None = None,
    json: bool = False,
) -> int:
    """Run one command.

    Args:
        tokens: The command and what it takes.
        log: The log's URL: sqlite:///PATH (env FOLDLINE_URL).
        json: Print JSON: one object, or for listings one per line.
    """
    command, bound, ignored = app.parse_args(tokens, exit_on_error=False, print_error=False)
    given: dict[str, Any] = dict(bound.kwargs)
    if "context" in ignored:
        given["context"] = Context(log, Output(json_wanted=json))
    code = command(*bound.args, **given)
    return code if isinstance(code, int) else OK


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `foldline` with these arguments, or the process's; gives the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    out = Output(json_wanted="--json" in given)
    try:
        code = app.meta(
            given,
            exit_on_error=False,
            print_error=False,
            result_action="return_value",
        )
        out.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _forget_output()
        return BROKEN_PIPE
    except CycloptsError as error:
        return _fail(out, UsageError("usage", str(error)))
    except Exception as error:  # noqa: BLE001 - the edge: said, and given as exit code
        return _fail(out, error)
    return code if isinstance(code, int) else OK


def _fail(out: Output, error: BaseException) -> int:
    """Say what went wrong, in one line; a traceback only where it was asked for."""
    if os.environ.get(DEBUG) == "1":
        traceback.print_exception(error)
    try:
        if out.json:
            out.record({"error": view_of(error)})
        out.remark(f"foldline: {clean_line(message_of(error))}")
        out.flush()
    except OSError:  # nobody reads it, or it is on a full disk: the exit code says it
        _forget_output()
    return exit_code_of(error)


def _forget_output() -> None:
    """Point stdout and stderr at nothing, so that no flush at exit fails once more."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            os.dup2(nothing, stream.fileno())
