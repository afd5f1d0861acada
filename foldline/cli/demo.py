"""`foldline demo`: an agent killed in the middle of a side effect, and resumed.

The harness that is shown is an example, not a part of the package: it lives in
`examples/demo/`, and this module only finds it beside the installed source tree and
runs it, in this interpreter, with the command's own options.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from foldline.cli.context import Context
from foldline.cli.failures import NoDemoError


def demo(
    *,
    keep: str | None = None,
    crash_at: str | None = None,
    model_url: str | None = None,
    model: str | None = None,
    context: Annotated[Context, Parameter(parse=False)],
) -> int:
    """Watch an agent being killed in a side effect, resumed, and finished once.

    It takes place in a folder of its own, log included (unless --log or FOLDLINE_URL
    names another); the folder is kept and printed.

    Args:
        keep: The folder; default: a new temporary one.
        crash_at: Kill at a named point instead, CP_TOOL_... or CP_APPEND_..., with :N
            when it is passed for the N-th time.
        model_url: Ask a real model behind an OpenAI-compatible URL (key: OPENAI_API_KEY).
        model: The model's name there.
        context: Where to read and write.
    """
    given = {
        "--log": context.url or os.environ.get("FOLDLINE_URL"),
        "--keep": keep,
        "--crash-at": crash_at,
        "--model-url": model_url,
        "--model": model,
    }
    command = [sys.executable, str(demo_folder())]
    command += [f"{name}={value}" for name, value in given.items() if value is not None]
    if context.out.json:
        command.append("--json")
    code = subprocess.run(command, check=False).returncode  # noqa: S603 - our own example
    return code if code >= 0 else 128 - code  # as a shell says it: died of a signal


def demo_folder() -> Path:
    """Where the example is: beside the source tree that this package runs from.

    Raises:
        NoDemoError: the package was installed without its source.
    """
    # foldline/cli/demo.py: two folders up is the package's parent.
    folder = Path(__file__).resolve().parents[2] / "examples" / "demo"
    if not (folder / "__main__.py").is_file():
        raise NoDemoError(str(folder))
    return folder
